"""No job brings to the driver what grows with the log."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from syncbrok.cli.main import group
from syncbrok.pipeline.spark_conf import set_for_now
from tests.support.pipeline.crossed_log import crossed_log

LIMIT = "spark.driver.maxResultSize"


@contextmanager
def small_driver(spark: SparkSession, results_max: str) -> Iterator[None]:
    """Spark fails a job whose results are more than ``results_max`` bytes; each set of tasks asks for the limit anew.
    Tables that it would copy to every task go through the driver, so these are smaller still."""
    context: Any = spark.sparkContext._jsc
    conf = context.sc().conf()
    before = conf.get(LIMIT, "1g")
    conf.set(LIMIT, results_max)
    try:
        with set_for_now(spark, {"spark.sql.autoBroadcastJoinThreshold": "-1"}):
            yield
    finally:
        conf.set(LIMIT, before)


def run(job: str, storage: Path, *arguments: str) -> str:
    ran = CliRunner().invoke(group, ["pipeline", job, "--storage", str(storage), "--quiet", *arguments])
    assert ran.exit_code == 0, f"{ran.output}\n{ran.exception!r}"
    return ran.stdout


def check_collecting_fails(spark: SparkSession, out: Path) -> None:
    with pytest.raises(Py4JJavaError, match="maxResultSize"):
        spark.read.parquet(str(out / "lineage" / "nodes")).toArrow()


def test_report_and_lineage_gather_nothing_that_grows(spark: SparkSession, tmp_path: Path) -> None:
    """Thousands of messages that wait for other families, of ways between trees, of messages that nobody is subscribed
    to: a driver that takes 64 KiB of results runs report and lineage on them, and fails where one table is
    collected."""
    crossed_log(tmp_path / "log", 1_500)
    with small_driver(spark, "64k"):
        run("report", tmp_path / "log", "--out", str(tmp_path))
        run("lineage", tmp_path / "log", "--out", str(tmp_path))
        check_collecting_fails(spark, tmp_path)


@pytest.mark.slow
def test_results_of_ten_megabytes_pass_a_driver_of_one(spark: SparkSession, tmp_path: Path) -> None:
    """Every job, the archive among them, with ``spark.driver.maxResultSize=1m`` and more than 10 MB of results."""
    messages = crossed_log(tmp_path / "log", 40_000, segments=4)
    with small_driver(spark, "1m"):
        out = tmp_path / "out"
        run("archive", tmp_path / "log", "--out", str(out / "archive"))
        run("report", tmp_path / "log", "--out", str(out))
        run("lineage", tmp_path / "log", "--out", str(out))
        proof = json.loads(run("audit", tmp_path / "log", "--out", str(out / "audit"), "--json"))
        assert (proof["violations"], proof["checked"]["messages"]) == (0, messages), proof
        chosen = run("replay", tmp_path / "log", "--sql", "SELECT sequence FROM messages")
        assert f"{messages:,}" in chosen
        check_collecting_fails(spark, out)
        assert sum(file.stat().st_size for file in out.rglob("*.parquet")) > 10_000_000
