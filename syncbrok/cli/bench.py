"""``syncbrok bench``: figures of this machine beside its ceilings."""

import os
import platform
from pathlib import Path
from statistics import median

import click
import orjson
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from syncbrok import __version__
from syncbrok.bench.jobs import JOBS, QUICK, Figure, Scale, run


@click.command("bench")
@click.argument("jobs", nargs=-1, type=click.Choice(sorted(JOBS)), metavar="[JOB]...")
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1, 20), help="Run each job so often.")
@click.option("--quick", is_flag=True, help="A second each: does it run, not how fast.")
@click.option(
    "--storage",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Write the logs below this directory: the disk you mean to use.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a table.")
def command(jobs: tuple[str, ...], runs: int, quick: bool, storage: Path | None, as_json: bool) -> None:
    """Measure publishing, delivery, hops and latency on this machine, each beside its ceiling.

    \b
    Every job starts its own broker, subscriber and load on 127.0.0.1 and ends them.
    Jobs: publish, batch, deliver, hops, latency; all of them when none is named.

    \b
    Examples:
      syncbrok bench
      syncbrok bench publish deliver --runs 3 --storage /var/lib/syncbrok
    """
    scale = QUICK if quick else Scale()
    console = Console(stderr=True)
    measured: list[list[Figure]] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=as_json) as progress:
        wanted = jobs or tuple(JOBS)
        task = progress.add_task("", total=None)
        for job in wanted:
            for number in range(1, runs + 1):
                progress.update(task, description=f"{job}, run {number} of {runs}")
                measured.append(run(job, scale, storage))
    figures = _medians(measured)
    if as_json:
        rows = [{**figure._asdict(), "ratio": figure.ratio} for figure in figures]
        click.echo(orjson.dumps({"machine": _machine(), "runs": runs, "figures": rows}).decode())
    else:
        Console().print(_table(figures, runs))
        click.echo(_machine())


def _medians(measured: list[list[Figure]]) -> list[Figure]:
    """One figure a job: the run whose value is the median, its own ceiling beside it."""
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


def _table(figures: list[Figure], runs: int) -> Table:
    table = Table(title=f"syncbrok {__version__}, median of {runs} run{'s' if runs > 1 else ''}")
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
