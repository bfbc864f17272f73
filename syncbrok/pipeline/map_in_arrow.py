"""Types of functions on Arrow batches, which Spark's tasks run by ``mapInArrow``."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RecordBatches = Iterable[pa.RecordBatch]
ArrowFunction = Callable[[RecordBatches], Iterator[pa.RecordBatch]]


class MapsInArrow(Protocol):
    """Rows that a function of Arrow batches can go over: a data frame, rows of a log or of a ``LogAndArchive`` that
    Spark never meets, files that tasks have written."""

    def mapInArrow(self, func: ArrowFunction, schema: str) -> "DataFrame":  # noqa: N802  # as data frames have it
        """The result of ``func`` on the rows, in ``schema``. ``func`` is called once for a task, or for each part that
        a task reads."""
        ...
