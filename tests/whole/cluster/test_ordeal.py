"""What the ordeal of a cluster rests on: a node that one thread kills and waits for is watched by another one."""

import threading
from typing import Any

from tests.support.broker import forked


def test_who_waits_for_an_end_that_another_one_has_learnt_is_told_too() -> None:
    """The supervisor asks in the moment in which the process has ended, and whoever killed it still waits. (It did so
    for ever, and "segments go" never ended.)"""
    parent: Any = object.__new__(forked._Parent)
    parent._changed, parent._codes, parent._over = threading.Condition(), {}, False
    one = forked.Forked(77, parent)
    codes: list[int] = []
    waiting = threading.Thread(target=lambda: codes.append(one.wait(5.0)), daemon=True)
    waiting.start()
    with parent._changed:
        while not parent._changed._waiters:
            parent._changed.wait(0.01)
        parent._codes[77] = -9
        parent._changed.notify_all()
        assert one.poll() == -9
    waiting.join(10.0)
    assert codes == [-9]
