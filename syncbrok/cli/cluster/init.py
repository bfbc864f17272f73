"""``syncbrok cluster init``."""

import os
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from syncbrok.cli.cluster.settings import configured, connected, patiently, read_cluster, refuse_lazy
from syncbrok.cli.exits import REFUSED, SEE_EXIT_CODES, CommandFailed
from syncbrok.cli.progress import bytes_bar
from syncbrok.config import ClusterConfig

if TYPE_CHECKING:
    from syncbrok.cluster.seeding import SeedProgress

_HELP: Final = f"""Make the key and the stream of a cluster, once, on one node; nothing else makes them.

Without --from the log begins empty. With it the log in DIR, a single node's, becomes the beginning of the stream: its
broker must be stopped, it is verified first, and it is not changed. Any node may then start with that directory, or
with an empty one. Where this was stopped it may be called again, and goes on.

All servers of the engine must run. A stream that holds its log already is left as it is. Copy the file of the key
(cluster.key) to the other nodes, mode 0600, and give it to the user that the broker runs as on each of them.

\b
Examples:
  syncbrok cluster init --config /etc/syncbrok/broker.yml
  syncbrok cluster init --from /var/lib/syncbrok

{SEE_EXIT_CODES}
"""


@click.command("init", help=_HELP)
@configured
@click.option("--from", "source", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="A log that there is.")  # fmt: skip
def command(config_path: Path | None, source: Path | None) -> None:
    """See ``_HELP``."""
    _, cluster = read_cluster(config_path)
    if source is None:
        _begin_empty(cluster)
    else:
        put_in(cluster, source, 1)


def _begin_empty(cluster: ClusterConfig) -> None:
    with connected(cluster) as engine:
        from syncbrok.cluster.birth import give_birth  # noqa: PLC0415  it needs an extra
        from syncbrok.model.journal import LogIdentity  # noqa: PLC0415

        state = patiently(engine.stream_state)
        if state is not None and state.last:
            if not cluster.key.exists():
                what = f"the space {cluster.space} has its log already, and {cluster.key} is not here"
                raise CommandFailed(what, REFUSED, "copy it from the node where it was made")
            click.echo(f"The space {cluster.space} has its log already; nothing was changed")
            return
        refuse_lazy(engine)
        ensure_key(cluster.key)
        identity = LogIdentity(os.urandom(16), os.urandom(16))
        name = f"init.{secrets.token_hex(6)}"
        patiently(lambda: give_birth(engine, identity, 1, name))
    click.echo(f"The space {cluster.space} has its log now, {identity.uuid.hex()}, which is empty")


def put_in(cluster: ClusterConfig, source: Path, generation: int) -> None:
    """Put the log in ``source`` into the stream, which is made. Raises ``CommandFailed``, and what reading the log
    raises."""
    with connected(cluster) as engine:
        from syncbrok.cluster.seeding import SeedLog, seed  # noqa: PLC0415  they need an extra
        from syncbrok.cluster.vault import Vault  # noqa: PLC0415

        refuse_lazy(engine)
        with SeedLog.open(source) as log:
            with bytes_bar("verifying") as checked:
                log.verify(checked)
            ensure_key(cluster.key)
            vault = Vault.open(cluster.key, log.identity.uuid)
            with bytes_bar("sending") as sent:
                told = partial(_tell, sent, log.bytes)
                patiently(lambda: seed(engine, log, vault.seal, generation, secrets.token_hex(6), told))
            last = log.last
    click.echo(f"The space {cluster.space} has the log of {source}, up to {last}; generation {generation}")


def _tell(sent: Callable[[int, int], None], bytes_in_all: int, met: "SeedProgress") -> None:
    sent(met.done_bytes, bytes_in_all)


def ensure_key(path: Path) -> None:
    """Make the key of the cluster where there is none. Raises ``OSError``."""
    from syncbrok.cluster.vault import make_key  # noqa: PLC0415  it needs an extra

    try:
        make_key(path)
    except FileExistsError:
        return
    click.echo(f"Made {path}: copy it to the other nodes, and keep a copy with the backups", err=True)
