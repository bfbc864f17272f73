"""``syncbrok cluster``: the group of its commands."""

from typing import Any, Final

import click

from syncbrok.cli.exits import SEE_EXIT_CODES
from syncbrok.cli.lazily import Lazily

_COMMANDS: Final = {
    "demo": ("cluster.demo", "Three servers of the engine and three brokers on this machine, to try it."),
    "engine": ("cluster.engine", "Run a server of the engine."),
    "init": ("cluster.init", "Make the stream and begin a log in it, a new one or one that there is."),
    "rekey": ("cluster.rekey", "Change the key with which secrets are sealed."),
    "reseed": ("cluster.reseed", "Give an engine that has lost its stream a node's log."),
    "status": ("cluster.status", "Who leads, how far each node is, how the engine runs."),
    "yield": ("cluster.handover", "Let another node lead."),
}


@click.command(
    "cluster",
    cls=Lazily,
    modules=_COMMANDS,
    help=f"""A log on several machines: one broker leads, the others follow and take over.

\b
Examples:
  syncbrok cluster demo
  syncbrok cluster engine --node a --host 10.0.0.1 --peers b=10.0.0.2:6222,c=10.0.0.3:6222 --tls-cert a.crt ...
  syncbrok cluster init --config /etc/syncbrok/broker.yml --from storage/

{SEE_EXIT_CODES}
""",
)
def command(**_: Any) -> None:
    """See ``help``."""
