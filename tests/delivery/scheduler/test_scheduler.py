"""What the scheduler decides, rule by rule, without a disk and without a clock."""

from syncbrok.delivery.scheduler.message_chunk import CHUNK
from syncbrok.model import limits
from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Reason, Row
from syncbrok.model.message import ParentFailure, RetryPolicy, Scope
from tests.support.delivery.factlog import BROKEN, OK, FactLog, dead_letters, log_with, to


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
    log.answer(attempt)
    assert log.urgent
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
    log.answer(attempt)
    assert not log.urgent
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
    letters = dead_letters(log.scheduler, 1)
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
    letters = dead_letters(log.scheduler, 1)
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
    assert not log.scheduler.state.keys.numbered


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


def test_each_attempt_says_what_was_durable_when_it_began() -> None:
    """RULES 13: an audit can prove the order from the log alone."""
    log = log_with(1)
    parent = log.publish(1)
    child = log.publish(1, parent)
    made = log.pump()
    ended = next(fact.sequence for fact in log.facts if getattr(fact, "rows", None))
    assert [attempt.message for attempt in made] == [parent, child]
    assert made[1].after >= ended


def test_a_wide_tree_is_not_one_kind_of_child() -> None:
    """RULES 2, 11, 20: among many children of one parent those that wait for another one too, or have ended, stay where
    they are; the others go in order, also those in other queues."""
    log = log_with(1, window=1_000)
    log.queue(2)
    log.subscriber(2, 2, window=1_000)
    parent, other = log.publish(1), log.publish(1)
    plain = [log.publish(1, parent) for _ in range(100)]
    both = log.publish(1, parent, other)
    cancelled = log.publish(1, parent)
    elsewhere = [log.publish(2, parent) for _ in range(100)]
    late = [log.publish(1, parent) for _ in range(100)]
    log.end_all(cancelled, Outcome.DROPPED, Reason.CANCELLED)
    first, second = log.take()
    log.answer(first)
    log.commit()
    assert sorted(to(log.take())) == sorted([(one, 1) for one in (*plain, *late)] + [(one, 2) for one in elsewhere])
    log.answer(second)
    log.commit()
    assert to(log.take()) == [(both, 1)]


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
    chunks = log.scheduler.state.table.chunks
    assert len(chunks) <= 2
    assert sum(chunk.thin for chunk in chunks.values()) == 1
    log.later(10_000)
    log.pump()
    assert log.scheduler.message_state(straggler) == "complete"


def test_a_child_is_published_long_after_its_parent_died() -> None:
    """RULES 12: its policy applies at once, also where all that is left of the parent and its other children are those
    that outlived their thousands of neighbours."""
    log = log_with(1, retry=RetryPolicy((60.0,), 0.0))
    log.queue(2)  # nobody listens to it
    parent, _ = log.publish(1), log.publish(1, delay_s=86_400)
    log.pump(lambda _: BROKEN)
    log.publish_run(2, CHUNK)
    first = log.publish(1, parent)
    log.publish_run(2, CHUNK)
    log.later(60)
    log.pump(lambda _: BROKEN)
    log.publish_run(2, CHUNK)
    second = log.publish(1, parent)
    held = log.publish(1, parent, policy=ParentFailure.HOLD)
    log.pump()
    states = log.scheduler.message_states(first, 1) + [log.scheduler.message_state(one) for one in (second, held)]
    assert states == ["dead", "dead", "held"]
