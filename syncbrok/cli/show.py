"""Output of commands: a table for people, JSON for machines (``--json``)."""

import base64
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

C = TypeVar("C", bound=Callable[..., Any])

_PIPE_COLUMNS: Final = 10_000
_GAP: Final = 2
"""between two columns"""
_BAR_COLUMNS: Final = 30
_STYLES: Final = {
    "complete": "green",
    "delivered": "green",
    "active": "green",
    "dead": "red",
    "expired": "red",
    "disabled": "red",
    "retrying": "yellow",
    "held": "yellow",
    "paused": "yellow",
    "waiting": "yellow",
    "blocked": "yellow",
}


def as_json(command: C) -> C:
    """Gives a command ``--json`` as the argument ``json_wanted``."""
    return click.option("--json", "json_wanted", is_flag=True, help="JSON for machines.")(command)


def limited(command: C) -> C:
    """Gives a command ``--limit``."""
    help_ = "At most so many; 0 for all. Default: 100."
    return click.option("--limit", type=click.IntRange(0), default=100, metavar="N", help=help_)(command)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_list(items: Iterable[Any]) -> None:
    """A JSON array with an item a line, written as the items come."""
    lead = "["
    for item in items:
        click.echo(f"{lead}\n{json.dumps(item, ensure_ascii=False)}", nl=False)
        lead = ","
    click.echo("[]" if lead == "[" else "\n]")


def print_json_line(value: Any) -> None:
    """Print ``value`` as one line and flush it: another program may be waiting for it."""
    click.echo(json.dumps(value, ensure_ascii=False))
    sys.stdout.flush()


def print_content(message: dict[str, Any]) -> None:
    """The content of a message as the broker shows it, byte for byte, and a line feed, at once."""
    content = message.get("content")
    binary = base64.b64decode(message["content_base64"]) if content is None else content.encode()
    click.echo(binary + b"\n", nl=False)
    sys.stdout.flush()


def print_rich(table: Table) -> None:
    """Print a table: on a terminal in its width and colours; into a pipe nothing is cut, coloured or padded."""
    if sys.stdout.isatty():
        Console().print(table)
        return
    console = Console(width=_PIPE_COLUMNS, color_system=None)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]], nothing: str) -> None:
    """A row an item; ``nothing`` is said, on standard error, where there is none. Numbers stand right. Where a terminal
    is too narrow for a row, an item is a block of lines."""
    collected = [[cell(value) for value in row] for row in rows]
    numbers = [all(one[at].plain.isdigit() for one in collected) for at in range(len(headings))]
    if not collected:
        click.echo(nothing, err=True)
        return
    widths = _widths([[Text(one) for one in headings], *collected]) if sys.stdout.isatty() else [None] * len(headings)
    if widths is None:
        _print_blocks(headings, collected)
        return
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for heading, number, width in zip(headings, numbers, widths, strict=True):
        table.add_column(heading, justify="right" if number else "left", overflow="fold", width=width)
    for row in collected:
        table.add_row(*row)
    print_rich(table)


def _widths(rows: Sequence[Sequence[Text]]) -> list[int | None] | None:
    """The widths of columns of which none cuts a word, as an id is one, and that fit the terminal together; sentences
    are folded between words as far as they must. None where there is no such thing."""
    columns = [[row[at].plain for row in rows] for at in range(len(rows[0]))]
    whole = [max(map(cell_len, column)) for column in columns]
    least = [max(cell_len(word) for text in column for word in text.split() or [""]) for column in columns]
    room = Console().width - _GAP * (len(columns) - 1)
    if sum(least) > room:
        return None
    over = sum(whole) - sum(least)
    part = min(1.0, (room - sum(least)) / over) if over else 1.0
    return [low + int((high - low) * part) for low, high in zip(least, whole, strict=True)]


def _print_blocks(headings: Sequence[str], rows: Iterable[Sequence[Text]]) -> None:
    """Print below each other what does not fit beside each other: a block a row, a field a line."""
    for at, row in enumerate(rows):
        if at:
            click.echo()
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for heading, value in zip(headings, row, strict=True):
            table.add_row(Text(heading), value)
        print_rich(table)


def print_fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Print one thing, a field a line. Fields without a value are left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None and value not in ("", [], {}):
            table.add_row(Text(name), cell(value))
    print_rich(table)


def share(done: int, total: int) -> str | None:
    """How much of ``total`` is done: a bar on a terminal, a percentage behind it and elsewhere. None of nothing."""
    if not total:
        return None
    part = min(done, total) * _BAR_COLUMNS // total
    percent = f"{min(done, total) * 100 // total} %"
    return f"{'█' * part}{'░' * (_BAR_COLUMNS - part)} {percent}" if sys.stdout.isatty() else percent


def cell(value: object) -> Text:
    """A value as text: nothing in it is taken for markup, no control character reaches the terminal."""
    if value is None or value == "":
        return Text("-", style="dim")
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, dict):
        text = ", ".join(f"{name}: {cell(content).plain}" for name, content in value.items()) or "-"
    elif isinstance(value, list | tuple):
        text = ", ".join(cell(one).plain for one in value) or "-"
    else:
        text = str(value)
    return Text(printable(text), style=_STYLES.get(text, ""))


def printable(text: str) -> str:
    """``text`` with what a terminal would act upon escaped."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def moment(text: str | None) -> str | None:
    """An RFC 3339 time without the fraction of its second: ``2026-07-01 12:00:00Z``."""
    if text is None:
        return None
    assert text.endswith("Z"), f"{text} says no zone, or another"
    return f"{text[:10]} {text[11:19]}Z"
