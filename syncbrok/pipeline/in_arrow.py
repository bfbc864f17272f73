"""What the tasks of Spark are given to do, where they work in Arrow. Types alone."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

Batches = Iterable[pa.RecordBatch]
Made = Callable[[Batches], Iterator[pa.RecordBatch]]


class InArrow(Protocol):
    """Rows that such a function can go over: a data frame, rows of a log or of a ``Whole`` that Spark never meets,
    files that tasks have written."""

    def mapInArrow(self, func: Made, schema: str) -> DataFrame:  # noqa: N802  # as data frames have it
        """What ``func`` makes of the rows of each task, in ``schema``."""
        ...
