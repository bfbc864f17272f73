"""An operator's replay, as the scheduler sees it (RULES 21)."""

from syncbrok.model.facts import RearmedEntry, Reason
from syncbrok.model.message import ParentFailure, RetryPolicy
from tests.support.factlog import BROKEN, FactLog, log_with, to


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
