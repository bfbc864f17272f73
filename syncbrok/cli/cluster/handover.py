"""``syncbrok cluster yield``."""

import time
from typing import Any, Final

import click

from syncbrok.cli.cluster.status import status_of
from syncbrok.cli.exits import SEE_EXIT_CODES, UNREACHABLE, CommandFailed
from syncbrok.cli.remote.client import BrokerConnection, speaks_to_broker
from syncbrok.cli.show import as_json, print_json

_LOOK_S: Final = 0.2

_HELP: Final = f"""Let another node lead, before this one is stopped or upgraded.

Any node can be asked. The leader drains (no new messages; attempts in flight get 25 s), then gives way, and its process
ends with 0; its supervisor (systemd) starts it again, and it follows. Returns once another node leads, and says which.

\b
Examples:
  syncbrok cluster yield
  syncbrok cluster yield --to b --url http://10.0.0.1:10000

{SEE_EXIT_CODES}
"""


@click.command("yield", help=_HELP)
@click.option("--to", default="", metavar="NODE", help="Who leads next; whoever is first by default.")
@click.option("--wait", "wait_s", type=click.FloatRange(0), default=60.0, metavar="SECONDS",
              help="How long to wait until another node leads; 60 by default, 0 does not wait.")  # fmt: skip
@as_json
@speaks_to_broker
def command(client: BrokerConnection, to: str, wait_s: float, json_wanted: bool) -> None:
    """See ``_HELP``."""
    before = status_of(client)
    client.ask("POST", "/v1/cluster/yield", {"to": to} if to else {})
    leader = _next_leader(client, before["epoch"], wait_s) if wait_s else None
    if json_wanted:
        print_json({"leader": leader})
    elif leader is not None:
        click.echo(f"{leader['node']} leads now, at {leader['url']}")
    else:
        click.echo("the leader gives way")


def _next_leader(client: BrokerConnection, epoch: int, wait_s: float) -> dict[str, Any]:
    """The node that leads in a later epoch than this one, as ``GET /v1/cluster`` tells of it. Raises ``CommandFailed``
    where nobody does in time."""
    until_s = time.monotonic() + wait_s
    while time.monotonic() < until_s:
        try:
            found = status_of(client)
        except CommandFailed as failed:
            if failed.exit_code not in (UNREACHABLE, 1):
                raise
        else:
            if found["epoch"] > epoch and found["leader"]:
                leader: dict[str, Any] = found["leader"]
                return leader
        time.sleep(_LOOK_S)
    raise CommandFailed(f"no other node leads after {wait_s:g} s", mend="syncbrok cluster status shows how they stand")
