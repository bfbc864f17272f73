"""``syncbrok dead-letters``."""

from collections.abc import Iterator
from typing import Any

import click

from syncbrok.cli.confirming import confirm, destroys
from syncbrok.cli.exits import NOT_FOUND, SEE_EXIT_CODES, CommandFailed
from syncbrok.cli.remote.client import BrokerConnection, segment, speaks_to_broker
from syncbrok.cli.remote.jobs import begin_job, planned
from syncbrok.cli.remote.messages import descendants_flag, print_message, print_plan
from syncbrok.cli.remote.selection import selects
from syncbrok.cli.show import as_json, limited, moment, print_json, print_json_list, print_table
from syncbrok.model.units import many


@click.group(
    "dead-letters",
    help=f"""Dead letters: messages that a subscriber did not take, however often they were tried, and those that
died with a parent. Mend the endpoint, then replay: what failed only because a parent failed comes back with the
parent, in order.

\b
Examples:
  syncbrok dead-letters list orders
  syncbrok dead-letters show ID
  syncbrok dead-letters replay orders --dry-run
  syncbrok dead-letters drop orders --before 2026-07-01T00:00:00Z --dry-run

{SEE_EXIT_CODES}
""",
)
def command() -> None:
    """See ``help``."""


@command.command("list")
@click.argument("queue", required=False)
@click.option("--newest", is_flag=True, help="From the newest on, backwards; of all queues one after the other.")
@limited
@as_json
@speaks_to_broker
def list_(client: BrokerConnection, queue: str | None, newest: bool, limit: int, json_wanted: bool) -> None:
    """Dead letters of QUEUE, or of all queues: one for each message and subscriber.

    \b
    Examples:
      syncbrok dead-letters list orders --newest --limit 10
      syncbrok dead-letters list --limit 0 --json | jq -r '.[].reason' | sort | uniq -c
    """
    letters = _all(client, queue, limit, newest=newest)
    if json_wanted:
        print_json_list(letters)
        return
    print_table(
        ("queue", "message", "subscriber", "reason", "status", "attempts", "since", "detail"),
        (
            (
                *(one[name] for name in ("queue", "id", "subscriber", "reason", "status", "attempts")),
                moment(one["time"]),
                (one["detail"] or "")[:80],
            )
            for one in letters
        ),
        "no dead letters",
    )


def _all(client: BrokerConnection, queue: str | None, limit: int, *, newest: bool) -> Iterator[dict[str, Any]]:
    names = [queue] if queue else [
        one["name"] for one in client.pages("/v1/queues", "queues") if one["statistics"]["dead_letters"]
    ]  # fmt: skip
    count, query = 0, {"order": "desc"} if newest else None
    for name in names:
        for letter in client.pages(f"/v1/queues/{segment(name)}/dead-letters", "dead_letters", query=query):
            yield letter
            count += 1
            if count == limit:
                return


@command.command()
@click.argument("id_", metavar="ID")
@as_json
@speaks_to_broker
def show(client: BrokerConnection, id_: str, json_wanted: bool) -> None:
    """The message behind a dead letter, with the deliveries that died and every attempt of them.

    \b
    Example:
      syncbrok dead-letters show 0197f3c2-6a3b-8000-8000-00022b1c9d10
    """
    message = client.ask("GET", f"/v1/messages/{segment(id_)}").json()
    message["deliveries"] = [one for one in message["deliveries"] if one["state"] == "dead"]
    if not message["deliveries"]:
        mend = f"syncbrok messages show {message['id']} shows all of it"
        raise CommandFailed(f"no delivery of message {message['id']} is a dead letter", NOT_FOUND, mend)
    if json_wanted:
        print_json(message)
    else:
        print_message(message)


@command.command()
@click.argument("queue")
@click.option("--subscriber", metavar="ID", help="Only those of this one, and to nobody else.")
@descendants_flag
@click.option("--dry-run", is_flag=True, help="Only show what would go out.")
@as_json
@speaks_to_broker
def replay(
    client: BrokerConnection, queue: str, subscriber: str | None, descendants: bool, dry_run: bool, json_wanted: bool
) -> None:
    """Deliver the dead letters of QUEUE again, in causal order, with what failed only because they did.

    \b
    Examples:
      syncbrok dead-letters replay orders --dry-run
      syncbrok dead-letters replay orders --subscriber billing
    """
    body = {"descendants": descendants, "subscriber": subscriber, "dry_run": dry_run}
    answer = client.ask("POST", f"/v1/queues/{segment(queue)}/dead-letters/replay", body)
    print_plan(answer.json(), json_wanted=json_wanted)


@command.command()
@click.argument("queue")
@click.option("--subscriber", metavar="ID", help="Only those of this one.")
@click.option("--before", metavar="TIME", help="Only of messages before this time (RFC 3339) or sequence.")
@click.option("--reason", "reasons", multiple=True, metavar="REASON", help="Only of this reason. Repeatable.")
@selects
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@destroys
@as_json
@speaks_to_broker
def drop(
    client: BrokerConnection,
    queue: str,
    subscriber: str | None,
    before: str | None,
    reasons: tuple[str, ...],
    ids: list[str],
    dry_run: bool,
    yes: bool,
    json_wanted: bool,
) -> None:
    """Drop dead letters of QUEUE for good: nobody lists or replays them any more. A job does it. On a terminal it asks
    first.

    \b
    Examples:
      syncbrok dead-letters drop orders --reason gone --dry-run
      syncbrok dead-letters drop orders --subscriber billing --before 2026-07-01T00:00:00Z
    """
    path = f"/v1/queues/{segment(queue)}/dead-letters"
    only = {"reason": list(reasons) or None, "ids": ids or None}
    chosen = {"subscriber": subscriber, "before": before, **only, "dry_run": dry_run}
    confirm(
        yes or dry_run,
        lambda: f"drop {many(planned(client, 'DELETE', path, chosen), 'dead letter')} of {queue} for good",
    )
    begin_job(client, "DELETE", path, chosen, json_wanted=json_wanted)
