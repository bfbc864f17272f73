"""``syncbrok cluster rekey``."""

from pathlib import Path
from typing import Final

import click

from syncbrok.cli.cluster.settings import configured, read_cluster, with_extra
from syncbrok.cli.exits import SEE_EXIT_CODES

_HELP: Final = f"""Change the key with which secrets are sealed in the stream, while the nodes run.

\b
1. syncbrok cluster rekey    on one node: the file of the key has the new one first, and the old one behind it
2. copy that file to the other nodes; the one that leads comes last
3. syncbrok cluster yield    the next leader seals the secrets anew
4. syncbrok cluster rekey --forget    on each node, once no node need read from the stream what the old one has sealed

A running node reads the file when it needs it. One that meets what its file has no key for ends with 78: copy the file
there and start it.

\b
Examples:
  syncbrok cluster rekey
  syncbrok cluster rekey --new-key /run/keys/cluster.key

{SEE_EXIT_CODES}
"""


@click.command("rekey", help=_HELP)
@configured
@click.option("--new-key", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="FILE",
              help="A file of another key; by default one is made.")  # fmt: skip
@click.option("--forget", is_flag=True, help="Leave but the first key in the file.")
def command(config_path: Path | None, new_key: Path | None, *, forget: bool) -> None:
    """See ``_HELP``."""
    if forget and new_key is not None:
        raise click.UsageError("--new-key and --forget are two steps")
    _, cluster = read_cluster(config_path)
    with with_extra():
        from syncbrok.cluster.vault import add_key, keep_first_key  # noqa: PLC0415  it needs an extra
    if forget:
        click.echo(f"{keep_first_key(cluster.key)} old keys are gone from {cluster.key}")
        return
    add_key(cluster.key, new_key)
    click.echo(f"{cluster.key} has a new key first: copy it to the other nodes, then syncbrok cluster yield")
