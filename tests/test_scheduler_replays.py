"""An operator's replay, as the scheduler sees it (RULES 21)."""

import pytest

from syncbrok.log.order import check
from syncbrok.model.facts import Outcome, RearmedEntry, Reason
from syncbrok.model.message import ParentFailure, RetryPolicy, Scope
from tests.support.factlog import BROKEN, OK, FactLog, log_with, to


def replay_of(log: FactLog, *messages: int, parents: dict[int, tuple[int, ...]], subscriber: int = 1) -> None:
    entries = [RearmedEntry(message, 1, (subscriber,), parents.get(message, ()), (1,)) for message in messages]
    log.rearm(1, *entries)


def test_a_replay_mends_the_parent_and_its_descendants_in_order() -> None:
    """RULES 21: the gates hold inside the replayed set; numbers go on; what was dead is complete in the end."""
    log = log_with(1)
    parent = log.publish(1)
    child = log.publish(1, parent)
    held = log.publish(1, parent, policy=ParentFailure.HOLD)
    log.pump(lambda _: BROKEN)
    assert log.states() == {parent: "dead", child: "dead", held: "held"}
    replay_of(log, parent, child, parents={child: (parent,)})
    assert log.scheduler.message_state(child) == "waiting"
    made = log.pump()
    assert made[0].message == parent
    assert made[0].replay == 1
    assert made[0].number == 2
    assert sorted(to(made[1:])) == [(child, 1), (held, 1)]
    assert set(log.states().values()) == {"complete"}
    assert log.scheduler.dead_letters(1) == {}


def test_a_replay_that_fails_again_leaves_dead_letters() -> None:
    """RULES 21: the retry budget starts anew, and when it is used up, dead is dead again, with the cascade."""
    log = log_with(1, retry=RetryPolicy((1.0,), 0.0))
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.pump(lambda _: BROKEN)
    log.later(1)
    log.pump(lambda _: BROKEN)
    log.rearm(1, RearmedEntry(parent, 1, (1,), (), (2,)), RearmedEntry(child, 1, (1,), (parent,), (0,)))
    made = log.pump(lambda _: BROKEN)
    assert [attempt.number for attempt in made] == [3]
    log.later(1)
    made = log.pump(lambda _: BROKEN)
    assert [attempt.number for attempt in made] == [4]
    assert log.scheduler.dead_letters(1) == {parent: Reason.STATUS, child: Reason.PARENT_FAILED}
    assert log.states() == {parent: "dead", child: "dead"}


def test_a_replay_of_what_was_complete_does_not_take_completion_back() -> None:
    """RULES 21: for everyone outside completion never goes back: a child accepted meanwhile does not wait."""
    log = log_with(1)
    parent = log.publish(1)
    log.pump()
    replay_of(log, parent, parents={})
    child = log.publish(1, parent)
    assert sorted(to(log.pump())) == [(parent, 1), (child, 1)]


def test_a_child_accepted_while_its_dead_parent_is_replayed_waits_for_it() -> None:
    """RULES 12, 21: it is not failed for a parent that is about to be mended."""
    log = log_with(1)
    parent = log.publish(1)
    log.pump(lambda _: BROKEN)
    replay_of(log, parent, parents={})
    (attempt,) = log.take()
    child = log.publish(1, parent)
    assert log.scheduler.message_state(child) == "waiting"
    log.answer(attempt)
    log.commit()
    assert to(log.pump()) == [(child, 1)]


def again(log: FactLog, message: int, subscriber: int, attempts: int = 1) -> None:
    """A replay of one message to one subscriber."""
    log.rearm(len(log.facts), RearmedEntry(message, 1, (subscriber,), (), (attempts,)))


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_cancelled_in_a_replay_is_not_mended_by_a_replay_to_others(restarted: bool) -> None:
    """RULES 12, 21: a child on hold goes when its parent has reached every subscriber, not when the last dead letter
    is gone: one that an operator cancelled while it was being replayed counts as failed until it is sent again."""
    log = log_with(1, 2)
    parent = log.publish(1)
    child = log.publish(1, parent, policy=ParentFailure.HOLD, scope=Scope.SAME)
    log.pump(lambda _: BROKEN)
    again(log, parent, 1)
    log.end_all(parent, Outcome.DROPPED, Reason.CANCELLED)
    assert log.scheduler.delivery_state(parent, 1) == "dropped"
    if restarted:
        log.restart(through=len(log.facts))
    again(log, parent, 2)
    assert to(log.pump()) == [(parent, 2)]
    assert log.states() == {parent: "dead", child: "held"}
    assert [log.scheduler.delivery_state(parent, number) for number in (1, 2)] == ["dropped", "delivered"]
    again(log, parent, 1)
    assert to(log.pump()) == [(parent, 1), (child, 1), (child, 2)]
    assert set(log.states().values()) == {"complete"}
    assert not check(log.facts)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_dropped_is_mended_when_all_have_got_it(restarted: bool) -> None:
    """RULES 12, 21: of a cancelled message it is known who had it already; the others have to get it."""
    log = log_with(1, 2, 3)
    parent = log.publish(1)
    child = log.publish(1, parent, policy=ParentFailure.HOLD)
    for attempt in log.take():
        log.answer(attempt, OK if attempt.subscriber == 1 else BROKEN)
    log.rows = [row for row in log.rows if row.subscriber == 1]
    log.commit()
    log.restart()
    log.end_all(parent, Outcome.DROPPED, Reason.CANCELLED)
    if restarted:
        log.restart(through=len(log.facts))
    told = [log.scheduler.delivery_state(parent, number) for number in (1, 2, 3)]
    assert told == ["delivered", "dropped", "dropped"]
    again(log, parent, 2)
    assert to(log.pump()) == [(parent, 2)]
    assert log.states() == {parent: "dropped", child: "held"}
    again(log, parent, 3)
    assert sorted(to(log.pump())) == [(parent, 3), (child, 1), (child, 2), (child, 3)]
    assert not check(log.facts)


def test_a_cascade_within_a_replay_keeps_the_dead_letters_of_others() -> None:
    """RULES 20, 21: what dies once more at one subscriber has died at the other as before."""
    log = log_with(1, 2)
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.pump(lambda _: BROKEN)
    entries = (RearmedEntry(parent, 1, (1,), (), (1,)), RearmedEntry(child, 1, (1,), (parent,), (0,)))
    log.rearm(len(log.facts), *entries)
    log.pump(lambda _: BROKEN)
    for number in (1, 2):
        assert log.scheduler.dead_letters(number) == {parent: Reason.STATUS, child: Reason.PARENT_FAILED}
    again(log, child, 1, attempts=0)
    log.pump()
    assert log.states() == {parent: "dead", child: "dead"}


def test_a_dead_letter_of_a_subscriber_that_is_gone_keeps_nothing_dead() -> None:
    """RULES 14, 21: nobody could be sent it again; also where the message died as a whole."""
    log = log_with(1, 2)
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.pump(lambda _: BROKEN)
    log.rearm(len(log.facts), RearmedEntry(parent, 1, (1,), (), (1,)), RearmedEntry(child, 1, (1,), (parent,), (0,)))
    log.unsubscribe(2)
    log.pump()
    assert set(log.states().values()) == {"complete"}
    assert not check(log.facts)
