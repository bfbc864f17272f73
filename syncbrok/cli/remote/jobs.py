"""``syncbrok jobs``."""

import time
from collections.abc import Mapping
from typing import Any, Final

import click

from syncbrok.cli.confirming import confirm, destroys
from syncbrok.cli.exits import FAILED, SEE_EXIT_CODES, UNREACHABLE, USAGE, CommandFailed
from syncbrok.cli.progress import items_bar
from syncbrok.cli.remote.client import BrokerConnection, segment, speaks_to_broker
from syncbrok.cli.show import as_json, limited, moment, print_fields, print_json, print_json_list, print_table, share
from syncbrok.model.errors import BadSetting
from syncbrok.model.units import many, parse_duration_s

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 1.0
"""between two looks at a job; the first ones are closer together, as most jobs are short"""
_OVER: Final = ("done", "cancelled", "failed")


@click.group(
    "jobs",
    help=f"""Jobs go on after the command that began them: recovers, replays, seeks, dead letters that are dropped.
They survive restarts, show how far they are, and can be cancelled.

\b
Examples:
  syncbrok jobs list
  syncbrok jobs show job-4711
  syncbrok jobs wait job-4711
  syncbrok jobs cancel job-4711

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
    """Jobs that are not over, and those of the last seven days; the newest first.

    \b
    Example:
      syncbrok jobs list
    """
    jobs = client.pages("/v1/jobs", "jobs", limit)
    if json_wanted:
        print_json_list(jobs)
        return
    print_table(
        ("job", "kind", "state", "queue", "subscriber", "by", "done", "failed", "total", "since"),
        (
            (
                *(
                    one[name]
                    for name in ("id", "kind", "state", "queue", "subscriber", "by", "done", "failed", "total")
                ),
                moment(one["created_at"]),
            )
            for one in jobs
        ),
        "no jobs",
    )


@command.command()
@click.argument("id_", metavar="ID")
@as_json
@speaks_to_broker
def show(client: BrokerConnection, id_: str, json_wanted: bool) -> None:
    """How far job ID is.

    \b
    Example:
      syncbrok jobs show job-4711
    """
    print_job(client.ask("GET", f"/v1/jobs/{segment(id_)}").json(), json_wanted=json_wanted)


@command.command()
@click.argument("id_", metavar="ID")
@click.option("--timeout", "timeout_text", metavar="DURATION", help="Give up (1) after so long; never by default.")
@as_json
@speaks_to_broker
def wait(client: BrokerConnection, id_: str, timeout_text: str | None, json_wanted: bool) -> None:
    """Wait until job ID is over, showing how far it is. Fails (1) where it failed, was cancelled, or the time is over.
    It goes on when the broker was away; Ctrl-C stops the waiting, not the job.

    \b
    Examples:
      syncbrok jobs wait job-4711
      syncbrok jobs wait job-4711 --timeout 10m && echo all sent
    """
    try:
        until_s = None if timeout_text is None else time.monotonic() + parse_duration_s(timeout_text)
    except BadSetting as wrong:
        raise CommandFailed(f"--timeout: {wrong.detail}", USAGE) from None
    path = f"/v1/jobs/{segment(id_)}"
    job = client.ask("GET", path).json()
    pause_s = _PAUSE_S
    with items_bar(id_) as show_progress:
        while True:
            show_progress(job["done"] + job["failed"], job["total"], job["state"])
            if job["state"] in _OVER:
                break
            if until_s is not None and time.monotonic() + pause_s > until_s:
                mend = f"it goes on; syncbrok jobs show {id_} says how far it is"
                raise CommandFailed(f"{id_} is {job['state']} and not over within {timeout_text}", FAILED, mend)
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _PAUSE_MAX_S)
            job = _looked_at_again(client, path) or job
    print_job(job, json_wanted=json_wanted)
    if job["state"] != "done":
        raise CommandFailed(f"{id_} {job['state']}{': ' + job['why'] if job['why'] else ''}", FAILED)


def _looked_at_again(client: BrokerConnection, path: str) -> dict[str, Any] | None:
    """The job, or None where the broker is away just now: a job survives that (RULES 34)."""
    try:
        job: dict[str, Any] = client.ask("GET", path).json()
    except CommandFailed as failed:
        if failed.exit_code not in (UNREACHABLE, FAILED):
            raise
        return None
    return job


@command.command()
@click.argument("id_", metavar="ID")
@destroys
@as_json
@speaks_to_broker
def cancel(client: BrokerConnection, id_: str, yes: bool, json_wanted: bool) -> None:
    """Cancel job ID: what was sent stays sent, the rest is as it was before. On a terminal it asks first.

    \b
    Example:
      syncbrok jobs cancel job-4711
    """
    confirm(yes, lambda: f"cancel job {id_}")
    print_job(client.ask("DELETE", f"/v1/jobs/{segment(id_)}").json(), json_wanted=json_wanted)


def begin_job(
    client: BrokerConnection, method: str, path: str, chosen: Mapping[str, object], *, json_wanted: bool
) -> None:
    """Ask for a job and print it. ``chosen``: the body; what is None was not chosen."""
    body = {name: value for name, value in chosen.items() if value is not None}
    print_job(client.ask(method, path, body, again=False).json(), json_wanted=json_wanted)


def planned(client: BrokerConnection, method: str, path: str, chosen: Mapping[str, object]) -> int:
    """How much a job would be about, which is not begun."""
    body = {name: value for name, value in {**chosen, "dry_run": True}.items() if value is not None}
    total: int = client.ask(method, path, body).json()["total"]
    return total


def print_job(answer: dict[str, Any], *, json_wanted: bool) -> None:
    """Print a job, or how many a dry run is about."""
    if json_wanted:
        print_json(answer)
    elif "dry_run" in answer:
        has = "has" if answer.get("waiting") == 1 else "have"
        waiting = f"; {answer['waiting']} of them {has} not ended" if answer.get("waiting") else ""
        click.echo(f"{many(answer['total'], 'message')} from sequence {answer['from']} on{waiting}; nothing was done")
    else:
        progress = share(answer["done"] + answer["failed"], answer["total"])
        times = {name: moment(answer[name]) for name in ("created_at", "ended_at")}
        shown = {"id": answer["id"], "kind": answer["kind"], "state": answer["state"], "progress": progress}
        print_fields((name.replace("_", " "), value) for name, value in (shown | answer | times).items())
