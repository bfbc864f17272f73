"""A group of commands, each a module of this package that is imported when it is called: so each starts fast."""

import importlib
from collections.abc import Mapping
from typing import Any

import click


class Lazily(click.Group):
    """``dead-letters`` is ``command`` of the module ``dead_letters``; of a group with the prefix ``pipeline_``,
    ``audit`` is that of ``pipeline_audit``."""

    def __init__(self, *arguments: Any, modules: Mapping[str, str], prefix: str = "", **named: Any) -> None:
        """``modules``: what each command does, by its name."""
        super().__init__(*arguments, **named)
        self._modules = modules
        self._prefix = prefix

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._modules:
            return None
        module = importlib.import_module(f"syncbrok.cli.{self._prefix}{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        # From the table: the help of the group must not import all modules and what they import.
        with formatter.section("Commands"):
            formatter.write_dl(list(self._modules.items()))
