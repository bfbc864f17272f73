"""The job ``archive``: each row of the log is in the archive once, whatever happens; retention drops nothing else."""

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from syncbrok.cli.main import group
from syncbrok.log.segments import retention
from syncbrok.log.segments.options import PIPELINE
from syncbrok.pipeline import log_and_archive, log_snapshot, schema
from syncbrok.pipeline.archive import commit as archive_commit
from syncbrok.pipeline.archive.commit import AnotherLog
from syncbrok.pipeline.archive.group_writer import ArchiveDiffers, write_group
from syncbrok.pipeline.archive.job import ArchiveBusy, ArchiveResult, _alone, archive
from syncbrok.pipeline.archive.manifest import ArchiveDamaged, MissingSequences
from syncbrok.pipeline.archive.plan import SegmentGroup
from syncbrok.pipeline.archive.range_source import LogRange
from syncbrok.pipeline.archive.store import ArchiveStore, ArchiveUnreachable
from syncbrok.pipeline.schema import KINDS
from tests.support.http.hostile_names import IN_FOLDERS
from tests.support.pipeline.archive_log import DAY_US, WrittenLog
from tests.support.power.tree import TreeRecording, tree_after_power_loss

pytestmark = pytest.mark.usefixtures("cheap_plans")

ROOT = Path(__file__).parents[3]


def rows(frame: DataFrame, kind: str) -> list[Any]:
    """All rows, in the order of the log; those of a map as sorted pairs."""
    store = (0, 1) if kind == "deliveries" else (0,)
    plain = [tuple(tuple(sorted(one.items())) if isinstance(one, dict) else one for one in row) for row in
             frame.collect()]  # fmt: skip
    found = sorted(plain, key=lambda row: [row[at] for at in store])  # costs a tenth of what it does in Spark
    assert len(found) == len(set(map(repr, found))), "no row is there twice"
    return found


def logged(spark: SparkSession, log: WrittenLog, kind: str, last: int | None = None) -> list[Any]:
    """What the source reads from the log, up to a sequence."""
    frame = spark.read.format("syncbrok").options(kind=kind, columns="all").load(str(log.directory))
    return rows(frame if last is None else frame.where(f"sequence <= {last}"), kind)


def archived(spark: SparkSession, out: Path, kind: str) -> list[Any]:
    return rows(log_and_archive.read(spark, None, str(out), kind), kind)


def check_same(spark: SparkSession, log: WrittenLog, out: Path) -> None:
    """The archive has every row of the sealed segments, once, and retention may drop just these."""
    sealed = log.sealed()
    for kind in KINDS:
        assert archived(spark, out, kind) == logged(spark, log, kind, sealed[-1].last)
    assert all(retention.may_drop(one.path, PIPELINE) for one in sealed)
    assert not retention.may_drop(log.journal.sections()[-1].path, PIPELINE)


def files(out: Path) -> set[str]:
    """What lies in the archive, but for the checksum files of Hadoop's local file system."""
    return {str(one.relative_to(out)) for one in out.rglob("*") if one.is_file() and not one.name.endswith(".crc")}


def test_each_row_once_however_often_it_runs(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """Every row of every sealed segment, with all columns; by queue and UTC day, sorted, in zstd; nothing more the
    second time; what is sealed later is added; and what is archived may be dropped, so that the archive has all."""
    out = tmp_path / "an archive [1]"
    log.fill(3)
    done = archive(spark, log.directory, str(out))
    assert (done.segments, done.first, done.gaps, done.waiting) == (4, 1, (), 1)
    assert [done.written[kind].rows for kind in KINDS] == [120, 120, 120 + 3 + 2 * 4]
    check_same(spark, log, out)
    folders = {one.rpartition("/")[0] for one in files(out)}
    assert {"messages/queue=007/day=2023-11-14", "facts/day=2023-11-15"} < folders
    assert "deliveries/queue=__HIVE_DEFAULT_PARTITION__/day=2023-11-14" in folders
    for path in (out / "messages").rglob("*.parquet"):
        read = pq.ParquetFile(path)
        sequences = read.read(["sequence"])["sequence"].to_pylist()
        assert sequences == sorted(sequences)
        assert read.metadata.row_group(0).column(0).compression == "ZSTD"
        assert read.schema_arrow.field("time").type == schema.TIME
    before = files(out)
    again = archive(spark, log.directory, str(out))
    assert (again.segments, again.noted, again.through) == (0, 0, done.last)
    assert files(out) == before
    everything = {kind: logged(spark, log, kind) for kind in KINDS}
    log.drop(2)
    log.fill(1)
    more = archive(spark, log.directory, str(out))
    assert (more.segments, more.first, more.noted) == (1, done.last + 1, 1)
    for kind in KINDS:
        both = rows(log_and_archive.read(spark, log.directory, str(out), kind), kind)
        assert both[: len(everything[kind])] == everything[kind]
        assert both[-10:] == logged(spark, log, kind)[-10:]


def test_a_queue_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    """INTERFACES 5: folders have names as Spark escapes them, and any reader gets the names back. One that is too long
    for a folder, or that Hive takes for none, is called otherwise there; a manifest and our readers know it. Before,
    one such name kept the whole log from being archived."""
    out = tmp_path / "an archive of 100% +?"
    log = WrittenLog(tmp_path / "log", queues=IN_FOLDERS)
    log.fill(1)
    log.now_us -= DAY_US // 3  # of the same day, so that there is something to compact
    log.fill(1)
    assert archive(spark, log.directory, str(out), compact=True, group_bytes=1).compacted.files_before
    check_same(spark, log, out)
    files_of = archive_commit.manifests(ArchiveStore(spark, str(out)))[0].files
    assert {one.queue for one in files_of if one.kind == "messages"} == set(IN_FOLDERS)
    folders = {one.name for one in (out / "messages").iterdir()}
    assert len(folders) == len(IN_FOLDERS)
    assert max(len(one.encode()) for one in folders) <= 255
    read = {row["queue"] for row in spark.read.parquet(str(out / "messages")).select("queue").distinct().collect()}
    assert read > set(IN_FOLDERS[:-3])
    assert all("/" in name for name in read - set(IN_FOLDERS))
    assert len(read) == len(IN_FOLDERS)
    log.close()


COMMITTED = {"write:5": 1, "rename:11": 2}
"""groups that are part of the archive when the process is killed there; the second goes on after the first"""


@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_killed_and_repeated(spark: SparkSession, log: WrittenLog, tmp_path: Path, kills: int) -> None:
    """A kill -9 while rows of the second group are written; the run that goes on after it is killed between two renames
    of the third. What was committed stays, the next run finishes the rest, each row is there once and nothing else lies
    about."""
    out = tmp_path / "out"
    log.fill(2)
    for point, expected in list(COMMITTED.items())[:kills]:
        program = [sys.executable, "-m", "tests.pipeline.archive.archive_program", str(log.directory), str(out), point]
        killed = subprocess.run(program, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        noted = [one.base for one in log.sealed() if retention.may_drop(one.path, PIPELINE)]
        assert [one.base for one in log.sealed()][: len(noted)] == noted
        assert len(noted) == len(archive_commit.manifests(ArchiveStore(spark, str(out)))) == expected
    assert archive(spark, log.directory, str(out)).segments == 3 - expected
    check_same(spark, log, out)
    named = {one.path for manifest in archive_commit.manifests(ArchiveStore(spark, str(out))) for one in manifest.files}
    assert {one for one in files(out) if not one.startswith(archive_commit.FOLDER)} == named


def test_what_was_carried_is_archived_once(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """Segments that retention dropped before anything was archived are a gap, and it is said which. Messages that it
    had carried along from there are archived from where they were carried to, once, though they are carried again and
    again; a message whose own segment is archived never is."""
    out = tmp_path / "out"
    log.fill(2)
    first, second = log.messages[5], log.messages[45]
    own = {row[0]: row for row in logged(spark, log, "messages")}
    lost = log.journal.sections()[2].last
    log.carry(first, second)
    log.fill(1)
    log.carry(second)
    late = log.messages[-1]
    log.drop(3, archived=False)
    log.fill(1)
    (log.directory / retention.MARKER).unlink()
    done = archive(spark, log.directory, str(out))
    assert done.gaps == (MissingSequences(1, lost),)

    def check(frame: DataFrame) -> None:
        found = {row["sequence"]: row for row in frame.where(f"sequence <= {late}").collect()}
        assert sorted(found) == [first, second, *range_of(log, lost, late)]
        assert [found[one]["carried"] for one in (first, second, late)] == [True, True, False]
        assert found[first]["content"] == own[first][12]

    check(log_and_archive.read(spark, None, str(out)))
    log.carry(first, second, late)
    log.fill(1)
    log.carry(first)
    log.drop(2)
    check(log_and_archive.read(spark, log.directory, str(out)))
    archive(spark, log.directory, str(out), group_bytes=1)
    check(log_and_archive.read(spark, None, str(out)))
    check(log_and_archive.read(spark, log.directory, str(out)))


def range_of(log: WrittenLog, after: int, through: int) -> list[int]:
    return [one for one in log.messages if after < one <= through]


def test_compacting_harms_no_reader(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """Small files of a queue and day become one, rows and order the same; a frame made before still reads the old
    ones; they go when the time is over, and a second time there is nothing to do."""
    out = tmp_path / "out"
    for _ in range(2):
        log.fill(2, messages=20)
        archive(spark, log.directory, str(out))
    before = {kind: log_and_archive.read(spark, None, str(out), kind) for kind in KINDS}
    expected = {kind: rows(before[kind], kind) for kind in KINDS}
    small = len(files(out))
    done = archive(spark, log.directory, str(out), compact=True)
    assert done.compacted.files_after < done.compacted.files_before
    store = ArchiveStore(spark, str(out))
    (one,) = archive_commit.manifests(store)
    assert len({(file.kind, file.queue, file.day) for file in one.files}) == len(one.files)
    assert {kind: rows(before[kind], kind) for kind in KINDS} == expected
    check_same(spark, log, out)
    assert len(files(out)) > small
    again = archive(spark, log.directory, str(out), compact=True, keep_replaced_s=0.0)
    assert again.compacted.files_before == 0
    assert again.removed_files == done.compacted.files_before
    assert files(out) == {file.path for file in one.files} | {f"_syncbrok/{file}" for file in (one.name.file, "log")}
    check_same(spark, log, out)
    log.fill(1)
    assert archive(spark, log.directory, str(out), compact=True).segments == 1
    check_same(spark, log, out)


def test_no_power_loss_takes_a_directory_above_the_archive(spark: SparkSession, tmp_path: Path) -> None:
    """Those above it, which Hadoop's client has made, are as durable as those in it, before anything is noted."""
    disk = TreeRecording(tmp_path / "disk")
    with disk.running():
        archive_commit.begin(ArchiveStore(spark, str(disk.root / "x/y/archive")), "ab" * 16)
    for seed in range(20):
        left = tree_after_power_loss(disk.events, random.Random(seed), in_order=False)
        assert "x/y/archive/_syncbrok" in left, seed


class SpoilingPlace(ArchiveStore):
    """A place whose disk changes a file of messages after it was written."""

    def __init__(self, spark: SparkSession, uri: str, spoil: Callable[[pa.Table], pa.Table]) -> None:
        super().__init__(spark, uri)
        self._spoil = spoil

    def settle(self, paths: Iterable[str]) -> None:
        written = list(paths)
        assert self.local is not None
        path = self.local / next(one for one in written if "/messages/" in one)
        pq.write_table(self._spoil(pq.ParquetFile(path).read()), path)
        path.with_name(f".{path.name}.crc").unlink()  # Hadoop's local file system would find it by itself
        super().settle(written)


SPOILT: dict[str, Callable[[pa.Table], pa.Table]] = {
    "40 rows and 39 were": lambda rows: rows.slice(1),
    "40 rows and 41 were": lambda rows: pa.concat_tables([rows.slice(0, 1), rows]),
    "40 rows and 40 were written, which differ": lambda rows: rows.set_column(
        rows.schema.get_field_index("scope"), "scope", pa.array(["same"] * len(rows))
    ),
}


def test_what_differs_is_not_committed(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """A row too few, a row twice, a row that has changed: found by reading back what was written, named; messages that
    the facts know of and that were not read too; and nothing becomes part of the archive."""
    log.fill(1)
    look = log_snapshot.take_snapshot(log.directory)
    group = SegmentGroup(tuple(one for one in look.segments if one.sealed))
    out = str(tmp_path / "out")

    def read(kind: str) -> DataFrame:
        return LogRange(spark, str(log.directory), kind, *group.name[:2]).frame()

    def read_less(kind: str) -> DataFrame:
        return read(kind).where(f"sequence <> {log.messages[7]}" if kind == "messages" else "true")

    for said, spoil in SPOILT.items():
        with pytest.raises(ArchiveDiffers, match=f"of messages there should be {said}"):
            write_group(spark, SpoilingPlace(spark, out, spoil), group, look.uuid, read)
    store = ArchiveStore(spark, out)
    with pytest.raises(ArchiveDiffers, match="40 messages and 40 deliveries, where 39 and 40"):
        write_group(spark, store, group, look.uuid, read_less)
    assert archive_commit.manifests(store) == []


def test_a_damaged_segment_is_not_archived(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """One bit in a sealed segment: the error names file and offset, nothing of the group is committed or noted."""
    log.fill(1)
    path = log.sealed()[-1].path
    data = bytearray(path.read_bytes())
    data[5_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=path.name) as raised:
        archive(spark, log.directory, str(tmp_path / "out"))
    assert "LogCorrupt" in str(raised.value)
    assert list(retention.copies(log.directory)) == []


def test_refusals_say_what_to_do(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """Another log's archive; a second run at a time; a file of the archive that is gone while retention would have
    been told; a place that is none."""
    out = tmp_path / "out"
    log.fill(1)
    archive(spark, log.directory, str(out))
    other = WrittenLog(tmp_path / "other")
    other.fill(1)
    other.close()
    with pytest.raises(AnotherLog, match="give each log"):
        archive(spark, other.directory, str(out))
    with _alone(log.directory), pytest.raises(ArchiveBusy, match="another run"):
        archive(spark, log.directory, str(out))
    (log.directory / retention.MARKER).unlink()
    gone = next((out / "messages").rglob("*.parquet"))
    gone.rename(tmp_path / "elsewhere")
    with pytest.raises(ArchiveDamaged, match=f"{gone.name}.*is missing"):
        archive(spark, log.directory, str(out))
    assert not retention.may_drop(log.sealed()[0].path, PIPELINE)
    with pytest.raises(ArchiveUnreachable, match="nowhere://x"):
        archive(spark, log.directory, "nowhere://x/")


def test_the_command_says_what_it_did(spark: SparkSession, log: WrittenLog, tmp_path: Path) -> None:
    """A table of rows, files and bytes; nothing new the second time; a usage error without ``--out``."""
    log.fill(2, messages=10)
    command = ["pipeline", "archive", "--storage", str(log.directory)]
    assert CliRunner().invoke(group, command).exit_code == 2
    told = CliRunner().invoke(group, [*command, "--out", str(tmp_path / "out")])
    assert told.exit_code == 0, told.output
    assert "3, sequences 1 to" in told.output
    assert [line.split()[:2] for line in told.output.splitlines() if line.startswith(KINDS)] == [
        ["messages", "20"],
        ["deliveries", "20"],
        ["facts", "28"],
    ]
    told = CliRunner().invoke(group, [*command, "--out", str(tmp_path / "out"), "--compact"])
    assert "nothing new: all that is sealed is archived, up to sequence" in told.output
    assert ArchiveResult.__doc__
