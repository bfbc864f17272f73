"""docs/from-kafka.md, docs/in-sql.md and docs/from-delta.md: every example on them runs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from syncbrok.cli.main import group
from tests.support.broker.process import ROOT, BrokerProcess
from tests.support.pipeline.archive_log import WrittenLog

URL = "http://127.0.0.1:10000"
QUEUES = "queues: {orders: {}, copies: {}}\n"


def examples(page: str, language: str) -> list[str]:
    """The examples of a page in one language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.MULTILINE | re.DOTALL)


def accepted(broker: BrokerProcess, queue: str) -> int:
    return int(broker.request("GET", f"/v1/queues/{queue}").json()["statistics"]["accepted"])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with ten orders of three customers, each the child of the one before."""
    with BrokerProcess(tmp_path / "storage", queues=QUEUES) as running:
        parents: list[str] = []
        for number in range(10):
            line = {"data": {"customer": f"c{number % 3}", "amount": number + 0.5}, "parents": parents}
            sent = orjson.dumps(line), {"Content-Type": "application/x-ndjson"}
            parents = running.request("POST", "/v1/queues/orders/messages:batch", *sent).json()["ids"]
        yield running


def run(page: str, spark: SparkSession, places: dict[str, str], **known: Any) -> dict[str, Any]:
    """What the examples in Python have defined in the end; the ``places`` on the page stand for others."""
    defined = {"spark": spark, **known}
    for example in examples(page, "python"):
        exec(re.sub("|".join(places), lambda found: places[found[0]], example), defined)
    return defined


def test_from_kafka(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    """Reading, following, JSON, the lag, and rows with Kafka's place and with a log's, parents among them."""
    kafka = spark.sql("SELECT binary('k') AS key, binary('v') AS value, 't' AS topic, 3 AS partition, 9L AS offset")
    places = {URL: broker.url, "storage/": str(broker.storage), "out/": f"{tmp_path}/out/"}
    defined = run("from-kafka.md", spark, places, kafka=kafka)
    assert defined["records_behind"](defined["query"].lastProgress) == 0
    assert spark.read.parquet(str(tmp_path / "out" / "orders")).count() == 10
    assert accepted(broker, "copies") == 11
    found = broker.request("GET", "/v1/messages?queue=copies&limit=20").json()["messages"]
    assert sorted(len(one["parents"]) for one in found) == [0, 0, *[1] * 9]


def test_in_sql(spark: SparkSession, broker: BrokerProcess) -> None:
    """Each statement, in the order of the page; the sums are those that were published."""
    broker.terminate()
    text = ";".join(examples("in-sql.md", "sql")).replace("storage/", str(broker.storage))
    found = [spark.sql(one).collect() for one in text.split(";")]
    sums = [tuple(map(str, row)) for row in found[8]]
    assert sums == [("c0", "4", "20.00"), ("c1", "3", "13.50"), ("c2", "3", "16.50")]
    assert found[-1][0]["orders"] == 10
    for name in ("messages", "states", "deliveries", "orders", "brief"):
        spark.catalog.dropTempView(name)


def test_from_delta(spark: SparkSession, broker: BrokerProcess, log: WrittenLog, tmp_path: Path) -> None:
    """The tables as the page reads them, and their rows into a queue."""
    log.fill(2, 20)
    out = str(tmp_path / "out" / "archive")
    done = CliRunner().invoke(group, ["pipeline", "archive", "--storage", str(log.directory), "--out", out, "--delta"])
    assert done.exit_code == 0, done.output
    defined = run("from-delta.md", spark, {URL: broker.url, "out/archive": out})
    assert defined["through"] > 40
    assert defined["messages"].count_rows() == accepted(broker, "copies") == 40
