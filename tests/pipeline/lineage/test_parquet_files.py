"""Tables that tasks write by themselves: all that they wrote and nothing else, or what stood there before."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from syncbrok.pipeline.lineage import job
from syncbrok.pipeline.lineage.parquet_files import FilesMissing, Make, ParquetFiles, settle, write_by_tasks
from syncbrok.pipeline.log_and_archive import LogAndArchive
from syncbrok.pipeline.spark_errors import explained
from tests.support.pipeline.broker_log import RealLog

NUMBERS = pa.schema([("number", pa.int64())])
EMPTY = NUMBERS.empty_table()
MANY = 2_000


def frame(spark: SparkSession) -> DataFrame:
    """The numbers below ``MANY``, in two parts."""
    return spark.range(0, MANY, 1, 2)


def doubled(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, pa.Table]]:
    for batch in batches:
        twice = pa.array(np.asarray(batch["id"]) * 2)
        yield {"once": pa.table([batch["id"]], schema=NUMBERS), "twice": pa.table([twice], schema=NUMBERS)}


def rows_of(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row[0] for row in spark.read.parquet(str(folder)).collect())


def written(spark: SparkSession, make: Make, folder: Path) -> None:
    write_by_tasks(frame(spark), make, {"once": NUMBERS, "twice": NUMBERS}, folder)


def test_every_row_is_written_once_and_again_in_its_place(spark: SparkSession, tmp_path: Path) -> None:
    """A run replaces what the run before wrote, what a killed one left behind is gone, and other folders stay."""
    out = tmp_path / "out"
    written(spark, doubled, out)
    (out / "_once-0123456789abcdef").mkdir()
    (out / "other").mkdir()
    written(spark, doubled, out)
    assert rows_of(spark, out / "once") == list(range(MANY))
    assert rows_of(spark, out / "twice") == list(range(0, 2 * MANY, 2))
    assert sorted(path.name for path in out.iterdir()) == ["once", "other", "twice"]
    assert (out / "once" / "_SUCCESS").exists()


def test_nothing_is_a_table_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    """It has its columns, so whoever reads it meets no error."""
    write_by_tasks(frame(spark).where("false"), doubled, {"once": NUMBERS, "twice": NUMBERS}, tmp_path)
    found = pq.read_table(tmp_path / "once")
    assert (found.num_rows, found.schema) == (0, NUMBERS)


def test_what_a_task_left_that_failed_is_no_part_of_it(spark: SparkSession, tmp_path: Path) -> None:
    """Spark repeats a task that failed: rows of both attempts are on the disk, those of the second in the table."""
    marker, out = tmp_path / "failed", tmp_path / "out"

    def make(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, pa.Table]]:
        yield from doubled(batches)
        if list(out.glob("_once-*/part-*")) and not marker.exists():
            marker.touch()
            raise ValueError("the first attempt")

    written(spark, make, out)
    assert marker.exists()
    assert rows_of(spark, out / "once") == list(range(MANY))


def test_where_it_fails_the_tables_are_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    """A task that fails both times: the error comes out, the tables of the run before stand, nothing is left."""
    written(spark, doubled, tmp_path)
    before = rows_of(spark, tmp_path / "once")

    def make(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, pa.Table]]:
        for tables in doubled(batches):
            if tables["once"]["number"][0].as_py() > MANY // 4:
                raise ValueError("no more of this")
            yield tables

    with pytest.raises(Exception, match="no more of this"):
        written(spark, make, tmp_path)
    assert rows_of(spark, tmp_path / "once") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["once", "twice"]


def test_a_worker_that_does_not_see_the_folder_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """What the driver made is not there on another machine; the error says what to give instead."""

    def make(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, pa.Table]]:
        for staged in tmp_path.glob("_once-*"):
            shutil.rmtree(staged, ignore_errors=True)
        yield from doubled(batches)

    with pytest.raises(Exception, match="FilesMissing") as caught:
        written(spark, make, tmp_path)
    told = explained(caught.value)
    assert told.kind == "FilesMissing"
    assert "give --out a folder that every machine of the cluster sees" in told.message


def test_a_file_that_was_reported_and_is_not_whole_is_an_error(tmp_path: Path) -> None:
    """Rows that a worker wrote elsewhere, or that did not arrive, are never just missing."""
    (tmp_path / "part-1").write_bytes(b"12345")
    for reported in ({"part-1": 5, "part-2": 1}, {"part-1": 6}):
        with pytest.raises(FilesMissing, match="1 of the"):
            settle(tmp_path, reported, EMPTY)
    settle(tmp_path, {"part-1": 5}, EMPTY)


def test_on_another_file_system_spark_writes_the_same(spark: SparkSession, real_log: RealLog, tmp_path: Path) -> None:
    """Hadoop's viewfs stands for any of them: all four tables have the rows they have on a disk."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.default.link./there", f"file://{tmp_path}/there")
    (tmp_path / "there").mkdir()
    whole = LogAndArchive(spark, real_log.storage)
    made = job.lineage_of_log(whole.rows("messages"), whole.rows("deliveries"), whole.read("facts"))
    here, there = (job.write(made, out) for out in (str(tmp_path / "here"), "viewfs:///there/lineage"))
    assert (tmp_path / "there" / "lineage" / "edges").is_dir()
    for one, other in zip(here[:4], there[:4], strict=True):
        assert one.schema == other.schema
        rows, same = (sorted(map(repr, frame.collect())) for frame in (one, other))
        assert rows
        assert rows == same


def test_what_was_written_at_once_is_read_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """A batch again, of the columns that are wanted, however many a task wrote: none is cut in two or lost, and where
    nothing was written there is none."""

    def make(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, pa.Table]]:
        for batch in batches:
            for start in range(0, batch.num_rows, 300):
                yield {"once": pa.table([batch["id"].slice(start, 300)] * 2, names=["number", "again"])}

    def sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            told = [[batch.column_names], [batch.num_rows], [batch["number"][0].as_py()]]
            yield pa.RecordBatch.from_arrays(list(map(pa.array, told)), names=["names", "rows", "first"])

    both = pa.schema([("number", pa.int64()), ("again", pa.int64())])
    write_by_tasks(frame(spark), make, {"once": both}, tmp_path)
    columns = "names array<string>, rows bigint, first bigint"
    found = ParquetFiles(spark, tmp_path / "once", ["number"]).mapInArrow(sizes, columns)
    expected = [(["number"], 300 if start % 1_000 < 900 else 100, start) for start in _starts()]
    assert sorted((tuple(row) for row in found.collect()), key=lambda row: row[2]) == expected
    write_by_tasks(frame(spark).where("false"), make, {"once": both}, tmp_path)
    assert ParquetFiles(spark, tmp_path / "once", ["number"]).mapInArrow(sizes, columns).collect() == []


def _starts() -> list[int]:
    return [half + start for half in (0, 1_000) for start in range(0, 1_000, 300)]
