"""A checkpoint is copied while the loop stands still, and made bytes of later, by another thread."""

import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import orjson

from syncbrok.delivery.handler import AttemptResult
from syncbrok.delivery.scheduler.key_chains import KeyChain
from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.delivery.scheduler.snapshot import encoded
from syncbrok.model.facts import Reason
from tests.support.delivery.factlog import FactLog, declared

ONE = 1
BUSY = AttemptResult(Reason.STATUS, 503)


def waiting(messages: int, keys: int, expires_s: float = 0) -> FactLog:
    """So many of so many keys; the first of every other key has been tried and is due again."""
    log = FactLog()
    log.queue(1)
    log.subscriber(ONE, 1)
    for number in range(messages):
        log.publish(1, key=f"k{number % keys}", expires_s=expires_s)
    for attempt in log.take(keys // 2):
        log.answer(attempt, BUSY)
    log.commit()
    return log


def calls_of(work: Callable[[], Any]) -> int:
    """How many functions are called meanwhile, those of the interpreter too."""
    calls = count()
    sys.setprofile(lambda _frame, event, _what: next(calls) if event in {"call", "c_call"} else None)
    try:
        work()
    finally:
        sys.setprofile(None)
    return next(calls)


def test_a_copy_asks_no_message() -> None:
    """DESIGN 1, bounded: the loop stands still while a checkpoint is copied, so what is done for each message, each
    chain of a key and each delivery in retry is done later. (A million messages with keys took a second of the loop.)
    """
    few, many = waiting(400, 40), waiting(4_000, 400)
    assert calls_of(many.scheduler.copied) < 2 * calls_of(few.scheduler.copied)


def test_what_comes_behind_a_copy_is_not_in_it() -> None:
    """DESIGN 4: a checkpoint holds the state of one moment, whatever happens until it is made bytes of."""
    log = waiting(60, 6, 3_600)
    whole = log.scheduler.checkpoint()
    copied = log.scheduler.copied()
    for number in range(9):
        log.publish(1, key=f"k{number}", delay_s=7)
    log.now_us += 3_600_000_000 // 2
    log.pump()
    assert encoded(copied) == whole
    assert log.scheduler.checkpoint() != whole


def rows(wheel: bytes) -> list[bytes]:
    return [wheel[at : at + 24] for at in range(0, len(wheel), 24)]


def as_version_10(scheduler: Scheduler) -> dict[str, bytes]:
    """What version 10 wrote: chains with their messages, and what was tried at a subscriber, in the document."""
    parts = scheduler.checkpoint()
    state: dict[str, Any] = orjson.loads(parts["state"])
    state["version"] = 10
    keys = scheduler.state.keys
    state["keys"] = [
        (number, *found.key, keys.waiting(found)) if isinstance(found, KeyChain) else (number, *found, [])
        for number, found in keys.numbered.items()
    ]
    for number, cursor in state["cursors"].items():
        tried = scheduler.state.cursors[int(number)].retrying
        cursor["tried"] = [(message, *one[:4]) for message, one in tried.items()]
    own = {name: part for name, part in parts.items() if name not in {"chains", "tried"}}
    return {**own, "state": orjson.dumps(state)}


def test_chains_and_retries_of_the_version_before_come_back() -> None:
    """DESIGN 4, RULES 6: chains of keys and retries that the version before wrote are those that there were."""
    log = waiting(60, 8, 3_600)
    log.publish(1, key="alone")
    log.publish(1)
    again = Scheduler()
    again.restore(as_version_10(log.scheduler), declared(log.facts))
    found, expected = again.checkpoint(), log.scheduler.checkpoint()
    assert sorted(rows(found.pop("wheel"))) == sorted(rows(expected.pop("wheel")))
    assert found == expected
    took = [attempt.message for attempt in again.take(log.now_us, log.durable, 100)]
    assert took == [attempt.message for attempt in log.take()] != []
