"""Flags for the settings of queues and subscribers, out of the one table (``model.settings``)."""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, TextIO, TypeVar

import click
import orjson

from syncbrok.cli.exits import USAGE, CommandFailed
from syncbrok.model.header_settings import NAME as HEADERS
from syncbrok.model.settings import QUEUE_SETTINGS, SUBSCRIBER_SETTINGS, Setting

C = TypeVar("C", bound=Callable[..., Any])

_LISTS = ("retry", "types", "forward")
_BOOLEANS = ("paused", "verdicts", "counts")
_INHERITED = ("retry", "timeout", "window", "types")
# What the word null says of each, in JSON.
_NULLABLE: dict[str, list[str] | None] = {
    "retention": None, "erase_after": None, "filter": None, "rate": None, "types": None, "forward": [],
}  # fmt: skip
_JSON = ("breaker", "batch", "max_backlog")
# Headers have a flag: they are what many would write in a line of curl.
_IN_FILES = frozenset(
    setting.name for setting in SUBSCRIBER_SETTINGS if setting.hide is not None and setting.name != HEADERS
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def _flag(setting: Setting) -> Callable[[C], C]:
    name = f"--{setting.name.replace('_', '-')}"
    if setting.name == HEADERS:
        return click.option(
            "--header", "headers", multiple=True, metavar="NAME=VALUE", help=f"{setting.doc} Repeatable."
        )
    if setting.hide is not None:
        help_ = f"{setting.doc} JSON, in a file: it may hold secrets; - for standard input."
        return click.option(f"{name}-file", setting.name, type=click.File(), metavar="FILE", help=help_)
    if setting.name in _BOOLEANS:
        return click.option(f"{name}/--not-{setting.name}", setting.name, default=None, help=setting.doc)
    shown = ",".join(setting.example) if setting.name in _LISTS else setting.example
    if setting.name in _JSON:
        shown = f"'{json.dumps(shown)}'"
    return click.option(name, setting.name, metavar="VALUE", help=f"{setting.doc} Such as {shown}.")


def queue_flags(command: C) -> C:
    for setting in reversed(QUEUE_SETTINGS):
        command = _flag(setting)(command)
    return command


def subscriber_flags(*without: str) -> Callable[[C], C]:
    def decorate(command: C) -> C:
        for setting in reversed(SUBSCRIBER_SETTINGS):
            if setting.name not in without:
                command = _flag(setting)(command)
        return command

    return decorate


def body_of(flags: dict[str, Any], *, inherits: bool = False) -> dict[str, Any]:
    """The JSON body for the flags. ``inherits``: for a subscriber, where ``default`` means the queue's setting
    again."""
    body: dict[str, Any] = {}
    for name, value in flags.items():
        if value is None or value == ():
            continue
        inherited = inherits and value == "default" and name in _INHERITED
        if inherited:
            body[name] = None
        elif value == "null" and name in _NULLABLE:
            body[name] = _NULLABLE[name]
        elif name in _IN_FILES:
            body[name] = _json_of(name, value)
        elif name == HEADERS:
            body[name] = dict(header_pairs(value))
        elif name in _JSON:
            body[name] = _json(name, value)
        elif name in _LISTS:
            body[name] = [part.strip() for part in value.split(",") if part.strip()]
        elif name == "window" and value.isdecimal():
            body[name] = int(value)
        else:
            body[name] = value
    return body


def _json_of(name: str, file: TextIO) -> Any:
    try:
        return orjson.loads(file.read())
    except orjson.JSONDecodeError as wrong:
        why = f"--{name}-file: expected JSON, {wrong.msg} in line {wrong.lineno}"
        raise CommandFailed(why, USAGE) from None


def changes_of(body: dict[str, Any]) -> dict[str, Any]:
    """``body``, unless it is empty: a command without its flag must not look as if it had changed something."""
    if not body:
        raise click.UsageError("nothing to change: name a setting, such as --timeout 30s; --help lists them")
    return body


def _json(name: str, value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError as wrong:
        flag = f"--{name.replace('_', '-')}"
        raise CommandFailed(f"{flag}: expected JSON, such as null; {wrong}, found {value!r}", USAGE) from None


def header_pairs(given: Iterable[str]) -> Iterable[tuple[str, str]]:
    """``NAME=VALUE``, each; raises where there is no ``=``, or where no header can be named or say that."""
    for one in given:
        name, equals, value = one.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name:
            raise CommandFailed(f"--header: expected NAME=VALUE, found {one!r}", USAGE)
        if not _HEADER_NAME.fullmatch(name):
            raise CommandFailed(f"--header: {name!r} cannot be the name of a header: letters, digits and -", USAGE)
        if not value.isascii() or not value.isprintable():
            raise CommandFailed(f"--header: the value of {name}: expected printable ASCII, found {value!r}", USAGE)
        yield name, value
