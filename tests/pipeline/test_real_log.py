"""Every job on a log that a broker wrote under load, with failures and kill -9: its numbers agree with the broker's own
``/v1`` answers about the same log."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from tests.support.pipeline.broker_log import RealLog

ENDED = {"delivered", "dead", "expired", "dropped", "skipped"}


def read(spark: SparkSession, log: RealLog, kind: str) -> DataFrame:
    return spark.read.format("syncbrok").options(kind=kind, columns="all").load(str(log.storage))


def time_of(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def utc(time: datetime | None) -> datetime | None:
    """Spark gives Python times of the machine's zone, without naming it."""
    return None if time is None else time.astimezone(UTC)


@pytest.fixture(scope="module")
def deliveries(spark: SparkSession, real_log: RealLog) -> list[Row]:
    return read(spark, real_log, "deliveries").orderBy("sequence", "position").collect()


@pytest.fixture(scope="module")
def facts(spark: SparkSession, real_log: RealLog) -> list[Row]:
    return read(spark, real_log, "facts").orderBy("sequence").collect()


def test_the_story_was_told(real_log: RealLog) -> None:
    """The log is what the other tests need: many segments, crash and all; each way for a message to end or to wait."""
    answers = real_log.answers
    assert len(list(real_log.storage.glob("*.log"))) > 5
    states = Counter(message["state"] for message in answers.messages.values())
    assert {"complete", "waiting", "held", "pending", "dead", "expired", "dropped"} <= set(states), states
    reasons = Counter(letter["reason"] for letter in answers.dead_letters)
    assert {"status", "parent_failed", "gone"} <= set(reasons), reasons
    assert max(message["depth"] for message in answers.messages.values()) >= 199
    assert {one.id for one in real_log.acknowledged} <= {message["id"] for message in answers.messages.values()}
    assert 0 < real_log.killed_at < answers.metrics["syncbrok_log_sequence"]


def test_messages_are_what_the_broker_says_they_are(spark: SparkSession, real_log: RealLog) -> None:
    """Every message of ``/v1``, no other, with the same queue, parents, place in the tree, keys, times and headers."""
    known = real_log.answers.messages
    found = {row.sequence: row for row in read(spark, real_log, "messages").collect()}
    assert found.keys() == known.keys()
    sequence_of = {message["id"]: message["sequence"] for message in known.values()}
    for sequence, message in known.items():
        row = found[sequence]
        for name in ("id", "queue", "root", "depth", "key", "idempotency_key", "scope", "parent_failure"):
            assert row[name] == message[name], (sequence, name)
        assert row.parents == message["parents"]
        assert row.parent_sequences == [sequence_of[parent] for parent in message["parents"]]
        assert utc(row.time) == time_of(message["accepted_at"])
        for column, name in (("not_before", "deliver_at"), ("expires", "expires_at")):
            assert utc(row[column]) == (message[name] and time_of(message[name])), (sequence, name)
        assert row.headers == message["headers"]
        assert len(row.content) == message["content_bytes"]
        assert row.content_type == (message["content_type"] or "")
        assert not row.carried
    per_queue = Counter(row.queue for row in found.values())
    assert per_queue == {name: queue["statistics"]["accepted"] for name, queue in real_log.answers.queues.items()}


def told(row: Row) -> tuple[Any, ...]:
    reason, status = None if row.reason == "none" else row.reason, row.status or None
    return (row.attempt, row.outcome, reason, status, row.latency_us / 1_000, utc(row.time))


def test_attempts_are_what_the_broker_says_they_were(real_log: RealLog, deliveries: list[Row]) -> None:
    """Attempt by attempt: outcome, reason, status, latency and time as ``GET /v1/messages/ID`` shows them."""
    assert len(real_log.answers.detailed) > 20
    of_message: dict[int, list[Row]] = {}
    for row in deliveries:
        of_message.setdefault(row.message, []).append(row)
    for message in real_log.answers.detailed:
        for delivery in message["deliveries"]:
            if (message["queue"], delivery["subscriber"]) == real_log.legacy:
                continue  # its deliveries were dropped with it: there are no rows for them
            rows = [
                row
                for row in of_message.get(message["sequence"], ())
                if row.subscriber in {delivery["subscriber"], None}
            ]
            wanted = [
                (
                    *(one[name] for name in ("attempt", "outcome", "reason", "status", "latency_ms")),
                    time_of(one["time"]),
                )
                for one in delivery["attempts"]
            ]
            # A cascade that a replay has taken back is a row of the log still; the broker shows what came after it.
            shown = [row for row in rows if row.attempt or row.subscriber or told(row) in wanted]
            assert [told(row) for row in shown] == wanted, (message["id"], delivery["subscriber"])


def test_deliveries_end_as_the_broker_says(real_log: RealLog, deliveries: list[Row], facts: list[Row]) -> None:
    """Of every delivery of every message: delivered, dead, expired or dropped as ``/v1`` has it, or no end yet."""
    (replayed_at,) = (row.sequence for row in facts if row.kind == "rearmed")
    last = {(row.message, row.subscriber): row for row in deliveries if row.outcome not in {"failed", "late"}}
    states: Counter[str] = Counter()
    for sequence, message in real_log.answers.messages.items():
        for delivery in message["deliveries"]:
            if (message["queue"], delivery["subscriber"]) == real_log.legacy:
                continue
            row = last.get((sequence, delivery["subscriber"])) or last.get((sequence, None))
            states[delivery["state"]] += 1
            if delivery["state"] in ENDED:
                assert row is not None, (message["id"], delivery)
                assert row.outcome == delivery["state"], (message["id"], delivery)
            else:
                # A replay takes back what had ended; then the message waits anew.
                assert row is None or row.sequence < replayed_at, (message["id"], delivery)
    assert states["delivered"] > 300, states


def test_counters_agree(real_log: RealLog, deliveries: list[Row]) -> None:
    """What a subscriber has acknowledged and refused, before the crash and after it, as its statistics count it."""
    attempts = [row for row in deliveries if row.attempt]
    good = Counter((row.queue, row.subscriber) for row in attempts if row.outcome == "delivered")
    bad = Counter((row.queue, row.subscriber) for row in attempts if row.outcome in {"failed", "dead"})
    assert min(row.sequence for row in attempts) < real_log.killed_at < max(row.sequence for row in attempts)
    for place, subscriber in real_log.answers.subscribers.items():
        statistics: dict[str, Any] = subscriber["statistics"]
        assert (good[place], bad[place]) == (statistics["delivered"], statistics["failed"]), place


def test_facts_number_the_whole_log(real_log: RealLog, facts: list[Row]) -> None:
    """Every sequence once, from 1 to the last the broker gave out; every segment opened, all but the last sealed."""
    assert [row.sequence for row in facts] == list(range(1, int(real_log.answers.metrics["syncbrok_log_sequence"]) + 1))
    kinds = Counter(row.kind for row in facts)
    segments = len(list(real_log.storage.glob("*.log")))
    assert (kinds["segment_opened"], kinds["segment_sealed"]) == (segments, segments - 1)
    assert kinds["subscriber_deleted"] == kinds["rearmed"] == 1
    assert kinds["message"] == len(real_log.answers.messages)
