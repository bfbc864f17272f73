"""``syncbrok queues``."""

from typing import Any

import click

from syncbrok.cli.confirming import confirm, destroys
from syncbrok.cli.exits import SEE_EXIT_CODES
from syncbrok.cli.remote.client import BrokerConnection, segment, speaks_to_broker
from syncbrok.cli.remote.jobs import begin_job, planned
from syncbrok.cli.remote.messages import descendants_flag
from syncbrok.cli.remote.selection import selects, some_of
from syncbrok.cli.remote.settings_flags import body_of, changes_of, queue_flags
from syncbrok.cli.show import as_json, limited, print_fields, print_json, print_json_list, print_table
from syncbrok.model.units import many


@click.group(
    "queues",
    help=f"""Queues take messages and deliver each one to all their subscribers.

\b
Examples:
  syncbrok queues list
  syncbrok queues create orders --retry 5s,5m,1h --timeout 10s
  syncbrok queues change orders --parent-failure hold
  syncbrok queues show orders --json

{SEE_EXIT_CODES}
""",
)
def command() -> None:
    """See ``help``."""


@command.command("list")
@limited
@as_json
@speaks_to_broker
def list_(client: BrokerConnection, limit: int, json_wanted: bool) -> None:
    """All queues, with what waits in them.

    \b
    Examples:
      syncbrok queues list
      syncbrok queues list --json | jq -r '.[] | select(.statistics.dead_letters > 0) | .name'
    """
    queues = client.pages("/v1/queues", "queues", limit)
    if json_wanted:
        print_json_list(queues)
        return
    print_table(
        ("queue", "subscribers", "waiting", "dead letters", "accepted", "delivered", "failed", "last sequence"),
        (
            (
                queue["name"],
                *(
                    queue["statistics"][name]
                    for name in (
                        "subscribers",
                        "waiting",
                        "dead_letters",
                        "accepted",
                        "delivered",
                        "failed",
                        "last_sequence",
                    )
                ),
            )
            for queue in queues
        ),
        "no queues; syncbrok queues create NAME makes one",
    )


@command.command()
@click.argument("queue")
@as_json
@speaks_to_broker
def show(client: BrokerConnection, queue: str, json_wanted: bool) -> None:
    """Settings and figures of QUEUE.

    \b
    Example:
      syncbrok queues show orders
    """
    _print(client.ask("GET", _path(queue)).json(), json_wanted=json_wanted)


@command.command()
@click.argument("queue")
@queue_flags
@as_json
@speaks_to_broker
def create(client: BrokerConnection, queue: str, json_wanted: bool, **flags: Any) -> None:
    """Declare QUEUE. Where it exists alike, nothing happens; where it differs, the command is refused (4).

    \b
    Examples:
      syncbrok queues create orders
      syncbrok queues create orders --scope same --retry 1s,10s,1m
    """
    answer = client.ask("POST", "/v1/queues", {"name": queue, **body_of(flags)})
    if json_wanted:
        print_json(answer.json())
    else:
        click.echo(f"{queue} {'created' if answer.status == 201 else 'exists alike'}")


@command.command()
@click.argument("queue")
@queue_flags
@as_json
@speaks_to_broker
def change(client: BrokerConnection, queue: str, json_wanted: bool, **flags: Any) -> None:
    """Change settings of QUEUE. Scope and parent failure hold for what is published from now on.

    \b
    Example:
      syncbrok queues change orders --timeout 30s --window 128
    """
    _print(client.ask("PATCH", _path(queue), changes_of(body_of(flags))).json(), json_wanted=json_wanted)


@command.command()
@click.argument("queue")
@click.option("--force", is_flag=True, help="Drop what waits in it.")
@destroys
@as_json
@speaks_to_broker
def delete(client: BrokerConnection, queue: str, force: bool, yes: bool, json_wanted: bool) -> None:
    """Delete QUEUE. On a terminal it asks first. Refused (4) while anything waits in it or on it.

    \b
    Examples:
      syncbrok queues delete orders
      syncbrok queues delete orders --force --yes
    """

    def question() -> str:
        has = client.ask("GET", _path(queue)).json()["statistics"]
        waits = many(has["waiting"], "message that waits", "messages that wait")
        return f"delete {queue}, which has {many(has['subscribers'], 'subscriber')} and {waits}"

    confirm(yes, question)
    answer = client.ask("DELETE", _path(queue), query={"force": "true"} if force else None).json()
    if json_wanted:
        print_json(answer)
    else:
        click.echo(f"{queue} deleted; {many(answer['dropped'], 'delivery', 'deliveries')} dropped")


@command.command()
@click.argument("queue")
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
@speaks_to_broker
def purge(client: BrokerConnection, queue: str, dry_run: bool, yes: bool, json_wanted: bool) -> None:
    """Drop what waits in QUEUE. Says how many messages that is and asks first.

    \b
    Examples:
      syncbrok queues purge orders --dry-run
      syncbrok queues purge orders --yes
    """
    path = f"{_path(queue)}/purge"
    if dry_run or not yes:
        answer = client.ask("POST", path, {"dry_run": True}).json()
        if not dry_run:
            click.confirm(f"drop {many(answer['dropped'], 'message')} of {queue}?", abort=True, err=True)
    if not dry_run:
        answer = client.ask("POST", path, {"dry_run": False}).json()
    if json_wanted:
        print_json(answer)
    else:
        click.echo(f"{many(answer['dropped'], 'message')} {'would be ' if dry_run else ''}dropped")


@command.command()
@click.argument("queue")
@selects
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@destroys
@as_json
@speaks_to_broker
def cancel(client: BrokerConnection, queue: str, ids: list[str], dry_run: bool, yes: bool, json_wanted: bool) -> None:
    """End what has not been delivered of some messages of QUEUE as dropped. On a terminal it asks first.

    \b
    Examples:
      syncbrok queues cancel orders --id ID --id ID --dry-run
      syncbrok messages find --queue orders --text jane --state waiting --json | jq -r '.[].id' > ids
      syncbrok queues cancel orders --ids ids
    """
    path, body = f"{_path(queue)}/cancel", {"ids": some_of(ids)}

    def told(answer: dict[str, Any]) -> str:
        return f"{many(answer['messages'], 'message')} of {queue}, {many(answer['dropped'], 'delivery', 'deliveries')}"

    confirm(yes or dry_run, lambda: f"cancel {told(client.ask('POST', path, {**body, 'dry_run': True}).json())}")
    answer = client.ask("POST", path, {**body, "dry_run": dry_run}).json()
    if json_wanted:
        print_json(answer)
    else:
        click.echo(f"{told(answer)} {'would be ' if dry_run else ''}dropped")


@command.command()
@click.argument("queue")
@selects
@click.option("--subscriber", metavar="ID", help="Only to this one, what comes after them too.")
@descendants_flag
@click.option("--dry-run", is_flag=True, help="Only say how many messages would go.")
@as_json
@speaks_to_broker
def replay(
    client: BrokerConnection,
    queue: str,
    ids: list[str],
    subscriber: str | None,
    descendants: bool,
    dry_run: bool,
    json_wanted: bool,
) -> None:
    """Deliver some messages of QUEUE again, and what failed because they did, in causal order. A job does it.

    \b
    Examples:
      syncbrok queues replay orders --id ID --id ID --dry-run
      syncbrok queues replay orders --ids ids --subscriber billing
    """
    chosen = {"ids": some_of(ids), "subscriber": subscriber, "descendants": descendants, "dry_run": dry_run}
    begin_job(client, "POST", f"{_path(queue)}/replay", chosen, json_wanted=json_wanted)


@command.command()
@click.argument("queue")
@click.option("--key", metavar="KEY", help="All messages of this key.")
@click.option("--before", metavar="TIME", help="All messages before this time (RFC 3339) or sequence.")
@selects
@click.option("--force", is_flag=True, help="Also what has not ended: it is dropped.")
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@destroys
@as_json
@speaks_to_broker
def erase(
    client: BrokerConnection,
    queue: str,
    key: str | None,
    before: str | None,
    ids: list[str],
    force: bool,
    dry_run: bool,
    yes: bool,
    json_wanted: bool,
) -> None:
    """Erase messages of QUEUE for good: content, headers, keys, what subscribers answered. A job does it. On a terminal
    it asks first.

    \b
    Examples:
      syncbrok queues erase orders --key customer-7 --dry-run
      syncbrok queues erase orders --before 2026-01-01T00:00:00Z
    """
    chosen = {"key": key, "before": before, "ids": ids or None, "force": force, "dry_run": dry_run}
    path = f"{_path(queue)}/erase"
    confirm(
        yes or dry_run, lambda: f"erase {many(planned(client, 'POST', path, chosen), 'message')} of {queue} for good"
    )
    begin_job(client, "POST", path, chosen, json_wanted=json_wanted)


def _path(queue: str) -> str:
    return f"/v1/queues/{segment(queue)}"


def _print(queue: dict[str, Any], *, json_wanted: bool) -> None:
    if json_wanted:
        print_json(queue)
        return
    shown = {name: value for name, value in queue.items() if name != "statistics"}
    print_fields((name.replace("_", " "), value) for name, value in (shown | queue["statistics"]).items())
