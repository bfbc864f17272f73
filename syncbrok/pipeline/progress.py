"""A progress bar of a job's stages and tasks, on a terminal. It asks Spark five times a second."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pyspark import StatusTracker
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_EVERY_S: Final = 0.2
_STAGES_SHOWN_MAX: Final = 4

Step = Callable[[str], None]
"""said by a job: what it is at now"""


class StageState(NamedTuple):
    """A stage of the running jobs: how many of its tasks have run, and how many there are."""

    stage: int
    name: str
    tasks: int
    done: int
    failed: int


@contextmanager
def progress(spark: SparkSession, title: str, *, quiet: bool = False, console: Console | None = None) -> Iterator[Step]:
    """Shows what runs in ``spark`` until the end of the block. The block gets a function, with which it says what it is
    at.

    Nothing is shown, and no thread started, where standard error is no terminal or ``quiet`` is set."""
    console = console or Console(stderr=True)
    if quiet or not console.is_terminal:
        yield _ignored
        return
    ended = threading.Event()
    with _bars(console) as bars:
        shown = _Shown(bars, title)
        tracker = spark.sparkContext.statusTracker()
        watcher = threading.Thread(target=_watch, args=(tracker, shown, ended), name="syncbrok-progress", daemon=True)
        watcher.start()
        try:
            yield shown.say
        finally:
            ended.set()
            watcher.join()


def running_stages(tracker: StatusTracker) -> list[StageState]:
    """The stages that run now, oldest first."""
    found = []
    for stage in sorted(tracker.getActiveStageIds()):
        info = tracker.getStageInfo(stage)
        if info is not None:  # else it has ended since
            found.append(StageState(stage, info.name, info.numTasks, info.numCompletedTasks, info.numFailedTasks))
    return found


class _Shown:
    """The bars on the terminal: one for the job, one under it for each stage that runs."""

    def __init__(self, bars: Progress, title: str) -> None:
        self._bars = bars
        self._title = title
        self._whole = bars.add_task(title, total=None, tasks="")
        self._of_stage: dict[int, TaskID] = {}

    def say(self, step: str) -> None:
        self._bars.update(self._whole, description=f"{self._title}: {step}" if step else self._title)

    def show(self, stages: list[StageState]) -> None:
        stages = stages[:_STAGES_SHOWN_MAX]
        for gone in self._of_stage.keys() - {stage.stage for stage in stages}:
            self._bars.remove_task(self._of_stage.pop(gone))
        for stage in stages:
            if stage.stage not in self._of_stage:
                self._of_stage[stage.stage] = self._bars.add_task(f"  stage {stage.stage}", total=stage.tasks, tasks="")
            told = f"{stage.done}/{stage.tasks} tasks" + (f", {stage.failed} failed" if stage.failed else "")
            self._bars.update(self._of_stage[stage.stage], completed=stage.done, total=stage.tasks, tasks=told)


def _bars(console: Console) -> Progress:
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[tasks]}"))
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)


def _watch(tracker: StatusTracker, shown: _Shown, ended: threading.Event) -> None:
    while not ended.wait(_EVERY_S):
        try:
            shown.show(running_stages(tracker))
        except Exception:  # noqa: BLE001  # the JVM has gone: the job itself says so, and a bar must not be why it fails
            return


def _ignored(step: str) -> None:
    """Ignores the progress."""
