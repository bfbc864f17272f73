"""What the rows of the pipeline time, in a process of its own: ``python -m benchmarks.pipeline_jobs WANTED``.

``WANTED`` is JSON: {"plain": DIR or null, "families": DIR or null, "scratch": DIR, "repeat": N, "quick": BOOLEAN}.
Prints one line of JSON: seconds by name, each the best of ``repeat`` after one to warm up (SPARK.md's method: hot page
cache, one process, the log and its Parquet in turns); a job that writes runs once. Spark is what ``syncbrok pipeline``
starts, with its own settings. ``quick``: nothing is warmed up, and the JVM is that of a small log.
"""

import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks.ready_made import ReadyMade
from benchmarks.row import progress
from syncbrok.pipeline.archive.job import archive
from syncbrok.pipeline.audit.job import DELIVERY_COLUMNS, FACT_COLUMNS, MESSAGE_COLUMNS, prove
from syncbrok.pipeline.lineage.job import DELIVERIES, FACTS, MESSAGES, lineage_of_log, trees_of, write
from syncbrok.pipeline.log_and_archive import LogAndArchive
from syncbrok.pipeline.map_in_arrow import MapsInArrow, RecordBatches
from syncbrok.pipeline.session import session
from syncbrok.pipeline.states.declared_facts import KINDS as DECLARING

NARROW: Final = ("time", "queue")

Seconds = dict[str, float]


def reads(spark: SparkSession, log: str, scratch: str, repeat: int, warm: int) -> Seconds:
    """The log and a Parquet of the same rows: as it is loaded, every column, two, a count; beside these what Spark
    takes for as many rows from Python that need no decoding. And given to a function of Arrow batches."""
    parquet = f"{scratch}/parquet"
    began = time.perf_counter()
    _log(spark, log, columns="all").write.mode("overwrite").option("compression", "zstd").parquet(parquet)
    found = {"parquet_write": time.perf_counter() - began, "rows": float(spark.read.parquet(parquet).count())}
    spark.dataSource.register(ReadyMade)
    ready = {"rows": str(int(found["rows"]))}
    two = ",".join(NARROW)

    def forgotten(name: str, same: Iterable[str], **named: str) -> dict[str, Callable[[], Any]]:
        """Every row with the columns that ``named`` asks the log for; ``same`` are those of the Parquet."""
        return {
            name: lambda: _all(_log(spark, log, **named)),
            f"{name}_parquet": lambda: _all(spark.read.parquet(parquet).select(*same)),
            f"{name}_ready": lambda: _all(_log(spark, log, "ready-made", **named, **ready)),
        }

    loaded = _log(spark, log).columns
    ways: dict[str, dict[str, Callable[[], Any]]] = {
        "full": forgotten("full", loaded),
        "twenty": forgotten("twenty", "*", columns="all"),
        "narrow": {
            "narrow": lambda: _narrow(_log(spark, log, columns=two)),
            "narrow_parquet": lambda: _narrow(spark.read.parquet(parquet)),
            "narrow_ready": lambda: _narrow(_log(spark, log, "ready-made", columns=two, **ready)),
        },
        "count": {
            "count": lambda: _log(spark, log, columns="sequence").count(),
            "count_parquet": lambda: spark.read.parquet(parquet).count(),
        },
        "arrow": {
            "arrow": lambda: _in_arrow(LogAndArchive(spark, log).rows("messages", ",".join(loaded))),
            "arrow_parquet": lambda: _in_arrow(spark.read.parquet(parquet).select(*loaded)),
        },
    }
    for works in ways.values():
        taken: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(warm + repeat):
            for name, work in works.items():
                taken[name].append(_seconds(work))
        found |= {name: min(times[warm:]) for name, times in taken.items()}
        progress(f"    {taken}")
    shutil.rmtree(parquet)
    return found


def _in_arrow(rows: MapsInArrow) -> None:
    rows.mapInArrow(_counted, "rows bigint").agg(f.sum("rows")).collect()


def _counted(batches: RecordBatches) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([[sum(batch.num_rows for batch in batches)]], names=["rows"])


def archiving(spark: SparkSession, log: str, scratch: str) -> Seconds:
    """The whole job, verification and all, of a log that was never archived."""
    out = Path(scratch) / "archived"
    began = time.perf_counter()
    done = archive(spark, Path(log), str(out))
    seconds = time.perf_counter() - began
    (Path(log) / "archived").unlink(missing_ok=True)
    shutil.rmtree(out)
    return {"archive": seconds, "archive_rows": float(sum(one.rows for one in done.written.values()))}


def trees(spark: SparkSession, log: str, scratch: str, repeat: int, warm: int) -> Seconds:
    """Every tree by one group-by over root and depth as recorded; then all four tables of the job, as Parquet."""
    whole = LogAndArchive(spark, log)
    times = [_seconds(lambda: _all(trees_of(whole.read("messages", "root,depth,time")))) for _ in range(warm + repeat)]
    began = time.perf_counter()
    columns = {"messages": MESSAGES, "deliveries": DELIVERIES}
    messages, deliveries = (whole.rows(kind, ",".join(names)) for kind, names in columns.items())
    facts = whole.read("facts", ",".join(FACTS), fact_kinds=DECLARING)
    found = write(lineage_of_log(messages, deliveries, facts), f"{scratch}/lineage")
    seconds = time.perf_counter() - began
    rows, deepest = found.nodes.agg(f.count("*"), f.max("depth")).first() or (0, 0)
    shutil.rmtree(f"{scratch}/lineage")
    return {"trees": min(times[warm:]), "paths": seconds, "messages": float(rows), "deepest": float(deepest)}


def audited(spark: SparkSession, log: str) -> Seconds:
    """The proof over the whole log, which has nothing to find. Raises ``AssertionError`` where it finds something."""
    whole = LogAndArchive(spark, log)
    kinds = {"messages": MESSAGE_COLUMNS, "deliveries": DELIVERY_COLUMNS, "facts": FACT_COLUMNS}
    began = time.perf_counter()
    proof = prove(*(whole.read(kind, ",".join(columns)) for kind, columns in kinds.items()), settled=True)
    assert not proof.violations.count(), proof.violations.take(5)
    return {"audit": time.perf_counter() - began}


def _log(spark: SparkSession, path: str, source: str = "syncbrok", **options: str) -> DataFrame:
    return spark.read.format(source).options(**options).load(path)


def _all(frame: DataFrame) -> None:
    """Every row with every column, given to a sink that forgets them."""
    frame.write.format("noop").mode("overwrite").save()


def _narrow(frame: DataFrame) -> Any:
    return frame.agg(*(f.max(name) for name in NARROW)).collect()


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return round(time.perf_counter() - began, 3)


def main() -> None:
    wanted = orjson.loads(sys.argv[1])
    quick = wanted.get("quick", False)
    spark = session(name="syncbrok benchmarks", little=quick)
    scratch, repeat, warm = wanted["scratch"], int(wanted["repeat"]), 0 if quick else 1
    found: Seconds = {"cores": float(spark.sparkContext.defaultParallelism)}
    if wanted.get("plain"):
        found |= reads(spark, wanted["plain"], scratch, repeat, warm)
    if wanted.get("archive"):
        found |= archiving(spark, wanted["archive"], scratch)
    if wanted.get("families"):
        found |= trees(spark, wanted["families"], scratch, repeat, warm)
        found |= audited(spark, wanted["families"])
    sys.stdout.buffer.write(orjson.dumps(found) + b"\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
