"""Flags for the settings of queues and subscribers, out of the one table (``model.settings``)."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from syncbrok.cli.exits import USAGE, CommandFailed
from syncbrok.model.settings import QUEUE_SETTINGS, SUBSCRIBER_SETTINGS, Setting

C = TypeVar("C", bound=Callable[..., Any])

_LISTS = ("retry",)
_BOOLEANS = ("paused",)


def _flag(setting: Setting) -> Callable[[C], C]:
    name = f"--{setting.name.replace('_', '-')}"
    if setting.name == "headers":
        return click.option(
            "--header", "headers", multiple=True, metavar="NAME=VALUE", help=f"{setting.doc} Repeatable."
        )
    if setting.name in _BOOLEANS:
        return click.option(f"{name}/--not-{setting.name}", setting.name, default=None, help=setting.doc)
    shown = ",".join(setting.example) if setting.name in _LISTS else setting.example
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


def body_of(flags: dict[str, Any]) -> dict[str, Any]:
    """The JSON body that says what the flags say. ``default`` takes a setting back to what the queue says."""
    body: dict[str, Any] = {}
    for name, value in flags.items():
        if value is None or value == ():
            continue
        if value == "default":
            body[name] = None
        elif name == "headers":
            body[name] = dict(header_pairs(value))
        elif name in _LISTS:
            body[name] = [part.strip() for part in value.split(",") if part.strip()]
        elif name == "window" and value.isdecimal():
            body[name] = int(value)
        else:
            body[name] = value
    return body


def header_pairs(given: Iterable[str]) -> Iterable[tuple[str, str]]:
    """``NAME=VALUE``, each; raises where there is no ``=``."""
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise CommandFailed(f"--header: expected NAME=VALUE, found {one!r}", USAGE)
        yield name.strip(), value.strip()
