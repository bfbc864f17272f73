"""An operator's replay, as the scheduler sees it (RULES 21)."""

import pytest

from syncbrok.delivery.scheduler.message_chunk import CHUNK
from syncbrok.log.offline.order import check
from syncbrok.model import limits
from syncbrok.model.facts import Outcome, Outcomes, RearmedEntry, Reason
from syncbrok.model.message import ParentFailure, RetryPolicy, Scope
from tests.support.delivery.factlog import BROKEN, OK, FactLog, dead_letters, log_with, to


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
    assert dead_letters(log.scheduler, 1) == {}


def test_what_was_out_when_it_was_cancelled_and_is_replayed_has_numbers_that_go_on() -> None:
    """RULES 21 and 22: no row of that attempt exists when the replay goes out. Whichever answer comes first, the older
    one's is late and there is one end."""
    for older_first in (True, False):
        log = log_with(1)
        message = log.publish(1)
        (older,) = log.take()
        log.end_all(message, Outcome.DROPPED, Reason.CANCELLED)
        log.rearm(1, RearmedEntry(message, 1, (1,), (), (0,)))
        (newer,) = log.take()
        assert (older.number, newer.number, newer.replay) == (1, 2, 1)
        rows = [log.answer(one) for one in ((older, newer) if older_first else (newer, older))]
        log.commit()
        assert {row.attempt: row.outcome for row in rows} == {1: Outcome.LATE, 2: Outcome.DELIVERED}
        assert check(log.facts) == []


def test_an_answer_that_a_cancel_of_its_replay_overtakes_is_not_waited_for() -> None:
    """RULES 22 and 24: its row is late and tells of no end, so it is none of the outcomes under way, of which many stop
    all attempts."""
    log = log_with(1)
    message = log.publish(1)
    log.pump()
    log.rearm(1, RearmedEntry(message, 1, (1,), (), (1,)))
    row = log.answer(log.take()[0])
    log.rows.clear()
    log.end_all(message, Outcome.DROPPED, Reason.CANCELLED)
    log.rows.append(row._replace(outcome=Outcome.LATE))  # what ``OutcomeBuffer.written`` makes of it
    log.commit()
    assert log.scheduler.state.unconfirmed == 0


def test_a_delayed_child_whose_time_comes_while_its_dead_parent_is_replayed_goes_after_it() -> None:
    """RULES 7 and 12: it waits for the end of the replay as one that was accepted without a delay, also where it is not
    the first one."""
    log = log_with(1)
    parent = log.publish(1)
    log.pump(lambda _: BROKEN)
    child = log.publish(1, parent, policy=ParentFailure.HOLD, delay_s=2)
    log.rearm(1, RearmedEntry(parent, 1, (1,), (), (1,)))
    log.pump(lambda _: BROKEN)
    log.rearm(2, RearmedEntry(parent, 1, (1,), (), (2,)))
    (attempt,) = log.take()
    log.later(2)
    assert log.take() == []
    assert log.scheduler.message_state(child) == "waiting"
    log.answer(attempt)
    log.commit()
    assert to(log.pump()) == [(child, 1)]


@pytest.mark.parametrize("restarted", [False, True])
def test_an_old_message_is_mended_like_a_young_one(restarted: bool) -> None:
    """RULES 21: one that outlived its thousands of neighbours, whose rows are kept another way (``Chunk.make_thin``),
    is complete when a replay has gone well, and what is on hold for it goes."""
    log = log_with(1, retry=RetryPolicy((1.0,), 0.0))
    parent = log.publish(1)
    held = log.publish(1, parent, policy=ParentFailure.HOLD)
    log.publish_run(1, 2 * CHUNK)
    for _ in range(2):
        log.pump(lambda one: BROKEN if one.message == parent else OK)
        log.later(1)
    assert (log.scheduler.message_state(parent), log.scheduler.message_state(held)) == ("dead", "held")
    if restarted:
        log.restart(through=log.durable)
    replay_of(log, parent, parents={})
    assert to(log.pump()) == [(parent, 1), (held, 1)]
    assert (log.scheduler.message_state(parent), log.scheduler.message_state(held)) == ("complete", "complete")


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
    assert dead_letters(log.scheduler, 1) == {parent: Reason.STATUS, child: Reason.PARENT_FAILED}
    assert log.states() == {parent: "dead", child: "dead"}


@pytest.mark.parametrize("restarted", [False, True])
def test_dead_letters_are_counted_where_a_cascade_is_replayed_and_dies_again(restarted: bool) -> None:
    """RULES 20 and 21: the figure follows every change, at each subscriber; one that came later has none of them."""
    log = log_with(1, 2, retry=RetryPolicy((), 0.0))
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.pump(lambda _: BROKEN)
    log.subscriber(3, 1)
    if restarted:
        log.restart(through=log.durable)

    def figures() -> list[int]:
        return [log.scheduler.subscriber_statistics(number).dead_letters for number in (1, 2, 3)]

    assert figures() == [2, 2, 0]
    log.rearm(1, RearmedEntry(parent, 1, (1,), (), (1,)), RearmedEntry(child, 1, (1,), (parent,), (0,)))
    assert figures() == [0, 2, 0]
    assert log.scheduler.queue_statistics(1).waiting == 2
    log.pump(lambda _: BROKEN)
    assert figures() == [2, 2, 0]
    assert log.scheduler.queue_statistics(1).dead_letters == 4
    assert log.scheduler.queue_statistics(1).waiting == 0


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
        assert dead_letters(log.scheduler, number) == {parent: Reason.STATUS, child: Reason.PARENT_FAILED}
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


def held_in_a_replay() -> tuple[FactLog, int, int]:
    """A parent that both had, and failed at both when it was sent again together with its child on hold."""
    log = log_with(1, 2)
    parent = log.publish(1)
    child = log.publish(1, parent, policy=ParentFailure.HOLD)
    log.pump()
    both, ones = (1, 2), (1, 1)
    entries = (
        RearmedEntry(parent, 1, both, (), ones, ParentFailure.FAIL),
        RearmedEntry(child, 1, both, (parent,), ones, ParentFailure.HOLD),
    )
    log.rearm(len(log.facts), *entries)
    assert to(log.pump(lambda _: BROKEN)) == [(parent, 1), (parent, 2)]
    return log, parent, child


@pytest.mark.parametrize("restarted", ["", "from the log", "from a checkpoint"])
def test_what_is_on_hold_in_a_replay_goes_when_its_parent_has_gone_well(restarted: str) -> None:
    """RULES 12, 21: it waits for a later replay of the parent, and says so; then for every subscriber at whom the
    parent failed, not for one of them."""
    log, parent, child = held_in_a_replay()
    if restarted:
        log.restart(through=len(log.facts) if "checkpoint" in restarted else None)
    assert log.states() == {parent: "complete", child: "held"}
    assert log.scheduler.held_by(child) == (parent,)
    again(log, parent, 1, attempts=2)
    assert to(log.pump()) == [(parent, 1)]
    assert log.states() == {parent: "complete", child: "held"}
    again(log, parent, 2, attempts=2)
    assert to(log.pump()) == [(parent, 2), (child, 1), (child, 2)]
    assert set(log.states().values()) == {"complete"}
    assert not log.scheduler.state.edges.in_replay
    assert not check(log.facts)


@pytest.mark.parametrize("restarted", ["", "from the log", "from a checkpoint"])
def test_a_hold_in_a_replay_is_over_at_its_deadline(restarted: str) -> None:
    """RULES 12: at most until the deadline, which begins with the hold; for everyone outside it stays complete."""
    log, parent, child = held_in_a_replay()
    log.later(limits.retention_default_s - 9)
    again(log, parent, 1, attempts=2)
    log.pump(lambda _: BROKEN)
    if restarted:
        log.restart(through=len(log.facts) if "checkpoint" in restarted else None)
    assert log.states() == {parent: "complete", child: "held"}
    log.later(9)
    assert log.pump() == []
    ends = [row for fact in log.facts[-1:] if isinstance(fact, Outcomes) for row in fact.rows]
    assert [(row.message, row.outcome, row.reason) for row in ends] == [(child, Outcome.EXPIRED, Reason.HOLD_EXPIRED)]
    assert log.states() == {parent: "complete", child: "complete"}
    assert not log.scheduler.state.replays
    assert not log.scheduler.state.edges.in_replay
    assert not check(log.facts)


def test_an_old_deadline_does_not_end_a_new_hold() -> None:
    """RULES 12: what was on hold, went on and is on hold again in another replay has its whole time again."""
    log, parent, child = held_in_a_replay()
    log.end_all(child, Outcome.DROPPED, Reason.CANCELLED)
    log.later(limits.retention_default_s - 9)
    entries = (
        RearmedEntry(parent, 1, (1,), (), (2,), ParentFailure.FAIL),
        RearmedEntry(child, 1, (1,), (parent,), (1,), ParentFailure.HOLD),
    )
    log.rearm(len(log.facts), *entries)
    log.pump(lambda _: BROKEN)
    log.later(20)
    log.pump()
    assert log.states() == {parent: "complete", child: "held"}
    log.later(limits.retention_default_s)
    log.pump()
    assert log.states() == {parent: "complete", child: "complete"}


@pytest.mark.parametrize("restarted", [False, True])
def test_where_a_replay_failed_is_known_when_it_ends(restarted: bool) -> None:
    """RULES 12, 21: that the last delivery of the parent goes well does not let go what is on hold for another."""
    log = log_with(1, 2)
    parent = log.publish(1)
    child = log.publish(1, parent, policy=ParentFailure.HOLD)
    log.pump()
    entries = (
        RearmedEntry(parent, 1, (1, 2), (), (1, 1), ParentFailure.FAIL),
        RearmedEntry(child, 1, (2,), (parent,), (1,), ParentFailure.HOLD),
    )
    log.rearm(len(log.facts), *entries)
    first, _ = log.take()
    log.answer(first, BROKEN)
    log.commit()
    if restarted:
        log.restart(through=len(log.facts))
    for attempt in log.out or log.take():
        log.answer(attempt)
    log.commit()
    assert log.pump() == []
    assert log.states() == {parent: "complete", child: "held"}
    again(log, parent, first.subscriber, attempts=2)
    assert to(log.pump()) == [(parent, first.subscriber), (child, 2)]
    assert not check(log.facts)


def test_a_hold_for_a_parent_that_failed_at_who_is_gone_ends_when_it_is_mended() -> None:
    """RULES 12, 21: the parent had not ended when its child was sent again, and then died at one that is deleted."""
    log = log_with(1, 2)
    parent = log.publish(1)
    child = log.publish(1, parent, policy=ParentFailure.HOLD)
    log.end_all(child, Outcome.DROPPED, Reason.CANCELLED)
    log.rearm(1, RearmedEntry(child, 1, (2,), (parent,), (0,), ParentFailure.HOLD))
    first, second = log.take()
    log.answer(first, BROKEN)
    log.commit()
    log.unsubscribe(first.subscriber)
    log.answer(second)
    log.commit()
    assert log.pump() == []
    assert log.states() == {parent: "dead", child: "held"}
    again(log, parent, second.subscriber)
    assert to(log.pump()) == [(parent, 2), (child, 2)]
    assert set(log.states().values()) == {"complete"}
    assert not check(log.facts)


def test_an_attempt_from_before_a_cancel_is_no_part_of_a_replay() -> None:
    """RULES 21, 22: what was out when its message was cancelled is late, also where a replay sends it again by then;
    the replay makes its own attempt, and the delivery ends once."""
    log = log_with(1)
    message = log.publish(1)
    (out,) = log.take()
    log.end_all(message, Outcome.DROPPED, Reason.CANCELLED)
    log.rearm(1, RearmedEntry(message, 1, (1,), (), (0,), ParentFailure.FAIL))
    assert log.answer(out).outcome is Outcome.LATE
    assert [(one.message, one.replay) for one in log.pump()] == [(message, 1)]
    assert log.scheduler.message_state(message) == "complete"
    assert check(log.facts) == []


@pytest.mark.parametrize("restarted", [False, True])
def test_what_waits_in_a_replay_at_a_paused_subscriber_is_paused(restarted: bool) -> None:
    """RULES 9: as what was never sent there is; the parent in the same replay keeps it as well."""
    log = log_with(1)
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.pump(lambda _: BROKEN)
    log.subscriber(1, 1, paused=True)
    entry = RearmedEntry(child, 1, (1,), (parent,), (0,))
    log.rearm(len(log.facts), RearmedEntry(parent, 1, (1,), (), (1,)), entry)
    if restarted:
        log.restart(through=len(log.facts))
    assert [log.scheduler.delivery_state(one, 1) for one in (parent, child)] == ["paused", "paused"]
    log.subscriber(1, 1)
    assert log.scheduler.delivery_state(child, 1) == "blocked"
