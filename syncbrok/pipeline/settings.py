"""Settings of a running Spark for the length of a piece of work."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession


@contextmanager
def set_for_now(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings, and afterwards as it was. A user's own stay as they are where ``unset`` chose
    what is set."""
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
    """Those of the settings that nobody has given a value."""
    return {name: value for name, value in settings.items() if spark.conf.get(name, None) is None}
