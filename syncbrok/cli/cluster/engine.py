"""``syncbrok cluster engine``."""

import os
from pathlib import Path
from typing import Final

import click

from syncbrok.cli.exits import SEE_EXIT_CODES, CommandFailed
from syncbrok.cluster.nats_conf import ServerSettings, ServerTls, find_nats_server, nats_conf, peers_of
from syncbrok.config import is_loopback
from syncbrok.model.errors import BadConfig

_HELP: Final = f"""Run a server of the engine (NATS JetStream): write its nats.conf and become nats-server.

Signals reach nats-server itself; it ends in good order on SIGTERM and SIGINT. Of three servers one may be missing.
On other addresses than loopback it wants TLS and users: anybody who can write to the stream can write to the log. How
to make the certificates and the file of users: docs/cluster.md, "Three hosts". SIGHUP reads both again.

\b
Examples:
  syncbrok cluster engine --node a --host 10.0.0.1 --storage /var/lib/syncbrok-engine \\
    --peers a=10.0.0.1:6222,b=10.0.0.2:6222,c=10.0.0.3:6222 \\
    --tls-cert a.crt --tls-key a.key --tls-ca ca.crt --users /etc/syncbrok/nats-users.conf
  syncbrok cluster engine --node a --peers b=127.0.0.1:6223,c=127.0.0.1:6224 --print

{SEE_EXIT_CODES}
"""
_FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)
_ROUTE_PORT: Final = 6222
_PORT: Final = click.IntRange(1, 65_535)


@click.command("engine", help=_HELP)
@click.option("--node", required=True, metavar="NAME", help="Its name, another one on each host.")
@click.option("--peers", required=True, metavar="NAME=HOST:PORT,...",
              help="The routes of the other servers; its own may stand among them.")  # fmt: skip
@click.option("--storage", type=click.Path(path_type=Path, file_okay=False), default=Path("storage/engine"),
              metavar="DIR", help="Where it keeps the stream; storage/engine by default.")  # fmt: skip
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Where it listens; 127.0.0.1 by default.")
@click.option("--port", type=_PORT, default=4222, metavar="PORT", help="For the brokers; 4222 by default.")
@click.option("--route-port", type=_PORT, metavar="PORT",
              help="For the other servers; by default its own of --peers, else 6222.")  # fmt: skip
@click.option("--monitor-port", type=_PORT, default=8222, metavar="PORT",
              help="Where it says over HTTP how it runs; 8222 by default.")  # fmt: skip
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="Its certificate (PEM), for brokers and servers.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="The key of it.")
@click.option("--tls-ca", type=_FILE, metavar="FILE", help="Who has signed the certificates of all servers.")
@click.option("--users", type=_FILE, metavar="FILE", help="More of nats.conf: who may connect (authorization {...}).")
@click.option("--insecure", type=click.Choice(["no", "plaintext", "open"]), default="no", metavar="HOW",
              help="no (the default), plaintext or open: how far it may be open to other machines.")  # fmt: skip
@click.option("--print", "printed", is_flag=True, help="Print its nats.conf and run nothing.")
def command(
    node: str,
    peers: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    insecure: str,
    *,
    printed: bool,
    host: str,
    port: int,
    route_port: int | None,
    monitor_port: int,
    storage: Path,
    users: Path | None,
) -> None:
    """See ``_HELP``."""
    given = [one for one in (tls_cert, tls_key, tls_ca) if one is not None]
    if len(given) not in (0, 3):
        raise click.UsageError("--tls-cert, --tls-key and --tls-ca are given all three, or none")
    tls = ServerTls(*given) if given else None
    named = peers_of(peers)
    own = named.pop(node, "")  # it may stand among them, so that all hosts can be given the same
    route_port = route_port or int(own.rpartition(":")[2] or _ROUTE_PORT)
    settings = ServerSettings(node, host, port, route_port, monitor_port, storage, named, tls, users)
    _refuse_exposed(settings, insecure)
    text = nats_conf(settings)
    if printed:
        click.echo(text, nl=False)
        return
    program = find_nats_server()
    storage.mkdir(parents=True, exist_ok=True)
    file = storage / "nats.conf"
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as conf:
        conf.write(text)
    os.umask(0o077)  # the stream holds what the log holds
    try:
        os.execv(program, [str(program), "--config", str(file)])  # noqa: S606  the signals are its own from here on
    except OSError as error:
        raise CommandFailed(f"{program} cannot be run: {error.strerror}") from error


def _refuse_exposed(settings: ServerSettings, insecure: str) -> None:
    """Raises ``BadConfig`` where it is open further than ``insecure`` says."""
    allowed = {"no": 0, "plaintext": 1, "open": 2}[insecure]
    if is_loopback(settings.host):
        return
    if settings.users is None and allowed < 2:
        what = f"--host is {settings.host} and no --users are given: whoever can connect may write to the stream"
        raise BadConfig(f"{what}; name them, or give --insecure open to have it so", key="--host")
    if settings.tls is None and allowed < 1:
        what = f"--host is {settings.host}: messages and passwords would go over the network in clear"
        raise BadConfig(f"{what}; give --tls-cert, --tls-key and --tls-ca, or --insecure plaintext", key="--host")
