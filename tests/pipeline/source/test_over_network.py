"""``spark.read.format("syncbrok")`` of a log over HTTP, and of several logs at once: batch and stream."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from syncbrok.pipeline import schema
from tests.support.broker.process import BrokerProcess
from tests.support.pipeline.archive_log import WrittenLog
from tests.support.pipeline.broker_log import NDJSON
from tests.support.pipeline.served_log import TOKEN, served_log
from tests.support.polling import eventually_blocking

QUEUES = "queues: {orders: {subscribers: [{endpoint: 'http://127.0.0.1:9/', retry: []}]}}\n"
MESSAGES = 300


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A real one, whose segments are full soon."""
    with BrokerProcess(tmp_path / "storage", queues=QUEUES, config="storage: {segment: 64KiB}\n") as running:
        yield running


def publish(broker: BrokerProcess, count: int) -> None:
    lines = b"\n".join(json.dumps({"content": "x" * 1_000}).encode() for _ in range(count))
    assert broker.request("POST", "/v1/queues/orders/messages:batch", lines, NDJSON).status == 201


def lag(broker: BrokerProcess) -> int:
    """How far the reader of this name is behind, as the broker says it."""
    (reader,) = json.loads(broker.request("GET", "/v1/log/readers").body)["readers"]
    assert reader["name"] == "tests"
    return int(reader["lag"])


def rows_of(frame: DataFrame) -> list[str]:
    """In their order, as text: maps cannot be compared."""
    return sorted(frame.select(sf.to_json(sf.struct("*"))).toPandas().iloc[:, 0])


def test_a_broker_that_writes_is_read_as_its_directory_is(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    """A stream over HTTP gets each message once while the broker writes and rolls; and a batch, of each kind and with
    all columns, the rows that the directory gives. The broker knows how far the stream has come, by its name."""
    seen: list[int] = []
    named = spark.readStream.format("syncbrok").options(url=broker.url, reader="tests", maxRecordsPerTrigger="200")
    stream = named.load()
    keep = stream.select("sequence").writeStream.foreachBatch(
        lambda frame, _: seen.extend(row.sequence for row in frame.collect())
    )
    query = keep.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        for _ in range(MESSAGES // 50):
            publish(broker, 50)
        eventually_blocking(lambda: len(seen) >= MESSAGES or query.exception() is not None, "the stream has all", 60)
        eventually_blocking(lambda: lag(broker) == 0, "the broker is told so")
    finally:
        query.stop()
    assert len(list((tmp_path / "storage").glob("*.idx"))) > 2, "it rolled"
    assert len(seen) == len(set(seen)) == MESSAGES
    for kind in (*schema.KINDS, *schema.DERIVED):
        read = spark.read.format("syncbrok").options(kind=kind, columns="all", minPartitions="3")

        def same(read=read) -> bool:  # type: ignore[no-untyped-def]
            return rows_of(read.load(str(tmp_path / "storage"))) == rows_of(read.load(broker.url))

        eventually_blocking(same, f"{kind}: the watermark in the directory is a second behind", 10)
    assert sorted(seen) == [
        row.sequence for row in spark.read.format("syncbrok").load(broker.url).orderBy("sequence").collect()
    ]


@pytest.fixture
def written(tmp_path: Path) -> Iterator[tuple[WrittenLog, WrittenLog, str]]:
    """Two logs, and the URL of a third."""
    logs = [WrittenLog(tmp_path / name, seed) for seed, name in enumerate(("a", "b", "c"))]
    for log in logs:
        log.fill(1)
        log.publish(5)
        log.journal.close()
    with served_log(logs[2].directory, logs[2].journal) as url:
        yield logs[0], logs[1], url


def test_several_logs_are_one_frame(spark: SparkSession, written: tuple[WrittenLog, WrittenLog, str]) -> None:
    """``load([directory, directory, url])``: every row of each, and the column ``log`` says of which; of one log there
    is such a column only where it is asked for. The same log twice is refused, and so is a stream of several."""
    one, other, url = written
    paths = [str(one.directory), str(other.directory), url]
    read = spark.read.format("syncbrok").option("token", TOKEN)
    together = read.load(paths)
    assert together.columns[-1] == "log"
    counts = {row["log"]: row["count"] for row in together.groupBy("log").count().collect()}
    assert counts[one.journal.uuid.hex()] == counts[other.journal.uuid.hex()] == 45
    assert sum(counts.values()) == 135
    alone = together.where(sf.col("log") == one.journal.uuid.hex()).drop("log")
    assert rows_of(alone) == rows_of(spark.read.format("syncbrok").load(paths[0]))
    assert read.option("kind", "facts").option("columns", "sequence").load(paths).columns == ["sequence", "log"]
    named = spark.read.format("syncbrok").option("columns", "log,sequence").load(paths[0])
    numbers = {row.sequence for row in alone.collect()}
    assert {tuple(row) for row in named.collect()} == {(number, one.journal.uuid.hex()) for number in numbers}
    with pytest.raises(AnalysisException, match=f"are the same log, {one.journal.uuid.hex()}; give it once"):
        spark.read.format("syncbrok").load([paths[0], paths[1], paths[0]]).count()
    several = spark.readStream.format("syncbrok").option("paths", json.dumps(paths[:2])).load()
    with pytest.raises(Exception, match="several logs make one frame and no stream"):
        several.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(30)


def test_no_plan_and_no_error_shows_the_token(
    spark: SparkSession, written: tuple[WrittenLog, WrittenLog, str], capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither what ``explain`` prints, nor what a query says that fails."""
    url = written[2]
    frame = spark.read.format("syncbrok").option("token", TOKEN).load(url)
    frame.explain("extended")
    frame.where("sequence > 3").explain("formatted")
    assert frame.count() == 45
    assert "syncbrok" in (shown := capfd.readouterr().out)
    assert TOKEN not in shown
    for options in ({"url": url, "token": TOKEN + "x"}, {"url": url, "token": TOKEN, "ca": "/none"}):
        with pytest.raises(AnalysisException, match=r"does not let this read|ca: /none cannot be read") as failed:
            spark.read.format("syncbrok").options(**options).load().count()
        assert TOKEN not in str(failed.value)
