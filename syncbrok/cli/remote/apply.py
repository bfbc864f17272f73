"""``syncbrok apply``."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from syncbrok.cli.confirming import confirm, destroys
from syncbrok.cli.exits import SEE_EXIT_CODES, CommandFailed
from syncbrok.cli.remote.client import BrokerConnection, segment, speaks_to_broker
from syncbrok.cli.remote.plan import PlanStep, Running, plan
from syncbrok.cli.show import as_json, print_json, printable
from syncbrok.frontends.from_yaml import read_queues_file

_SIGNS = {
    "create": ("+", "green"),
    "change": ("~", "yellow"),
    "delete": ("-", "red"),
    "secret": ("?", None),
    "paused": ("?", None),
}

_HELD = {
    "subscribers": ("{} subscriber goes with it", "{} subscribers go with it"),
    "waiting": ("{} message waits in it: it stays until that has ended",
                "{} messages wait in it: it stays until they have ended"),
    "backlog": ("{} message that waits for it is dropped", "{} messages that wait for it are dropped"),
}  # fmt: skip
"""what a deletion says of how much there is, of one and of more"""


@click.command(
    "apply",
    help=f"""Make a running broker match FILE. Prints the difference as a plan, then does it: + is created, ~ changed,
- deleted; for ? the broker itself sees whether the file says another secret, "paused" or query of an endpoint than
before. A secret and "paused" that it has said before are left as they are: they may have been changed since. What is
overwritten stands there with what it is now and who changed it last. Nothing is deleted without --prune, and no queue
in which something waits; on a terminal it asks first.

\b
Examples:
  syncbrok apply queues.yml --dry-run
  syncbrok apply queues.yml
  syncbrok apply queues.yml --prune --url https://broker.example

{SEE_EXIT_CODES}
""",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only print the plan.")
@click.option("--prune", is_flag=True, help="Delete queues and subscribers that are not in FILE.")
@destroys
@as_json
@speaks_to_broker
def command(client: BrokerConnection, file: Path, dry_run: bool, prune: bool, yes: bool, json_wanted: bool) -> None:
    """See ``help``."""
    steps = plan(read_queues_file(file, os.environ), _running(client), prune=prune)
    if json_wanted:
        print_json(list(map(_as_json, steps)))
    else:
        _print(steps)
    if dry_run:
        return
    deletes = sum(step.what == "delete" for step in steps)
    if deletes:
        confirm(yes, lambda: f"delete the {deletes} that are not in {file}")
    failed: CommandFailed | None = None
    for step in steps:
        try:
            path = "".join(f"/{part if part == 'subscribers' else segment(part)}" for part in step.path)
            answer = client.ask(step.method, f"/v1/queues{path}", step.body)
            if step.if_said_anew:
                _say_where_it_stays(step, answer.json())
        except CommandFailed as refused:
            # The others do not depend on it, but for subscribers of a queue that could not be made: those say so too.
            click.echo(f"{step.entry}: {printable(refused.message)}", err=True)
            failed = failed or refused
    if failed is not None:
        raise CommandFailed("not all of it could be done", failed.exit_code)


def _say_where_it_stays(step: PlanStep, subscriber: dict[str, Any]) -> None:
    """Print that ``paused`` stays as an operator has set it: the file said the same before."""
    if subscriber["paused"] != step.if_said_anew["paused"][1]:
        how = "paused" if subscriber["paused"] else "not paused"
        click.echo(f"{step.entry}: stays {how}, as it was set since the file was last applied", err=True)


def _running(client: BrokerConnection) -> dict[str, Running]:
    running = {}
    for queue in client.pages("/v1/queues", "queues"):
        subscribers = client.pages(f"/v1/queues/{segment(queue['name'])}/subscribers", "subscribers")
        running[queue["name"]] = Running(queue, list(subscribers))
    return running


def _as_json(step: PlanStep) -> dict[str, Any]:
    shown = {"what": step.what, "entry": step.entry, "changes": step.changes}
    more = {
        "if_said_anew": dict(step.if_said_anew),
        "changed_by": step.changed_by,
        "unsaid": sorted(step.unsaid),
        "holds": dict(step.holds),
    }
    return shown | {name: value for name, value in more.items() if value}


def _print(steps: Sequence[PlanStep]) -> None:
    for step in steps:
        sign, colour = _SIGNS[step.what]
        overwrites = step.what in ("change", "delete") and step.changed_by
        last = f"  (changed last by {printable(str(step.changed_by))})" if overwrites else ""
        click.echo(click.style(f"{sign} {step.entry}", fg=colour) + last)
        for name, (now, then) in step.changes.items():
            told = _value(then) if step.what == "create" else f"{_value(now)} -> {_value(then)}"
            default = ", the default: not in the file" if name in step.unsaid else ""
            click.echo(f"    {name}: {told}{default}")
        for name, (now, then) in step.if_said_anew.items():
            click.echo(f"    {name}: {_value(now)} -> {_value(then)}, unless the file has said so before")
        for figure, number in step.holds.items():
            click.echo(f"    {_HELD[figure][number != 1].format(number)}")
    count = {what: sum(step.what == what for step in steps) for what in _SIGNS}
    if any(count[what] for what in ("create", "change", "delete")):
        click.echo(f"{count['create']} to create, {count['change']} to change, {count['delete']} to delete")
    elif not any(step.if_said_anew for step in steps):
        click.echo("no differences")


def _value(value: Any) -> str:
    """A setting as the file would write it."""
    return printable("-" if value is None else value if isinstance(value, str) else json.dumps(value))
