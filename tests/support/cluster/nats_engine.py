"""Three servers of NATS JetStream on this machine, each killed, stopped and started again by itself."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from syncbrok.cluster.birth import give_birth
from syncbrok.cluster.engine import Engine, EngineServer, Fate
from syncbrok.cluster.stream_messages import StreamMessage
from syncbrok.model.journal import LogIdentity
from tests.support.broker.process import held_port
from tests.support.certificates import Authority
from tests.support.cluster.cut_links import CutLinks
from tests.support.polling import eventually_blocking

HOSTS = "abc"
"""on each of which a server of the engine and a node run"""


def append(engine: Engine, message: StreamMessage, last: int) -> int:
    """Append a message behind the one numbered ``last``, as often as it takes to have an answer. Gives the number that
    the engine says it has. A stream that has just been made, or a machine with other work, may take longer than one
    request waits."""

    def number() -> int:
        fate, sequence = engine.try_append(message, last, 5.0)
        if fate is Fate.STORED:
            return sequence
        with suppress(OSError):
            found = engine.from_leader(last + 1)  # of a try that had no answer
            if found is not None and found.n == message.n:
                return found.sequence
        return 0

    return eventually_blocking(number, f"{message.n} stands in the stream behind {last}", 60)


class NatsServer:
    """One server; its files stay over a kill."""

    before: tuple[str, ...] = ()
    """words of the command that runs it: ``strace`` and what it takes"""

    def __init__(
        self,
        directory: Path,
        name: str,
        ports: tuple[int, int, int],
        routes: list[int],
        sync: str,
        more: str = "",
        authority: Authority | None = None,
    ) -> None:
        """``more``: of its part ``cluster``. ``authority``: signs what it shows to clients, which is TLS then."""
        self.name = name
        self.tls = None if authority is None else authority.client()
        self.port, self.route_port, self.monitor_port = ports
        self.directory = directory / name
        self.directory.mkdir(parents=True)
        self.config = self.directory / "nats.conf"
        others = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in routes)
        self.config.write_text(
            f'server_name: {name}\nhost: "127.0.0.1"\nport: {self.port}\nhttp: "127.0.0.1:{self.monitor_port}"\n'
            f'max_payload: 8MB\njetstream {{ store_dir: "{self.directory}", sync_interval: {sync} }}\n'
            f'cluster {{ name: test, host: "127.0.0.1", port: {self.route_port}, routes: [{others}], '
            f'ping_interval: "2s", ping_max: 2 {more}}}\n'
        )
        if authority is not None:
            shown = authority.signs(f"engine {name}")
            text = self.config.read_text().replace("http:", "https:")
            self.config.write_text(f'{text}tls {{ cert_file: "{shown.cert}", key_file: "{shown.key}" }}\n')
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def server(self) -> EngineServer:
        scheme, monitor = ("nats", "http") if self.tls is None else ("tls", "https")
        return EngineServer(f"{scheme}://127.0.0.1:{self.port}", f"{monitor}://127.0.0.1:{self.monitor_port}")

    def start(self) -> None:
        binary = Path(sys.executable).with_name("nats-server")
        with (self.directory / "out").open("ab") as out:
            self.process = subprocess.Popen([*self.before, binary, "-c", self.config], stdout=out, stderr=out)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self, *, paused: bool) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)

    def lose_disk(self) -> None:
        """While it does not run."""
        shutil.rmtree(self.store, ignore_errors=True)

    @property
    def store(self) -> Path:
        """Its files."""
        return self.directory / "jetstream"

    def asked(self, path: str) -> dict[str, object]:
        with urllib.request.urlopen(f"{self.server.monitor}{path}", timeout=5, context=self.tls) as answer:
            found: dict[str, object] = json.load(answer)
        return found


class NatsEngine:
    """As a context manager three servers that have elected a leader."""

    def __init__(
        self,
        directory: Path,
        sync: str = "always",
        links: CutLinks | None = None,
        authority: Authority | None = None,
    ) -> None:
        """``links``: by which they reach each other; the server ``n0`` is on host ``a`` and so on. ``authority``: signs
        what they show to clients, which is TLS then."""
        self._ports = ExitStack()
        # Each server is told those of the others before any of them runs; nobody else gets them meanwhile.
        ports = [self._ports.enter_context(held_port()) for _ in range(9)]
        self._routes = ports[3:6]
        # Nobody is told by a server where the others are: they would be reached beside the links.
        more = "" if links is None else ', no_advertise: true, advertise: "127.0.0.1:1"'
        self.servers = [
            NatsServer(
                directory,
                f"n{at}",
                (ports[at], ports[3 + at], ports[6 + at]),
                self._seen(at, links),
                sync,
                more,
                authority,
            )
            for at in range(3)
        ]

    def _seen(self, at: int, links: CutLinks | None) -> list[int]:
        """Where a server finds the routes of the others."""
        if links is None:
            return self._routes
        others = [one for one in range(3) if one != at]
        return [links.link(HOSTS[at], HOSTS[one], self._routes[one]) for one in others]

    @property
    def addresses(self) -> list[EngineServer]:
        return [one.server for one in self.servers]

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """All of them, until they have a leader."""
        for one in self.servers:
            one.start()
        eventually_blocking(self._led, "the servers have a leader", 60)

    def __exit__(self, *_: object) -> None:
        for one in self.servers:
            if one.process is not None:
                one.pause(paused=False)
            one.kill()
        self._ports.close()

    def _led(self) -> bool:
        try:
            found = [one.asked("/jsz") for one in self.servers if one.process is not None]
        except OSError:
            return False
        metas = [one.get("meta_cluster") for one in found]
        return all(isinstance(one, dict) and one.get("leader") and one.get("cluster_size") == 3 for one in metas)


def bear(space: str, servers: Sequence[EngineServer], tls: ssl.SSLContext | None = None) -> None:
    """Make the stream of ``space``, with the birth of a log of its own: what ``syncbrok cluster init`` does."""
    engine = Engine(space, servers, tls=tls)
    engine.connect()
    identity = LogIdentity(os.urandom(16), os.urandom(16))

    def is_born() -> bool:
        try:
            give_birth(engine, identity, 1, "init")
        except OSError:
            return False
        return True

    try:
        eventually_blocking(is_born, "the log is born: servers that have just begun take their time")
    finally:
        engine.close()
