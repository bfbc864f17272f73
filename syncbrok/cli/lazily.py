"""A group of commands, each a module of this room that is imported when it is called: so each starts fast."""

import importlib
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem


class Lazily(click.Group):
    """Each command is ``command`` of the module that the group's table names."""

    def __init__(self, *arguments: Any, modules: Mapping[str, tuple[str, str]], **named: Any) -> None:
        """``modules``: by the name of each command its module, below ``syncbrok.cli``, and what it does."""
        super().__init__(*arguments, **named)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._modules:
            return None
        place, _ = self._modules[cmd_name]
        module = importlib.import_module(f"syncbrok.cli.{place}")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # From the table too: a completion that imports all modules takes a second.
        found = [
            CompletionItem(name, help=does) for name, (_, does) in self._modules.items() if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        # From the table: the help of the group must not import all modules and what they import.
        with formatter.section("Commands"):
            formatter.write_dl([(name, does) for name, (_, does) in self._modules.items()])
