"""One Spark session for all tests of the pipeline: it takes seconds to start and half a gigabyte to keep."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from syncbrok.pipeline.session import session
from syncbrok.pipeline.spark_conf import set_for_now
from tests.support.pipeline.archive_log import WrittenLog
from tests.support.pipeline.broker_log import real_log
from tests.support.pipeline.states_log import states_logs

__all__ = ["real_log", "spark", "states_logs"]

SETTINGS = {
    "spark.driver.memory": "1g",
    # Tiny data: compiling well and collecting garbage side by side costs more than it brings.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.ui.explainMode": "simple",  # nobody opens the page that would show more of each plan
}
CHEAP_PLANS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.adaptive.enabled": "false"}
"""For many small jobs about files: to generate code for each stage and to plan again behind each is a fifth of what
Spark does for them. Jobs that compute run with Spark's own settings, and so does each command and each program."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two cores, with the format ``syncbrok`` registered. A task that fails is tried once more, as on a
    cluster. Never stopped before the last test."""
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    running = session("local[2,2]", "tests", {**SETTINGS, "spark.sql.warehouse.dir": str(warehouse)})
    yield running
    running.stop()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[WrittenLog]:
    """A log of a few small segments."""
    written = WrittenLog(tmp_path / "log")
    yield written
    written.close()


@pytest.fixture
def cheap_plans(spark: SparkSession) -> Iterator[None]:
    with set_for_now(spark, CHEAP_PLANS):
        yield
