"""Asks before something is destroyed. Only a person is asked: a script has no terminal and goes on as it always did."""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

C = TypeVar("C", bound=Callable[..., Any])


def destroys(command: C) -> C:
    """Gives a command ``--yes``, for ``confirm``."""
    return click.option("--yes", is_flag=True, help="Do not ask, as on a terminal it does.")(command)


def confirm(yes: bool, question: Callable[[], str]) -> None:
    """Ask on standard error, where somebody sits at a terminal and has not said ``--yes``; anything but yes ends the
    command (1) before it has done anything. ``question`` is called only then: it may ask the broker how much it is."""
    if not yes and sys.stdin.isatty():
        click.confirm(f"{question()}?", abort=True, err=True)
