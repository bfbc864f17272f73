"""Kinds ``states``, ``queues`` and ``subscribers`` on logs of real brokers: what ``/v1`` says, delivery by delivery."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline import log_snapshot, schema
from syncbrok.pipeline.completion import completions as completion
from syncbrok.pipeline.decode.open_segment import index_of
from syncbrok.pipeline.decode.query import CarriedRule, Query
from syncbrok.pipeline.decode.row_reader import read
from syncbrok.pipeline.log_snapshot import LogSnapshot
from syncbrok.pipeline.source.data_source import SyncbrokDataSource
from syncbrok.pipeline.states import state_reader
from tests.support.log.journals import open_journal
from tests.support.pipeline.broker_log import RealLog
from tests.support.pipeline.states_log import StatesLog

Rows = list[dict[str, Any]]
FREQUENT = ("message", "outcomes")
OPEN = ("blocked", "pending", "in_flight")
"""which of them a delivery is, no record about it says"""


def load(spark: SparkSession, path: Path, kind: str = "states", **options: str) -> DataFrame:
    return spark.read.format("syncbrok").options(kind=kind, **options).load(str(path))


def plainly(storage: Path, kind: str = "states", partition_bytes: int = 1 << 30, least: int = 1) -> Rows:
    """The rows without Spark, in an order of their own."""
    log = log_snapshot.take_snapshot(storage)
    query = Query(kind, schema.columns_of(kind))
    work = state_reader.plan(log, query, partition_bytes, least)
    rows: Rows = [row for one in work for batch in state_reader.read(one, log.uuid, query) for row in batch.to_pylist()]
    return in_order(rows)


def rows_of(log: LogSnapshot, kind: str, columns: str) -> Rows:
    query, parts = Query(kind, schema.columns_of(kind, columns)), log_snapshot.slices(log)
    return [row for one in parts for batch in read(one, log.uuid, query, CarriedRule()) for row in batch.to_pylist()]


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["message"], row["subscriber_number"]) if "message" in row else (0,))


def by_delivery(rows: Rows) -> dict[tuple[int, str | None], dict[str, Any]]:
    found = {(row["message"], row["subscriber"]): row for row in rows}
    assert len(found) == len(rows), "a delivery is one row"
    return found


def how(row: dict[str, Any] | None) -> tuple[Any, ...] | None:
    return None if row is None else (row["state"], row["counted"])


def listed(messages: dict[int, dict[str, Any]]) -> dict[tuple[int, str], tuple[dict[str, Any], dict[str, Any]]]:
    """Message and delivery, as the broker shows them, by sequence and subscriber."""
    return {
        (at, one["subscriber"]): (message, one) for at, message in messages.items() for one in message["deliveries"]
    }


def stands(delivery: dict[str, Any]) -> tuple[Any, ...]:
    """As a row says it: the state, whether it counts."""
    state = "open" if delivery["state"] in OPEN else delivery["state"]
    return state, delivery["counted"]


def is_as_told(row: dict[str, Any] | None, message: dict[str, Any], delivery: dict[str, Any]) -> bool:
    """Whether the row says what ``GET /v1/messages/{id}`` says of a delivery."""
    if row is None or how(row) != stands(delivery) or row["queue"] != message["queue"]:
        return False
    attempts = max((one["attempt"] for one in delivery["attempts"]), default=None)
    # Where retention has dropped the rows, what was carried along tells how many there were.
    return row["reason"] == (delivery["reason"] or None) and attempts in (None, row["attempts"])


def test_each_delivery_of_a_log_with_failures_stands_as_the_broker_says(spark: SparkSession, real_log: RealLog) -> None:
    """Every delivery of every message, after kill -9, a replay, cancels and a deleted subscriber, and no other row;
    of some messages reasons and attempts as well."""
    found = by_delivery([row.asDict() for row in load(spark, real_log.storage).collect()])
    answers = real_log.answers
    counted = {
        (at, one["subscriber"]): one for at, message in answers.messages.items() for one in message["deliveries"]
    }
    wrong = [(key, one, found.get(key)) for key, one in counted.items() if stands(one) != how(found.get(key))]
    assert not wrong, wrong[:5]
    # Lists leave out whom has been deleted.
    assert {subscriber for at, subscriber in found.keys() - counted.keys()} == {real_log.legacy[1]}
    for message in answers.detailed:
        for one in message["deliveries"]:
            assert is_as_told(found.get((message["sequence"], one["subscriber"])), message, one), (message, one)
    states = Counter(row["state"] for row in found.values())
    assert {"open", "paused", "delivered", "dead", "expired", "dropped"} <= set(states), states


@pytest.mark.parametrize("after_retention", [False, True], ids=["whole", "after retention"])
def test_each_end_there_is_stands_as_the_broker_says(
    states_logs: tuple[StatesLog, StatesLog], *, after_retention: bool
) -> None:
    """Deleted queues and subscribers, whose ends have no row, filters, seeks, replays under way and done, dropped dead
    letters, whoever does not count or catches up, kill -9: every delivery that the broker shows is a row, and no other;
    so after retention, which carries what has not ended. What it dropped has no row."""
    told = states_logs[after_retention]
    found = by_delivery(plainly(told.storage))
    wanted = {
        (at, one["subscriber"]): (message, one)
        for at, message in told.messages.items()
        for one in message["deliveries"]
    }
    wrong = [(key, one, found.get(key)) for key, (of, one) in wanted.items() if not is_as_told(found.get(key), of, one)]
    assert not wrong, wrong[:5]
    assert found.keys() == wanted.keys()
    seen = {(one["state"], one["reason"]) for _, one in wanted.values()}
    if after_retention:
        assert len(told.gone) > 100
        assert {state for state, _ in seen} >= {"paused", "blocked", "retrying", "delivered", "dead"}
    else:
        reasons = {"unsubscribed", "queue_deleted", "cancelled", "discarded", "seek", "filtered", "status"}
        assert {reason for _, reason in seen} >= reasons, seen


def test_times_say_since_when(states_logs: tuple[StatesLog, StatesLog]) -> None:
    """An end has its time, and so has what waits: that of its acceptance, of its last attempt, or of the replay that
    sends it again."""
    whole, _ = states_logs
    for row in plainly(whole.storage):
        is_open = row["state"] in ("open", "paused", "retrying")
        assert (row["ended"] is None) == is_open, row
        assert row["since"] >= row["accepted"]
        assert is_open or row["since"] == row["ended"]
    (waiting,) = (row for row in plainly(whole.storage) if row["state"] == "retrying")
    assert waiting["since"] > waiting["accepted"]
    (again,) = (row for row in plainly(whole.storage) if row["state"] == "paused" and row["attempts"])
    assert again["since"] > again["accepted"]


@pytest.mark.parametrize("after_retention", [False, True], ids=["whole", "after retention"])
def test_parts_make_no_difference(
    states_logs: tuple[StatesLog, StatesLog], tmp_path: Path, *, after_retention: bool
) -> None:
    """However the log is shared out among tasks, and whether its segments have sidecars or not, the rows are the
    same."""
    storage = states_logs[after_retention].storage
    whole = plainly(storage)
    assert plainly(storage, partition_bytes=10_000, least=5) == whole
    bare = Path(shutil.copytree(storage, tmp_path / "bare"))
    for sidecar in bare.glob("*.idx"):
        sidecar.unlink()
    assert plainly(bare, partition_bytes=10_000, least=5) == whole


def test_a_task_reads_what_is_about_its_messages(states_logs: tuple[StatesLog, StatesLog]) -> None:
    """Of the segments behind its own a task reads no block that says nothing of them."""
    whole, _ = states_logs
    log = log_snapshot.take_snapshot(whole.storage)
    query = Query("states", schema.columns_of("states"))
    kinds = {row["sequence"]: row["kind"] for row in rows_of(log, "facts", "sequence,kind")}
    rows = rows_of(log, "deliveries", "sequence,message")
    for segment in log.segments[:-1]:
        index = index_of(segment, log.uuid)
        assert index is not None
        rare = [at for at, kind in kinds.items() if segment.base <= at < segment.last and kind not in FREQUENT]
        assert (state_reader._other_places(index) + segment.base).tolist() == rare
        about = {row["sequence"] for row in rows if 51 <= row["message"] <= 70 and row["sequence"] <= segment.last}
        places = state_reader._row_places(index, 51, 70) + segment.base
        assert places.tolist() == sorted(one for one in about if one >= segment.base)
        assert about
    blocks = state_reader._blocks(log.segments[0], np.array([3, 17, 90]), 10)
    assert [(one.first, one.last) for one in blocks] == [(1, 20), (91, 100)]
    work = state_reader.plan(log, query, 10_000, 5)
    assert len(work) > 2
    last = max(work, key=lambda one: one.low)
    assert {one.segment.base for one in last.others} < {one.base for one in log.segments}


def test_several_logs_columns_queues_and_times(
    spark: SparkSession, real_log: RealLog, states_logs: tuple[StatesLog, StatesLog]
) -> None:
    """Two logs make one frame, which says of which log each row is; columns, a queue and the time of acceptance choose
    rows."""
    whole, _ = states_logs
    rows = plainly(whole.storage)
    chosen = spark.read.format("syncbrok").options(kind="states", columns="message,state")
    both = chosen.load([str(whole.storage), str(real_log.storage)]).groupBy("log").count().collect()
    sizes = {row.log: row["count"] for row in both}
    uuid = log_snapshot.take_snapshot(whole.storage).uuid.hex()
    assert sizes[uuid] == len(rows)
    assert len(sizes) == 2
    until = rows[20]["accepted"]
    some = load(spark, whole.storage, queue="orders,moving", until=until.isoformat()).collect()
    wanted = [row for row in rows if row["queue"] in ("orders", "moving") and row["accepted"] < until]
    assert sorted(row.message for row in some) == [row["message"] for row in wanted] != []


def test_from_frames_of_an_archive_it_is_the_same(
    spark: SparkSession, states_logs: tuple[StatesLog, StatesLog]
) -> None:
    """``completions.states`` makes of rows of the three kinds, wherever they come from, what the source makes of a
    log."""
    for told in states_logs:
        kinds = {"messages": completion.MESSAGES, "deliveries": completion.DELIVERIES, "facts": completion.FACTS}
        frames = [load(spark, told.storage, kind, columns=",".join(columns)) for kind, columns in kinds.items()]
        made = completion.states(*frames).toArrow().to_pylist()
        assert in_order(made) == plainly(told.storage)


def test_what_is_declared_at_the_end_of_the_log(spark: SparkSession, states_logs: tuple[StatesLog, StatesLog]) -> None:
    """Queues and subscribers with the settings that ``/v1`` shows, since when, and those that were deleted; where the
    log begins later nobody knows since when."""
    whole, after = states_logs
    queues = {row.queue: row for row in load(spark, whole.storage, "queues").collect()}
    assert {name for name, row in queues.items() if row.deleted is None} == {name for name, _ in whole.subscribers}
    assert queues["closing"].deleted > queues["closing"].declared
    assert json.loads(queues["held"].settings)["parent_failure"] == "hold"
    found = {(row.queue, row.subscriber): row for row in load(spark, whole.storage, "subscribers").collect()}
    there = {key for key, row in found.items() if row.deleted is None}
    assert there == whole.subscribers.keys()
    assert found.keys() - there == {("closing", "last"), ("closing", "first"), ("leaving", "leaves")}
    for key, told in whole.subscribers.items():
        row = found[key]
        assert (row.state == "paused", row.counts, row.since) == (told["paused"], told["counts"], told["since"]), told
        assert json.loads(row.settings)["endpoint"] == (told["endpoint"] or ""), told
    later = load(spark, after.storage, "subscribers", queue="orders").collect()
    assert {row.subscriber: row.declared for row in later} == dict.fromkeys(("good", "bad", "resting", "picky"))


def test_what_makes_no_sense_is_refused(spark: SparkSession, real_log: RealLog) -> None:
    """States are of a whole log, so they make no stream; what is declared has no time to choose by."""
    source = SyncbrokDataSource({"path": str(real_log.storage), "kind": "states"})
    with pytest.raises(BadSetting, match="makes no stream: read it as a batch"):
        source.streamReader(StructType.fromDDL(source.schema()))
    with pytest.raises(AnalysisException, match="since and until are for rows with a time"):
        load(spark, real_log.storage, "queues", since="2026-01-01T00:00:00Z").collect()


def test_an_empty_log_has_no_deliveries(spark: SparkSession, tmp_path: Path) -> None:
    """Nor anything declared."""
    open_journal(tmp_path).close()
    assert [load(spark, tmp_path, kind).collect() for kind in schema.DERIVED] == [[], [], []]
