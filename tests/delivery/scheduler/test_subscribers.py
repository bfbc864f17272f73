"""Subscribers that hang, pause, leave, come late: what the scheduler does for them and for everyone else."""

from syncbrok.delivery.handler import AttemptResult
from syncbrok.model import limits
from syncbrok.model.facts import Outcome, Reason
from syncbrok.model.message import RetryPolicy
from tests.support.delivery.factlog import BROKEN, OK, dead_letters, log_with, to


def test_retries_follow_the_schedule_and_end_as_a_dead_letter() -> None:
    """RULES 7, 20: attempts one by one, then (message, subscriber) is a dead letter with the last reason."""
    log = log_with(1, retry=RetryPolicy((1.0, 10.0), 0.0))
    message = log.publish(1)
    numbers = []
    for wait in (0, 1, 10):
        log.later(wait)
        made = log.pump(lambda _: AttemptResult(Reason.TIMEOUT))
        numbers += [attempt.number for attempt in made]
        assert log.pump() == []
    assert numbers == [1, 2, 3]
    assert dead_letters(log.scheduler, 1) == {message: Reason.TIMEOUT}
    assert log.scheduler.delivery_state(message, 1) == "dead"


def test_a_changed_endpoint_takes_over_what_is_being_retried() -> None:
    """RULES 3: the endpoint is read at each attempt; the waits of the old one do not hold up the new one."""
    log = log_with(1, retry=RetryPolicy((86_400.0,), 0.0))
    message = log.publish(1)
    log.pump(lambda _: BROKEN)
    assert log.pump() == []
    log.move(1, 1, "http://elsewhere/")
    assert to(log.pump()) == [(message, 1)]
    log.later(86_400)
    assert log.pump() == []


def test_what_hangs_at_the_old_endpoint_does_not_hold_up_the_new_one() -> None:
    """RULES 3: attempts that are out when the endpoint changes leave the window and are made again; a late answer of
    the old endpoint changes nothing."""
    log = log_with(1, window=1)
    message = log.publish(1)
    (hanging,) = log.take()
    log.move(1, 1, "http://elsewhere/", window=1)
    (again,) = log.take()
    assert (again.message, again.number) == (message, 2)
    assert log.answer(hanging, BROKEN).outcome is Outcome.LATE
    log.commit()
    assert log.scheduler.delivery_state(message, 1) == "in_flight"
    log.answer(again)
    log.commit()
    assert log.scheduler.message_state(message) == "complete"


def test_a_hung_endpoint_is_a_cursor_and_not_a_crowd() -> None:
    """RULES 15; DESIGN 1, bounded: its window is out, the rest costs no entry, and the neighbour does not notice."""
    log = log_with(1, 2)
    for _ in range(5_000):
        log.publish(1)
    delivered = 0
    while taken := [attempt for attempt in log.take() if attempt.subscriber == 2]:
        for attempt in taken:
            log.answer(attempt)
            delivered += 1
        log.commit()
    assert delivered == 5_000
    hung = log.scheduler.state.cursors[1]
    assert len(hung.in_flight) == 64
    assert not hung.eligible
    assert not hung.retrying
    assert log.scheduler.subscriber_statistics(1).backlog == 5_000 - 64


def test_at_most_ten_thousand_messages_are_in_retry() -> None:
    """RULES 15: then its cursor stops until they clear, and goes on as they do."""
    log = log_with(1, retry=RetryPolicy((1_000.0,), 0.0), breaker=None)
    for _ in range(limits.retrying_per_subscriber_max + 100):
        log.publish(1)
    log.pump(lambda _: BROKEN)
    assert len(log.scheduler.state.cursors[1].retrying) == limits.retrying_per_subscriber_max
    assert log.pump() == []
    log.later(1_000)
    log.pump()
    assert set(log.states().values()) == {"complete"}


def test_a_paused_subscriber_is_counted_and_frozen() -> None:
    """RULES 14: nothing goes out to it, everything waits for it, and it goes on where it was."""
    log = log_with(1)
    log.subscriber(1, 1, paused=True)
    message = log.publish(1)
    assert log.pump() == []
    assert log.scheduler.delivery_state(message, 1) == "paused"
    assert log.scheduler.message_state(message) == "pending"
    log.subscriber(1, 1)
    assert to(log.pump()) == [(message, 1)]


def test_a_deleted_subscriber_counts_as_acknowledged() -> None:
    """RULES 10, 14: its pending deliveries end dropped, and children go on."""
    log = log_with(1, 2)
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.answer(next(attempt for attempt in log.take() if attempt.subscriber == 1))
    log.commit()
    log.unsubscribe(2)
    assert log.scheduler.message_state(parent) == "complete"
    assert to(log.pump()) == [(child, 1)]
    (late,), _ = log.scheduler.settle([(log.out[0], OK)], log.now_us, lambda: 0.0)
    assert late.outcome is Outcome.LATE


def test_a_subscriber_deleted_while_it_has_work_gets_nothing_more() -> None:
    """RULES 14: it may stand in line for its turn when it goes."""
    log = log_with(1, 2)
    before = log.publish(1)
    log.unsubscribe(1)
    after = log.publish(1)
    assert to(log.take()) == [(before, 2), (after, 2)]


def test_a_410_is_dead_at_once_and_the_rest_dies_after_five_days() -> None:
    """RULES 14: the delivery that met the 410 is dead, the others wait, then die as subscriber_disabled."""
    log = log_with(1, retry=RetryPolicy())
    first, second = log.publish(1), log.publish(1)
    attempt, other = log.take()
    row = log.answer(attempt, AttemptResult(Reason.GONE, 410))
    assert row.outcome is Outcome.DEAD
    log.commit()
    log.subscriber(1, 1, disabled_us=log.now_us)
    log.answer(other, BROKEN)
    log.commit()
    child = log.publish(1, second)
    assert log.pump() == []
    assert log.scheduler.delivery_state(second, 1) == "paused"
    log.later(limits.disabled_max_s)
    log.pump()
    assert dead_letters(log.scheduler, 1) == {
        first: Reason.GONE,
        second: Reason.SUBSCRIBER_DISABLED,
        child: Reason.PARENT_FAILED,
    }


def test_late_subscribers_get_only_what_comes_after_them() -> None:
    """RULES 3, 14: a subscriber added late is not counted for what came before."""
    log = log_with(1)
    before = log.publish(1)
    log.subscriber(2, 1)
    after = log.publish(1)
    assert sorted(to(log.pump())) == [(before, 1), (after, 1), (after, 2)]


def test_a_subscriber_that_starts_in_the_past_catches_up_in_causal_order() -> None:
    """RULES 14: start lets it catch up, uncounted, parents before children there too."""
    log = log_with(1)
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.pump()
    log.subscriber(2, 1, start=1)
    assert log.scheduler.needs_history() == [(2, 1, 0)]
    log.scheduler.feed_history(2, [(parent, ()), (child, (parent,))], {}, log.scheduler.newest)
    assert to(log.take()) == [(parent, 2)]
    assert log.take() == []
    log.answer(log.out[0])
    log.commit()
    assert to(log.take()) == [(child, 2)]
    assert log.scheduler.message_state(parent) == "complete"


def test_consumers_that_start_in_the_past_get_what_is_new_after_it() -> None:
    """RULES 14, docs/frontends.md: whoever names the place it has come to counts from there, so what came before comes
    first. An endpoint does not wait for that, and nobody waits for old messages that wait for others."""
    log = log_with(1)
    old = [log.publish(1) for _ in range(2)]
    log.pump()
    log.subscriber(2, 1, start=1, endpoint="consumer:test")
    log.subscriber(3, 1, start=1)
    log.scheduler.offer(2, 64)
    new = [log.publish(1) for _ in range(2)]
    assert to(log.pump()) == [(message, number) for number in (1, 3) for message in new]
    log.scheduler.feed_history(2, [(old[0], ())], {}, old[0])
    assert to(log.pump()) == [(old[0], 2)]
    log.scheduler.feed_history(2, [(old[1], ())], {}, log.scheduler.newest)
    assert to(log.pump()) == [(message, 2) for message in (old[1], *new)]


def test_old_messages_that_wait_for_others_do_not_hold_up_new_ones() -> None:
    """DESIGN 1: a consumer whose past holds more that is blocked than is kept goes on with what is new."""
    log = log_with(1)
    log.queue(2)
    parent = log.publish(1)
    blocked = [log.publish(2, parent) for _ in range(limits.window_max)]
    log.subscriber(3, 2, start=1, endpoint="consumer:test")
    log.scheduler.offer(3, 64)
    new = log.publish(2)
    log.scheduler.feed_history(3, [(child, (parent,)) for child in blocked[:-1]], {}, blocked[-2])
    assert to(log.take()) == [(parent, 1)]
    assert log.scheduler.needs_history() == [(3, 2, blocked[-2])]
    log.scheduler.feed_history(3, [(blocked[-1], (parent,))], {}, blocked[-1])
    assert log.scheduler.needs_history() == []
    assert to(log.take()) == [(new, 3)]


def test_who_catches_up_gets_what_nobody_else_was_to_get() -> None:
    """RULES 14, 17: a message of a queue without subscribers, which waits for a parent elsewhere, is complete as soon
    as the parent is; one that came late and passed it while it waited gets it then."""
    log = log_with(1)
    log.queue(2)
    parent = log.publish(1)
    child = log.publish(2, parent)
    log.subscriber(3, 2, start=1)
    log.scheduler.feed_history(3, [(child, (parent,))], {}, log.scheduler.newest)
    assert to(log.pump()) == [(parent, 1), (child, 3)]
    assert log.scheduler.message_state(child) == "complete"


def test_a_queue_of_many_subscribers_does_not_go_before_another_queue() -> None:
    """DESIGN 1, bounded: what comes for one subscriber of another queue is among the next that go out, not behind a
    thousand of the first; and all go out."""
    log = log_with(*range(1, 301))
    log.queue(2)
    log.subscriber(999, 2)
    wide, other = log.publish(1), log.publish(2)
    first = to(log.take(10))
    assert (other, 999) in first
    rest = to(log.take(1_000))
    assert sorted([*first, *rest]) == [*[(wide, number) for number in range(1, 301)], (other, 999)]


def test_who_leaves_the_line_leaves_the_others_in_it() -> None:
    """RULES 16: subscribers that are deleted while they stand in line take nobody's place."""
    log = log_with(1, 2, 3)
    log.queue(2)
    log.subscriber(9, 2)
    first = log.publish(1)
    log.publish(2)
    for number in (9, 2):
        log.unsubscribe(number)
    assert sorted(to(log.pump())) == [(first, 1), (first, 3)]
    log.subscriber(10, 2)
    assert to(log.pump()) == []
    third = log.publish(2)
    assert to(log.pump()) == [(third, 10)]
