"""The log as data: reading it beside Parquet, archiving it, following its trees: ``python -m benchmarks.pipeline``."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from benchmarks.pipeline_logs import BLOCK, BLOCK_QUICK, families, plain
from benchmarks.processes import Failed
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, progress

MESSAGES: Final = 8_000_000
MESSAGES_QUICK: Final = 8_000
TREES: Final = 5_000_000
ARCHIVED: Final = 2_000_000
_ADOPT_ORPHANS: Final = 36
"""PR_SET_CHILD_SUBREAPER: what the JVM leaves behind stays ours, so nobody takes its CPU for others'"""


def timed(wanted: dict[str, Any]) -> dict[str, float]:
    """What ``benchmarks.pipeline_jobs`` has measured, in a process of its own. Raises ``Failed``."""
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
    # The defaults are what is measured, not what a shell happens to have set.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SYNCBROK_", "PYSPARK_"))}
    command = [sys.executable, "-m", "benchmarks.pipeline_jobs", orjson.dumps(wanted).decode()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        said = process.communicate()[0]
    with suppress(ChildProcessError):
        while True:
            os.wait()
    if process.returncode:
        raise Failed(f"the jobs of the pipeline ended with {process.returncode}")
    found: dict[str, float] = orjson.loads(said.splitlines()[-1])
    return found


def measure(folder: Path, options: Options) -> Generator[Readings, None, None]:
    """The logs are written once and stay in the page cache."""
    messages = options.messages_or(MESSAGES, MESSAGES_QUICK)
    nodes = messages * TREES // MESSAGES
    logs = {name: folder / name for name in ("plain", "archive", "families")}
    plain(logs["plain"], messages)
    plain(logs["archive"], messages * ARCHIVED // MESSAGES)
    families(logs["families"], nodes, BLOCK_QUICK if options.quick else BLOCK)
    progress(f"    logs of {messages:,} and {nodes:,} messages are written")
    while True:
        wanted = {**{name: str(path) for name, path in logs.items()}, "scratch": str(folder)}
        yield _readings(timed({**wanted, "repeat": 1 if options.quick else 2, "quick": options.quick}))


def _readings(found: dict[str, float]) -> Readings:
    cores, rows = found["cores"], found["rows"]

    def against(name: str) -> Reading:
        """Seconds of the log for each second of Parquet."""
        ours, theirs = found[name], found[f"{name}_parquet"]
        ready = {"decoded before s": found[f"{name}_ready"]} if f"{name}_ready" in found else {}
        beside = {"log s": ours, "Parquet s": theirs, **ready, "rows/s and core": rows / ours / cores}
        return Reading(ours / theirs, 1.0, beside)

    archived = found["archive_rows"] / found["archive"]
    parquet = rows / found["parquet_write"]
    return {
        "full": against("full"),
        "twenty": against("twenty"),
        "narrow": against("narrow"),
        "count": Reading(found["count"], found["count_parquet"], {"rows": rows}),
        "arrow": against("arrow"),
        "archive": Reading(archived, parquet, {"rows": found["archive_rows"], "rows/s and core": archived / cores}),
        "trees": Reading(found["trees"], found["full_parquet"], _nodes(found, "trees")),
        "paths": Reading(found["paths"], found["trees"], _nodes(found, "paths") | {"deepest": found["deepest"]}),
        "audit": Reading(found["audit"], found["trees"], _nodes(found, "audit")),
    }


def _nodes(found: dict[str, float], name: str) -> dict[str, float]:
    return {"messages": found["messages"], "messages/s and core": found["messages"] / found[name] / found["cores"]}


ROW = Row(
    "pipeline",
    "A log of 8 million messages through Spark's format syncbrok beside a Parquet (zstd) of the same rows: the"
    " eight columns it is loaded with to a sink that forgets, all twenty there are, two (time and queue), each beside"
    " what Spark takes for as many rows from Python that were decoded before; a count; the eight columns given to a"
    " function of Arrow batches (LogAndArchive.rows, and the Parquet's by mapInArrow); the job archive on 2 million;"
    " the trees of 5 million messages, a fifth of them in chains of 1,000, by the recorded root and depth; all tables"
    " of the job lineage, critical paths among them; the audit of the same log. Hot page cache, the settings of"
    " syncbrok pipeline, best of two after one to warm up.",
    {
        "full": Aim("full read of 8 million", "of Parquet", "Parquet's seconds", 1.2, 1.0, less_is_better=True),
        "twenty": Aim("all twenty columns of 8 million", "of Parquet", "Parquet's seconds", less_is_better=True),
        "narrow": Aim("two columns of 8 million", "of Parquet", "Parquet's seconds", 2.0, 1.2, less_is_better=True),
        "count": Aim("count of 8 million", "s", "Parquet's, from its footers", 1.0, 0.3, less_is_better=True),
        "arrow": Aim("full read of 8 million in Arrow", "of Parquet", "Parquet's seconds", less_is_better=True),
        "archive": Aim("archive", "rows/s", "the same Spark writing the log as one plain Parquet, unverified"),
        "trees": Aim(
            "trees of 5 million", "s", "the full read of the Parquet of 8 million", 10, 5, less_is_better=True
        ),
        "paths": Aim("critical paths of 5 million", "s", "the trees alone", 60, 30, less_is_better=True),
        "audit": Aim("audit of 5 million", "s", "the trees alone", less_is_better=True),
    },
    measure,
)

if __name__ == "__main__":
    main([ROW])
