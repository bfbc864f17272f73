"""Who waits for whom, in each scope: one form in a checkpoint, and nothing left of who is gone."""

from typing import Any

import orjson
import pytest

from syncbrok.delivery.scheduler.edges import IN_REPLAY, ON_HOLD
from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.model.facts import RearmedEntry
from syncbrok.model.message import ParentFailure
from tests.support.delivery.factlog import BROKEN, FactLog, declared, got, log_with

ONE, TWO = 1, 2


def waiting_in_every_scope() -> FactLog:
    """A child on hold, one in a replay, and at a subscriber that does not count one behind its parent and its key."""
    log = log_with(ONE)
    dead = log.publish(1)
    log.publish(1, dead, policy=ParentFailure.HOLD)
    log.pump(lambda _: BROKEN)
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.pump()
    log.subscriber(TWO, 1, counts=False)
    first = log.publish(1, key="k")
    log.publish(1, first, key="k")
    log.rearm(1, *(RearmedEntry(one, 1, (ONE,), above) for one, above in ((parent, ()), (child, (parent,)))))
    log.take()
    edges = log.scheduler.state.edges
    assert [len(edges.of(scope)) for scope in (ON_HOLD, IN_REPLAY, TWO)] == [1, 1, 1]
    return log


def as_before(parts: dict[str, bytes]) -> dict[str, bytes]:
    """What version 6 wrote: each scope by a name of its own, those of a subscriber with its cursor."""
    state: dict[str, Any] = orjson.loads(parts["state"])
    edges = state.pop("edges")
    state["version"] = 6
    for scope, name in ((ON_HOLD, "held_on"), (IN_REPLAY, "followers")):
        state[name] = [(message, dependents) for one, message, dependents, _ in edges if one == scope]
    for number, cursor in state["cursors"].items():
        at = [edge for edge in edges if edge[0] == int(number)]
        cursor["behind"] = [
            (message, [(one, *(known or ((), ""))) for one, known in zip(dependents, told, strict=True)])
            for _, message, dependents, told in at
        ]
    return {**parts, "state": orjson.dumps(state, option=orjson.OPT_NON_STR_KEYS)}


@pytest.mark.parametrize("version", ["of now", "of before"])
def test_what_waits_is_in_a_checkpoint(version: str) -> None:
    """DESIGN 4, RULES 12, 14, 21: after a start from a checkpoint, of the version before too, all that waited goes in
    its order, as it would have without one."""
    log = waiting_in_every_scope()
    parts = log.scheduler.checkpoint()
    again = Scheduler()
    again.restore(as_before(parts) if version == "of before" else parts, declared(log.facts))
    assert again.state.edges.dump() == log.scheduler.state.edges.dump()
    log.scheduler, log.out = again, []
    log.feed()
    log.pump()
    dead, held, parent, child, first, second = (one.sequence for one in log.messages())
    assert got(log, ONE) == [parent, child, parent, first, child, second]
    assert [one for one in got(log, TWO) if one in (first, second)] == [first, second]
    assert log.scheduler.held_by(held) == (dead,)
    edges = log.scheduler.state.edges
    assert not edges.in_replay
    assert not edges.of(TWO)
    assert not edges.subscribers


def test_who_waited_at_a_subscriber_goes_with_it() -> None:
    """RULES 14: nothing is left of what waited at a subscriber that is deleted, however many came and went."""
    log = waiting_in_every_scope()
    edges = log.scheduler.state.edges
    assert edges.subscribers
    log.unsubscribe(TWO)
    assert not edges.subscribers
    assert not edges.of(TWO)
    assert edges.on_hold


@pytest.mark.parametrize("key", ["", "k"])
def test_who_waits_at_a_subscriber_alone_waits_for_the_fsync_too(key: str) -> None:
    """RULES 24: the row of what another message waits for there is committed at once; one that nobody waits for is
    not. (Else a chain in a backfill goes on by one message each time the committer has lingered.)"""
    log = log_with(ONE)
    first = log.publish(1, key=key)
    second = log.publish(1, *(() if key else (first,)), key=key)
    log.pump()
    log.subscriber(TWO, 1, start=1)
    log.feed()
    (attempt,) = log.take()
    assert attempt.message == first
    log.answer(attempt)
    assert log.urgent
    log.commit()
    (attempt,) = log.take()
    assert attempt.message == second
    log.answer(attempt)
    assert not log.urgent
