"""The log as a stream: nothing is read twice, nothing is left out, whatever happens to the files in between."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from syncbrok.log.journal import FileJournal
from syncbrok.model.errors import BadSetting, Gone
from syncbrok.model.facts import Carried, StoredMessage
from syncbrok.pipeline.source.options import stream_options
from syncbrok.pipeline.source.stream import SyncbrokStreamReader
from tests.support.log.journals import open_journal, publish, roll
from tests.support.log.segment_files import facts_in

ALL = ReadAllAvailable()
Offset = dict[str, Any]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FileJournal]:
    opened = open_journal(tmp_path / "log")
    yield opened
    opened.close()


def reader(directory: Path, **options: str) -> SyncbrokStreamReader:
    return SyncbrokStreamReader(stream_options({"path": str(directory / "log"), "columns": "sequence", **options}))


def batch(one: SyncbrokStreamReader, start: Offset, limit: Any = ALL) -> tuple[list[int], Offset]:
    """What a trigger reads from ``start`` on, and where it ends; the offsets go through JSON, as in a checkpoint."""
    end = json.loads(json.dumps(one.latestOffset(start, limit)))
    rows = [
        row["sequence"]
        for part in one.partitions(start, end)
        for records in one.read(part)
        for row in records.to_pylist()
    ]
    return rows, end


def carry(journal: FileJournal, kept: StoredMessage) -> None:
    journal.append(journal.prepare([Carried(journal.next_sequence, kept.time_us, kept, (), ())]))


def test_a_stream_follows_a_log_over_rolls_and_restarts(tmp_path: Path, journal: FileJournal) -> None:
    """Each message comes once, in order, while the broker writes and rolls, and a reader made anew goes on where the
    one before stood."""
    one = reader(tmp_path)
    at = one.initialOffset()
    seen: list[int] = []
    wanted: list[int] = []
    for number in range(8):
        wanted += [fact.sequence for fact in publish(journal, 5)]
        if number % 3 == 2:
            roll(journal)
        rows, at = batch(one, at)
        seen += rows
        assert batch(one, at)[0] == []
        one = reader(tmp_path) if number % 2 else one
    journal.close()
    rows, at = batch(reader(tmp_path), at)
    assert seen + rows == wanted
    assert reader(tmp_path).latestOffset(at, ALL) == at


def test_a_trigger_reads_no_more_than_its_limits(tmp_path: Path, journal: FileJournal) -> None:
    """Records and bytes bound a trigger, in sealed segments and the live one; one record at least is read; all that is
    there where Spark asks for all."""
    for _ in range(3):
        publish(journal, 40)
        roll(journal)
    publish(journal, 40)
    publish(journal, 1)
    whole, _ = batch(reader(tmp_path), reader(tmp_path).initialOffset())
    for options, limit, most in (
        ({"maxRecordsPerTrigger": "7"}, ReadMaxRows(7), 7),
        ({"maxBytesPerTrigger": "1500"}, ReadMaxBytes(1500), 15),
        ({"maxBytesPerTrigger": "1"}, ReadMaxBytes(1), 1),
        ({"maxBytesPerTrigger": "9000"}, ReadMaxBytes(9000), 90),
    ):
        one = reader(tmp_path, **options)
        assert one.getDefaultReadLimit() == limit
        at, seen, sizes = one.initialOffset(), [], []
        while True:
            rows, end = batch(one, at, limit)
            if end == at:
                break
            seen += rows
            sizes.append(end["next"] - at["next"])
            at = end
        assert seen == whole
        assert max(sizes) <= most
        assert min(sizes[:-1]) >= min(most, 7) // 2
        assert batch(one, one.initialOffset(), ALL)[0] == whole


def test_available_now_ends(tmp_path: Path, journal: FileJournal) -> None:
    """What comes after the beginning of such a query is left to the next one."""
    publish(journal, 10)
    publish(journal, 1)
    one = reader(tmp_path, maxRecordsPerTrigger="4")
    one.prepareForTriggerAvailableNow()
    at = one.initialOffset()
    publish(journal, 50)
    publish(journal, 1)
    seen: list[int] = []
    while (found := batch(one, at, ReadMaxRows(4)))[1] != at:
        seen += found[0]
        at = found[1]
    assert seen == list(range(2, 12))


@pytest.mark.parametrize(("starting", "first"), [("earliest", 2), ("latest", 14), ("7", 7), ("14", 14), ("17", 17)])
def test_where_a_stream_begins(tmp_path: Path, journal: FileJournal, starting: str, first: int) -> None:
    """At the beginning, behind all there is, or at a sequence that may still be to come."""
    publish(journal, 12)
    publish(journal, 2)
    journal.sync()
    one = reader(tmp_path, startingSequence=starting)
    at = one.initialOffset()
    assert one.latestOffset(at, ALL)["next"] >= at["next"]
    publish(journal, 5)
    journal.close()
    rows, at = batch(one, at)
    assert rows == list(range(first, 21))


def test_a_lost_range_is_an_error_that_names_it(tmp_path: Path, journal: FileJournal) -> None:
    """What retention dropped unread is an error, unless told otherwise: then the stream goes on behind it, and what was
    carried out of it is read."""
    (kept, *_) = publish(journal, 3)
    roll(journal)
    publish(journal, 2)
    one = reader(tmp_path)
    at = one.initialOffset()
    carry(journal, kept)
    journal.trim_oldest()
    publish(journal)
    publish(journal)
    with pytest.raises(Gone, match="sequences 1 to 5 were dropped by retention before the stream read them"):
        one.latestOffset(at, ALL)
    with pytest.raises(Gone, match="sequences 1 to 5"):
        one.partitions(at, {**at, "next": 8})
    rows, _ = batch(reader(tmp_path, failOnDataLoss="false"), at)
    assert rows == [7, 8, 2, 10]


def test_carried_messages_come_once(tmp_path: Path, journal: FileJournal) -> None:
    """A stream that read a message does not get it again when retention carries it along; one that begins later gets
    it from where it was carried to, once."""
    (kept, *_) = publish(journal, 3)
    roll(journal)
    early = reader(tmp_path)
    seen, at = batch(early, early.initialOffset())
    assert seen == [2, 3, 4]
    carry(journal, kept)
    carry(journal, kept)
    journal.trim_oldest()
    publish(journal)
    publish(journal)
    assert batch(early, at)[0] == [9]
    late = reader(tmp_path)
    start = late.initialOffset()
    roll(journal)
    carry(journal, kept)
    publish(journal)
    rows, end = batch(late, start)
    assert rows == [2, 9, 10], "by the last record that carried it when the stream began"
    journal.trim_oldest()
    publish(journal)
    assert 2 not in batch(late, end)[0]


def test_a_stream_begins_by_time_and_ends_by_sequence(tmp_path: Path, journal: FileJournal) -> None:
    """PIPELINE, stream: ``startingTime`` is the first record since then, in whichever segment; ``endingSequence`` is
    the last that is read, whatever comes."""
    publish(journal, 5)
    roll(journal)
    publish(journal, 5)
    publish(journal)
    times_us = {fact.sequence: fact.time_us for fact in facts_in(tmp_path / "log")}
    for sequence in (2, 4, 9):
        first = min(at for at, time_us in times_us.items() if time_us >= times_us[sequence])
        one = reader(tmp_path, startingTime=str(times_us[sequence] / 1e6), endingSequence="10")
        start = one.initialOffset()
        assert start["next"] == first
        rows, end = batch(one, start, ALL)
        assert rows == [at for at in range(first, 11) if at not in (7, 8)], "these end a segment and begin the next"
        assert batch(one, end, ALL) == ([], end)
    assert reader(tmp_path, startingTime="2100-01-01T00:00:00Z").initialOffset() == one.reportLatestOffset()
    with pytest.raises(BadSetting, match="both say where to begin: give one"):
        stream_options({"path": "x", "startingTime": "2026-01-01T00:00:00Z", "startingSequence": "4"})


def test_a_checkpoint_of_another_log_is_refused(tmp_path: Path, journal: FileJournal) -> None:
    """So is one that is ahead of its log: it was restored from an older copy."""
    publish(journal, 3)
    publish(journal)
    one = reader(tmp_path)
    at = one.latestOffset(one.initialOffset(), ALL)
    with pytest.raises(BadSetting, match=r"the checkpoint is of the log 00.*another checkpointLocation"):
        one.latestOffset({**at, "log": "00" * 16}, ALL)
    with pytest.raises(BadSetting, match=r"goes on with sequence 99; .* ends with 4"):
        one.latestOffset({**at, "next": 99}, ALL)
    with pytest.raises(BadSetting, match="none of this source"):
        one.latestOffset({"a": 1}, ALL)
    rows, _ = batch(one, {**at, "next": 3, "offset": 77}, ALL)
    assert rows == [3, 4], "a hint that is wrong is not trusted"


def test_a_streams_options_are_checked() -> None:
    """A value that an option cannot have is named with what it can."""
    with pytest.raises(BadSetting, match="maxBytesPerTrigger: expected a size such as 4096, 512KiB"):
        stream_options({"path": "x", "maxBytesPerTrigger": "much"})
    with pytest.raises(BadSetting, match="since: expected a time such as"):
        stream_options({"path": "x", "since": "yesterday"})
    with pytest.raises(BadSetting, match="earliest, latest or a sequence"):
        stream_options({"path": "x", "startingSequence": "soon"})
    with pytest.raises(BadSetting, match="failOnDataLoss is 'no'; it must be true or false"):
        stream_options({"path": "x", "failOnDataLoss": "no"})
    with pytest.raises(BadSetting, match="maxRecordsPerTrigger is '0'; it must be a whole number from 1 on"):
        stream_options({"path": "x", "maxRecordsPerTrigger": "0"})


def test_a_query_of_spark_goes_on_from_its_checkpoint(
    tmp_path: Path, journal: FileJournal, spark: SparkSession
) -> None:
    """Through Spark, with a checkpoint: two runs with a roll between them read each message once; limits make several
    batches."""
    batches: list[list[int]] = []

    def keep(frame: DataFrame, _: int) -> None:
        batches.append(sorted(row.sequence for row in frame.select("sequence").collect()))

    def run() -> None:
        stream = spark.readStream.format("syncbrok").option("maxRecordsPerTrigger", "30").load(str(tmp_path / "log"))
        writing = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.trigger(availableNow=True).start()
        assert query.awaitTermination(60)

    publish(journal, 50)
    publish(journal)
    run()
    assert len(batches) == 2
    roll(journal)
    publish(journal, 5)
    journal.close()
    run()
    assert [one for some in batches for one in some] == [*range(2, 53), *range(55, 60)]
