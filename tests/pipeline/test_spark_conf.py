"""Settings for the length of a piece of work: afterwards the session is as it was, and a user's own stand."""

import pytest
from pyspark.sql import SparkSession

from syncbrok.pipeline.spark_conf import set_for_now, unset

OWN, OTHER = "spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.parquet.outputTimestampType"


def test_a_session_is_afterwards_as_it_was(spark: SparkSession) -> None:
    """What had a value has it again, what had none has none, even where the work fails."""
    spark.conf.set(OWN, "1000000")
    try:
        with pytest.raises(ZeroDivisionError):
            _fail_with(spark, {OWN: "5", OTHER: "TIMESTAMP_MICROS"})
        assert spark.conf.get(OWN) == "1000000"
        assert spark.conf.get(OTHER, None) is None
    finally:
        spark.conf.unset(OWN)


def _fail_with(spark: SparkSession, settings: dict[str, str]) -> None:
    with set_for_now(spark, settings):
        assert {name: spark.conf.get(name) for name in settings} == settings
        raise ZeroDivisionError


def test_what_a_user_has_set_is_not_chosen(spark: SparkSession) -> None:
    """Only what has no value, a default is none."""
    wanted = {OWN: "5", OTHER: "TIMESTAMP_MICROS"}
    assert unset(spark, wanted) == wanted
    spark.conf.set(OWN, "1000000")
    try:
        assert unset(spark, wanted) == {OTHER: "TIMESTAMP_MICROS"}
    finally:
        spark.conf.unset(OWN)
