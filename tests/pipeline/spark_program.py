"""A program that runs Spark in a process of its own: with a user's settings, or without a Java, or to be killed.

python -m tests.pipeline.spark_program settings | retried URL | stream URL STORAGE CHECKPOINT
"""

import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from syncbrok.pipeline.session import session
from tests.support.polling import eventually_blocking

SMALL = {
    "spark.driver.memory": "600m",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
ASKED = (
    "spark.app.name", "spark.driver.host", "spark.driver.memory", "spark.master",
    "spark.python.unix.domain.socket.enabled", "spark.sql.python.filterPushdown.enabled", "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions", "spark.ui.enabled", "spark.ui.showConsoleProgress",
)  # fmt: skip


def told(spark: SparkSession) -> dict[str, Any]:
    """What the session runs with: settings, the JVM's own arguments and home, Python's workers."""
    jvm: Any = spark.sparkContext._jvm
    conf = spark.sparkContext.getConf()
    python = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).first()
    return {
        **{name: conf.get(name) for name in ASKED},
        "arguments": list(jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()),
        "java.home": jvm.java.lang.System.getProperty("java.home"),
        "heap_bytes": jvm.java.lang.Runtime.getRuntime().maxMemory(),
        "python": python,
        "pythonExec": spark.sparkContext.pythonExec,
    }


def settings() -> None:
    """What a session runs with that is told nothing but what the environment says."""
    spark = session(name="given")
    print(json.dumps(told(spark)))
    spark.stop()


def accepted(url: str, queue: str) -> int:
    """How many messages the broker has taken for the queue since it started."""
    with urllib.request.urlopen(f"{url}/v1/queues/{queue}", timeout=10) as answer:
        return int(json.load(answer)["statistics"]["accepted"])


def retried(url: str, mark: str) -> None:
    """Publish 3,000 rows. The task fails once, when some of its rows are there; how many, it writes to ``mark``."""
    spark = session("local[2,3]", settings=SMALL)

    def failing_once(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            if number == 8 and context.attemptNumber() == 0:
                there = eventually_blocking(lambda: accepted(url, "orders"), "the first rows", 60)
                Path(mark).write_text(str(there))
                raise RuntimeError("on purpose")
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 250)
    # Wide enough that rows reach the sink before the last one is there: what lies between holds 64 KiB.
    rows = spark.range(0, 3_000, 1, 1).selectExpr("concat(id, repeat(' ', 1000)) as content")
    failing = rows.mapInArrow(failing_once, rows.schema)
    options = {"url": url, "queue": "orders", "batchRows": "100"}
    failing.write.format("syncbrok").options(**options).mode("append").save()
    spark.stop()


def start_copy(spark: SparkSession, url: str, storage: str, checkpoint: str, *, once: bool) -> Any:
    """The stream that copies the queue ``from`` into the queue ``to``, each content with a word before it."""
    messages: DataFrame = spark.readStream.format("syncbrok").option("maxRecordsPerTrigger", 500).load(storage)
    copied = messages.where("queue = 'from'").selectExpr(
        "concat('copy of ', decode(content, 'utf-8')) as content", "'to' as queue", "key"
    )
    writing = copied.writeStream.format("syncbrok").option("checkpointLocation", checkpoint)
    writing = writing.option("url", url).option("batchRows", 50).outputMode("append")
    return (writing.trigger(availableNow=True) if once else writing).start()


def stream(url: str, storage: str, checkpoint: str) -> None:
    """Copy until it is killed."""
    spark = session("local[2]", settings=SMALL)
    start_copy(spark, url, storage, checkpoint, once=False).awaitTermination()


if __name__ == "__main__":
    {"settings": settings, "retried": retried, "stream": stream}[sys.argv[1]](*sys.argv[2:])
