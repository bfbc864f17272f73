"""``syncbrok consume``."""

from typing import Any

import click

from syncbrok.cli.exits import SEE_EXIT_CODES
from syncbrok.cli.remote.client import BrokerConnection, segment, speaks_to_broker, until_interrupted
from syncbrok.cli.show import as_json, print_content, print_json_line

_HELP = f"""Take messages of QUEUE and print their contents, one a line; each is acknowledged once it is printed.

Those who consume under one --group share its messages, and what the group has not taken waits for it. A new group
begins at the beginning of the queue, unless --start says otherwise. Without --count and --wait it goes on until it is
stopped (Ctrl-C), which loses nothing.

\b
Examples:
  syncbrok consume orders
  syncbrok consume orders --group audit --start now --json
  syncbrok consume orders --count 1 --wait 5s

{SEE_EXIT_CODES}
"""
_LONG_POLL = "20s"
_TOGETHER = 100


@click.command("consume", help=_HELP)
@click.argument("queue")
@click.option("--group", default="pull", metavar="NAME", help="Whose messages. Default: pull.")
@click.option("--start", metavar="START", help="Where a new group begins: beginning (default), now, or a sequence.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many.")
@click.option("--wait", metavar="DURATION", help="End when none comes for so long.")
@click.option("--lease", default="30s", metavar="DURATION", help="For how long each is lent. Default: 30s.")
@as_json
@speaks_to_broker
def command(client: BrokerConnection, queue: str, count: int | None, json_wanted: bool, **given: Any) -> None:
    """See ``_HELP``."""
    path = f"/v1/queues/{segment(queue)}/pull"
    asked = {"group": given["group"], "lease": given["lease"], "wait": given["wait"] or _LONG_POLL}
    if given["start"]:
        asked["start"] = given["start"]
    left = count or -1
    with until_interrupted():
        while left:
            most = _TOGETHER if left < 0 else min(left, _TOGETHER)
            messages = client.ask("POST", path, {**asked, "max": most}, wait_s=60.0, again=True).json()["messages"]
            for message in messages:
                left -= 1
                lease = message.pop("lease")
                (print_json_line if json_wanted else print_content)(message)
                _acknowledge(client, lease, message["sequence"])
            if not messages and given["wait"]:
                return


def _acknowledge(client: BrokerConnection, lease: str, sequence: int) -> None:
    if client.ask("POST", "/v1/leases:ack", {"leases": [lease]}, again=True).json()["over"]:
        click.echo(f"message {sequence} was printed after its lease was over, and comes again; give a longer --lease",
                   err=True)  # fmt: skip
