"""``syncbrok completion``: what a shell needs to complete commands and their options."""

import click
from click.shell_completion import get_completion_class

from syncbrok.cli.exits import SEE_EXIT_CODES

_SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    help=f"""Print the completion for SHELL: bash (4.4 or newer), zsh or fish.

\b
Examples, each for good:
  echo 'eval "$(syncbrok completion bash)"' >> ~/.bashrc
  echo 'eval "$(syncbrok completion zsh)"' >> ~/.zshrc
  syncbrok completion fish > ~/.config/fish/completions/syncbrok.fish

{SEE_EXIT_CODES}
""",
)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """See ``help``."""
    found = get_completion_class(shell)
    assert found is not None, shell
    script = found(ctx.find_root().command, {}, "syncbrok", "_SYNCBROK_COMPLETE").source()
    # Click's script for fish ends a description at its first comma: "list, show, create" was "list".
    click.echo(script.replace('(string split "," ', '(string split --max 1 "," '))
