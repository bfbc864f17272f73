"""``syncbrok subscribers``."""

from collections.abc import Iterator
from typing import Any, TextIO

import click

from syncbrok.cli.confirming import confirm, destroys
from syncbrok.cli.exits import FAILED, SEE_EXIT_CODES, CommandFailed
from syncbrok.cli.remote.client import BrokerConnection, segment, speaks_to_broker
from syncbrok.cli.remote.jobs import begin_job, print_job
from syncbrok.cli.remote.messages import tried_again
from syncbrok.cli.remote.settings_flags import body_of, changes_of, subscriber_flags
from syncbrok.cli.show import as_json, limited, moment, print_fields, print_json, print_json_list, print_table
from syncbrok.model.units import many

_SECRET = click.option("--secret-file", type=click.File(), metavar="FILE",
                       help="Has the secret (whsec_...) to sign with; - for standard input.")  # fmt: skip
_TIMES = frozenset({"disabled_at", "last_attempt_at", "failing_since", "next_probe_at", "breaker_since"})
"""fields of a subscriber that are moments"""


@click.group(
    "subscribers",
    help=f"""Subscribers of a queue: endpoints that its messages are posted to.

A subscriber is named by its --name, else by an id that is made of its endpoint (see list).

\b
Examples:
  syncbrok subscribers list orders
  syncbrok subscribers create orders https://billing.example/hooks --name billing
  syncbrok subscribers pause orders billing
  syncbrok subscribers retry orders billing
  syncbrok subscribers recover orders billing --since 2026-07-01T08:00:00Z
  syncbrok subscribers test orders billing

{SEE_EXIT_CODES}
""",
)
def command() -> None:
    """See ``help``."""


@command.command("list")
@click.argument("queue", required=False)
@limited
@as_json
@speaks_to_broker
def list_(client: BrokerConnection, queue: str | None, limit: int, json_wanted: bool) -> None:
    """Subscribers of QUEUE, or of all queues, and how they do.

    \b
    Examples:
      syncbrok subscribers list
      syncbrok subscribers list orders --json | jq '.[] | {id, state}'
    """
    subscribers = _all(client, queue, limit)
    if json_wanted:
        print_json_list(subscribers)
        return
    print_table(
        ("queue", "subscriber", "endpoint", "state", "backlog", "in flight", "retrying", "dead letters", "last answer"),
        (
            (
                one["queue"],
                one["id"],
                one["endpoint"],
                one["state"],
                *(one["statistics"][name] for name in ("backlog", "in_flight", "retrying", "dead_letters")),
                one["statistics"]["last_status"] or one["statistics"]["last_reason"],
            )
            for one in subscribers
        ),
        "no subscribers; syncbrok subscribers create QUEUE ENDPOINT makes one",
    )


def _all(client: BrokerConnection, queue: str | None, limit: int) -> Iterator[dict[str, Any]]:
    if queue is not None:
        yield from client.pages(f"/v1/queues/{segment(queue)}/subscribers", "subscribers", limit)
        return
    count = 0
    for name in [one["name"] for one in client.pages("/v1/queues", "queues")]:
        for subscriber in client.pages(f"/v1/queues/{segment(name)}/subscribers", "subscribers"):
            yield subscriber
            count += 1
            if count == limit:
                return


@command.command()
@click.argument("queue")
@click.argument("subscriber")
@as_json
@speaks_to_broker
def show(client: BrokerConnection, queue: str, subscriber: str, json_wanted: bool) -> None:
    """Settings and health of SUBSCRIBER of QUEUE.

    \b
    Example:
      syncbrok subscribers show orders billing
    """
    _print(client.ask("GET", _path(queue, subscriber)).json(), json_wanted=json_wanted)


@command.command()
@click.argument("queue")
@click.argument("subscriber")
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQUENCE", help="Only those behind it.")
@click.option("--through", type=click.IntRange(1), metavar="SEQUENCE", help="Only those up to it.")
@click.option("--state", metavar="STATE", help="Only those in this state there, such as dead.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, metavar="N", help="Look at so many messages.")
@as_json
@speaks_to_broker
def deliveries(
    client: BrokerConnection,
    queue: str,
    subscriber: str,
    after: int,
    through: int | None,
    state: str | None,
    limit: int,
    json_wanted: bool,
) -> None:
    """How each message of QUEUE stands at SUBSCRIBER, in the order accepted.

    \b
    Example:
      syncbrok subscribers deliveries orders billing --state dead
    """
    asked = {"after": after, "through": through, "state": state, "limit": limit}
    query = {name: value for name, value in asked.items() if value is not None}
    found = client.ask("GET", f"{_path(queue, subscriber)}/deliveries", query=query).json()
    if json_wanted:
        print_json(found)
        return
    names = ("sequence", "id", "state", "reason", "attempts")
    rows = ([*(one[name] for name in names), moment(one["tried_at"])] for one in found["deliveries"])
    print_table((*names, "tried at"), rows, "nothing there")
    if found["next"]:
        click.echo(f"more: --after {found['next']}", err=True)


@command.command()
@click.argument("queue")
@click.argument("endpoint", required=False)
@subscriber_flags("endpoint")
@click.option("--pull", is_flag=True, help="Instead of ENDPOINT: a group of this --name, whose consumers pull.")
@click.option("--start", metavar="WHERE", help="now (the default), beginning, or a sequence.")
@_SECRET
@as_json
@speaks_to_broker
def create(
    client: BrokerConnection,
    queue: str,
    endpoint: str | None,
    pull: bool,
    start: str | None,
    secret_file: TextIO | None,
    json_wanted: bool,
    **flags: Any,
) -> None:
    """Subscribe ENDPOINT, or a group whose consumers pull, to QUEUE. Prints the subscriber's id.

    \b
    Examples:
      syncbrok subscribers create orders http://127.0.0.1:20000/
      syncbrok subscribers create orders https://billing.example/hooks --name billing --secret-file billing.secret
      syncbrok subscribers create orders https://audit.example/ --start beginning --header x-tenant=north
      syncbrok subscribers create orders --pull --name workers
    """
    if pull == (endpoint is not None):
        raise click.UsageError("say where to deliver: ENDPOINT, or --pull --name NAME for a group; one of the two")
    to: dict[str, Any] = {"pull": True} if pull else {"endpoint": endpoint}
    body = {**to, **body_of(flags, inherits=True), **_secret(secret_file)}
    if start is not None:
        body["start"] = start
    made = client.ask("POST", f"/v1/queues/{segment(queue)}/subscribers", body).json()
    if json_wanted:
        print_json(made)
    else:
        click.echo(made["id"])


@command.command()
@click.argument("queue")
@click.argument("subscriber")
@subscriber_flags("name")
@_SECRET
@as_json
@speaks_to_broker
def change(
    client: BrokerConnection, queue: str, subscriber: str, secret_file: TextIO | None, json_wanted: bool, **flags: Any
) -> None:
    """Change settings of SUBSCRIBER. A new endpoint takes over the backlog at once; "default" for retry,
    timeout or window takes it back to what the queue says, "null" takes away a filter, rate, batch, forward or types.

    \b
    Examples:
      syncbrok subscribers change orders billing --endpoint https://new.example/hooks
      syncbrok subscribers change orders billing --timeout default
      syncbrok subscribers change orders billing --filter 'data.amount > 100'
      syncbrok subscribers change orders billing --filter null
    """
    body = changes_of({**body_of(flags, inherits=True), **_secret(secret_file)})
    answer = client.ask("PATCH", _path(queue, subscriber), body)
    _print(answer.json(), json_wanted=json_wanted)


@command.command()
@click.argument("queue")
@click.argument("subscriber")
@as_json
@speaks_to_broker
def pause(client: BrokerConnection, queue: str, subscriber: str, json_wanted: bool) -> None:
    """Stop delivering to SUBSCRIBER; what is published meanwhile waits for it.

    \b
    Example:
      syncbrok subscribers pause orders billing
    """
    _set_paused(client, queue, subscriber, paused=True, json_wanted=json_wanted)


@command.command()
@click.argument("queue")
@click.argument("subscriber")
@as_json
@speaks_to_broker
def resume(client: BrokerConnection, queue: str, subscriber: str, json_wanted: bool) -> None:
    """Deliver to SUBSCRIBER again, after a pause or after its endpoint answered 410. What had failed before is tried
    again at once.

    \b
    Example:
      syncbrok subscribers resume orders billing
    """
    _set_paused(client, queue, subscriber, paused=False, json_wanted=json_wanted)


def _set_paused(client: BrokerConnection, queue: str, subscriber: str, *, paused: bool, json_wanted: bool) -> None:
    answer = client.ask("PATCH", _path(queue, subscriber), {"paused": paused}).json()
    _say(f"{subscriber} {'paused' if paused else 'resumed'}", answer, json_wanted=json_wanted)


@command.command()
@click.argument("queue")
@click.argument("subscriber")
@click.option("--dry-run", is_flag=True, help="Only say how many messages there are.")
@as_json
@speaks_to_broker
def retry(client: BrokerConnection, queue: str, subscriber: str, dry_run: bool, json_wanted: bool) -> None:
    """Try again now whatever waits for another attempt at SUBSCRIBER: its endpoint is mended. Each spends an attempt.

    \b
    Example:
      syncbrok subscribers retry orders billing
    """
    answer = client.ask("POST", f"{_path(queue, subscriber)}/retry", {"dry_run": dry_run}).json()
    _say(tried_again(answer["retried"], "message", "messages", dry_run=dry_run), answer, json_wanted=json_wanted)
    if not answer["retried"]:
        click.echo(f"none waits for another attempt; what is dead: syncbrok dead-letters replay {queue}", err=True)


@command.command()
@click.argument("queue")
@click.argument("subscriber")
@click.option("--since", metavar="TIME", help="From this time (RFC 3339) or sequence on.")
@click.option("--until", metavar="TIME", help="To before this time (RFC 3339) or sequence.")
@click.option("--state", type=click.Choice(["dead", "skipped", "all"]), default="dead", show_default=True)
@click.option("--reason", "reasons", multiple=True, metavar="REASON",
              help="Only dead letters of this reason. Repeatable.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only say how many messages there are.")
@as_json
@speaks_to_broker
def recover(
    client: BrokerConnection,
    queue: str,
    subscriber: str,
    since: str | None,
    until: str | None,
    state: str,
    reasons: tuple[str, ...],
    dry_run: bool,
    json_wanted: bool,
) -> None:
    """Send SUBSCRIBER again what it lacks of a time, in causal order. A job does it.

    \b
    Examples:
      syncbrok subscribers recover orders billing --dry-run
      syncbrok subscribers recover orders billing --since 2026-07-01T08:00:00Z --until 2026-07-01T09:30:00Z
      syncbrok subscribers recover orders billing --state all --since 4711
    """
    reason = list(reasons) or None
    chosen = {"since": since, "until": until, "state": state, "reason": reason, "dry_run": dry_run}
    begin_job(client, "POST", f"{_path(queue, subscriber)}/recover", chosen, json_wanted=json_wanted)


@command.command()
@click.argument("queue")
@click.argument("subscriber")
@click.argument("start", metavar="PLACE")
@as_json
@speaks_to_broker
def seek(client: BrokerConnection, queue: str, subscriber: str, start: str, json_wanted: bool) -> None:
    """Let SUBSCRIBER go on from PLACE: now, beginning, a sequence or a time (RFC 3339). Forward it passes over what
    waits, back it gets all again from there.

    \b
    Examples:
      syncbrok subscribers seek orders billing now
      syncbrok subscribers seek orders billing 2026-07-01T08:00:00Z
    """
    answer = client.ask("PATCH", _path(queue, subscriber), {"start": start}).json()
    job = client.ask("GET", f"/v1/jobs/{answer['job']}").json()
    print_job(job, json_wanted=json_wanted)


@command.command()
@click.argument("queue")
@click.argument("subscriber")
@destroys
@as_json
@speaks_to_broker
def delete(client: BrokerConnection, queue: str, subscriber: str, yes: bool, json_wanted: bool) -> None:
    """Delete SUBSCRIBER; what waits for it is dropped. On a terminal it asks first.

    \b
    Example:
      syncbrok subscribers delete orders billing
    """

    def question() -> str:
        waiting = client.ask("GET", _path(queue, subscriber)).json()["statistics"]["backlog"]
        waits = many(waiting, "message that waits", "messages that wait")
        return f"delete {subscriber} of {queue}, and drop the {waits} for it"

    confirm(yes, question)
    answer = client.ask("DELETE", _path(queue, subscriber)).json()
    _say(
        f"{subscriber} deleted; {many(answer['dropped'], 'delivery', 'deliveries')} dropped",
        answer,
        json_wanted=json_wanted,
    )


@command.command()
@click.argument("queue")
@click.argument("subscriber")
@as_json
@speaks_to_broker
def test(client: BrokerConnection, queue: str, subscriber: str, json_wanted: bool) -> None:
    """Send SUBSCRIBER a message of its own and say how it answers; fails (1) where it does not take it.

    \b
    Example:
      syncbrok subscribers test orders billing
    """
    wait_s = 20
    path, headers = f"{_path(queue, subscriber)}/test", {"Prefer": f"wait={wait_s}"}
    answer = client.ask("POST", path, b"", headers, wait_s=wait_s)
    told = answer.json()
    deliveries = told.get("deliveries") or []
    if json_wanted:
        print_json(told)
    else:
        click.echo(told["id"])
        print_fields((name.replace("_", " "), value) for one in deliveries for name, value in one.items())
    if not deliveries or any(one["state"] != "delivered" for one in deliveries):
        mend = f"syncbrok messages show {told['id']} says more"
        raise CommandFailed(f"{subscriber} {_why_not(deliveries, wait_s)}", FAILED, mend)


def _why_not(deliveries: list[dict[str, Any]], wait_s: int) -> str:
    if not deliveries or deliveries[0]["state"] not in ("dead", "expired", "dropped"):
        return f"has not taken it within {wait_s} s"
    end = deliveries[0]
    why = f"HTTP {end['status']}" if end["status"] else end["reason"] or end["state"]
    return f"does not take it: {why} after {many(end['attempts'], 'attempt')}"


@command.command("rotate-secret")
@click.argument("queue")
@click.argument("subscriber")
@_SECRET
@click.option("--grace", metavar="DURATION", help="How long the old one signs too: 24h by default, 0s to 7d.")
@click.option("--key-pair", is_flag=True, help="Another key pair (v1a) instead; its public key is printed.")
@as_json
@speaks_to_broker
def rotate_secret(
    client: BrokerConnection,
    queue: str,
    subscriber: str,
    secret_file: TextIO | None,
    grace: str | None,
    key_pair: bool,
    json_wanted: bool,
) -> None:
    """Sign with a new secret, which is printed this once; the old one goes on signing beside it for 24 hours.

    \b
    Example:
      syncbrok subscribers rotate-secret orders billing > billing.secret
    """
    body: dict[str, Any] = {**_secret(secret_file), **({"scheme": "v1a"} if key_pair else {})}
    if grace is not None:
        body["grace"] = grace
    answer = client.ask("POST", f"{_path(queue, subscriber)}/rotate-secret", body).json()
    _say(answer["public_key" if key_pair else "secret"], answer, json_wanted=json_wanted)


def _say(line: str, answer: dict[str, Any], *, json_wanted: bool) -> None:
    if json_wanted:
        print_json(answer)
    else:
        click.echo(line)


def _secret(file: TextIO | None) -> dict[str, str]:
    return {} if file is None else {"secret": file.read().strip()}


def _path(queue: str, subscriber: str) -> str:
    return f"/v1/queues/{segment(queue)}/subscribers/{segment(subscriber)}"


def _print(subscriber: dict[str, Any], *, json_wanted: bool) -> None:
    if json_wanted:
        print_json(subscriber)
        return
    shown = {**subscriber, **subscriber["statistics"]}
    del shown["statistics"]
    print_fields((name.replace("_", " "), moment(value) if name in _TIMES else value) for name, value in shown.items())
