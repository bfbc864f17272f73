"""A program that runs Spark in a process of its own: with a user's settings, or without a Java, or to be killed.

python -m tests.pipeline.spark_program settings | stream URL STORAGE CHECKPOINT
"""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from syncbrok.pipeline.session import session

SMALL = {
    "spark.driver.memory": "600m",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
ASKED = (
    "spark.app.name", "spark.driver.host", "spark.driver.memory", "spark.master",
    "spark.python.unix.domain.socket.enabled", "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning",
    "spark.sql.session.timeZone",
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


def start_copy(
    spark: SparkSession,
    url: str,
    storage: str,
    checkpoint: str,
    *,
    once: bool = False,
    through: Any = None,
    partition_bytes: str = "512MiB",
) -> Any:
    """The stream that copies the queue ``from`` into the queue ``to``, each content with words before it and a thousand
    spaces behind; ``through``: a function of Arrow batches that the rows pass. Small
    ``partition_bytes`` make several partitions of each of its batches, as more cores do."""
    reading = spark.readStream.format("syncbrok").option("maxRecordsPerTrigger", 500)
    reading = reading.option("columns", "queue,key,content,sequence,log")
    messages: DataFrame = reading.options(minPartitions=1, partitionBytes=partition_bytes).load(storage)
    copied = messages.where("queue = 'from'").selectExpr(
        "concat('copy of ', decode(content, 'utf-8'), repeat(' ', 1000)) as content", "'to' as queue", "key", "log",
        "sequence",
    )  # fmt: skip
    if through is not None:
        copied = copied.mapInArrow(through, copied.schema)
    writing = copied.writeStream.format("syncbrok").option("checkpointLocation", checkpoint)
    writing = writing.option("url", url).option("batchRows", 50).outputMode("append")
    return (writing.trigger(availableNow=True) if once else writing).start()


def stream(url: str, storage: str, checkpoint: str) -> None:
    """Copy until it is killed."""
    spark = session("local[2]", settings=SMALL)
    start_copy(spark, url, storage, checkpoint).awaitTermination()


if __name__ == "__main__":
    {"settings": settings, "stream": stream}[sys.argv[1]](*sys.argv[2:])
