"""``syncbrok tail``."""

import json
from contextlib import suppress

import click

from syncbrok.cli.client import Client, segment, speaks_to_broker
from syncbrok.cli.exits import EXIT_CODES
from syncbrok.cli.show import as_json, print_content, print_json_line

_HELP = f"""Print the contents of what is accepted in QUEUE, as it is accepted, one a line, until it is
stopped (Ctrl-C). Nobody gets less for it.

\b
Examples:
  syncbrok tail orders
  syncbrok tail orders --start beginning --json | jq .sequence

{EXIT_CODES}
"""
_DATA = b"data: "


@click.command("tail", help=_HELP)
@click.argument("queue")
@click.option("--start", default="now", metavar="START", help="now (default), beginning, or a sequence.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many.")
@as_json
@speaks_to_broker
def command(client: Client, queue: str, start: str, count: int | None, json_wanted: bool) -> None:
    """See ``_HELP``."""
    left = count or -1
    with suppress(KeyboardInterrupt):  # that is how it is stopped
        for line in client.lines(f"/v1/queues/{segment(queue)}/stream", {"start": start}):
            if line.startswith(_DATA):
                (print_json_line if json_wanted else print_content)(json.loads(line[len(_DATA) :]))
                left -= 1
                if not left:
                    return
