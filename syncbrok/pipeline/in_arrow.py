"""What the tasks of Spark are given to do, where they work in Arrow: types."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Batches = Iterable[pa.RecordBatch]
Work = Callable[[Batches], Iterator[pa.RecordBatch]]


class InArrow(Protocol):
    """Rows that such a function can go over: a data frame, rows of a log or of a ``Whole`` that Spark never meets,
    files that tasks have written."""

    def mapInArrow(self, func: Work, schema: str) -> "DataFrame":  # noqa: N802  # as data frames have it
        """What ``func`` makes of the rows, in ``schema``. It is called for a task, or for each part that one reads."""
        ...
