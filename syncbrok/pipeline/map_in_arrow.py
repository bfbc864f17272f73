"""Functions on Arrow batches, which Spark's tasks run by ``mapInArrow``: their types, and how parts get to tasks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Part = TypeVar("Part")

RecordBatches = Iterable[pa.RecordBatch]
ArrowFunction = Callable[[RecordBatches], Iterator[pa.RecordBatch]]


class MapsInArrow(Protocol):
    """Rows that a function of Arrow batches can go over: a data frame, rows of a log or of a ``LogAndArchive`` that
    Spark never meets, files that tasks have written."""

    def mapInArrow(self, func: ArrowFunction, schema: str) -> "DataFrame":  # noqa: N802  # as data frames have it
        """The result of ``func`` on the rows, in ``schema``. ``func`` is called once for a task, or for each part that
        a task reads."""
        ...


def map_parts(
    spark: "SparkSession",
    parts: Sequence[Part],
    read: Callable[[Part], RecordBatches],
    func: ArrowFunction,
    schema: str,
) -> "DataFrame":
    """The result of ``func`` on the batches that ``read`` reads of each part, in ``schema``. Each part is read by a
    task of its own, and Spark meets no row of it."""
    tasks = spark.range(0, len(parts), 1, max(1, len(parts)))
    return tasks.mapInArrow(partial(_mapped, parts, read, func), schema)


def _mapped(
    parts: Sequence[Part], read: Callable[[Part], RecordBatches], func: ArrowFunction, tasks: RecordBatches
) -> Iterator[pa.RecordBatch]:
    for batch in tasks:
        for number in batch["id"].to_pylist():
            yield from func(read(parts[number]))
