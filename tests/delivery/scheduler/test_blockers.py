"""One question, why may this not go now, and its answer for each way in which a message comes to a subscriber."""

from syncbrok.delivery.scheduler.blockers import BlockedBy, Blocker
from syncbrok.delivery.scheduler.edges import HISTORY
from syncbrok.model.facts import Outcome, RearmedEntry, Reason
from syncbrok.model.message import ParentFailure, Scope
from tests.support.delivery.factlog import OK, log_with

ONE, TWO = 1, 2


def test_what_is_live_waits_for_its_gate_its_parents_and_its_key() -> None:
    """RULES 6, 7, 11: a gate that is one for all is told as that; a parent and a key by the message waited for."""
    log = log_with(ONE, TWO)
    parent = log.publish(1, key="k")
    everywhere, here = log.publish(1, parent), log.publish(1, parent, scope=Scope.SAME)
    behind = log.publish(1, key="k")
    log.take()
    at = log.scheduler.blocked_at
    assert at(everywhere, ONE) == Blocker(BlockedBy.GATE, everywhere, False)
    assert at(here, ONE) == Blocker(BlockedBy.PARENT, parent, False)
    assert at(behind, ONE) == Blocker(BlockedBy.KEY, parent, False)
    assert at(parent, ONE) is None, "it is out"
    assert log.scheduler.blocked_by(here) == (parent,)
    assert log.scheduler.blocked_by(behind) == (parent,)
    for attempt in log.out:
        if attempt.subscriber == ONE:
            log.answer(attempt, OK)
            break
    log.commit()
    assert [at(one, ONE) for one in (here, behind)] == [None, None], "there it has ended"
    assert at(everywhere, ONE) == Blocker(BlockedBy.GATE, everywhere, False)


def test_one_that_starts_in_the_past_waits_until_that_is_known() -> None:
    """RULES 6, 14: a new message with a key waits for all from before the subscriber's time, then for those of its key
    alone; what came before waits for its parents there."""
    log = log_with(ONE)
    old = log.publish(1, key="k")
    child = log.publish(1, old)
    log.pump()
    log.subscriber(TWO, 1, start=1)
    new = log.publish(1, key="k")
    log.take()
    at = log.scheduler.blocked_at
    assert at(new, TWO) == Blocker(BlockedBy.PAST, HISTORY, True)
    assert log.scheduler.blocked_by(new) == (), "no message is in its way"
    log.feed()
    log.take()
    assert at(new, TWO) == Blocker(BlockedBy.KEY, old, True)
    assert at(child, TWO) == Blocker(BlockedBy.PARENT, old, True)
    assert log.scheduler.blocked_by(new) == (old,)


def test_one_in_a_replay_waits_for_its_parents_there_and_for_its_key() -> None:
    """RULES 6, 21: first for the parents in the replay, then for those of its key that go again, then for live ones."""
    log = log_with(ONE)
    log.subscriber(TWO, 1, paused=True)
    live = log.publish(1, key="k")
    parent = log.publish(1)
    first, second = log.publish(1, parent, key="k", policy=ParentFailure.DELIVER), log.publish(1, key="k")
    for message in (parent, first, second):
        log.end_all(message, Outcome.DROPPED, Reason.CANCELLED)
    entries = [RearmedEntry(one, 1, (ONE, TWO), above, (0, 0), key=key) for one, above, key in
               ((parent, (), ""), (first, (parent,), "k"), (second, (), "k"))]  # fmt: skip
    log.rearm(1, *entries)
    log.take()
    at = log.scheduler.blocked_at
    assert log.scheduler.blocked_by(first) == (parent,)
    assert at(second, ONE) == Blocker(BlockedBy.KEY, first, False)
    assert log.scheduler.blocked_by(second) == (first,)
    log.subscriber(TWO, 1)
    for attempt in list(log.out):
        log.answer(attempt)
    sent = log.pump()
    assert [one.message for one in sent if one.subscriber == TWO] == [parent, live, first, second]
