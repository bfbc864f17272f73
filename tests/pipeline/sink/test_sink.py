"""Rows of Spark into a real broker: what arrives, once each, whatever is killed or repeated on the way."""

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from syncbrok.pipeline.archive.group_writer import set_for_now
from tests.pipeline.spark_program import start_copy
from tests.support.broker.process import BrokerProcess
from tests.support.polling import eventually_blocking

ROOT = Path(__file__).parents[3]


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with a queue ``orders``."""
    with BrokerProcess(tmp_path / "storage", queues="queues: {orders: {}}\n") as running:
        yield running


def write(rows: DataFrame, broker: BrokerProcess, **options: Any) -> None:
    """Publish the rows, with keys from their positions unless a column of keys is named."""
    given = {
        "url": broker.url,
        "queue": "orders",
        **({} if "keyColumn" in options else {"keys": "position"}),
        **options,
    }
    rows.write.format("syncbrok").options(**given).mode("append").save()


def contents(spark: SparkSession, broker: BrokerProcess, queue: str = "orders") -> list[str]:
    """What the log of a broker that was ended holds, in the order accepted."""
    if broker.process.poll() is None:
        broker.terminate()
    read = spark.read.format("syncbrok").option("columns", "sequence,queue,content").load(str(broker.storage))
    found = read.where(f"queue = '{queue}'").orderBy("sequence").collect()
    return [bytes(row.content).decode() for row in found]


def last_sequence(broker: BrokerProcess, queue: str = "orders") -> int:
    try:
        return int(broker.request("GET", f"/v1/queues/{queue}").json()["statistics"]["last_sequence"] or 0)
    except OSError:  # it is not there just now
        return 0


def test_rows_arrive_as_they_are(spark: SparkSession, orders: BrokerProcess) -> None:
    """Every column reaches the message: bytes, type, headers, key, parents, the row's own queue and idempotency key."""
    orders.request("POST", "/v1/queues", {"name": "cards"})
    first = orders.request("POST", "/v1/queues/orders/messages", b"parent").json()["id"]
    schema = StructType(
        [
            StructField("content", BinaryType()),
            StructField("content_type", StringType()),
            StructField("headers", MapType(StringType(), StringType())),
            StructField("parents", ArrayType(StringType())),
            StructField("key", StringType()),
            StructField("idempotency_key", StringType()),
            StructField("queue", StringType()),
        ]
    )
    rows = [
        Row(b"\x00\xff", "image/png", {"x-shop": "1", "ce-type": "made"}, [first], "customer-7", "row-1", "cards"),
        Row("Grüße".encode(), "text/plain; charset=utf-8", None, None, None, None, "orders"),
    ]
    write(spark.createDataFrame(rows, schema), orders, run="once")
    orders.terminate()
    found = (
        spark.read.format("syncbrok").option("columns", "all").load(str(orders.storage)).orderBy("sequence").collect()
    )
    by_content = {bytes(row.content): row for row in found}
    binary, text = by_content[b"\x00\xff"], by_content["Grüße".encode()]
    assert (binary.queue, binary.content_type, binary.key, binary.idempotency_key) == (
        "cards", "image/png", "customer-7", "row-1",
    )  # fmt: skip
    assert binary.headers == {"x-shop": "1", "ce-type": "made"}
    assert binary.parents == [first]
    assert (text.queue, text.content_type, text.parents) == ("orders", "text/plain; charset=utf-8", [])
    assert text.idempotency_key.startswith("once-")


def test_parents_are_rows_of_the_frame(spark: SparkSession, orders: BrokerProcess) -> None:
    """PIPELINE, sink: ``parent_keys`` name rows before it in its partition, in another request or queue too, and rows
    of an earlier write; a key of which nothing is known is refused. Times to deliver and to expire are a row's own."""
    orders.request("POST", "/v1/queues", {"name": "cards"})
    chain = spark.range(0, 40, 1, 1).selectExpr(
        "concat('row ', id) as content", "concat('k', id) as name", "if(id % 7 = 0, 'cards', 'orders') as queue",
        "if(id = 0, array(), array(concat('k', id - 1))) as parent_keys",
        "timestamp '2099-01-01 00:00:00' as deliver_at", "if(id % 2 = 0, '2099-02-01T00:00:00Z', null) as expires",
    )  # fmt: skip
    for _ in range(2):  # the same once more
        write(chain, orders, keyColumn="name", batchRows=3)
    later = chain.limit(1).selectExpr("'late' as content", "'late' as name", "array('k39', 'k5') as parent_keys")
    write(later, orders, keyColumn="name")
    with pytest.raises(PythonException, match=r"row 0 of partition 0 .*its parent_keys name 'k99', which is no row be"):
        write(later.selectExpr("content", "'x' as name", "array('k99') as parent_keys"), orders, keyColumn="name")
    orders.terminate()
    read = spark.read.format("syncbrok").option("columns", "all").load(str(orders.storage)).collect()
    found = {row.idempotency_key: row for row in read}
    assert len(read) == len(found) == 41
    for n in range(40):
        row = found[f"k{n}"]
        assert row.parents == ([] if n == 0 else [found[f"k{n - 1}"].id])
        assert (row.not_before.year, row.expires is None) == (2099, n % 2 == 1)
    assert found["late"].parents == [found["k39"].id, found["k5"].id]


def test_the_same_write_again_publishes_nothing(spark: SparkSession, orders: BrokerProcess) -> None:
    """By the keys of a column, whatever the order and partitions of the rows; or by position under the same run."""
    rows = spark.range(0, 500, 1, 2).selectExpr("cast(id as string) as content", "id as order")
    write(rows, orders, keyColumn="order")
    write(rows.orderBy(rows["order"].desc()).coalesce(1), orders, keyColumn="order", batchRows=7)
    write(rows.select("content"), orders, run="import-7")
    write(rows.select("content"), orders, run="import-7", batchRows=33)
    assert Counter(contents(spark, orders)) == Counter([str(n) for n in range(500)] * 2)


def test_a_mistake_publishes_nothing_and_says_what_to_mend(spark: SparkSession, orders: BrokerProcess) -> None:
    """Columns, queue, mode: refused before any row is sent. A row the broker refuses is named."""
    rows = spark.range(3).selectExpr("cast(id as string) as content")
    with pytest.raises(AnalysisException, match="unknown column 'parent'"):
        write(rows.selectExpr("content", "array('x') as parent"), orders)
    with pytest.raises(AnalysisException, match="nothing says which row is which"):
        rows.write.format("syncbrok").options(url=orders.url, queue="orders").mode("append").save()
    with pytest.raises(AnalysisException, match="syncbrok queues create"):
        write(rows, orders, queue="nothing")
    with pytest.raises(AnalysisException, match="a queue is only added to"):
        rows.write.format("syncbrok").options(url=orders.url, queue="orders").mode("overwrite").save()
    ids = "if(content = '1', array('no-id'), cast(null as array<string>)) as parents"
    with pytest.raises(PythonException, match=r"row 1 of partition 0 \(idempotency_key 'r-0-1'\) is refused.*no-id"):
        write(rows.coalesce(1).selectExpr("content", ids), orders, run="r")
    assert contents(spark, orders) == []


def test_a_broker_killed_in_the_middle_gets_every_row_once(spark: SparkSession, orders: BrokerProcess) -> None:
    """Killed with -9 while batches are on their way and started on what is left: the write goes on, and nothing is
    there twice or missing."""
    rows = spark.range(0, 40_000, 1, 2).selectExpr("concat('row ', id) as content")
    killed_at: list[int] = []

    def kill_and_start() -> None:
        killed_at.append(eventually_blocking(lambda: (at := last_sequence(orders)) > 1_000 and at, "rows", 60))
        orders.kill()
        orders.start()

    killing = threading.Thread(target=kill_and_start)
    killing.start()
    write(rows, orders, batchRows=100, retryTimeout="60s")
    killing.join()
    assert 1_000 < killed_at[0] < 39_000, "not in the middle"
    found = contents(spark, orders)
    assert len(found) == 40_000
    assert set(found) == {f"row {n}" for n in range(40_000)}


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.pipeline.spark_program", *arguments]


def accepted(url: str, queue: str) -> int:
    """How many messages the broker has taken for the queue since it started."""
    with urllib.request.urlopen(f"{url}/v1/queues/{queue}", timeout=10) as answer:
        return int(json.load(answer)["statistics"]["accepted"])


def test_a_task_that_fails_and_is_repeated_publishes_its_rows_once(
    spark: SparkSession, orders: BrokerProcess, tmp_path: Path
) -> None:
    """A task fails after some of its rows were accepted. Its repetition makes the same keys from the positions, and
    every row is there once."""
    url, mark = orders.url, tmp_path / "accepted-before"

    def failing_once(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == 8 and context.attemptNumber() == 0:
                there = eventually_blocking(lambda: accepted(url, "orders"), "the first rows", 60)
                mark.write_text(str(there))
                raise RuntimeError("on purpose")
            yield batch

    # Wide enough that rows reach the sink before the last one is there: what lies between holds 64 KiB.
    rows = spark.range(0, 3_000, 1, 1).selectExpr("concat(id, repeat(' ', 1000)) as content")
    with set_for_now(spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "250"}):
        write(rows.mapInArrow(failing_once, rows.schema), orders, batchRows=100)
    assert 0 < int(mark.read_text()) < 3_000
    found = contents(spark, orders)
    assert Counter(one.strip() for one in found) == Counter(str(n) for n in range(3_000))


def test_a_stream_stopped_in_a_batch_repeats_it_and_copies_every_message_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A query is stopped when the broker has taken some rows of a batch, and started again at its checkpoint on another
    number of cores: it does that batch again in other partitions, with the same keys. The copy is exact."""
    goes_on, checkpoint = tmp_path / "goes-on", tmp_path / "checkpoint"

    def waiting(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number == 4:
                eventually_blocking(goes_on.exists, "the second start", 30)
            yield batch

    small = {"spark.sql.execution.arrow.maxRecordsPerBatch": "100"}
    # They are wide enough that rows reach the sink before the last one is there: what lies between holds 64 KiB.
    with set_for_now(spark, small), copied_from(tmp_path) as broker:
        copying = start_copy(spark, broker.url, str(broker.storage), str(checkpoint), through=waiting)
        # More than 256, where the second start splits the batch: the first has no partition that begins there.
        eventually_blocking(lambda: accepted(broker.url, "to") >= 300 or not copying.isActive, "the first copies", 200)
        assert copying.isActive, copying.exception()
        copying.stop()
        begun, done = ({int(one.name) for one in (checkpoint / name).glob("[0-9]*")} for name in ("offsets", "commits"))
        assert (begun, done) == ({0}, set()), "not in the middle of a batch"
        assert 0 < accepted(broker.url, "to") < 500
        goes_on.touch()
        storage = str(broker.storage)
        small: dict[str, Any] = {"through": waiting, "partition_bytes": "16KiB"}
        copying = start_copy(spark, broker.url, storage, str(checkpoint), once=True, **small)
        assert copying.awaitTermination(200), "the stream did not catch up"
        found = contents(spark, broker, "to")
        assert (len(found), len(set(found))) == (2_000, 2_000)


@pytest.mark.slow
def test_a_stream_killed_and_started_again_copies_every_message_once(spark: SparkSession, tmp_path: Path) -> None:
    """The same of a query whose process, with its Java, is killed with -9 in the middle of a batch."""
    with copied_from(tmp_path) as broker:
        checkpoint = str(tmp_path / "checkpoint")
        told = (tmp_path / "query.out").open("wb")
        with told, subprocess.Popen(
            program("stream", broker.url, str(broker.storage), checkpoint),
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=told, stderr=told, start_new_session=True,
        ) as query:  # fmt: skip
            eventually_blocking(lambda: last_sequence(broker, "to") > 0, "the first copies", 200)
            os.killpg(query.pid, 9)
        copied = start_copy(spark, broker.url, str(broker.storage), checkpoint, once=True)
        assert copied.awaitTermination(200), "the stream did not catch up"
        check_copy(contents(spark, broker, "to"))


@contextmanager
def copied_from(folder: Path) -> Iterator[BrokerProcess]:
    """A broker with 2,000 messages of five keys in the queue ``from``, and a queue ``to``."""
    with BrokerProcess(folder / "storage", queues="queues: {from: {}, to: {}}\n") as broker:
        for batch in range(4):
            lines = (f'{{"content":"message {n}","key":"k{n % 5}"}}' for n in range(batch * 500, batch * 500 + 500))
            broker.request(
                "POST",
                "/v1/queues/from/messages:batch",
                "\n".join(lines).encode(),
                {"Content-Type": "application/x-ndjson"},
            )
        yield broker


def check_copy(found: list[str]) -> None:
    """All of them, once, and in order for each key."""
    assert len(found) == 2_000
    assert {one.strip() for one in found} == {f"copy of message {n}" for n in range(2_000)}
    numbers = [int(one.rsplit(None, 1)[1]) for one in found]
    for key in range(5):
        of_key = [number for number in numbers if number % 5 == key]
        assert of_key == sorted(of_key)
