"""A row of the benchmark: what it measures, its figures with their aims, and the runs that give them."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

RUNS: Final = 3


class Aim(NamedTuple):
    """A figure of a row. ``beyond`` is what is wanted beyond ``at_least``; None where there is nothing to reach."""

    title: str
    unit: str
    ceiling_is: str
    at_least: float | None = None
    beyond: float | None = None
    less_is_better: bool = False


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
Measure = Callable[[Path, Options], Iterator[Readings]]
"""Given an empty folder: one yield a run, a reading for each figure of the row."""


class Row(NamedTuple):
    """``name`` is that of the program; ``about`` says in a sentence or two what exactly is measured."""

    name: str
    about: str
    aims: dict[str, Aim]
    measure: Measure


def each_run(measure_once: Callable[[Path, Options], Readings]) -> Measure:
    """Runs that have nothing in common: each begins in an empty folder."""

    def measure(folder: Path, options: Options) -> Iterator[Readings]:
        for _ in range(options.runs):
            with tempfile.TemporaryDirectory(dir=folder) as own:
                yield measure_once(Path(own), options)

    return measure


def run(row: Row, options: Options) -> list[Readings]:
    """All runs of a row, on a folder of their own that is removed."""
    with tempfile.TemporaryDirectory(dir=options.storage, prefix="syncbrok-bench-") as folder:
        readings = []
        for number, reading in enumerate(row.measure(Path(folder), options), 1):
            readings.append(reading)
            progress(f"{row.name}, run {number} of {options.runs}: {_brief(row, reading)}")
        return readings


def progress(words: str) -> None:
    """For whoever waits. Standard output is for the result."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def _brief(row: Row, readings: Readings) -> str:
    return ", ".join(
        f"{row.aims[key].title} {shown(one.value)} {row.aims[key].unit} (ceiling {shown(one.ceiling)}"
        + "".join(f", {name} {shown(value)}" for name, value in one.beside.items())
        + ")"
        for key, one in readings.items()
    )


def shown(value: float) -> str:
    """Three digits that matter, and all of a large number."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
