"""``syncbrok cluster status``."""

from contextlib import closing, suppress
from typing import Any, Final

import click

from syncbrok.cli.exits import NOT_FOUND, SEE_EXIT_CODES, CommandFailed
from syncbrok.cli.remote.client import BrokerConnection, speaks_to_broker
from syncbrok.cli.show import as_json, print_json, print_table

PATH: Final = "/v1/cluster"
_NONE: Final = "there is nothing"

_HELP: Final = f"""Show who leads, how far each node has come, and how the engine's servers run. Any node can be asked.

The node that is asked says what it knows; of several in --url the first that answers is asked, and the next ones where
that one knows of no leader: it may have just begun, or be cut off. Lag is how many records a node is behind the one
that has most; a node that was not heard for 5 s is left out.

Ends with 1, and says why, where nobody leads, where a node has no room for its log, where nodes differ in
storage.archive, or where a server of the engine is down or does not fsync each message.

\b
Examples:
  syncbrok cluster status --url http://10.0.0.1:10000,http://10.0.0.2:10000
  syncbrok cluster status --url https://10.0.0.1:10000 --ca nodes-ca.crt --cert ops.pem
  syncbrok cluster status --json | jq -r .leader.node

{SEE_EXIT_CODES}
"""


@click.command("status", help=_HELP)
@as_json
@speaks_to_broker
def command(client: BrokerConnection, json_wanted: bool) -> None:
    """See ``_HELP``."""
    found = status_of(client)
    if json_wanted:
        print_json(found)
    else:
        _show(found)
    wrong = _wrong(found)
    if wrong:
        raise CommandFailed("; ".join(wrong))


def status_of(client: BrokerConnection) -> dict[str, Any]:
    """The answer of a node, if any of those that are asked can of one that knows a leader. Raises ``CommandFailed``,
    also for a broker that is none."""
    found = _answer_of(client)
    if not found["leader"]:
        for one in client.each():
            with closing(one), suppress(CommandFailed):
                other = _answer_of(one)
                if other["leader"]:
                    return other
    return found


def _answer_of(client: BrokerConnection) -> dict[str, Any]:
    try:
        found: dict[str, Any] = client.ask("GET", PATH).json()
    except CommandFailed as failed:
        if failed.exit_code != NOT_FOUND:
            raise
        raise CommandFailed(f"the broker at {client.url} is no node of a cluster", NOT_FOUND) from failed
    return found


def _show(found: dict[str, Any]) -> None:
    leader = found["leader"]
    led = f"{leader['node']} leads at {leader['url']}" if leader else "nobody leads"
    click.echo(f"space {found['space']}: {led}, epoch {found['epoch']}\n")
    columns = ("node", "role", "sequence", "lag_records", "pid", "url")
    headings = ("node", "role", "sequence", "lag", "process", "address")
    print_table(headings, ([one[name] for name in columns] for one in found["nodes"]), "no node was heard lately")
    if found["engine"]:
        click.echo()
        rows = ((one["url"], one["alive"], one["sync_always"]) for one in found["engine"])
        print_table(("engine", "alive", "fsyncs each"), rows, _NONE)


def _wrong(found: dict[str, Any]) -> list[str]:
    wrong = [] if found["leader"] else ["nobody leads"]
    wrong += [
        f"{one['node']} has stopped following, its disk is full" for one in found["nodes"] if one["role"] == "stalled"
    ]
    archives = {one["node"]: one["archive"] for one in found["nodes"] if one.get("archive")}
    if len(set(archives.values())) > 1:
        told = ", ".join(f"{node}: {archive}" for node, archive in archives.items())
        wrong.append(f"storage.archive is not the same on all nodes ({told}), and whoever leads drops by its own")
    for one in found["engine"]:
        if not one["alive"]:
            wrong.append(f"{one['url']} does not answer")
        elif not one["sync_always"]:
            wrong.append(f"{one['url']} does not fsync each message (sync_interval: always)")
    if found["engine"] and not any(one["alive"] for one in found["engine"]):
        wrong.append("no server of the engine answers the node that was asked: perhaps it is cut off, ask another one")
    return wrong
