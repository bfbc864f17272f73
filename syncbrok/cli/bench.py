"""``syncbrok bench``: figures of this machine beside its ceilings."""

import os
import platform
import sys
from pathlib import Path
from statistics import median
from typing import Final

import click
import orjson
from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from syncbrok import __version__
from syncbrok.bench.jobs import JOBS, QUICK, Figure, Scale, run
from syncbrok.cli.exits import SEE_EXIT_CODES
from syncbrok.cli.show import as_json, print_rich

_HELP: Final = f"""Measure what a broker does on this machine, and beside each figure its ceiling: what the same load
generator and subscriber reach with everything left out that makes a broker. Machines differ, so the ratio of the two
is what can be compared.

Each JOB starts a broker, a subscriber and a load of its own on 127.0.0.1, free ports, a log in a temporary directory,
and ends them and removes it. All jobs are run when none is named; that takes a minute or two.

\b
Jobs:
  publish   messages a second, one POST each, 64 connections, each answered once fsynced
  batch     messages a second in batches of 500
  deliver   messages a second out of a backlog to one subscriber
  hops      a chain in which each message waits for the one before: hops a second
  latency   from sending to the subscriber at 1,000 messages a second: p50 and p99

Figures depend on the disk: --storage names a directory on the one you mean to use. Leave the machine alone meanwhile.

\b
Examples:
  syncbrok bench --quick
  syncbrok bench publish deliver --runs 3 --storage /var/lib/syncbrok
  syncbrok bench latency --json | jq '.figures[] | {{job, value, unit, ratio}}'

{SEE_EXIT_CODES}
"""


@click.command("bench", help=_HELP)
@click.argument("jobs", nargs=-1, type=click.Choice(sorted(JOBS)), metavar="[JOB]...")
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1, 20), metavar="N",
              help="Run each job so often; the median is shown.")  # fmt: skip
@click.option("--quick", is_flag=True, help="A second each: does it run, not how fast.")
@click.option(
    "--storage",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    metavar="DIR",
    help="Write the logs below this directory: the disk you mean to use.",
)
@as_json
def command(jobs: tuple[str, ...], runs: int, quick: bool, storage: Path | None, json_wanted: bool) -> None:
    """See ``_HELP``."""
    scale = QUICK if quick else Scale()
    console = Console(stderr=True)
    measured: list[list[Figure]] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        wanted = jobs or tuple(JOBS)
        task = progress.add_task("", total=None)
        for job in wanted:
            for number in range(1, runs + 1):
                progress.update(task, description=f"{job}, run {number} of {runs}")
                measured.append(run(job, scale, storage))
    figures = _medians(measured)
    if json_wanted:
        rows = [{**figure._asdict(), "ratio": figure.ratio} for figure in figures]
        click.echo(orjson.dumps({"machine": _machine(), "runs": runs, "figures": rows}).decode())
    else:
        print_rich(_table(figures))
        click.echo(f"{_machine()}, syncbrok {__version__}, median of {runs} run{'s' if runs > 1 else ''}")


def _medians(measured: list[list[Figure]]) -> list[Figure]:
    """One figure for each job: the run with the median value, beside its own ceiling."""
    by_job: dict[str, list[Figure]] = {}
    for figures in measured:
        for figure in figures:
            by_job.setdefault(figure.job, []).append(figure)
    return [
        figures[0]._replace(
            value=median(figure.value for figure in figures), ceiling=median(figure.ceiling for figure in figures)
        )
        for figures in by_job.values()
    ]


def _table(figures: list[Figure]) -> Table:
    box_ = box.SIMPLE_HEAD if sys.stdout.isatty() else None
    table = Table(box=box_, pad_edge=False, header_style="bold")
    for name in ("job", "figure", "ceiling", "ratio"):
        table.add_column(name, justify="left" if name == "job" else "right")
    table.add_column("the ceiling is")
    for figure in figures:
        digits = 2 if figure.unit == "ms" else 0
        table.add_row(
            figure.job,
            f"{figure.value:,.{digits}f} {figure.unit}",
            f"{figure.ceiling:,.{digits}f}",
            f"{figure.ratio:.2f}",
            figure.ceiling_is,
        )
    return table


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
