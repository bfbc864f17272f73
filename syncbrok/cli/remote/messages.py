"""``syncbrok messages``."""

import sys
from typing import Any

import click

from syncbrok.cli.confirming import confirm, destroys
from syncbrok.cli.exits import SEE_EXIT_CODES
from syncbrok.cli.remote.client import BrokerConnection, segment, speaks_to_broker
from syncbrok.cli.show import as_json, limited, moment, print_fields, print_json, print_json_list, print_table
from syncbrok.model.units import many

descendants_flag = click.option(
    "--descendants/--no-descendants",
    default=False,
    help="Also again what had been delivered of those that come after; not by default.",
)


@click.group(
    "messages",
    help=f"""Messages: where they stand, what they wait for, what every attempt was answered.

\b
Examples:
  syncbrok messages list orders --state waiting
  syncbrok messages show ID
  syncbrok messages tree ID
  syncbrok messages replay ID --dry-run

{SEE_EXIT_CODES}
""",
)
def command() -> None:
    """See ``help``."""


@command.command("list")
@click.argument("queue")
@click.option("--state", type=click.Choice(
    ["scheduled", "waiting", "held", "pending", "complete", "dead", "expired", "dropped"]))  # fmt: skip
@click.option("--after", type=click.IntRange(0), metavar="SEQUENCE", help="Only what was accepted after this one.")
@click.option("--newest", is_flag=True, help="From the newest on, backwards.")
@limited
@as_json
@speaks_to_broker
def list_(
    client: BrokerConnection,
    queue: str,
    state: str | None,
    after: int | None,
    newest: bool,
    limit: int,
    json_wanted: bool,
) -> None:
    """Messages of QUEUE in the order they were accepted.

    \b
    Examples:
      syncbrok messages list orders --state dead
      syncbrok messages list orders --newest --limit 10
      syncbrok messages list orders --after 120000 --limit 0 --json
    """
    query: dict[str, object] = {"state": state, "after": after}
    path = f"/v1/queues/{segment(queue)}/messages"
    if newest:
        since = None if after is None else after + 1
        path, query = "/v1/messages", {"queue": queue, "state": state, "since": since, "order": "desc"}
    _print_list(client.pages(path, "messages", limit, query), json_wanted=json_wanted)


@command.command()
@click.option("--key", metavar="KEY", help="Its Syncbrok-Key.")
@click.option("--idempotency-key", metavar="KEY", help="Its Idempotency-Key.")
@click.option("--queue", metavar="QUEUE", help="Only those of this queue.")
@click.option("--subscriber", metavar="ID", help="Only those for this subscriber of --queue.")
@click.option("--state", metavar="STATE", help="Of the message; with --subscriber of its delivery there.")
@click.option("--reason", metavar="REASON", help="Why its delivery ended; without --subscriber any of them.")
@click.option("--text", metavar="TEXT", help="In its id, key, content type, headers or content.")
@click.option("--since", metavar="TIME", help="From this time (RFC 3339) or sequence on.")
@click.option("--until", metavar="TIME", help="Before this time (RFC 3339) or sequence.")
@click.option("--order", type=click.Choice(["desc", "asc"]), help="Newest first (desc, as without it) or oldest first.")
@limited
@as_json
@speaks_to_broker
def find(client: BrokerConnection, limit: int, json_wanted: bool, **sought: str | None) -> None:
    """Find messages by key, queue, state, reason, text and time, newest first. All that is given must fit.

    \b
    Examples:
      syncbrok messages find --idempotency-key order-4711
      syncbrok messages find --queue orders --subscriber billing --state dead --since 2026-11-01T00:00:00Z
      syncbrok messages find --text "jane@example.org" --order asc
    """
    query = {name: value for name, value in sought.items() if value}
    if not query.keys() - {"order"}:
        raise click.UsageError("say what to look for: --key, --text, --queue, --state, --since ...")
    _print_list(client.pages("/v1/messages", "messages", limit, query), json_wanted=json_wanted)


@command.command()
@click.argument("id_", metavar="ID")
@as_json
@speaks_to_broker
def show(client: BrokerConnection, id_: str, json_wanted: bool) -> None:
    """One message: its state, in words what it waits for, every attempt with its answer.

    \b
    Example:
      syncbrok messages show 0197f3c2-6a3b-8000-8000-00022b1c9d10
    """
    message = client.ask("GET", _path(id_)).json()
    if json_wanted:
        print_json(message)
    else:
        print_message(message)


@command.command()
@click.argument("id_", metavar="ID")
@speaks_to_broker
def content(client: BrokerConnection, id_: str) -> None:
    """The content, byte for byte, on standard output.

    \b
    Example:
      syncbrok messages content ID > message.json
    """
    sys.stdout.buffer.write(client.ask("GET", f"{_path(id_)}/content").body)
    sys.stdout.buffer.flush()


@command.command()
@click.argument("id_", metavar="ID")
@click.option("--up", is_flag=True, help="What it waits for, instead of what waits for it.")
@click.option("--depth", type=click.IntRange(1), default=16, metavar="N", help="How many edges away; 16 by default.")
@as_json
@speaks_to_broker
def tree(client: BrokerConnection, id_: str, up: bool, depth: int, json_wanted: bool) -> None:
    """The messages below one (its children and theirs), or above it.

    \b
    Example:
      syncbrok messages tree ID --up
    """
    query = {"direction": "up" if up else "down", "depth": depth}
    found = client.ask("GET", f"{_path(id_)}/tree", query=query).json()
    if json_wanted:
        print_json(found)
        return
    print_table(
        ("edges away", "id", "queue", "state", "parents"),
        ((node["distance"], node["id"], node["queue"], node["state"], node["parents"]) for node in found["nodes"]),
        "nothing there",
    )
    if found["truncated"]:
        click.echo("there are more", err=True)


@command.command(name="critical-path")
@click.argument("id_", metavar="ID")
@as_json
@speaks_to_broker
def critical_path(client: BrokerConnection, id_: str, json_wanted: bool) -> None:
    """The chain of waits that made a message late: which messages, where, and how long each.

    \b
    Example:
      syncbrok messages critical-path ID
    """
    found = client.ask("GET", f"{_path(id_)}/critical-path").json()
    if json_wanted:
        print_json(found)
        return
    parts = ("own", "published", "scheduled", "queued", "attempts")
    print_table(
        ("id", "queue", "state", "took longest at", "tried", *(f"{part} ms" for part in parts)),
        (
            (step["id"], step["queue"], step["state"], step["subscriber"] or "", step["attempts"],
             *(step[f"{part}_ms"] for part in parts))
            for step in found["steps"]
        ),
        "nothing there",
    )  # fmt: skip
    click.echo(f"{found['took_ms']} ms{'' if found['ended_at'] else ' up to now'}")
    if found["truncated"]:
        click.echo("it begins further back", err=True)


@command.command()
@click.argument("id_", metavar="ID")
@destroys
@as_json
@speaks_to_broker
def cancel(client: BrokerConnection, id_: str, yes: bool, json_wanted: bool) -> None:
    """End what has not been delivered of a message as dropped. On a terminal it asks first.

    \b
    Example:
      syncbrok messages cancel ID
    """
    confirm(yes, lambda: f"drop what has not been delivered of message {id_}")
    answer = client.ask("DELETE", _path(id_)).json()
    if json_wanted:
        print_json(answer)
    else:
        click.echo(f"{many(answer['dropped'], 'delivery', 'deliveries')} dropped")


@command.command()
@click.argument("id_", metavar="ID")
@click.option("--force", is_flag=True, help="Also one that has not ended: its deliveries are dropped.")
@destroys
@as_json
@speaks_to_broker
def erase(client: BrokerConnection, id_: str, force: bool, yes: bool, json_wanted: bool) -> None:
    """Take the content of a message away, for good: its headers, its keys, and what its subscribers answered. On a
    terminal it asks first.

    \b
    Examples:
      syncbrok messages erase ID
      syncbrok messages erase ID --force --yes
    """
    confirm(yes, lambda: f"erase message {id_} for good")
    answer = client.ask("DELETE", f"{_path(id_)}/content{'?force=true' if force else ''}").json()
    if json_wanted:
        print_json(answer)
    else:
        click.echo(f"erased; {many(answer['dropped'], 'delivery', 'deliveries')} dropped")


@command.command()
@click.argument("id_", metavar="ID")
@click.option("--subscriber", metavar="ID", help="Only to this one, what comes after it too.")
@descendants_flag
@click.option("--dry-run", is_flag=True, help="Only show what would go out.")
@as_json
@speaks_to_broker
def replay(
    client: BrokerConnection, id_: str, subscriber: str | None, descendants: bool, dry_run: bool, json_wanted: bool
) -> None:
    """Deliver a message again, and what failed because it did, in causal order.

    \b
    Examples:
      syncbrok messages replay ID --dry-run
      syncbrok messages replay ID --subscriber billing
      syncbrok messages replay ID --descendants
    """
    body = {"descendants": descendants, "subscriber": subscriber, "dry_run": dry_run}
    print_plan(client.ask("POST", f"{_path(id_)}/replay", body).json(), json_wanted=json_wanted)


@command.command()
@click.argument("id_", metavar="ID")
@click.option("--subscriber", metavar="ID", help="Only at this one.")
@click.option("--dry-run", is_flag=True, help="Only say at how many.")
@as_json
@speaks_to_broker
def retry(client: BrokerConnection, id_: str, subscriber: str | None, dry_run: bool, json_wanted: bool) -> None:
    """Try a message again now where it waits for another attempt. Spends an attempt.

    \b
    Example:
      syncbrok messages retry ID
    """
    answer = client.ask("POST", f"{_path(id_)}/retry", {"subscriber": subscriber, "dry_run": dry_run}).json()
    if json_wanted:
        print_json(answer)
    else:
        click.echo(tried_again(answer["retried"], "delivery", "deliveries", dry_run=dry_run))
    if not answer["retried"]:
        click.echo(f"none waits for another attempt; where it is dead: syncbrok messages replay {id_}", err=True)


def tried_again(count: int, one: str, several: str, *, dry_run: bool) -> str:
    """Words for a "retry now": about how many it was, or would be."""
    verb = "would be" if dry_run else "is" if count == 1 else "are"
    return f"{many(count, one, several)} {verb} tried again now"


def print_plan(plan: dict[str, Any], *, json_wanted: bool) -> None:
    """Print what a replay does, or would do."""
    if json_wanted:
        print_json(plan)
        return
    print_table(
        ("", "message", "to"),
        ((at, one["id"], one["subscribers"]) for at, one in enumerate(plan["order"], 1)),
        "nothing to replay",
    )
    one = plan["deliveries"] == 1
    verb = "would go out" if plan["dry_run"] else "goes out" if one else "go out"
    click.echo(
        f"{many(plan['messages'], 'message')}, {many(plan['deliveries'], 'delivery', 'deliveries')} {verb} again"
    )
    if plan["left"]:
        stay = "would stay" if plan["dry_run"] else "stays" if plan["left"] == 1 else "stay"
        click.echo(f"{many(plan['left'], 'dead letter')} of other subscribers {stay}")
    if plan["erased"]:
        erased = many(plan["erased"], "message was", "messages were")
        click.echo(f"{erased} erased: nothing is left of {'it' if plan['erased'] == 1 else 'them'} to send")
    if plan.get("job"):
        click.echo(f"syncbrok jobs wait {plan['job']} says when they have ended")


def print_message(message: dict[str, Any]) -> None:
    """A message with its deliveries and attempts, for people."""
    times = {"accepted_at", "deliver_at", "expires_at"}
    print_fields(
        (name.replace("_", " "), moment(value) if name in times else value)
        for name, value in message.items()
        if name != "deliveries"
    )
    for delivery in message["deliveries"]:
        click.echo()
        print_fields(
            (name.replace("_", " "), moment(value) if name == "next_attempt_at" else value)
            for name, value in delivery.items()
            if name != "attempts" and not (name == "counted" and value)
        )
        if delivery["attempts"]:
            print_table(
                ("attempt", "time", "outcome", "status", "ms", "reason", "detail"),
                (
                    (
                        one["attempt"],
                        moment(one["time"]),
                        one["outcome"],
                        one["status"],
                        one["latency_ms"],
                        one["reason"],
                        one["detail"],
                    )
                    for one in delivery["attempts"]
                ),
                "",
            )


def _print_list(messages: Any, *, json_wanted: bool) -> None:
    if json_wanted:
        print_json_list(messages)
        return
    print_table(
        ("sequence", "id", "state", "accepted", "bytes", "parents", "waits for"),
        (
            (
                one["sequence"],
                one["id"],
                one["state"],
                moment(one["accepted_at"]),
                one["content_bytes"],
                len(one["parents"]),
                one["waits_for"],
            )
            for one in messages
        ),
        "no messages",
    )


def _path(id_: str) -> str:
    return f"/v1/messages/{segment(id_)}"
