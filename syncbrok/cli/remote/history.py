"""``syncbrok history``."""

import click

from syncbrok.cli.exits import SEE_EXIT_CODES
from syncbrok.cli.remote.client import BrokerConnection, speaks_to_broker
from syncbrok.cli.show import as_json, moment, print_json, print_table


@click.command(
    "history",
    help=f"""How the broker, or one queue, did minute by minute in the last hours: what was accepted, delivered, failed
and dead, what waited as the minute ended and for how long, and how long deliveries took from acceptance.

\b
Examples:
  syncbrok history --hours 1
  syncbrok history --queue orders

{SEE_EXIT_CODES}
""",
)
@click.option("--queue", metavar="QUEUE", help="Only this queue.")
@click.option("--hours", type=click.IntRange(1, 24), default=24, metavar="N", help="How far back; 24 by default.")
@as_json
@speaks_to_broker
def command(client: BrokerConnection, queue: str | None, hours: int, json_wanted: bool) -> None:
    """See ``help``."""
    found = client.ask("GET", "/v1/history", query={"queue": queue, "hours": hours}).json()
    if json_wanted:
        print_json(found)
        return
    counts = ("accepted", "delivered", "failed", "dead", "backlog", "oldest_age_s", "p50_ms", "p99_ms")
    print_table(
        ("minute", "accepted", "delivered", "failed", "dead", "backlog", "oldest s", "p50 ms", "p99 ms"),
        ((moment(one["at"]), *(one[name] for name in counts)) for one in found["minutes"]),
        "nothing was counted",
    )
