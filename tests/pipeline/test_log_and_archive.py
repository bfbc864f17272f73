"""Archive and live log as one frame: no row twice and none missing, whatever retention and the broker do meanwhile."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from syncbrok.log.segments.segment import segment_bases
from syncbrok.model.errors import BadSetting
from syncbrok.pipeline import log_snapshot, schema
from syncbrok.pipeline.archive.commit import FOLDER, AnotherLog
from syncbrok.pipeline.archive.job import archive
from syncbrok.pipeline.archive.manifest import RowChecksum
from syncbrok.pipeline.archive.parquet_rows import aggregates, hashed, row_checksum
from syncbrok.pipeline.archive.range_source import LogRange
from syncbrok.pipeline.log_and_archive import LogAndArchive, read
from syncbrok.pipeline.map_in_arrow import RecordBatches
from syncbrok.pipeline.schema import KINDS
from syncbrok.pipeline.spark_errors import explained
from tests.support.broker.process import BrokerProcess
from tests.support.log.journals import START_US
from tests.support.pipeline.archive_log import WrittenLog
from tests.support.pipeline.broker_log import RealLog
from tests.support.polling import eventually_blocking

pytestmark = pytest.mark.usefixtures("cheap_plans")


def test_a_look_stays_what_it_was(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """While messages are published, segments sealed, archived and dropped, a frame says what was there when it was
    made, or that this is gone; a new look has everything once. The union has the columns of the source, in order."""
    out = str(tmp_path / "out")
    log.fill(2)
    archive(spark, log.directory, out)
    log.fill(1)
    log.publish(5)
    first = list(log.messages)
    log.end(first[-5:])  # a record behind them says that they are on the disk
    whole = LogAndArchive(spark, log.directory, out)
    assert {kind: whole.read(kind).columns for kind in KINDS} == {
        kind: [one.name for one in schema.columns_of(kind)] for kind in KINDS
    }
    messages = whole.read("messages", "sequence")
    in_tasks = whole.rows("messages", "sequence").mapInArrow(as_they_are, "sequence bigint")
    log.publish(5)
    assert sequences(messages) == sequences(in_tasks) == first
    log.drop(2)
    assert sequences(messages) == sequences(in_tasks) == first, "what was archived then is read from there"
    again = whole.read("messages", "sequence,id")
    log.roll()
    archive(spark, log.directory, out)
    log.drop(2)
    ids = whole.rows("messages", "id")
    for late in (again.count, in_tasks.count, lambda: ids.mapInArrow(as_they_are, "id string")):
        with pytest.raises(Exception, match="retention") as raised:
            late()
        assert explained(raised.value).kind == "Gone"
    assert sequences(read(spark, log.directory, out, columns="sequence")) == log.messages


def as_they_are(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    yield from batches


def sequences(frame) -> list[int]:
    return sorted(row["sequence"] for row in frame.collect())


def test_tasks_read_each_part_once(spark: SparkSession, log: WrittenLog) -> None:
    """Cut into many parts, rows that Spark never meets are those that it is handed, and as typed."""
    log.fill(4)
    log.end(log.messages[-40:])
    last = log_snapshot.take_snapshot(log.directory).durable
    for kind in KINDS:
        rows = LogRange(spark, str(log.directory), kind, 1, last, partitionBytes="2KiB")
        frame = rows.frame()
        schema = ", ".join(f"`{one.name}` {one.dataType.simpleString()}" for one in frame.schema)
        in_tasks = rows.mapInArrow(as_they_are, schema)
        assert in_tasks.rdd.getNumPartitions() > 2
        assert sorted(map(repr, in_tasks.collect())) == sorted(map(repr, frame.collect()))


def test_looks_beside_a_broker_that_does_not_wait(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """Segments are sealed, archived and dropped by others between the two halves of a look, again and again: each look
    has every message that was published before it, once."""
    out = str(tmp_path / "out")
    log.fill(1, messages=10)
    archive(spark, log.directory, out)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            log.fill(1, messages=10)
            archive(spark, log.directory, out)
            log.drop(1)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(6):
            before = list(log.messages)
            found = sequences(read(spark, log.directory, out, columns="sequence"))
            assert found[: len(before)] == before
            assert len(found) == len(set(found))
    finally:
        stop.set()
        worker.join()


def test_times_choose_rows_and_files(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """``since`` and ``until`` hold for both halves alike, as text and as times, and files of other times are not
    opened."""
    out = str(tmp_path / "out")
    log.fill(4, messages=10)
    archive(spark, log.directory, out)
    log.fill(2, messages=10)
    whole = LogAndArchive(spark, log.directory, out)
    since = datetime.fromtimestamp(START_US / 1e6, UTC) + timedelta(hours=7)
    until = since + timedelta(hours=32)
    for kind in KINDS:
        every = whole.read(kind).collect()
        wanted = [row for row in every if since <= row["time"].replace(tzinfo=UTC) < until]
        chosen = whole.read(kind, since=since, until=until.isoformat())
        assert len(chosen.collect()) == len(wanted)
        assert 0 < len(wanted) < len(every)
        assert len(chosen.inputFiles()) < len(whole.read(kind).inputFiles())
    with pytest.raises(BadSetting, match="no time zone"):
        whole.read(since=datetime(2026, 1, 1))  # noqa: DTZ001


def test_rows_before_a_moment(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """They are the same from the archive and from the log, as rows of Spark and where a task decodes them; what is
    left out twice is left out."""
    log.fill(4, messages=10)
    archive(spark, log.directory, str(tmp_path / "out"))
    log.fill(2, messages=10)
    times = sorted(row["time"] for row in read(spark, log.directory, columns="time").collect())
    for end in (times[25], times[-1]):
        wanted = [time for time in times if time < end]
        later = end.replace(tzinfo=UTC) + timedelta(days=1)
        every = LogAndArchive(spark, log.directory, str(tmp_path / "out")).rows("messages", "time")
        rows = every.before("time", end.replace(tzinfo=UTC)).before("time", later)
        told = rows.mapInArrow(as_they_are, "time timestamp")
        assert sorted(row["time"] for row in rows.frame().collect()) == wanted
        assert sorted(row["time"] for row in told.collect()) == wanted


def test_what_cannot_be_read_together(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """No archive where one is said to be; neither a log nor an archive; the archive of another log."""
    with pytest.raises(BadSetting, match="there is no archive at"):
        read(spark, log.directory, str(tmp_path / "nothing"))
    with pytest.raises(BadSetting, match="neither"):
        read(spark, None)
    log.fill(1)
    archive(spark, log.directory, str(tmp_path / "out"))
    other = WrittenLog(tmp_path / "other")
    other.close()
    with pytest.raises(AnotherLog, match="give each log"):
        read(spark, other.directory, str(tmp_path / "out"))


def test_a_lost_manifest_is_read_from_the_log(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """A hole in the archive that the log still has costs nothing: from there on the log is read, and the next run
    fills the hole."""
    out = tmp_path / "out"
    log.fill(2, messages=10)
    archive(spark, log.directory, str(out), group_bytes=1)
    lost = sorted((out / FOLDER).glob("*.json"))[1]
    lost.unlink()
    whole = LogAndArchive(spark, log.directory, str(out))
    assert (sequences(whole.read(columns="sequence")), whole.gaps) == (log.messages, [])
    alone = LogAndArchive(spark, None, str(out))
    assert [len(sequences(alone.read())), len(alone.gaps)] == [10, 1]
    assert archive(spark, log.directory, str(out)).segments == 1
    assert sequences(read(spark, None, str(out))) == log.messages


def test_a_brokers_retention_waits_for_the_archive(spark: SparkSession, real_log: RealLog, tmp_path: Path) -> None:
    """A real log under a broker whose retention is over for all of it: it drops nothing until it is archived, then
    everything sealed; archive and log together still have each message of ``/v1`` once, and every delivery and fact as
    they were, though the broker has carried along what had not ended."""
    storage, out = real_log.copied(tmp_path), str(tmp_path / "out")
    config = "storage: {segment: 64KiB, retention: 1s, archive: pipeline}\n"
    broker = BrokerProcess(storage, config=config)
    before = LogAndArchive(spark, storage)
    expected = {kind: summed(before.read(kind), kind) for kind in KINDS}
    last = before.read("facts").agg({"sequence": "max"}).collect()[0][0]
    first = segment_bases(storage)
    with broker:
        eventually_blocking(lambda: "retention_waits_for_archive" in broker.output(), "the broker waits")
        assert segment_bases(storage)[: len(first)] == first
        assert broker.terminate() == 0
    done = archive(spark, storage, out)
    assert (done.gaps, done.noted) == ((), done.segments)
    with broker:
        eventually_blocking(lambda: segment_bases(storage)[0] > done.last, "all that is archived has gone")
        assert broker.terminate() == 0
    whole = LogAndArchive(spark, storage, out)
    assert {kind: summed(whole.read(kind).where(f"sequence <= {last}"), kind) for kind in KINDS} == expected
    assert sequences(whole.read("messages", "sequence")) == sorted(real_log.answers.messages)
    assert whole.gaps == []


def summed(frame: DataFrame, kind: str) -> RowChecksum:
    """Count and checksum."""
    return row_checksum(hashed(frame, kind).agg(*aggregates()).collect()[0].asDict())
