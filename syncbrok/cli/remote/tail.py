"""``syncbrok tail``."""

import json
import time
from collections.abc import Iterator

import click

from syncbrok.cli.exits import FAILED, SEE_EXIT_CODES, UNREACHABLE, CommandFailed
from syncbrok.cli.remote.client import BrokerConnection, segment, speaks_to_broker, until_interrupted
from syncbrok.cli.show import as_json, print_content, print_json_line

_HELP = f"""Print the contents of what is accepted in QUEUE, as it is accepted, one a line, until it is
stopped (Ctrl-C), also after the broker was away. It only reads: subscribers still get
everything.

\b
Examples:
  syncbrok tail orders
  syncbrok tail orders --start beginning --json | jq .sequence

{SEE_EXIT_CODES}
"""
_DATA = b"data: "
_ID = b"id: "
_PAUSE_S = 1.0


@click.command("tail", help=_HELP)
@click.argument("queue")
@click.option("--start", default="now", metavar="START", help="now (default), beginning, or a sequence.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many.")
@as_json
@speaks_to_broker
def command(client: BrokerConnection, queue: str, start: str, count: int | None, json_wanted: bool) -> None:
    """See ``_HELP``."""
    left = count or -1
    with until_interrupted():
        for line in _lines(client, f"/v1/queues/{segment(queue)}/stream", start):
            (print_json_line if json_wanted else print_content)(json.loads(line))
            left -= 1
            if not left:
                return


def _lines(client: BrokerConnection, path: str, start: str) -> Iterator[bytes]:
    """The data of each event, for ever: where the broker goes, from the next one on as soon as it is back. Raises
    ``CommandFailed`` where it cannot be reached at first, or refuses."""
    reached = told = False
    while True:
        try:
            for line in client.lines(path, {"start": start}):
                reached, told = True, False
                if line.startswith(_ID):
                    start = str(int(line[len(_ID) :]) + 1)
                elif line.startswith(_DATA):
                    yield line[len(_DATA) :]
        except CommandFailed as failed:
            if not reached or failed.exit_code not in (UNREACHABLE, FAILED):
                raise
        if not told:
            click.echo(f"the broker at {client.url} has ended the stream; it goes on when the broker is back", err=True)
            told = True
        time.sleep(_PAUSE_S)
