"""One Spark session for all tests of the pipeline: it takes seconds to start and half a gigabyte to keep."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from syncbrok.pipeline.session import session
from tests.support.pipeline.broker_log import real_log

__all__ = ["real_log", "spark"]

SETTINGS = {
    "spark.driver.memory": "1g",
    # Tiny data: compiling well and collecting garbage side by side costs more than it brings.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.metricsEnabled": "false",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two cores, with the format ``syncbrok`` registered. A task that fails is tried once more, as on a
    cluster. Never stopped before the last test."""
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    running = session("local[2,2]", "tests", {**SETTINGS, "spark.sql.warehouse.dir": str(warehouse)})
    yield running
    running.stop()
