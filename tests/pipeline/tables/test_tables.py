"""The Delta tables of an archive through ``format("syncbrok")``: the rows that the log has, of one moment."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from syncbrok.model.errors import BadSetting, Gone
from syncbrok.pipeline import schema
from syncbrok.pipeline.archive.job import archive
from syncbrok.pipeline.object_store import ArchivePlace, place_in
from syncbrok.pipeline.schema import KINDS
from syncbrok.pipeline.source.data_source import SyncbrokReader
from syncbrok.pipeline.source.options import batch_options, stream_options
from syncbrok.pipeline.spark_conf import set_for_now
from tests.pipeline.conftest import CHEAP_PLANS
from tests.support.log.journals import START_US
from tests.support.pipeline.archive_log import DAY_US, WrittenLog


class Archived(NamedTuple):
    """A log with its archive, which ends with sequence ``through``."""

    log: WrittenLog
    out: Path
    through: int


@pytest.fixture(scope="module")
def archived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archived]:
    """Two commits with rows of several queues and days, and a message behind them."""
    folder = tmp_path_factory.mktemp("archived")
    log = WrittenLog(folder / "log")
    log.fill(2, messages=24)
    with set_for_now(spark, CHEAP_PLANS):
        done = archive(spark, log.directory, str(folder / "out"), delta=True, group_bytes=1)
    log.publish(1)
    yield Archived(log, folder / "out", done.through)
    log.close()


@pytest.fixture
def copy(archived: Archived, tmp_path: Path) -> Path:
    """A copy of the archive, to be changed."""
    shutil.copytree(archived.out, tmp_path / "copy")
    return tmp_path / "copy"


def rows(path: Path, **options: str) -> list[str]:
    """What the tasks read, sorted."""
    reader = SyncbrokReader(batch_options({"path": str(path), "columns": "all", **options}))
    wanted = schema.arrow_schema(reader._options.columns)
    found: list[Any] = []
    for part in reader.partitions():
        for batch in reader.read(part):
            assert batch.schema.equals(wanted), "Spark refuses any other"
            found += batch.to_pylist()
    return sorted(map(repr, found))


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_has_the_rows_of_the_log(archived: Archived, kind: str) -> None:
    """Every column of every row; by queue, time and sequence the same ones, in as many parts as are asked for."""
    since, until = (str((START_US + days * DAY_US) / 1e6) for days in (0.3, 0.9))
    for more in (
        {},
        {"queue": "007, 2024-01-02"},
        {"since": since, "until": until},
        {"startingSequence": "20", "endingSequence": "50", "minPartitions": "3"},
        {"columns": "log,sequence"},
        {"factKinds": "queue_set,message"} if kind == "facts" else {"minPartitions": "50"},
    ):
        told = {"kind": kind, "endingSequence": f"{archived.through}", **more}
        expected = rows(archived.log.directory, **told)
        if "factKinds" in more:  # of the log the last record of each part comes too
            expected = [one for one in expected if "'kind': 'message'" in one or "'kind': 'queue_set'" in one]
        assert rows(archived.out, **told) == expected != []


def test_a_kind_ends_where_all_three_tables_do(archived: Archived, copy: Path) -> None:
    """As a run leaves them that was killed before its last commit: facts and deliveries are further, and rows of each
    kind end with the messages."""
    commits = sorted((copy / "messages/_delta_log").glob("*.json"))
    commits[-1].unlink()
    ends = {kind: SyncbrokReader(batch_options({"path": str(copy), "kind": kind})).partitions() for kind in KINDS}
    (through,) = {part.through for parts in ends.values() for part in parts}
    assert 0 < through < archived.through
    for kind in KINDS:
        cut = rows(archived.log.directory, kind=kind, endingSequence=f"{through}")
        assert rows(copy, kind=kind) == cut


def test_what_goes_while_it_is_read_is_an_error(copy: Path) -> None:
    """And never fewer rows: the task that misses a file says that it was compacted away or rewritten."""
    reader = SyncbrokReader(batch_options({"path": str(copy)}))
    parts = reader.partitions()
    for path in (copy / "messages").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(Gone, match="was removed while it was to be read"):
        list(reader.read(parts[0]))


def test_refusals_say_what_to_do(archived: Archived, copy: Path, tmp_path: Path) -> None:
    """An archive without tables, one of them alone, kinds that it has not, a stream, the same log twice, a queue that
    is not there, keys of S3 for a folder."""
    out = str(archived.out)
    for options, told in (
        ({"path": f"{out}/messages"}, f"is one table of an archive; give the archive, {out}, with the option kind"),
        ({"path": out, "kind": "states"}, "kind states follows from a log as a whole"),
        ({"path": out, "AWS_REGION": "x"}, "AWS_REGION is for a bucket of S3"),
        ({"path": str(tmp_path), "aws_region": "x"}, "aws_region is for an archive in a bucket"),
        ({"path": "s3://bucket/archive", "AWS_SECRET": "x"}, "unknown options AWS_SECRET; of S3 there are AWS_END"),
    ):
        with pytest.raises(BadSetting, match=told):
            batch_options(options)
    with pytest.raises(BadSetting, match="is an archive, whose tables are read as a batch"):
        _ = stream_options({"path": out}).read.place
    with pytest.raises(BadSetting, match="are the same log"):
        SyncbrokReader(batch_options({"paths": json.dumps([out, str(archived.log.directory)])})).partitions()
    with pytest.raises(BadSetting, match=f"queue names nope, which {out} has not; there are 007, 2024-01-02, orders"):
        rows(archived.out, queue="007,nope")
    shutil.rmtree(copy / "facts/_delta_log")
    with pytest.raises(BadSetting, match="has no Delta table facts: syncbrok pipeline archive --delta makes"):
        rows(copy)


def test_a_bucket_is_a_place_with_keys_that_nobody_sees() -> None:
    """Any of the names that S3 goes by; what is secret does not get into an error or a plan."""
    given = {"aws_secret_access_key": "hush", "AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}
    place = place_in("s3a://bucket/archive/", given)
    assert (place.uri, place.root, place.full("_syncbrok")) == (
        "s3://bucket/archive",
        "bucket/archive",
        "bucket/archive/_syncbrok",
    )
    assert "hush" not in f"{place} {place!r}"
    assert place.for_delta()["AWS_ALLOW_HTTP"] == "true"
    assert ArchivePlace("/a/folder").for_delta() == {}
