"""The command line that every program of the benchmark has."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import result
from benchmarks.machine import versions
from benchmarks.processes import Failed, Missing
from benchmarks.row import RUNS, Options, Row, run

RESULTS: Final = Path(__file__).with_name("results")


def parser(about: str) -> argparse.ArgumentParser:
    """The flags every program of the benchmark has."""
    flags = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"of each row; default {RUNS}")
    flags.add_argument("--quick", action="store_true", help="a second or so: does it run, not how fast")
    flags.add_argument("--seconds", type=float, metavar="S", help="of each load, for rows measured by time")
    flags.add_argument("--messages", type=int, metavar="N", help="for rows measured by number")
    flags.add_argument("--storage", type=Path, metavar="DIR", help="the logs go below it: the disk you mean to use")
    flags.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help="write JSON here; default benchmarks/results, and nowhere with --quick, --seconds or --messages",
    )
    return flags


def options_of(given: argparse.Namespace) -> Options:
    runs = 1 if given.quick and given.runs == RUNS else given.runs
    return Options(runs, given.quick, given.seconds, given.messages, given.storage)


def main(rows: Sequence[Row], arguments: Sequence[str] | None = None) -> None:
    """The program of one row, or of all: ends with 1 where a row could not be measured."""
    about = "\n\n".join(f"{row.name}: {row.about}" for row in rows)
    flags = parser(about)
    if len(rows) > 1:
        names = [row.name for row in rows]
        flags.add_argument("rows", nargs="*", metavar="ROW", help=f"of: {', '.join(names)}; default all")
    given = flags.parse_args(arguments)
    wanted = getattr(given, "rows", None) or [row.name for row in rows]
    if unknown := [name for name in wanted if name not in {row.name for row in rows}]:
        flags.error(f"no row {unknown[0]!r}")
    options = options_of(given)
    results: list[dict[str, Any]] = []
    try:
        versions()  # what is not installed is said before anything is measured
        for row in (row for row in rows if row.name in wanted):
            results.append(result.of(row, options, run(row, options)))
            folder = given.results or (RESULTS if options.official else None)
            if folder is not None:
                result.write(results[-1], folder)
    except (Missing, Failed) as error:
        result.show(results)
        sys.exit(str(error))
    result.show(results)
