"""Starting on a long log: ``python -m benchmarks.start``."""

import os
import shutil
from collections.abc import Generator
from itertools import count
from pathlib import Path

from benchmarks.delivery import statistics, subscribe
from benchmarks.memory import MESSAGES, MESSAGES_QUICK, wait
from benchmarks.processes import Broker, Failed, Nginx
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, progress


def measure(folder: Path, options: Options) -> Generator[Readings, None, None]:
    """One log for all runs, written once and kept as kill -9 left it; each run starts on a copy."""
    messages = options.messages_or(MESSAGES, MESSAGES_QUICK)
    killed = folder / "killed"
    with Nginx(folder) as nginx:
        killed.mkdir()
        with Broker(killed) as broker:
            subscribe(broker, nginx.url, paused=True)
            seconds = wait(broker, messages)
            progress(f"    {messages:,} messages written in {seconds:.1f} s, now kill -9")
            broker.kill()
        for number in count():
            copy = folder / f"run-{number}"
            shutil.copytree(killed, copy)
            os.sync()
            yield once(copy, messages)
            shutil.rmtree(copy)


def once(folder: Path, messages: int) -> Readings:
    """After kill -9 first, then after a clean stop, on the same log; the page cache holds it both times."""
    empty = folder / "empty"
    empty.mkdir()
    with Broker(empty) as least:
        least.stop()
        nothing_s = least.start()
    log_bytes = sum(file.stat().st_size for file in (folder / "log").rglob("*") if file.is_file())
    readings: Readings = {}
    broker = Broker(folder)
    for after in ("kill", "clean"):
        seconds = broker.start()
        used = broker.usage()
        if (waiting := statistics(broker)["waiting"]) != messages:
            raise Failed(f"{waiting} wait of {messages} messages")
        beside = {"broker CPU s": used.cpu_s, "resident MB": used.resident_bytes / 1e6, "log MB": log_bytes / 1e6}
        readings[f"start_{after}"] = Reading(seconds, nothing_s, beside)
        broker.stop()
    return readings


def _aim(after: str, at_least: float, beyond: float) -> Aim:
    return Aim(f"start on 5 million, {after}", "s", "a start on an empty log", at_least, beyond, less_is_better=True)


ROW = Row(
    "start",
    "From starting the process (Python and its imports are in it) until /readyz says 200, on a log of 5 million waiting"
    " messages that is in the page cache: after kill -9 when the last was accepted (no clean stop ever), and after a"
    " clean stop.",
    {"start_clean": _aim("after a clean stop", 5, 1), "start_kill": _aim("after kill -9", 30, 10)},
    measure,
)

if __name__ == "__main__":
    main([ROW])
