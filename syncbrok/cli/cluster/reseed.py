"""``syncbrok cluster reseed``."""

import os
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from syncbrok.cli.cluster.init import put_in
from syncbrok.cli.cluster.settings import configured, read_cluster, with_extra
from syncbrok.cli.cluster.status import status_of
from syncbrok.cli.exits import REFUSED, SEE_EXIT_CODES, CommandFailed
from syncbrok.cli.remote.client import BrokerConnection
from syncbrok.cli.show import print_table

_HELP: Final = f"""Give an engine that has lost its stream a new one, with the log of a node.

For when nodes end with 78, "the log here ends with ..., the stream with ...". The stream must not
be there: where a part is left, stop the servers of the engine, move their directories away, start them.
Then take the longest log there is: what it lacks is lost. This says how long the others are, those in DIRs and those of
nodes that answer at --node, and refuses a log that is shorter than one of them. The nodes of the DIRs must be stopped.
Where this was stopped it may be called again, and goes on.

\b
Examples:
  syncbrok cluster reseed --from /var/lib/syncbrok --compare /mnt/b/syncbrok --compare /mnt/c/syncbrok
  syncbrok cluster reseed --from /var/lib/syncbrok --node http://10.0.0.2:10000

{SEE_EXIT_CODES}
"""
_VARIABLES: Final = ("SYNCBROK_TOKEN", "SYNCBROK_CA", "SYNCBROK_CERT")
_DIR: Final = click.Path(path_type=Path, file_okay=False)


@click.command("reseed", help=_HELP)
@configured
@click.option("--from", "source", type=_DIR, required=True, metavar="DIR", help="The log that is put in.")
@click.option("--compare", "others", type=_DIR, multiple=True, metavar="DIR", help="Another node's log. Repeatable.")
@click.option("--node", "urls", multiple=True, metavar="URL", help="A node that is asked how long the logs are.")
@click.option("--generation", type=click.IntRange(2, (1 << 23) - 1), metavar="N",
              help="Of the new stream; by default one more than that of the old one.")  # fmt: skip
@click.option("--force", is_flag=True, help="Take it although another one is longer: what only that one has is lost.")
def command(
    config_path: Path | None,
    source: Path,
    others: tuple[Path, ...],
    urls: tuple[str, ...],
    generation: int | None,
    *,
    force: bool,
) -> None:
    """See ``_HELP``."""
    _, cluster = read_cluster(config_path)
    with with_extra():
        from syncbrok.cluster.generation import remembered  # noqa: PLC0415  it needs an extra
    lengths = _lengths((source, *others))
    for url in urls:
        with closing(BrokerConnection(url, *map(os.environ.get, _VARIABLES))) as client:
            lengths |= {f"{one['node']} at {one['url']}": one["sequence"] for one in status_of(client)["nodes"]}
    by_length = sorted(lengths, key=lambda one: -lengths[one])
    print_table(("log", "last record"), ((one, lengths[one]) for one in by_length), "")
    longest = by_length[0]
    if lengths[longest] > lengths[str(source)] and not force:
        what = f"{source} ends with {lengths[str(source)]}, {longest} with {lengths[longest]}"
        raise CommandFailed(what, REFUSED, "take that one; or --force, and what only that one has is lost")
    known = max(map(remembered, (source, *others)))
    put_in(cluster, source, generation or max(known, 1) + 1)


def _lengths(directories: tuple[Path, ...]) -> dict[str, int]:
    """The last record of each log."""
    with with_extra():
        from syncbrok.cluster.seeding import SeedLog  # noqa: PLC0415  it needs an extra
    found: dict[str, int] = {}
    identities = set()
    for one in directories:
        with SeedLog.open(one) as log:
            found[str(one)] = log.last
            identities.add(log.identity)
    if len(identities) > 1:
        raise CommandFailed("these directories hold different logs", REFUSED, "all must be those of one cluster")
    return found
