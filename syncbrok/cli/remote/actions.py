"""``syncbrok actions``."""

import click

from syncbrok.cli.exits import SEE_EXIT_CODES
from syncbrok.cli.remote.client import BrokerConnection, speaks_to_broker
from syncbrok.cli.show import as_json, limited, moment, print_json_list, print_table


@click.group(
    "actions",
    help=f"""Who did what: queues and subscribers set or deleted, messages cancelled, purged, erased, jobs begun and
cancelled, each with the name of the token that asked for it.

\b
Examples:
  syncbrok actions list
  syncbrok actions list --by ops --since 2026-07-01T00:00:00Z

{SEE_EXIT_CODES}
""",
)
def command() -> None:
    """See ``help``."""


@command.command("list")
@click.option("--by", metavar="NAME", help="Only what this token did; local without tokens, file for queues.yml.")
@click.option("--action", metavar="ACTION", help="Only this: queue_set, subscriber_set, erased, cancel, purge ...")
@click.option("--queue", metavar="QUEUE", help="Only in this queue, which may be deleted since.")
@click.option("--since", metavar="TIME", help="From this time (RFC 3339) or sequence on.")
@click.option("--until", metavar="TIME", help="Before this time (RFC 3339) or sequence.")
@click.option("--order", type=click.Choice(["desc", "asc"]), help="Newest first (desc, as without it) or oldest first.")
@limited
@as_json
@speaks_to_broker
def list_(client: BrokerConnection, limit: int, json_wanted: bool, **sought: str | None) -> None:
    """Actions and who did them, the newest first, as far back as the log goes.

    \b
    Examples:
      syncbrok actions list --queue orders --action subscriber_set
      syncbrok actions list --by local --limit 0 --json
    """
    query = {name: value for name, value in sought.items() if value}
    actions = client.pages("/v1/actions", "actions", limit, query)
    if json_wanted:
        print_json_list(actions)
        return
    names = ("by", "action", "queue", "subscriber", "message", "messages", "job")
    print_table(
        ("sequence", "time", *names),
        ((one["sequence"], moment(one["time"]), *(one[name] for name in names)) for one in actions),
        "nothing was done",
    )
