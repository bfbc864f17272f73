"""What the scheduler decides, rule by rule, without a disk and without a clock."""

from syncbrok.delivery.handler import Answer, Attempt
from syncbrok.model import limits
from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, RearmedEntry, Reason, Row
from syncbrok.model.message import ParentFailure, RetryPolicy, Scope
from tests.support.factlog import BROKEN, NO_RETRIES, OK, FactLog


def log_with(*subscribers: int, retry: RetryPolicy = NO_RETRIES, scope: Scope = Scope.ALL, window: int = 64) -> FactLog:
    """Queue 1 with these subscribers."""
    log = FactLog(retry)
    log.queue(1, scope, window)
    for number in subscribers:
        log.subscriber(number, 1)
    return log


def to(attempts: list[Attempt]) -> list[tuple[int, int]]:
    return [(attempt.message, attempt.subscriber) for attempt in attempts]


def test_every_counted_subscriber_gets_every_message_once() -> None:
    """DESIGN 1, at least once: each subscriber its queue had when the message was accepted."""
    log = log_with(1, 2)
    first, second = log.publish(1), log.publish(1)
    assert sorted(to(log.pump())) == [(first, 1), (first, 2), (second, 1), (second, 2)]
    assert log.pump() == []
    assert log.states() == {first: "complete", second: "complete"}


def test_a_child_waits_until_its_parent_is_complete_everywhere() -> None:
    """DESIGN 1, causal; RULES 11: scope all opens the gate when each parent is done at every counted subscriber."""
    log = log_with(1, 2)
    parent = log.publish(1)
    child = log.publish(1, parent)
    first, second = log.take()
    log.answer(first)
    log.commit()
    assert log.take() == []
    assert log.scheduler.message_state(child) == "waiting"
    assert log.scheduler.blocked_by(child) == (parent,)
    log.answer(second)
    log.commit()
    assert sorted(to(log.take())) == [(child, 1), (child, 2)]


def test_a_child_waits_for_the_fsync_of_its_parents_outcome() -> None:
    """RULES 13: an acknowledgement that is not on disk yet opens nothing."""
    log = log_with(1)
    parent = log.publish(1)
    child = log.publish(1, parent)
    (attempt,) = log.take()
    row = log.answer(attempt)
    assert log.scheduler.urgent(row)
    assert log.take() == []
    log.commit()
    assert to(log.take()) == [(child, 1)]


def test_the_slot_is_free_before_the_fsync() -> None:
    """RULES 24: the window's slot is free when the answer is read; only children wait for the disk."""
    log = log_with(1, window=1)
    first, second = log.publish(1), log.publish(1)
    (attempt,) = log.take()
    assert attempt.message == first
    assert log.take() == []
    assert not log.scheduler.urgent(log.answer(attempt))
    assert to(log.take()) == [(second, 1)]


def test_parents_may_stand_in_other_queues() -> None:
    """RULES 2: a parent in any queue gates its child."""
    log = log_with(1)
    log.queue(2)
    log.subscriber(2, 2)
    parent = log.publish(2)
    child = log.publish(1, parent)
    assert to(log.take()) == [(parent, 2)]
    log.answer(log.out[0])
    log.commit()
    assert to(log.take()) == [(child, 1)]


def test_a_child_of_many_parents_waits_for_the_last() -> None:
    """RULES 11: each parent."""
    log = log_with(1)
    parents = [log.publish(1) for _ in range(5)]
    child = log.publish(1, *parents)
    for attempt in log.take():
        assert log.take() == []
        log.answer(attempt)
        log.commit()
    assert to(log.take()) == [(child, 1)]


def test_scope_same_waits_at_each_subscriber_alone() -> None:
    """RULES 11: scope same goes on at S when the parent is delivered at S, whatever the others do."""
    log = log_with(1, 2, scope=Scope.SAME)
    parent = log.publish(1, scope=Scope.SAME)
    child = log.publish(1, parent, scope=Scope.SAME)
    attempts = {attempt.subscriber: attempt for attempt in log.take()}
    log.answer(attempts[1])
    log.commit()
    assert to(log.take()) == [(child, 1)]
    assert log.scheduler.delivery_state(child, 2) == "blocked"


def test_scope_same_judges_a_parent_elsewhere_by_all() -> None:
    """RULES 11: a parent in another queue, or not counted at S, is judged by scope all."""
    log = log_with(1, scope=Scope.SAME)
    log.queue(2)
    log.subscriber(2, 2)
    elsewhere = log.publish(2)
    child = log.publish(1, elsewhere, scope=Scope.SAME)
    assert to(log.take()) == [(elsewhere, 2)]
    log.answer(log.out[0])
    log.commit()
    assert to(log.pump()) == [(child, 1)]
    before = log.publish(1, scope=Scope.SAME)
    log.subscriber(3, 1)
    late = log.publish(1, before, scope=Scope.SAME)
    (attempt,) = log.take()
    assert attempt.message == before
    assert log.scheduler.delivery_state(late, 3) == "blocked"
    log.answer(attempt)
    log.commit()
    assert sorted(to(log.take())) == [(late, 1), (late, 3)]


def test_fail_kills_the_whole_subtree_and_nothing_else() -> None:
    """RULES 12, 20: the child of a dead parent dies with reason parent_failed, and so on down; neighbours go on."""
    log = log_with(1)
    parent = log.publish(1)
    child = log.publish(1, parent)
    grandchild = log.publish(1, child)
    neighbour = log.publish(1)
    made = log.pump(lambda attempt: BROKEN if attempt.message == parent else OK)
    assert sorted(to(made)) == [(parent, 1), (neighbour, 1)]
    assert log.states() == {parent: "dead", child: "dead", grandchild: "dead", neighbour: "complete"}
    letters = log.scheduler.dead_letters(1)
    assert letters == {parent: Reason.STATUS, child: Reason.PARENT_FAILED, grandchild: Reason.PARENT_FAILED}


def test_deliver_waits_until_all_parents_have_ended_whichever_way() -> None:
    """RULES 12: deliver goes out after a dead parent, but not before the other parents have ended."""
    log = log_with(1)
    dead, alive = log.publish(1), log.publish(1)
    child = log.publish(1, dead, alive, policy=ParentFailure.DELIVER)
    first, second = log.take()
    log.answer(first, BROKEN)
    log.commit()
    assert log.take() == []
    log.answer(second)
    log.commit()
    assert to(log.take()) == [(child, 1)]


def test_hold_stays_held_until_its_deadline() -> None:
    """RULES 12: hold waits for a replay, at most until its deadline (the retention)."""
    log = log_with(1)
    parent = log.publish(1)
    child = log.publish(1, parent, policy=ParentFailure.HOLD)
    log.pump(lambda _: BROKEN)
    assert log.scheduler.message_state(child) == "held"
    log.later(limits.retention_default_s)
    log.pump()
    assert log.scheduler.message_state(child) == "expired"


def test_a_child_accepted_under_a_dead_parent_follows_its_policy_at_once() -> None:
    """RULES 12: accepted, and then its policy applies."""
    log = log_with(1)
    parent = log.publish(1)
    log.pump(lambda _: BROKEN)
    fail, hold = log.publish(1, parent), log.publish(1, parent, policy=ParentFailure.HOLD)
    deliver = log.publish(1, parent, policy=ParentFailure.DELIVER)
    assert to(log.pump()) == [(deliver, 1)]
    assert log.states() == {parent: "dead", fail: "dead", hold: "held", deliver: "complete"}


def test_expired_and_cancelled_parents_count_as_failed_with_that_reason() -> None:
    """RULES 12, 22: the child's reason says how its parent ended."""
    log = log_with(1)
    log.subscriber(1, 1, paused=True)
    expired, cancelled = log.publish(1, expires_s=5), log.publish(1)
    of_expired, of_cancelled = log.publish(1, expired), log.publish(1, cancelled)
    log.end_all(cancelled, Outcome.DROPPED, Reason.CANCELLED)
    log.later(5)
    log.pump()
    letters = log.scheduler.dead_letters(1)
    assert letters[of_expired] is Reason.PARENT_EXPIRED
    assert letters[of_cancelled] is Reason.PARENT_DROPPED
    assert log.states()[expired] == "expired"
    assert log.states()[cancelled] == "dropped"


def test_a_key_orders_and_fails_nothing() -> None:
    """RULES 6: the next of a key goes out when the one before has ended, well or badly."""
    log = log_with(1)
    first, second, other = log.publish(1, key="a"), log.publish(1, key="a"), log.publish(1, key="b")
    attempts = log.take()
    assert to(attempts) == [(first, 1), (other, 1)]
    log.answer(attempts[0], BROKEN)
    log.commit()
    assert to(log.take()) == [(second, 1)]


def test_a_key_orders_at_each_subscriber_alone() -> None:
    """RULES 6: per (queue, key, subscriber); a slow subscriber does not hold the others' line."""
    log = log_with(1, 2)
    first, second = log.publish(1, key="a"), log.publish(1, key="a")
    attempts = {attempt.subscriber: attempt for attempt in log.take()}
    log.answer(attempts[1])
    log.commit()
    assert to(log.take()) == [(second, 1)]
    assert log.scheduler.delivery_state(second, 2) == "blocked"
    assert log.scheduler.blocked_by(second) == (first,)


def test_the_tail_of_a_key_is_forgotten_once_it_has_ended() -> None:
    """RULES 6: a million keys that are done cost nothing."""
    log = log_with(1)
    for i in range(100):
        log.publish(1, key=str(i))
    log.pump()
    assert not log.scheduler.books.tails
    assert not log.scheduler.books.tail_of


def test_a_delay_counts_from_acceptance_and_delays_children_too() -> None:
    """RULES 7."""
    log = log_with(1)
    parent = log.publish(1, delay_s=10)
    child = log.publish(1, parent)
    assert log.pump() == []
    assert log.scheduler.message_state(parent) == "scheduled"
    log.later(9)
    assert log.pump() == []
    log.later(1)
    assert to(log.pump()) == [(parent, 1), (child, 1)]


def test_a_queue_without_subscribers_completes_a_message_at_once() -> None:
    """RULES 17."""
    log = log_with(1)
    log.queue(2)
    parent = log.publish(2)
    child = log.publish(1, parent)
    assert log.scheduler.message_state(parent) == "complete"
    assert to(log.pump()) == [(child, 1)]


def test_nobody_to_deliver_to_does_not_break_a_chain() -> None:
    """DESIGN 1, causal: a message that nobody gets still waits for its own parents before its children may go."""
    log = log_with(1)
    log.queue(2)
    grandparent = log.publish(1)
    parent = log.publish(2, grandparent)
    child = log.publish(1, parent)
    assert to(log.take()) == [(grandparent, 1)]
    assert log.take() == []
    log.answer(log.out[0])
    log.commit()
    assert to(log.pump()) == [(child, 1)]


def test_retries_follow_the_schedule_and_end_as_a_dead_letter() -> None:
    """RULES 7, 20: attempts one by one, then (message, subscriber) is a dead letter with the last reason."""
    log = log_with(1, retry=RetryPolicy((1.0, 10.0), 0.0))
    message = log.publish(1)
    numbers = []
    for wait in (0, 1, 10):
        log.later(wait)
        made = log.pump(lambda _: Answer(Reason.TIMEOUT))
        numbers += [attempt.number for attempt in made]
        assert log.pump() == []
    assert numbers == [1, 2, 3]
    assert log.scheduler.dead_letters(1) == {message: Reason.TIMEOUT}
    assert log.scheduler.delivery_state(message, 1) == "dead"


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
    hung = log.scheduler.books.cursors[1]
    assert len(hung.flight) == 64
    assert not hung.ready
    assert not hung.tried
    assert log.scheduler.subscriber_statistics(1).backlog == 5_000 - 64


def test_at_most_ten_thousand_messages_are_in_retry() -> None:
    """RULES 15: then its cursor stops until they clear, and goes on as they do."""
    log = log_with(1, retry=RetryPolicy((1_000.0,), 0.0))
    for _ in range(limits.retrying_per_subscriber_max + 100):
        log.publish(1)
    log.pump(lambda _: BROKEN)
    assert len(log.scheduler.books.cursors[1].tried) == limits.retrying_per_subscriber_max
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
    late = log.scheduler.settle(log.out[0], OK, log.now_us, 0.0)
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
    row = log.answer(attempt, Answer(Reason.GONE, 410))
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
    assert log.scheduler.dead_letters(1) == {
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
    log.scheduler.feed_history(2, [(parent, ()), (child, (parent,))], finished=True)
    assert to(log.take()) == [(parent, 2)]
    assert log.take() == []
    log.answer(log.out[0])
    log.commit()
    assert to(log.take()) == [(child, 2)]
    assert log.scheduler.message_state(parent) == "complete"


def test_a_cancel_ends_what_is_not_delivered_and_a_late_answer_changes_nothing() -> None:
    """RULES 22, DESIGN 1: one end for each delivery; an answer after it is recorded as late."""
    log = log_with(1, 2)
    message = log.publish(1)
    first, second = log.take()
    log.answer(first)
    log.commit()
    log.end_all(message, Outcome.DROPPED, Reason.CANCELLED)
    assert log.scheduler.message_state(message) == "dropped"
    assert log.answer(second).outcome is Outcome.LATE
    log.commit()
    assert log.scheduler.delivery_state(message, 2) == "dropped"
    assert log.scheduler.message_state(message) == "dropped"


def test_a_test_message_goes_to_one_subscriber_alone() -> None:
    """INTERFACES 3: POST .../test sends to it alone, and completes with it."""
    log = log_with(1, 2)
    message = log.publish(1, only=2)
    assert to(log.pump()) == [(message, 2)]
    assert log.scheduler.message_state(message) == "complete"


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


def test_each_attempt_says_what_was_durable_when_it_began() -> None:
    """RULES 13: an audit can prove the order from the log alone."""
    log = log_with(1)
    parent = log.publish(1)
    child = log.publish(1, parent)
    made = log.pump()
    ended = next(fact.sequence for fact in log.facts if getattr(fact, "rows", None))
    assert [attempt.message for attempt in made] == [parent, child]
    assert made[1].after >= ended


def test_a_wide_tree_opens_in_slices_and_whole() -> None:
    """RULES 20: ten thousand children of one parent, and not one forgotten."""
    log = log_with(1)
    parent = log.publish(1)
    children = [log.publish(1, parent) for _ in range(10_000)]
    made = log.pump()
    assert [attempt.message for attempt in made[1:]] == children


def dropped(log: FactLog, message: int) -> Row:
    return Row(message, ALL_SUBSCRIBERS, 0, Outcome.DROPPED, Reason.CANCELLED, 0, log.now_us, 0, 0, 0)


def test_a_cancelled_child_does_not_hide_its_siblings() -> None:
    """RULES 11: whole neighbourhoods of cancelled children leave the parent's list whole."""
    log = log_with(1)
    parent = log.publish(1)
    log.take()
    children = [log.publish(1, parent) for _ in range(9_000)]
    for child in children[:8_900]:
        log.rows.append(dropped(log, child))
    log.commit()
    log.answer(log.out[0])
    log.commit()
    assert [attempt.message for attempt in log.pump()] == children[8_900:]


def test_settled_messages_leave_no_rows() -> None:
    """DESIGN 5: settled neighbourhoods keep nothing in memory, and stragglers do not keep their neighbours' rows."""
    log = log_with(1, retry=RetryPolicy((10_000.0,), 0.0))
    straggler = log.publish(1)
    for _ in range(20_000):
        log.publish(1)
    log.pump(lambda attempt: BROKEN if attempt.message == straggler else OK)
    chunks = log.scheduler.books.ledger.chunks
    assert len(chunks) <= 2
    assert sum(chunk.thin for chunk in chunks.values()) == 1
    log.later(10_000)
    log.pump()
    assert log.scheduler.message_state(straggler) == "complete"
