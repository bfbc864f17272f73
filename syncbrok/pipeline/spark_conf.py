"""Sets settings of a running Spark for the length of some work."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

UNMEASURED: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1)}
"""Spark limits batches for Python by rows, 10,000, and by bytes as well. For the second limit it asks each column for
its size after each row, and a column of lists goes through all of them for that: half the time of an audit. This turns
the second limit off, for work whose rows are small; a batch must be in memory at once anyway."""


@contextmanager
def set_for_now(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Gives the session these settings while the block runs; afterwards it is as it was. A user's own stay as they are
    where ``unset`` chose what is set."""
    before: dict[str, Any] = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def unset(spark: SparkSession, settings: Mapping[str, str]) -> dict[str, str]:
    """The part of ``settings`` to which the user has given no value."""
    return {name: value for name, value in settings.items() if spark.conf.get(name, None) is None}
