"""A row of the benchmark: what it measures, its figures with their aims, and the runs that give them."""

import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.machine import Watch
from benchmarks.processes import Failed

RUNS: Final = 3
DISTURBED_MAX: Final = 0.08
"""the kernel's own work for 1,000 fsyncs a second counts as others', and is up to half of this"""
AGAIN_MAX: Final = 3


class Aim(NamedTuple):
    """A figure of a row. ``beyond`` is what is wanted beyond ``at_least``; None where there is nothing to reach.
    ``of_ceiling``: both are shares of the ceiling, and not in ``unit``."""

    title: str
    unit: str
    ceiling_is: str
    at_least: float | None = None
    beyond: float | None = None
    less_is_better: bool = False
    of_ceiling: bool = False


class Reading(NamedTuple):
    """One figure of one run. ``beside`` is what else was seen, by name and unit: it explains the figure."""

    value: float
    ceiling: float
    beside: dict[str, float]


class Options(NamedTuple):
    """How much. ``seconds`` and ``messages`` are None where the row's own scale is meant."""

    runs: int = RUNS
    quick: bool = False
    seconds: float | None = None
    messages: int | None = None
    storage: Path | None = None

    def seconds_or(self, full: float, quick: float = 0.3) -> float:
        return self.seconds or (quick if self.quick else full)

    def messages_or(self, full: int, quick: int) -> int:
        return self.messages or (quick if self.quick else full)

    @property
    def official(self) -> bool:
        """Whether what is measured is what the documentation shows."""
        return not self.quick and self.seconds is None and self.messages is None


Readings = dict[str, Reading]
Measure = Callable[[Path, Options], Generator[Readings, None, None]]
"""Given an empty folder: one yield a run, a reading for each figure of the row, as long as it is asked for more."""


class Row(NamedTuple):
    """``name`` is that of the program; ``about`` says in a sentence or two what exactly is measured. ``once``: one run
    repeats everything in itself, as often as the options ask for runs."""

    name: str
    about: str
    aims: dict[str, Aim]
    measure: Measure
    once: bool = False


def each_run(measure_once: Callable[[Path, Options], Readings]) -> Measure:
    """Runs that have nothing in common: each begins in an empty folder."""

    def measure(folder: Path, options: Options) -> Generator[Readings, None, None]:
        while True:
            with tempfile.TemporaryDirectory(dir=folder) as own:
                yield measure_once(Path(own), options)

    return measure


class Run(NamedTuple):
    """``processors``: what ``Watch`` saw meanwhile, the shares of others and of the host."""

    readings: Readings
    processors: dict[str, float]

    @property
    def disturbed(self) -> float:
        return sum(self.processors.values())


def run(row: Row, options: Options) -> list[Run]:
    """Runs of a row, as many as asked for (see ``kept``), on a folder of their own that is removed."""
    runs: list[Run] = []
    with (
        tempfile.TemporaryDirectory(dir=options.storage, prefix="syncbrok-bench-") as folder,
        closing(row.measure(Path(folder), options)) as measuring,
    ):
        watch = Watch()
        for readings in measuring:
            runs.append(Run(readings, watch.shares()))
            progress(f"{row.name}: {_brief(row, runs[-1])}")
            if found := runs if row.once else kept(runs, options):
                return found
            watch = Watch()
    raise Failed(f"{row.name} ended after {len(runs)} runs")


def kept(runs: list[Run], options: Options) -> list[Run] | None:
    """The runs that count, or None while another is wanted.

    A run in which others or the host took more than ``DISTURBED_MAX`` of the processors is measured again, whatever it
    gave, ``AGAIN_MAX`` times at most; then the least disturbed count. A quick run counts in any case.
    """
    undisturbed = [one for one in runs if one.disturbed <= DISTURBED_MAX]
    if len(undisturbed) >= options.runs:
        return undisturbed
    if len(runs) < options.runs + (0 if options.quick else AGAIN_MAX):
        return None
    return sorted(runs, key=lambda one: one.disturbed)[: options.runs]


def progress(words: str) -> None:
    """For whoever waits. Standard output is for the result."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def _brief(row: Row, run: Run) -> str:
    figures = ", ".join(
        f"{row.aims[key].title} {shown(one.value)} {row.aims[key].unit} (ceiling {shown(one.ceiling)}"
        + "".join(f", {name} {shown(value)}" for name, value in one.beside.items())
        + ")"
        for key, one in run.readings.items()
    )
    return f"{figures}; {run.processors['others']:.1%} for others, {run.processors['stolen']:.1%} stolen"


def shown(value: float) -> str:
    """Three digits that matter, and all of a large number."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
