"""``syncbrok cluster demo``."""

import signal
import sys
import threading
from pathlib import Path
from typing import Final

import click

from syncbrok.cli.exits import SEE_EXIT_CODES, CommandFailed
from syncbrok.cluster.local_cluster import NAMES, LocalCluster

_LOOK_S: Final = 0.2
_ASK_EVERY: Final = 5

_HELP: Final = f"""Run a whole cluster on this machine, to try it: three servers of the engine and three brokers.

Brokers listen on 127.0.0.1, at --port and the two ports after it. What ends is started again, as systemd would. Ctrl-C
ends all of it; what was kept is there again at the next start.

\b
Example:
  syncbrok cluster demo
  then, beside it: publish, kill -9 the process that leads, and see another one go on

{SEE_EXIT_CODES}
"""


@click.command("demo", help=_HELP)
@click.option("--port", type=click.IntRange(1, 65_533), default=10_000, envvar="SYNCBROK_PORT", metavar="PORT",
              help="Of the first broker; 10000 by default.")  # fmt: skip
@click.option("--storage", type=click.Path(path_type=Path, file_okay=False), default=Path("storage/cluster"),
              metavar="DIR", help="Where all of it is kept; storage/cluster by default.")  # fmt: skip
@click.option("--lease", default="3s", metavar="TIME", help="How long a leader may be silent; 3s by default.")
def command(port: int, storage: Path, lease: str) -> None:
    """See ``_HELP``."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    cluster = LocalCluster(storage, range(port, port + len(NAMES)), _say, lease)
    try:
        with cluster:
            for name, url in zip(NAMES, cluster.urls, strict=True):
                _say(f"broker {name}: {url}")
            _say(f"engine: {', '.join(cluster.engine_urls)}")
            _say(f"Everything is below {storage}; Ctrl-C ends it")
            _watch(cluster, ended)
            _say("ending")
    except OSError as error:
        if error.filename is not None:
            raise
        raise CommandFailed(str(error)) from error


def _watch(cluster: LocalCluster, ended: threading.Event) -> None:
    led, looked = "", 0
    while not ended.wait(_LOOK_S):
        cluster.check()
        looked += 1
        if looked % _ASK_EVERY == 0:
            leader = (cluster.status() or {}).get("leader") or {}
            if leader and leader["pid"] is None:
                continue  # it has just begun to lead, and tells its process within a second
            now = f"{leader['node']} leads: {leader['url']}, process {leader['pid']}" if leader else "nobody leads"
            if now != led and (leader or led):  # before anybody ever did, there is nothing to be alarmed at
                led = now
                _say(now)


def _say(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()
