"""Who counts (RULES 3, 11): subscribers that only come to take messages decide nothing about the fate of others."""

import random

import pytest

from syncbrok.log.offline.order import check
from syncbrok.model import limits
from syncbrok.model.facts import Outcome, Outcomes, RearmedEntry, Reason, SubscriberSet
from syncbrok.model.message import PULL_ENDPOINT, ParentFailure, RetryPolicy, Scope
from tests.support.delivery.factlog import BROKEN, OK, FactLog, dead_letters, declared, got, log_with, some_answers, to

COUNTED, READER = 1, 2


def log_with_reader(**settings: object) -> FactLog:
    """Queue 1 with a subscriber that counts, and one that does not."""
    log = log_with(COUNTED)
    log.subscriber(READER, 1, counts=False, **settings)
    return log


def only(log: FactLog, subscriber: int) -> list[tuple[int, int]]:
    """Deliver what is taken at the subscriber, and leave the rest out."""
    done = [attempt for attempt in log.take() if attempt.subscriber == subscriber]
    for attempt in done:
        log.answer(attempt)
    log.commit()
    return to(done)


def test_nobody_waits_for_one_that_does_not_count() -> None:
    """RULES 3, 10: it is silent, and the message is complete, its child goes; a publisher hears of the end."""
    log = log_with_reader()
    parent = log.publish(1)
    log.scheduler.watch(parent)
    child = log.publish(1, parent)
    assert only(log, COUNTED) == [(parent, COUNTED)]
    assert log.scheduler.take_watched() == [parent]
    assert only(log, COUNTED) == [(child, COUNTED)]
    assert log.states() == {parent: "complete", child: "complete"}
    assert log.scheduler.waiting_on(1) == 0
    assert log.scheduler.counted(parent) == (COUNTED,)
    assert not check(log.facts)


def test_there_a_child_goes_when_its_parent_is_complete_and_has_ended_there() -> None:
    """RULES 11, 13: both, in whatever order they come."""
    log = log_with_reader()
    parent = log.publish(1)
    child = log.publish(1, parent)
    assert only(log, READER) == [(parent, READER)]
    assert only(log, READER) == [], "it is not complete"
    (attempt,) = [one for one in log.out if one.subscriber == COUNTED]
    log.answer(attempt)
    assert log.urgent
    log.commit()
    assert only(log, READER) == [(child, READER)]

    other = log_with_reader()
    parent = other.publish(1)
    child = other.publish(1, parent)
    assert only(other, COUNTED) == [(parent, COUNTED)]
    assert only(other, READER) == [], "it has the parent and has not answered"
    (attempt,) = [one for one in other.out if (one.message, one.subscriber) == (parent, READER)]
    other.answer(attempt)
    other.commit()
    assert only(other, READER) == [(child, READER)]
    assert not check(log.facts)
    assert not check(other.facts)


@pytest.mark.parametrize("scope", Scope)
def test_a_parent_that_died_there_stops_nobody(scope: Scope) -> None:
    """RULES 10, 12: no child dies through it, there or elsewhere; the dead letter is listed, replayed, and mends or
    breaks nothing."""
    log = log_with_reader()
    parent = log.publish(1)
    child = log.publish(1, parent, scope=scope, policy=ParentFailure.HOLD)
    log.pump(lambda attempt: BROKEN if (attempt.message, attempt.subscriber) == (parent, READER) else OK)
    assert log.states() == {parent: "complete", child: "complete"}
    assert got(log, COUNTED) == [parent, child]
    assert got(log, READER) == [child]
    assert dead_letters(log.scheduler, READER) == {parent: Reason.STATUS}
    assert log.scheduler.queue_statistics(1).dead_letters == 1
    log.rearm(1, RearmedEntry(parent, 1, (READER,), (), (1,)))
    log.pump(lambda _: BROKEN)
    assert log.states() == {parent: "complete", child: "complete"}
    log.rearm(2, RearmedEntry(parent, 1, (READER,), (), (2,)))
    log.pump()
    assert got(log, READER) == [child, parent]
    assert dead_letters(log.scheduler, READER) == {}
    assert not check(log.facts)


def test_a_failed_replay_there_holds_no_descendant_elsewhere() -> None:
    """RULES 12, 21: what fails at one that does not count is no failed parent in a replay either."""
    log = log_with_reader()
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.pump()
    both = (COUNTED, READER)
    log.rearm(1, RearmedEntry(parent, 1, both, (), (1, 1)), RearmedEntry(child, 1, both, (parent,), (1, 1)))
    log.pump(lambda attempt: BROKEN if (attempt.message, attempt.subscriber) == (parent, READER) else OK)
    assert got(log, COUNTED) == [parent, child, parent, child]
    assert log.states() == {parent: "complete", child: "complete"}


def test_what_dies_elsewhere_does_not_come_until_it_is_mended() -> None:
    """RULES 12: it is the same gate for all but for who waits: a child that died of its parent goes nowhere; once a
    replay has mended both it comes there as well."""
    log = log_with_reader()
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.pump(lambda attempt: BROKEN if attempt.subscriber == COUNTED else OK)
    assert log.states() == {parent: "dead", child: "dead"}
    assert got(log, READER) == [parent]
    assert log.scheduler.delivery_state(child, READER) == "dead"
    family = (RearmedEntry(parent, 1, (COUNTED,), (), (1,)), RearmedEntry(child, 1, (COUNTED,), (parent,), (0,)))
    log.rearm(1, *family)
    log.pump()
    assert got(log, READER) == [parent, child]
    assert not check(log.facts)


def test_one_waits_for_its_time_and_for_its_gate_as_others_do() -> None:
    """RULES 7: a delay delays it there; nothing of what is not due yet goes out early."""
    log = log_with_reader()
    later = log.publish(1, delay_s=5)
    child = log.publish(1, later)
    assert log.take() == []
    log.later(6)
    log.pump()
    assert got(log, READER) == [later, child]


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [(Outcome.DROPPED, Reason.CANCELLED), (Outcome.DROPPED, Reason.PURGED), (Outcome.EXPIRED, Reason.EXPIRED)],
)
def test_a_cancel_and_an_expiry_end_it_too(outcome: Outcome, reason: Reason) -> None:
    """RULES 22: what has not gone out does not, and what is out comes back late."""
    log = log_with_reader()
    log.subscriber(COUNTED, 1, paused=True)
    out, waiting = log.publish(1), log.publish(1)
    (attempt, _) = log.take()
    assert to([attempt]) == [(out, READER)]
    log.answer(log.out[1], BROKEN)
    log.commit()
    log.end_all(out, outcome, reason)
    log.end_all(waiting, outcome, reason)
    assert log.scheduler.given_up() == {READER: {out}}
    assert log.answer(attempt).outcome is Outcome.LATE
    log.commit()
    log.later(600)
    assert log.pump() == []
    assert log.scheduler.delivery_state(waiting, READER) != "retrying"
    assert not check(log.facts)


def test_a_queue_that_only_such_have_completes_at_once() -> None:
    """RULES 17: nobody is counted, so nobody is waited for; they get it all the same, parents first."""
    log = FactLog()
    log.queue(1)
    log.subscriber(READER, 1, counts=False)
    parent = log.publish(1)
    child = log.publish(1, parent)
    assert log.scheduler.message_state(parent) == "complete"
    log.pump()
    assert log.scheduler.message_state(child) == "complete"
    assert got(log, READER) == [parent, child]
    assert not check(log.facts)


def test_one_key_keeps_its_order_there() -> None:
    """RULES 6: of one key a later message waits there for the earlier ones, whatever becomes of them elsewhere; and
    nobody else waits for that."""
    log = log_with_reader()
    first, second, third = (log.publish(1, key="k") for _ in range(3))
    other = log.publish(1, key="other")
    taken = [attempt for attempt in log.take() if attempt.subscriber == READER]
    assert to(taken) == [(first, READER), (other, READER)]
    for attempt in [one for one in log.out if one.subscriber == COUNTED]:
        log.answer(attempt)
    log.commit()
    assert only(log, COUNTED) == [(second, COUNTED)], "it waits for its own alone"
    log.answer(taken[0], BROKEN)
    log.commit()
    assert only(log, READER) == [(second, READER)]
    assert only(log, READER) == [(third, READER)]
    assert not check(log.facts)


@pytest.mark.parametrize("restart", ["none", "log", "checkpoint"])
def test_one_that_lags_is_told_from_the_log(restart: str) -> None:
    """RULES 14: what it has no room for is kept nowhere but in the log; it gets all of it, once, in causal order."""
    log = log_with_reader(endpoint="consumer:pull")
    log.publish_run(1, limits.uncounted_ahead_max + 1)
    told = log.scheduler.state.cursors[READER].history_after
    log.publish_run(1, 300)
    parent = log.publish(1)
    child = log.publish(1, parent)
    cursor = log.scheduler.state.cursors[READER]
    assert (cursor.history_done, cursor.history_after) == (False, told)
    log.pump()
    log.start_again(restart)
    log.scheduler.offer(READER, limits.window_max)
    while not log.scheduler.state.cursors[READER].history_done:
        log.feed_once(200)
        log.pump()
    log.pump()
    everything = [message.sequence for message in log.messages()]
    assert got(log, READER) == everything
    assert got(log, READER)[-2:] == [parent, child]
    new = log.publish(1)
    log.pump()
    assert got(log, READER)[-1] == new, "and what is new is told as it comes again"
    assert not check(log.facts)
    log.restart()
    log.scheduler.offer(READER, limits.window_max)
    log.feed()
    assert log.pump() == []


def test_retention_ends_what_it_had_not_taken() -> None:
    """RULES 14: one row for all of it; what has not ended elsewhere is carried along and comes all the same."""
    log = log_with_reader(endpoint="consumer:pull")
    missed = [log.publish(1) for _ in range(3)]
    log.pump()
    log.subscriber(COUNTED, 1, paused=True)
    carried = log.publish(1)
    log.drop_before(log.roll())
    rows = [row for fact in log.facts if isinstance(fact, Outcomes) for row in fact.rows]
    dropped = [row for row in rows if row.reason is Reason.RETENTION]
    assert [(row.subscriber, row.outcome) for row in dropped] == [(READER, Outcome.DROPPED)]
    assert dropped[0].message >= missed[-1]
    log.scheduler.offer(READER, 10)
    log.pump()
    assert got(log, READER) == [carried]
    log.restart()
    log.scheduler.offer(READER, 10)
    log.feed()
    assert log.pump() == []
    assert not check(log.facts)


@pytest.mark.parametrize("told", [0, 1, 4])
@pytest.mark.parametrize("restart", ["none", "log", "checkpoint"])
def test_retention_ends_the_past_that_one_which_counts_had_not_taken(told: int, restart: str) -> None:
    """RULES 6, 14: one that is still told its past gets no more of what went, a row says so, and the next of a key goes
    there; what has not ended elsewhere, and what counts it, comes all the same."""
    log = log_with(COUNTED)
    past = [log.publish(1, key="a") for _ in range(3)]
    log.pump()
    log.subscriber(COUNTED, 1, paused=True)
    carried = log.publish(1, key="b")
    log.subscriber(READER, 1, start=1)
    counted = log.publish(1, key="a")
    log.feed_once(told) if told else None
    log.drop_before(log.roll())
    rows = [row for fact in log.facts if isinstance(fact, Outcomes) for row in fact.rows]
    dropped = [(row.subscriber, row.outcome) for row in rows if row.reason is Reason.RETENTION]
    assert dropped == [(READER, Outcome.DROPPED)]
    log.start_again(restart)
    log.feed()
    log.pump()
    assert sorted(got(log, READER)) == [carried, counted]
    assert not check(log.facts)
    log.drop_before(log.roll())
    rows = [row for fact in log.facts if isinstance(fact, Outcomes) for row in fact.rows]
    assert sum(row.reason is Reason.RETENTION for row in rows) == 1, "there is nothing left to end"
    log.restart()
    log.feed()
    assert log.pump() == []
    assert past[-1] < carried


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("fed", [True, False])
def test_what_a_carried_message_has_come_to_where_it_is_told_is_known_after_a_start(counts: bool, fed: bool) -> None:
    """RULES 14, 21: its rows go with their segment. What had ended there does not come again, what had failed has the
    next number, and the key keeps its order; however much of its past the subscriber had been told."""
    log = log_with(COUNTED, retry=RetryPolicy((60.0, 60.0), 0.0))
    log.subscriber(COUNTED, 1, paused=True)
    delivered, failed, behind = log.publish(1), log.publish(1, key="a"), log.publish(1, key="a")
    log.subscriber(READER, 1, counts=counts, start=1)
    log.feed() if fed else log.feed_once(2)
    log.pump(lambda attempt: BROKEN if attempt.message == failed else OK)
    assert to(log.attempts) == [(delivered, READER), (failed, READER)]
    log.drop_before(log.roll())
    log.drop_before(log.roll())
    log.restart()
    log.feed()
    assert log.pump() == [], "the one is over, the other waits for its time"
    log.later(60)
    assert [(one.message, one.number) for one in log.pump()] == [(failed, 2), (behind, 1)]
    assert not check(log.facts)


def test_what_is_only_carried_is_told_to_its_end() -> None:
    """RULES 14: after a start from a log in which nothing of the queue stands but what retention took along, one that
    starts in the past is told all of it, in as many steps as it takes."""
    log = log_with(COUNTED)
    log.subscriber(COUNTED, 1, paused=True)
    old = [log.publish(1) for _ in range(3)]
    log.subscriber(READER, 1, start=1)
    log.drop_before(log.roll())
    log.restart()
    log.feed(together=1)
    log.pump()
    assert got(log, READER) == old


def test_what_retention_takes_while_it_is_out_makes_room_for_what_comes_next() -> None:
    """RULES 15: the window counts what is out and waited for, and nothing else has to happen for the next to go."""
    log = log_with(COUNTED, window=2)
    log.subscriber(READER, 1, counts=False)
    out = [log.publish(1) for _ in range(2)]
    taken = log.take()
    for attempt in [one for one in taken if one.subscriber == COUNTED]:
        log.answer(attempt)
    log.commit()
    opened = log.roll()
    late = log.publish(1)
    assert to(log.take()) == [(late, COUNTED)]
    log.drop_before(opened)
    assert to(log.take()) == [(late, READER)]
    assert sorted(to(taken)) == sorted((one, number) for one in out for number in (COUNTED, READER))


def test_what_retention_ended_while_the_log_was_read_is_not_told() -> None:
    """RULES 14: its row is durable, and nothing may come behind it."""
    log = log_with_reader(endpoint="consumer:pull")
    log.scheduler.state.cursors[READER].history_done = False
    missed = log.publish(1)
    log.pump()
    log.drop_before(log.roll())
    log.scheduler.feed_history(READER, [(missed, ())], {}, missed)
    log.scheduler.offer(READER, 10)
    assert log.pump() == []


def test_one_that_counts_no_more_keeps_a_key_until_the_end_before_is_durable() -> None:
    """RULES 6: it has acknowledged a message and counts no more before that is on the disk. The next of the key waits
    for the row: without it a start would send the first again, after the second."""
    log = log_with(COUNTED, READER)
    first = log.publish(1, key="a")
    second = log.publish(1, key="a")
    (attempt,) = [one for one in log.take() if one.subscriber == READER]
    log.answer(attempt)
    log.count_otherwise(READER)
    assert log.take() == [], "the first may be made again"
    log.commit()
    assert to(log.take()) == [(second, READER)]
    assert not check(log.facts)
    log.restart()
    assert (first, READER) not in to(log.take())


def test_one_that_counts_no_more_frees_what_waited_for_it() -> None:
    """RULES 3, 10: at once; what it had not got comes to it all the same."""
    log = log_with(COUNTED, READER)
    log.subscriber(READER, 1, paused=True)
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.pump()
    assert log.states() == {parent: "pending", child: "waiting"}
    log.count_otherwise(READER)
    log.pump()
    assert log.states() == {parent: "complete", child: "complete"}
    assert log.scheduler.counted(parent) == (COUNTED,)
    log.change(READER, paused=False)
    log.feed()
    log.pump()
    assert got(log, READER) == [parent, child]
    assert not check(log.facts)
    log.restart()
    log.feed()
    assert log.pump() == []


def test_the_key_of_a_lone_message_holds_where_one_counts_no_more() -> None:
    """RULES 6: what waited there for its parent keeps back what comes after it, also if it is the first of its key."""
    log = log_with(COUNTED, READER)
    log.subscriber(COUNTED, 1, paused=True)
    parent = log.publish(1)
    first = log.publish(1, parent, key="k")
    log.pump()
    log.count_otherwise(READER)
    second = log.publish(1, key="k")
    log.feed()
    log.pump()
    assert [one for one in got(log, READER) if one in (first, second)] == []
    log.change(COUNTED, paused=False)
    log.pump()
    assert [one for one in got(log, READER) if one in (first, second)] == [first, second]
    assert not check(log.facts)


def test_what_was_cancelled_while_it_was_out_stays_ended_where_one_counts_no_more() -> None:
    """RULES 3, 22: the answer is late, whatever has become of the subscriber meanwhile."""
    log = log_with(COUNTED, READER)
    message = log.publish(1)
    out = {attempt.subscriber: attempt for attempt in log.take()}
    log.end_all(message, Outcome.DROPPED, Reason.CANCELLED)
    log.count_otherwise(READER)
    assert log.answer(out[READER]).outcome is Outcome.LATE
    assert log.answer(out[COUNTED]).outcome is Outcome.LATE
    log.commit()
    log.feed()
    assert log.pump() == []
    assert not check(log.facts)


@pytest.mark.parametrize("answered", [True, False])
def test_what_is_out_or_tried_again_keeps_its_key_where_one_counts_no_more(answered: bool) -> None:
    """RULES 6: the next of its key waits for it as before."""
    log = log_with(COUNTED, READER, retry=RetryPolicy((5.0,), 0.0))
    first, second = log.publish(1, key="k"), log.publish(1, key="k")
    (attempt,) = [one for one in log.take() if one.subscriber == READER]
    if answered:
        log.answer(attempt, BROKEN)
        log.commit()
    log.count_otherwise(READER)
    log.feed()
    log.pump()
    assert got(log, READER) == []
    if not answered:
        log.answer(attempt)
        log.commit()
    log.later(60)
    log.pump()
    assert got(log, READER) == [first, second]
    assert not check(log.facts)


def test_what_is_out_uncounted_is_not_lost_where_one_counts_and_counts_no_more() -> None:
    """RULES 3, 14: that a message is complete elsewhere ends nothing at one that it does not count."""
    log = log_with(READER)
    message = log.publish(1)
    (attempt,) = log.take()
    for _ in range(3):  # not, again, not any more
        log.count_otherwise(READER)
    assert log.scheduler.message_state(message) == "complete"
    assert log.answer(attempt).outcome is Outcome.DELIVERED
    log.commit()
    log.feed()
    assert log.pump() == []
    assert not check(log.facts)


def test_one_counts_from_the_fact_that_says_so() -> None:
    """RULES 3: ``counts_since``; what came before it gets uncounted, and nothing twice."""
    log = log_with_reader(paused=True)
    before = log.publish(1)
    log.pump()
    assert log.scheduler.message_state(before) == "complete"
    log.count_otherwise(READER)
    after = log.publish(1)
    log.pump()
    assert log.scheduler.message_state(after) == "pending"
    assert log.scheduler.counted(after) == (COUNTED, READER)
    assert log.scheduler.counted(before) == (COUNTED,)
    log.change(READER, paused=False)
    log.pump()
    assert got(log, READER) == [before, after]
    assert not check(log.facts)


def test_a_test_message_to_one_that_does_not_count() -> None:
    """RULES 17: it counts nobody, and comes to that one alone."""
    log = log_with_reader()
    log.subscriber(3, 1, counts=False)
    message = log.publish(1, only=READER)
    assert to(log.pump()) == [(message, READER)]
    assert log.scheduler.message_state(message) == "complete"


def test_one_that_is_deleted_leaves_nothing_behind() -> None:
    """RULES 14: nobody waited for it, so nothing changes for others."""
    log = log_with_reader(paused=True)
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.unsubscribe(READER)
    log.pump()
    assert log.states() == {parent: "complete", child: "complete"}
    assert not log.scheduler.may_lag
    assert log.scheduler.state.queues[1].uncounted == []


def test_an_old_log_counts_everybody() -> None:
    """RULES 3: a record of a version that did not know of this is of one that counts."""
    from syncbrok.log.format.declaration_bodies import decode_body, encode_body

    log = log_with(COUNTED)
    fact = next(one for one in log.facts if isinstance(one, SubscriberSet))
    body = encode_body(fact).body.replace(b',"counts":true', b"")
    assert b"counts" not in body
    assert decode_body(SubscriberSet, fact.sequence, fact.time_us, body) == fact


@pytest.mark.parametrize("seed", range(12))
def test_queues_with_readers_complete_as_without(seed: int) -> None:
    """RULES 3: over random histories, the states of messages with readers beside are those without them."""

    def run(*, readers: bool) -> list[str]:
        chance, answers = random.Random(seed), random.Random(seed)
        log = log_with(COUNTED, 3)
        if readers:
            log.subscriber(READER, 1, counts=False)
        else:
            log.queue(9)  # as many facts
        known: list[int] = []
        for _ in range(60):
            parents = chance.sample(known[-6:], min(len(known[-6:]), chance.choice((0, 0, 1, 2))))
            policy, key = chance.choice(list(ParentFailure)), chance.choice(("", "", "k"))
            known.append(log.publish(1, *(message for message in parents), policy=policy, key=key))
        # Facts of rows differ, so all is published first; who answers badly depends on the message and subscriber.
        bad = {(message, number) for message in known for number in (1, 3) if answers.random() < 0.2}
        reader = some_answers(random.Random(seed), 0.5)
        log.pump(lambda one: reader(one) if one.subscriber == READER else BROKEN if (one[0], one[1]) in bad else OK)
        assert not check(log.facts)
        return list(log.states().values())

    assert run(readers=True) == run(readers=False)


DAY_US = 24 * 3_600 * 1_000_000


def unused(log: FactLog, days: float = 1.0, idle_days: float = 5.0) -> list[int]:
    return log.scheduler.unused(int(days * DAY_US), int(idle_days * DAY_US))


def test_a_group_is_unused_only_while_it_could_take_something() -> None:
    """RULES 3: an empty queue, a pause and what is out make nobody idle, however long they last."""
    log = log_with(COUNTED)
    log.subscriber(READER, 1, endpoint=PULL_ENDPOINT, declared=True)
    assert unused(log, 100) == [], "there is nothing to take"
    log.publish(1)
    assert [unused(log) for _ in range(4)] == [[]] * 4
    log.change(READER, paused=True)
    assert unused(log, 100) == []
    log.change(READER, paused=False)
    assert [unused(log) for _ in range(5)] == [[], [], [], [], [READER]]
    log.scheduler.offer(READER, 1)
    (attempt,) = [one for one in log.take() if one.subscriber == READER]
    log.scheduler.offer(READER, 0)
    assert unused(log, 100) == [], "somebody has it"
    log.answer(attempt)
    log.commit()
    log.publish(1)
    assert unused(log, 4.9) == []


@pytest.mark.parametrize("restart", ["none", "checkpoint"])
def test_how_long_a_group_was_unused_is_kept_in_a_checkpoint(restart: str) -> None:
    """RULES 3: who is started anew each day comes to its end as well."""
    log = log_with(COUNTED)
    log.subscriber(READER, 1, endpoint=PULL_ENDPOINT)
    log.publish(1)
    for _ in range(4):
        assert unused(log) == []
        log.start_again(restart)
    assert unused(log) == [READER]


def test_who_is_not_a_group_that_pulls_is_never_unused() -> None:
    """RULES 3: neither webhooks, nor what a TCP format made, nor one that was told not to count."""
    log = log_with(COUNTED)
    log.subscriber(2, 1, endpoint="consumer:framed")
    log.subscriber(3, 1, endpoint=PULL_ENDPOINT, declared=True, counts=False)
    log.subscriber(4, 1, endpoint=PULL_ENDPOINT, counts=False)
    log.publish(1)
    assert unused(log, 100) == [4], "nobody has declared it, and nobody comes"


def test_what_was_cancelled_while_it_was_out_is_not_sent_after_a_start_to_one_that_counts_no_more() -> None:
    """RULES 22: a message ends once. A checkpoint was made while its attempt was out."""
    log = log_with(COUNTED)
    message = log.publish(1)
    assert to(log.take()) == [(message, COUNTED)]
    log.end_all(message, Outcome.DROPPED, Reason.CANCELLED)
    parts = log.scheduler.checkpoint()
    log.scheduler, log.out, log.rows = type(log.scheduler)(), [], []
    log.scheduler.restore(parts, declared(log.facts))
    log.count_otherwise(COUNTED)
    log.pump()
    assert got(log, COUNTED) == []
    assert not check(log.facts)
