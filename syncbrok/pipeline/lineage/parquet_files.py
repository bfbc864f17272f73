"""Tables as Parquet, written by the tasks that make them.

Spark's writer takes rows one by one: for a table that Python made, handing it over and writing it costs twice the time
of making it. So each task writes its own files to the disk with Arrow's writer, into a folder beside the table's. That
folder takes the table's name when it is complete. Files of a task that failed, or that Spark gave up for another, are
not among the reported files and are removed. A reader finds the old table or the new one, for a moment none.
"""

import platform
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from syncbrok.model.errors import SyncbrokError
from syncbrok.pipeline.map_in_arrow import ArrowFunction, MapsInArrow, RecordBatches, map_parts

Make = Callable[[RecordBatches], Iterator[Mapping[str, pa.Table]]]
"""tables by name, one after the other, of what a task is given"""

_WRITTEN: Final = pa.schema([("table", pa.string()), ("file", pa.string()), ("bytes", pa.int64())])
_WRITTEN_DDL: Final = "table string, file string, bytes bigint"
_FEW_VALUES: Final = ("queue",)
"""columns that a dictionary makes smaller; of the others it costs as much as all of the writing, for nothing"""


class FilesMissing(SyncbrokError):
    """The files that the tasks wrote are not in the folder asked for."""

    slug = "files-missing"


class ParquetFiles:
    """Reads some columns of a table that tasks have written. A batch comes as one task made it; a file is read by one
    task."""

    def __init__(self, spark: SparkSession, table: Path, columns: Sequence[str]) -> None:
        self._spark = spark
        self._paths = sorted(str(path) for path in table.glob("*.parquet"))
        self._columns = list(columns)

    def mapInArrow(self, func: ArrowFunction, schema: str) -> DataFrame:  # noqa: N802  # as data frames have it
        """The result of ``func`` on the rows, in ``schema``, as of a data frame."""
        return map_parts(self._spark, self._paths, partial(_groups, self._columns), func, schema)


def _groups(columns: list[str], path: str) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield from file.read_row_group(group, columns).combine_chunks().to_batches()


def read_files(table: Path, schema: pa.Schema) -> pa.Table:
    """A table that tasks have written, whole; empty where there is none."""
    return pa.concat_tables([schema.empty_table(), *(pq.read_table(path) for path in sorted(table.glob("*.parquet")))])


def row_count(table: Path) -> int:
    """The number of rows of a table that tasks have written; 0 where there is none."""
    return sum(int(pq.read_metadata(path).num_rows) for path in table.glob("*.parquet"))


def write_by_tasks(rows: MapsInArrow, make: Make, schemas: Mapping[str, pa.Schema], folder: Path) -> None:
    """Write the tables that ``make`` makes of ``rows``: a folder below ``folder`` for each table of ``schemas``, in
    place of an older one. Raises ``FilesMissing`` where a worker does not see ``folder``, and what Spark raises; then
    the old tables are untouched."""
    fresh = {name: folder / f"_{name}-{uuid4().hex}" for name in schemas}
    _remove_left_over(folder, fresh)
    try:
        for staged in fresh.values():
            staged.mkdir(parents=True)
        written = rows.mapInArrow(partial(_write, make, fresh), _WRITTEN_DDL).collect()
        for name, staged in fresh.items():
            reported = {row["file"]: row["bytes"] for row in written if row["table"] == name}
            settle(staged, reported, schemas[name].empty_table())
        for name, staged in fresh.items():
            _replace(folder / name, staged)
    finally:
        for staged in fresh.values():
            shutil.rmtree(staged, ignore_errors=True)


def _remove_left_over(folder: Path, names: Iterable[str]) -> None:
    """Remove the folders that a killed run has left."""
    for name in names:
        for left in folder.glob(f"_{name}-*"):
            shutil.rmtree(left, ignore_errors=True)


def _write(make: Make, folders: Mapping[str, Path], batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    task = TaskContext.get()
    # An attempt never writes where another does.
    file = f"part-{task.partitionId() if task else 0:05d}-{uuid4().hex}.parquet"
    writers: dict[str, pq.ParquetWriter] = {}
    with ExitStack() as stack:
        for tables in make(batches):
            for name, table in tables.items():
                if name not in writers:
                    writers[name] = stack.enter_context(_opened(folders[name] / file, table.schema))
                # Each batch is one group of rows, so that ``ParquetFiles`` can give it back as it was.
                writers[name].write_table(table, row_group_size=max(1, table.num_rows))
    sizes = [(folders[name] / file).stat().st_size for name in writers]
    yield pa.RecordBatch.from_arrays([list(writers), [file] * len(writers), sizes], schema=_WRITTEN)


def _opened(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    few = [name for name in _FEW_VALUES if name in schema.names]
    try:
        return pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=few)
    except FileNotFoundError as problem:
        raise FilesMissing(
            f"{path.parent.parent} is not there for a worker on {platform.node()}, where it was made by the driver: "
            "give --out a folder that every machine of the cluster sees under this path, or a store (hdfs://, s3a://)"
        ) from problem


def settle(staged: Path, reported: Mapping[str, int], empty: pa.Table) -> None:
    """Remove all from ``staged`` that was not ``reported`` (files and their bytes). If nothing was, write the ``empty``
    table. Raises ``FilesMissing`` where a reported file is not there."""
    sizes = {path.name: path.stat().st_size for path in staged.iterdir()}
    for name in sizes.keys() - reported.keys():
        (staged / name).unlink()
    lost = sorted(name for name, size in reported.items() if sizes.get(name) != size)
    if lost:
        raise FilesMissing(
            f"{staged.parent} has not got {len(lost)} of the {len(reported)} files that the workers wrote there, "
            f"{lost[0]} for one: give --out a folder that every machine of the cluster shares, or a store (hdfs://, "
            "s3a://)"
        )
    if not reported:
        pq.write_table(empty, staged / "part-00000.parquet")
    (staged / "_SUCCESS").touch()  # what other tools wait for


def _replace(target: Path, staged: Path) -> None:
    old = staged.with_name(f"{staged.name}-old")
    if target.exists():
        target.rename(old)
    staged.rename(target)
    shutil.rmtree(old, ignore_errors=True)
