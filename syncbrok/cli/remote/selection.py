"""A selection of messages, as several commands take it: ``--id`` for each, or ``--ids`` with one a line."""

import functools
from collections.abc import Callable
from typing import Any, TextIO

import click


def selects(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command ``--id`` and ``--ids``, and as the argument ``ids`` the ids that they name, each once."""

    @click.option("--id", "named", multiple=True, metavar="ID", help="This message. Repeatable.")
    @click.option("--ids", "listed", type=click.File(), metavar="FILE",
                  help="The messages whose ids stand in FILE, one a line; - for standard input.")  # fmt: skip
    @functools.wraps(command)
    def called(*arguments: Any, named: tuple[str, ...], listed: TextIO | None, **others: Any) -> None:
        lines = [line.strip() for line in listed] if listed is not None else []
        command(*arguments, ids=list(dict.fromkeys((*named, *filter(None, lines)))), **others)

    return called


def some_of(ids: list[str]) -> list[str]:
    """``ids``, for a command that is about nothing else."""
    if not ids:
        raise click.UsageError("say which messages: --id ID for each, or --ids FILE with one id a line")
    return ids
