"""The progress bar: what it shows, and that it is never in the way."""

import io
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from syncbrok.pipeline.progress import progress, running_stages
from tests.support.polling import eventually_blocking


def watchers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "syncbrok-progress"]


def test_stages_and_tasks_are_shown_while_they_run(spark: SparkSession, tmp_path: Path) -> None:
    """On a terminal: the job, what it is at, its stages with their tasks; gone at the end, with its thread."""
    gate = str(tmp_path / "gate")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)

    def wait(number: int) -> int:
        eventually_blocking(Path(gate).exists, "the gate", 60)
        return number

    counted: list[int] = []
    rows = spark.sparkContext.parallelize(range(3), 3).map(wait)
    job = threading.Thread(target=lambda: counted.append(rows.count()))
    with progress(spark, "audit", console=console) as step:
        assert watchers()
        step("reading the log")
        job.start()
        tracker = spark.sparkContext.statusTracker()
        (stage,) = eventually_blocking(lambda: running_stages(tracker), "a stage", 30)
        assert (stage.tasks, stage.done, stage.failed) == (3, 0, 0)
        eventually_blocking(lambda: "0/3 tasks" in screen.getvalue(), "the stage on the screen", 30)
        Path(gate).touch()
        job.join()
        eventually_blocking(lambda: not running_stages(tracker), "the end of the stage", 30)
    assert counted == [3]
    assert "audit: reading the log" in screen.getvalue()
    assert not watchers()


def test_nothing_is_shown_where_nobody_looks(spark: SparkSession) -> None:
    """Standard error is a file or a pipe, or --quiet: no thread, no output."""
    screen = io.StringIO()
    for console, quiet in ((Console(file=screen), False), (Console(file=screen, force_terminal=True), True)):
        with progress(spark, "audit", quiet=quiet, console=console) as step:
            step("reading")
            assert not watchers()
    assert screen.getvalue() == ""


def test_the_job_fails_as_it_would_without_a_bar(spark: SparkSession) -> None:
    """An error goes through unchanged, and the thread ends."""
    console = Console(file=io.StringIO(), force_terminal=True)
    with pytest.raises(KeyError, match="mine"), progress(spark, "audit", console=console):
        raise KeyError("mine")
    assert not watchers()
