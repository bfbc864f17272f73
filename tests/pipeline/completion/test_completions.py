"""When deliveries ended and messages became complete: the same as the judge of the order finds, fact by fact."""

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from syncbrok.log.format.records import SegmentOpened
from syncbrok.log.offline.order import OrderChecker
from syncbrok.log.offline.order_history import JudgedState
from syncbrok.model.facts import DELETED_SUBSCRIBER, Outcome, Outcomes, RearmedEntry, Reason, SubscriberSet
from syncbrok.model.message import ParentFailure, RetryPolicy, Scope, SubscriberSettings
from syncbrok.model.names import SubscriberId, sequence_of
from syncbrok.pipeline.completion import completions as completion
from syncbrok.pipeline.completion.message_groups import GroupMapper, MessageGroup, map_groups
from syncbrok.pipeline.numpy_columns import NEVER, Longs
from syncbrok.pipeline.states import declared_facts
from syncbrok.pipeline.states.completion_state import NOBODY
from syncbrok.pipeline.states.declared_facts import DeclaredFact, declared
from syncbrok.pipeline.states.packed_ends import outcome_names, reason_names, record_of
from tests.support.delivery.factlog import BROKEN, NO_RETRIES, OK, FactLog, dead_letters
from tests.support.log.segment_files import facts_in, write_log
from tests.support.log.story import Story
from tests.support.pipeline.broker_log import RealLog

ENDED = {"complete", "dead", "expired", "dropped"}
SHORT = RetryPolicy((1.0,), 0.0)
ENDS = (
    "message bigint, subscriber bigint, counted boolean, attempts bigint, ended_record bigint, last_record bigint, "
    "gone_record bigint, outcome string, reason string"
)


def frames(spark: SparkSession, storage: Path) -> tuple[DataFrame, DataFrame, DataFrame]:
    kinds = {"messages": completion.MESSAGES, "deliveries": completion.DELIVERIES, "facts": completion.FACTS}
    read = [
        spark.read.format("syncbrok").option("kind", kind).option("columns", ",".join(columns)).load(str(storage))
        for kind, columns in kinds.items()
    ]
    # Planning a Python source again takes longer than reading this.
    return read[0].persist(), read[1].persist(), read[2]


def found(spark: SparkSession, storage: Path) -> tuple[dict[int, Any], dict[tuple[int, int | None], Any]]:
    """Completions by message, ends by message and subscriber."""
    messages, deliveries, facts = frames(spark, storage)
    known = declared_facts.read(facts)
    each = map_groups(messages, deliveries, known, GroupMapper(_ends, ENDS)).toArrow().to_pylist()
    whole = completion.completions(messages, deliveries, known).toArrow().to_pylist()
    for frame in (messages, deliveries):
        frame.unpersist()
    return {one["message"]: one for one in whole}, {(one["message"], one["subscriber"]): one for one in each}


def _ends(group: MessageGroup) -> pa.Table:
    """Of each delivery the record of its first end and how that was, and the record of how it stands."""
    own = group.state.deliveries

    def numbers(values: Longs, missing: int = NEVER) -> pa.Array:
        return pa.array(values, mask=values == missing)

    return pa.table(
        {
            "message": own.message,
            "subscriber": numbers(own.subscriber, NOBODY),
            "counted": own.counted,
            "attempts": own.attempts,
            "ended_record": numbers(np.where(own.first == NEVER, NEVER, record_of(own.first))),
            "last_record": numbers(np.where(own.last == NEVER, NEVER, record_of(own.last))),
            "gone_record": numbers(own.gone),
            "outcome": outcome_names(own.first),
            "reason": reason_names(own.first),
        }
    )


def written(log: FactLog, storage: Path) -> None:
    """What the scheduler was told, as a log on the disk."""
    told = Story()
    told.facts = log.facts
    write_log(storage, told)


def judged(storage: Path) -> JudgedState:
    checker = OrderChecker()
    for fact in facts_in(storage):
        checker.apply(fact)
    assert not checker.violations
    return checker._now


def differences(now: JudgedState, whole: dict[int, Any], each: dict[tuple[int, int | None], Any]) -> list[str]:
    """Where ends and completions are not what the judge says."""
    said = []
    assert whole.keys() == now.messages.keys()
    for sequence, message in now.messages.items():
        one = whole[sequence]
        judge: tuple[object, ...] = (message.ended_at or None, message.complete_at or None)
        mine: tuple[object, ...] = (one["ended_record"], one["complete_record"])
        if not message.counted:  # the judge derives when it ended, the broker wrote it and is asked itself
            judge, mine = (), ()
        judge += (len(message.counted), len(message.open & message.counted))
        mine += (one["subscribers"], one["open"])
        if judge != mine:
            said.append(f"message {sequence}: {judge} != {mine}")
        for number in message.counted:
            end, ended = each[sequence, number], message.ends(number)
            records = (ended[0].record, ended[-1].record) if ended else (None, None)
            last = None if number in message.open else records[1]
            if (end["ended_record"], end["last_record"]) != (records[0], last):
                said.append(f"delivery {sequence} at {number}: {records}, {last} != {end}")
    return said


# -- histories --------------------------------------------------------------------------------------------------------


def history(chance: random.Random, steps: int) -> FactLog:
    """Random publishes, answers, deletions, cancels and replays, told to the broker's own scheduler."""
    log = FactLog(SHORT)
    log.add(lambda sequence, now: SegmentOpened(sequence, now, (), (), (), ()))
    for queue in (1, 2, 3):
        log.queue(queue)
    for number, queue in ((1, 1), (2, 1), (3, 2)):
        log.subscriber(number, queue)
    for step in range(steps):
        chance.choices((_publish, _pump, _cancel, _replay, _replay_one), (12, 6, 1, 1, 1))[0](log, chance)
        if step == steps // 2:
            log.unsubscribe(2)
            log.subscriber(4, 1)
        log.later(chance.choice((0, 0, 1, 3)))
    _pump(log, chance)
    return log


def _publish(log: FactLog, chance: random.Random) -> None:
    known = [message.sequence for message in log.messages()][-9:]
    parents = chance.sample(known, min(len(known), chance.choice((0, 0, 1, 2))))
    log.publish(
        chance.choice((1, 1, 2, 3)),
        *parents,
        policy=chance.choice(list(ParentFailure)),
        scope=chance.choice(list(Scope)),
        delay_s=chance.choice((0, 0, 0, 2)),
        expires_s=chance.choice((0, 0, 0, 9)),
    )


def _pump(log: FactLog, chance: random.Random) -> None:
    log.pump(lambda _: BROKEN if chance.random() < 0.25 else OK)


def _cancel(log: FactLog, chance: random.Random) -> None:
    waiting = [one.sequence for one in log.messages() if not log.scheduler.ended(one.sequence)]
    if waiting:
        log.end_all(chance.choice(waiting), Outcome.DROPPED, Reason.CANCELLED)


def _replay(log: FactLog, chance: random.Random) -> None:
    number = chance.choice(sorted(log.scheduler.state.cursors))
    dead = [one for one in sorted(dead_letters(log.scheduler, number)) if log.scheduler.ended(one)]
    made = {fact.sequence: fact for fact in log.messages()}
    rows = [row for fact in log.facts if isinstance(fact, Outcomes) for row in fact.rows]
    entries = []
    for sequence in dead:
        above = [sequence_of(parent) for parent in made[sequence].parents]
        parents = tuple(one for one in above if one in dead or not log.scheduler.ended(one))
        tried = [row.attempt for row in rows if row.message == sequence and row.subscriber == number]
        entry = RearmedEntry(sequence, made[sequence].queue, (number,), parents, (max(tried, default=0),))
        entries.append(entry._replace(parent_failure=made[sequence].parent_failure))
    if entries:
        log.rearm(len(log.facts), *entries)


def _replay_one(log: FactLog, chance: random.Random) -> None:
    """Of any that has ended, to some of those it counts, whether they have had it or not."""
    fact = chance.choice(log.messages() or [None])
    counted = log.scheduler.counted(fact.sequence) if fact else ()
    if fact is None or not counted or not log.scheduler.ended(fact.sequence):
        return
    numbers = tuple(sorted(chance.sample(counted, chance.randint(1, len(counted)))))
    parents = tuple(one for one in map(sequence_of, fact.parents) if not log.scheduler.ended(one))
    rows = [row for told in log.facts if isinstance(told, Outcomes) for row in told.rows]
    tried = {row.subscriber: row.attempt for row in rows if row.message == fact.sequence}
    attempts = tuple(tried.get(number, 0) for number in numbers)
    entry = RearmedEntry(fact.sequence, fact.queue, numbers, parents, attempts, fact.parent_failure)
    log.rearm(len(log.facts), entry)


def test_the_judge_agrees_over_a_random_history(spark: SparkSession, tmp_path: Path) -> None:
    """Counted subscribers, first and latest ends, and completion of every message are what ``OrderChecker`` finds: late
    and deleted subscribers, queues without any, cascades, expiries, cancels, both scopes and replays."""
    seed = int(os.environ.get("SYNCBROK_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"SYNCBROK_TEST_SEED={seed}")
    log = history(random.Random(seed), 220)
    written(log, tmp_path)
    now = judged(tmp_path)
    whole, each = found(spark, tmp_path)
    assert not differences(now, whole, each)
    for sequence in now.messages:
        state = log.scheduler.message_state(sequence)
        assert whole[sequence]["outcome"] == (state if state in ENDED else None), sequence


def test_a_dead_letter_counts_though_its_subscriber_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    """RULES 10, 12: what has died at one subscriber is dead when the others have ended, whether that one was deleted
    before them or not; it does not keep a replay to the others from mending it."""
    log = FactLog(NO_RETRIES)
    log.add(lambda sequence, now: SegmentOpened(sequence, now, (), (), (), ()))
    log.queue(1)
    for number in (1, 2):
        log.subscriber(number, 1)
    dead, mended = log.publish(1), log.publish(1)
    out = log.take()
    for attempt in out:
        if attempt.subscriber == 1:
            log.answer(attempt, BROKEN)
    log.commit()
    log.unsubscribe(1)
    for attempt in out:
        if attempt.subscriber == 2:
            log.answer(attempt)
    log.commit()
    assert log.states() == {dead: "dead", mended: "dead"}
    log.rearm(1, RearmedEntry(mended, 1, (2,), (), (1,)))
    log.pump()
    assert log.states() == {dead: "dead", mended: "complete"}
    written(log, tmp_path)
    whole, each = found(spark, tmp_path)
    assert not differences(judged(tmp_path), whole, each)
    assert {sequence: one["outcome"] for sequence, one in whole.items()} == {dead: "dead", mended: "complete"}
    assert (whole[dead]["complete_record"], whole[mended]["complete_record"]) == (None, len(log.facts))


def test_messages_for_nobody_wait_where_one_for_nobody_ended_badly(spark: SparkSession, tmp_path: Path) -> None:
    """RULES 12, 17: with ``hold`` one is not complete at once when its parent, which nobody is subscribed to either,
    died of a parent; with ``deliver`` it is. No record says of either that it waits, nor of those below."""
    log = FactLog(SHORT)
    log.add(lambda sequence, now: SegmentOpened(sequence, now, (), (), (), ()))
    log.queue(1)
    log.queue(2)
    log.subscriber(1, 1)
    top = log.publish(1)
    log.end_all(top, Outcome.DROPPED, Reason.CANCELLED)
    dead = log.publish(2, top)
    log.pump()
    held = log.publish(2, dead, policy=ParentFailure.HOLD)
    delivered = log.publish(2, dead, policy=ParentFailure.DELIVER)
    below = log.publish(2, held, delivered)
    last = log.publish(2, below, policy=ParentFailure.DELIVER)
    log.pump()
    states = {top: "dropped", dead: "dead", held: "held", delivered: "complete", below: "waiting", last: "waiting"}
    assert log.states() == states
    written(log, tmp_path)
    whole, _ = found(spark, tmp_path)
    outcomes = {sequence: one["outcome"] for sequence, one in whole.items()}
    assert outcomes == {sequence: state if state in ENDED else None for sequence, state in states.items()}
    messages, deliveries, facts = frames(spark, tmp_path)
    declared_ = declared_facts.read(facts)
    ways = [completion.with_waiting_messages(messages, deliveries, declared_, at_once).waiting for at_once in (99, 2)]
    at_once, by_ranges = (sorted(row["message"] for row in way.collect()) for way in ways if way is not None)
    assert set(at_once) >= {held, below, last}
    assert by_ranges == at_once


def test_the_judge_agrees_over_a_real_log(spark: SparkSession, real_log: RealLog) -> None:
    """The same on a log that a broker wrote under failures, a replay and kill -9; and the broker says of each message
    what its completion says."""
    whole, each = found(spark, real_log.storage)
    assert not differences(judged(real_log.storage), whole, each)
    for sequence, one in real_log.answers.messages.items():
        assert whole[sequence]["outcome"] == (one["state"] if one["state"] in ENDED else None), one


def test_what_facts_say_of_messages_goes_where_these_are(spark: SparkSession, real_log: RealLog) -> None:
    """Of replays and carried messages, which may be as many as messages, nothing comes to the driver nor goes with
    every task: that there are some is all that is known there."""
    facts = frames(spark, real_log.storage)[2]
    known = declared_facts.read(facts)
    assert known.about is not None
    assert known.about.count() == facts.where("kind in ('rearmed', 'carried_message')").count() > 0
    assert (known.rearmed, known.carried_ends, known.carried_attempts) == ([], [], [])
    assert len(known.subscribers) > 5
    without = declared_facts.read(facts.where("kind <> 'rearmed'"))
    assert without.about is None
    assert without.subscribers == known.subscribers


def test_special_ends(spark: SparkSession, tmp_path: Path) -> None:
    """A test message counts one subscriber; a row of a deleted subscriber changes nothing; a deleted queue drops what
    waits in it, as failed; what retention carried along had ended as the carried record says; a subscriber that
    catches up is not counted; attempts of all lives are told."""
    story = Story(101)
    story.snapshot()
    queue, gone, older = story.queue("orders"), story.queue("closing"), story.queue("older")
    settings = SubscriberSettings(endpoint="http://127.0.0.1:1/")
    story.add(SubscriberSet, 99, older, SubscriberId("old"), 40, settings)
    one, two = story.subscriber(queue), story.subscriber(queue)
    lost = story.subscriber(gone)
    test = story.publish(queue, only=two)
    plain, dropped = story.publish(queue), story.publish(gone)
    story.attempt(plain, one, Outcome.FAILED, attempt=1)
    story.attempt(plain, one, attempt=2)
    cut = story.unsubscribe(two)
    story.attempt(plain, two)
    closed = story.delete_queue(gone)
    late = story.subscriber(queue, start=1)
    story.attempt(plain, late)
    carried = story.carry(story.message(50, older), ended=((99, Outcome.DEAD),))
    nameless = story.carry(story.message(51, older), ended=((DELETED_SUBSCRIBER, Outcome.DEAD),))
    story.carry(story.message(51, older), ended=((DELETED_SUBSCRIBER, Outcome.DEAD),))
    story.attempt(51, 99)
    write_log(tmp_path, story)

    whole, each = found(spark, tmp_path)
    assert [key for key in each if key[0] == test] == [(test, two)]
    assert (each[plain, two]["outcome"], each[plain, two]["ended_record"]) == ("dropped", cut)
    assert (each[plain, one]["attempts"], each[plain, one]["outcome"]) == (2, "delivered")
    assert not each[plain, late]["counted"]
    assert whole[plain]["complete_record"] == cut
    assert (each[dropped, lost]["reason"], each[dropped, lost]["ended_record"]) == ("queue_deleted", closed)
    assert (whole[dropped]["outcome"], whole[dropped]["complete_record"]) == ("dropped", None)
    assert (each[50, 99]["outcome"], each[50, 99]["ended_record"]) == ("dead", carried)
    died = each[51, DELETED_SUBSCRIBER]
    assert (died["counted"], died["outcome"]) == (True, "dead")
    assert (died["ended_record"], died["gone_record"]) == (nameless, nameless)
    assert (whole[51]["outcome"], whole[51]["open"], whole[51]["last_subscriber"]) == ("dead", 0, 99)
    assert judged(tmp_path).messages[51].complete_at == 0


def test_a_subscriber_that_a_snapshot_no_longer_names_is_gone() -> None:
    """What deleted it may have been lost with a part of the log."""
    subscriber = {"number": 7, "queue": 1, "id": "crm", "since": 3, "settings": {"endpoint": "http://one/"}}
    known = declared(
        [
            DeclaredFact(3, 30, "subscriber_set", subscriber),
            DeclaredFact(9, 90, "segment_opened", {"queues": [], "subscribers": [subscriber]}),
            DeclaredFact(12, 120, "segment_opened", {"queues": [{"number": 1, "name": "orders"}], "subscribers": []}),
            DeclaredFact(15, 150, "subscriber_deleted", {"number": 7}),
        ]
    )
    gone = known.subscribers[7]
    assert (gone.gone_record, gone.gone_us, gone.gone_with_queue) == (12, 120, False)
    assert known.queue_name(1) == "orders"
    assert known.queues[1].deleted_us == 0
