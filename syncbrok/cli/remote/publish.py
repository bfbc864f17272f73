"""``syncbrok publish``."""

import json
import shlex
import sys
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, BinaryIO, Final
from uuid import uuid4

import click

from syncbrok.cli.exits import FAILED, SEE_EXIT_CODES, CommandFailed
from syncbrok.cli.remote.client import AskedTooMuch, BrokerConnection, Response, segment, speaks_to_broker
from syncbrok.cli.remote.settings_flags import header_pairs
from syncbrok.cli.show import as_json, print_json, printable
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting
from syncbrok.model.units import many, parse_duration_s, render_duration

_HELP = f"""Publish FILE (or standard input) to QUEUE; prints the id once it is on the broker's disk.

With --parent the message goes out once each parent is complete. With --wait the command ends when every subscriber
has its answer, and fails (1) where one of them did not take it or the time is over.

\b
Examples:
  echo '{{"customer": 1}}' | syncbrok publish orders
  syncbrok publish orders card.json --parent 0197f3c2-6a3b-8000-8000-00022b1c9d10
  syncbrok publish orders invoice.pdf --content-type application/pdf --wait 30
  parent=$(echo one | syncbrok publish orders) && echo two | syncbrok publish orders --parent $parent
  syncbrok publish orders --ndjson lines.ndjson
  tail -f app.log | syncbrok publish logs --lines

When the command fails without an answer (5), the message may or may not have been kept: repeat it with the same
--idempotency-key, and it is kept once. Where --url names several nodes each message but those of --ndjson has a key of
its own, and is sent to the next node when one is silent.

{SEE_EXIT_CODES}
"""
_READ_BYTES: Final = 64 * limits.KIB


@click.command("publish", help=_HELP)
@click.argument("queue")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--parent", "parents", multiple=True, metavar="ID", help="Must be complete first. Repeatable.")
@click.option("--parent-failure", type=click.Choice(["fail", "hold", "deliver"]),
              help="What becomes of it when a parent is a dead letter.")  # fmt: skip
@click.option("--wait", metavar="SECONDS", help="Until every delivery has ended, at most 60 s.")
@click.option("--key", metavar="KEY", help="Messages of one key go out in the order accepted.")
@click.option("--idempotency-key", metavar="KEY", help="The same key and content give the same id.")
@click.option("--delay", "delay_text", metavar="DURATION", help="Not before so long from now, such as 90s or 2h.")
@click.option("--deliver-at", metavar="TIME", help="Not before this time (RFC 3339).")
@click.option("--expires", metavar="TIME", help="Not after: RFC 3339, or a duration from now.")
@click.option("--erase-after", metavar="DURATION", help="So long after its end its content is erased.")
@click.option("--content-type", metavar="TYPE", help="Such as application/json.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Reaches subscribers. Repeatable.")
@click.option("--ndjson", is_flag=True, help="FILE has a message a line; all are kept or none; prints their ids.")
@click.option("--lines", is_flag=True, help="Each line of FILE is a message, published as it comes; prints their ids.")
@as_json
@speaks_to_broker
def command(
    client: BrokerConnection, queue: str, file: BinaryIO, ndjson: bool, lines: bool, json_wanted: bool, **given: Any
) -> None:
    """See ``_HELP``."""
    path = f"/v1/queues/{segment(queue)}/messages"
    if lines:
        _refuse_flags("--lines", given | {"ndjson": ndjson})
        _publish_as_they_come(client, path, file, json_wanted=json_wanted)
        _say_if_nobody_gets_it(client, queue)
        return
    if ndjson:
        _publish_lines(client, path, file.read(), given, json_wanted=json_wanted)
        _say_if_nobody_gets_it(client, queue)
        return
    wait_s = _seconds("--wait", given["wait"]) if given["wait"] else 0.0
    if wait_s > limits.wait_s_max:
        raise click.UsageError(f"--wait: the broker keeps one waiting for at most {limits.wait_s_max:g} s")
    if given["delay_text"] and given["deliver_at"]:
        raise click.UsageError("--delay and --deliver-at both say when; give one of them")
    if client.is_of_cluster and not given["idempotency_key"]:
        given["idempotency_key"] = str(uuid4())
    answer = client.ask("POST", path, file.read(), _headers(given, wait_s), wait_s=wait_s)
    published = answer.json()
    if json_wanted:
        print_json(published)
    else:
        click.echo(published["id"])
    _say_if_nobody_gets_it(client, queue)
    if wait_s:
        _raise_unless_complete(answer, published, wait_s)


def _say_if_nobody_gets_it(client: BrokerConnection, queue: str) -> None:
    """Tell a person that the queue has no subscribers. A script is told nothing, and its token need not read."""
    if not sys.stderr.isatty():
        return
    try:
        subscribers = client.ask("GET", f"/v1/queues/{segment(queue)}").json()["statistics"]["subscribers"]
    except CommandFailed:
        return  # published it is: whether somebody gets it is not his to know, or not to be known now
    if not subscribers:
        name = shlex.quote(queue)
        click.echo(f"queue {printable(name)} has no subscribers: it is kept, and sent to nobody yet", err=True)
        click.echo(f"  syncbrok subscribers create {printable(name)} ENDPOINT --start beginning", err=True)


def _publish_lines(
    client: BrokerConnection, path: str, lines: bytes, given: dict[str, Any], *, json_wanted: bool
) -> None:
    _refuse_flags("--ndjson", given)
    _publish_batch(client, path, lines, json_wanted=json_wanted)


def _refuse_flags(flag: str, given: dict[str, Any]) -> None:
    named = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if named:
        raise click.UsageError(f"{flag} says everything in its lines; it does not go with {', '.join(named)}")


def _publish_as_they_come(client: BrokerConnection, path: str, file: BinaryIO, *, json_wanted: bool) -> None:
    """Publish the lines of ``file``, as many in a batch as are there and the broker takes. What it takes is its own
    (``http.batch_lines``, ``http.batch``), and it keeps nothing of a batch that it refuses: half as many then."""
    lines_max = limits.batch_lines_max
    keyed = client.is_of_cluster
    for read in _as_they_come(file):
        lines = [_line(one, str(uuid4()) if keyed else "") for one in read]
        while lines:
            some = lines[:lines_max]
            try:
                _publish_batch(client, path, b"\n".join(some), json_wanted=json_wanted, again=keyed)
            except AskedTooMuch:
                if len(some) == 1:
                    raise
                lines_max = len(some) // 2
                continue
            del lines[:lines_max]


def _as_they_come(file: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of ``file``, as many at once as are there."""
    rest = b""
    read_some = getattr(file, "read1", file.read)  # what is there now, without waiting for more
    while some := read_some(_READ_BYTES):
        *lines, rest = (rest + some).split(b"\n")
        yield lines
    if rest:
        yield [rest]


def _line(content: bytes, idempotency_key: str) -> bytes:
    fields = {"idempotency_key": idempotency_key} if idempotency_key else {}
    try:
        fields["content"] = content.decode()
    except UnicodeDecodeError:
        fields["content_base64"] = b64encode(content).decode()
    return json.dumps(fields).encode()


def _publish_batch(
    client: BrokerConnection, path: str, lines: bytes, *, json_wanted: bool, again: bool | None = None
) -> None:
    answer = client.ask("POST", f"{path}:batch", lines, {"Content-Type": "application/x-ndjson"}, again=again).json()
    if json_wanted:
        print_json(answer)
    else:
        click.echo("\n".join(answer["ids"]))


def _headers(given: dict[str, Any], wait_s: float) -> dict[str, str]:
    headers = {
        "Syncbrok-Parent": ", ".join(given["parents"]),
        "Syncbrok-Parent-Failure": given["parent_failure"],
        "Prefer": f"wait={wait_s:g}" if wait_s else None,
        "Syncbrok-Key": given["key"],
        "Idempotency-Key": given["idempotency_key"],
        "Syncbrok-Delay": given["delay_text"],
        "Syncbrok-Deliver-At": given["deliver_at"],
        "Syncbrok-Expires": given["expires"],
        "Syncbrok-Erase-After": given["erase_after"],
        "Content-Type": given["content_type"],
        **{f"Syncbrok-Forward-{name}": value for name, value in header_pairs(given["headers"])},
    }
    return {name: _header_text(name, value) for name, value in headers.items() if value}


def _header_text(name: str, value: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise click.UsageError(f"{name}: expected printable ASCII, found {value!r}")
    return value


def _seconds(flag: str, text: str) -> float:
    try:
        return parse_duration_s(text)
    except BadSetting as wrong:
        raise click.UsageError(f"{flag}: {wrong.detail}") from None


def _raise_unless_complete(answer: Response, published: dict[str, Any], wait_s: float) -> None:
    """Ends the command with 1 unless every subscriber has taken the message."""
    if answer.status == 202:
        raise CommandFailed(
            f"accepted, but not complete within {render_duration(wait_s)}; it is still {published['state']}",
            FAILED,
            f"syncbrok messages show {published['id']} says why",
        )
    failed = [one for one in published.get("deliveries", ()) if one["state"] not in ("delivered", "skipped")]
    for one in failed:
        why = one["reason"] or ""
        status = f"HTTP {one['status']}" if one["status"] else ""
        told = " ".join(part for part in (one["state"], why, status) if part)
        click.echo(printable(f"{one['subscriber']}: {told} after {many(one['attempts'], 'attempt')}"), err=True)
    if published["state"] != "complete":
        mend = f"mend the endpoint, then: syncbrok messages replay {published['id']}"
        raise CommandFailed(f"the message ended {published['state']}", FAILED, mend)
