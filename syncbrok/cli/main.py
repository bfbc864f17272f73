"""``syncbrok``: the group of all commands. A command's module is imported when it is called: each starts fast."""

import os
import sys
from typing import Any, Final

import click

import syncbrok
from syncbrok.cli.exits import EXIT_CODES, FAILED, from_error
from syncbrok.cli.lazily import Lazily
from syncbrok.model.errors import SyncbrokError

_COMMANDS: Final = {
    "serve": ("serve.serve", "Run the broker."),
    "publish": ("remote.publish", "Publish a message, or one a line; prints their ids."),
    "consume": ("remote.consume", "Take messages and print them."),
    "tail": ("remote.tail", "Print what is accepted, as it is accepted."),
    "queues": ("remote.queues", "List, show, create, change, delete, purge queues."),
    "subscribers": ("remote.subscribers", "List, show, create, change, delete, test subscribers."),
    "messages": ("remote.messages", "List, show, find, cancel, replay messages."),
    "dead-letters": ("remote.dead_letters", "List, replay, drop what could not be delivered."),
    "history": ("remote.history", "Show the last day, minute by minute."),
    "jobs": ("remote.jobs", "List, show, await, cancel what goes on by itself: replays."),
    "actions": ("remote.actions", "List who did what."),
    "readers": ("remote.readers", "List, hold, delete those who read the log."),
    "tokens": ("remote.tokens", "Create, list, revoke tokens."),
    "apply": ("remote.apply", "Make a running broker match a queues.yml."),
    "log": ("log", "Check, print, salvage a log."),
    "cluster": ("cluster.group", "A log on several machines: run, begin, watch, switch."),
    "pipeline": ("pipeline.group", "Archive, report, trace, audit, replay a log with Spark."),
    "bench": ("bench", "Measure this machine, beside its ceilings."),
    "completion": ("completion", "Print what bash, zsh or fish needs to complete all this."),
}

_HELP: Final = f"""Syncbrok takes messages over HTTP, keeps them in a log and pushes each one to every webhook
subscribed to its queue. A message may name parents: it goes out once they are complete. The parent goes first.

\b
Start a broker, subscribe to a queue, publish a message and one that waits for it:
  syncbrok serve
  syncbrok queues create orders
  syncbrok subscribers create orders http://127.0.0.1:20000/
  echo '{{"customer": 1}}' | syncbrok publish orders
  echo '{{"card": 1}}' | syncbrok publish orders --parent ID

Commands speak to the broker at --url (SYNCBROK_URL), by default http://127.0.0.1:10000, with --token
(SYNCBROK_TOKEN) where it asks for one; the nodes of a cluster stand there with commas between them.
What begins with '-' and is no option stands behind --, as in syncbrok publish -- -queue.

{EXIT_CODES}
"""


class Commands(Lazily):
    """The group of all commands: turns the errors of the broker's own tree into exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            told = f"{error.message.rstrip('.')} (a name that begins with '-' stands behind --)"
            raise click.NoSuchOption(error.option_name, told, error.possibilities, error.ctx) from error
        except SyncbrokError as error:
            raise from_error(error) from error


@click.command(
    cls=Commands,
    modules=_COMMANDS,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(syncbrok.__version__, prog_name="syncbrok")
def group() -> None:
    """See ``_HELP``."""


def main() -> None:
    """The program. Never shows a traceback, but for a defect with ``SYNCBROK_TRACE`` set."""
    try:
        group(prog_name="syncbrok")
    except BrokenPipeError:
        # The reader of our output has closed it (``| head``). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:  # no defect: a file that cannot be used
            click.echo(f"syncbrok: {os.fsdecode(error.filename)}: {error.strerror}", err=True)
            sys.exit(FAILED)
        if os.environ.get("SYNCBROK_TRACE"):
            raise
        click.echo(
            f"syncbrok: a defect: {type(error).__name__}: {error}\n"
            "  SYNCBROK_TRACE=1 shows where; please report it with that",
            err=True,
        )
        sys.exit(FAILED)
