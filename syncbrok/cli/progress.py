"""How far a command has come, on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


@contextmanager
def bytes_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, where that is a terminal; gives what to call with bytes done and bytes in all."""
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    # Where nothing is drawn, rich would still end it with an empty line.
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def items_bar(what: str) -> Iterator[Callable[[int, int, str], None]]:
    """Gives what to call with items done, items in all and a word about them: a bar on standard error where that is a
    terminal, elsewhere a line with each new word and each tenth."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(what)
        return
    columns = (TextColumn(f"{what} {{task.fields[word]}}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None, word="")
        yield lambda done, total, word: progress.update(task, completed=done, total=total or None, word=word)


def _lines(what: str) -> Callable[[int, int, str], None]:
    said: tuple[str, int] | None = None

    def say(done: int, total: int, word: str) -> None:
        nonlocal said
        now = (word, done * 10 // total if total else 0)
        if now != said:
            click.echo(f"{what} {word}: {done} of {total}", err=True)
            said = now

    return say
