"""Three real brokers that are one cluster, beside the three servers of its engine: killed, stopped, started again."""

import itertools
import json
import os
import re
import signal
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from syncbrok.cluster.engine import EngineServer
from syncbrok.cluster.vault import make_key
from tests.support.broker.process import BrokerProcess, Reply, held_port
from tests.support.cluster.cut_links import CutLinks
from tests.support.cluster.nats_engine import HOSTS, bear
from tests.support.polling import eventually_blocking

_LEADS: Final = re.compile(r'"event":"syncbrok.cluster.leads",.*"epoch":(\d+)')
_SPACES = itertools.count(1)
_BEGIN_S: Final = 300.0
ANYBODY: Final = "*"
"""who dials what a node advertises: nobody tells which other node that is"""


class BrokerNode(BrokerProcess):
    """One of them. ``restarted`` by hand: a process that has ended stays ended until the test starts it."""

    answer_s = 5.0  # one that is stopped takes connections and says nothing
    advertised = ""
    """its URL as the others and clients are told it"""
    tcp: dict[str, int]
    """ports of its formats over TCP"""

    def __init__(
        self, directory: Path, name: str, port: int, cluster: str, queues: str, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(directory / name, queues=queues, config=cluster, tls=tls)
        self._launched_at = 0
        self.name = name
        self.port = port

    def launch(self) -> None:
        """Start it, and wait for nothing."""
        self._launched_at = len(self.output())
        self._spawn()

    @property
    def launched(self) -> bool:
        """Whether it was, ever."""
        return self._process is not None

    @property
    def follows(self) -> bool:
        """Whether it has got so far since it was launched."""
        return "syncbrok.cluster.follows" in self.output()[self._launched_at :]

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def serves(self) -> bool:
        """Whether it says that it is ready."""
        try:
            return self.request("GET", "/readyz").status == 200
        except OSError:
            return False

    @property
    def epoch(self) -> int:
        """Of the last time it began to lead; 0 if it never did."""
        found = _LEADS.findall(self.output())
        return int(found[-1]) if found else 0

    def pause(self, *, paused: bool) -> None:
        self.process.send_signal(signal.SIGSTOP if paused else signal.SIGCONT)


class BrokerNodes:
    """As a context manager they run inside, and one leads. A space of its own in the engine for each."""

    def __init__(
        self,
        directory: Path,
        engine: Sequence[EngineServer],
        queues: str = "queues: {}\n",
        lease: str = "2s",
        *,
        links: CutLinks | None = None,
        more: Callable[[str], str] = lambda _: "",
        tls: ssl.SSLContext | None = None,
        cluster: Mapping[str, str] = {},
        engine_tls: ssl.SSLContext | None = None,
        formats: Sequence[str] = (),
    ) -> None:
        """``links``: by which they reach the servers of other hosts, and each other. ``more``: of the configuration of
        the node of this name. ``tls``: with which they are asked, where that says that HTTP speaks TLS. ``cluster``:
        more of that section. ``engine_tls``: with which the engine is spoken to, where it speaks TLS. ``formats``: over
        TCP, each with one port; see ``BrokerNode.tcp``."""
        self._tls = tls
        self._engine_tls = engine_tls
        self._settings = ", ".join(
            f"{name}: {json.dumps(value)}" for name, value in {"lease": lease, **cluster}.items()
        )
        self._engine = engine
        self._links = links
        self.space = f"test{os.getpid()}x{next(_SPACES)}"
        self.key = directory / "cluster.key"
        make_key(self.key)
        self._ports = ExitStack()
        ports = [self._ports.enter_context(held_port()) for _ in range(3)]
        self._formats = formats
        self.nodes = [self._node(directory, *one, queues, more(one[0])) for one in zip(HOSTS, ports, strict=True)]
        self._asked = self.nodes[0]

    def _node(self, directory: Path, name: str, port: int, queues: str, more: str) -> BrokerNode:
        servers = json.dumps([self._seen_from(name, at)._asdict() for at in range(len(self._engine))])
        scheme = "http" if self._tls is None else "https"
        advertised = f"{scheme}://127.0.0.1:{port if self._links is None else self._links.link(ANYBODY, name, port)}"
        mine = f"node: {name}, advertise: '{advertised}', key: '{self.key}', {self._settings}"
        tcp = {name: self._ports.enter_context(held_port()) for name in self._formats}
        listens = f"frontends: {json.dumps({name: {'port': at} for name, at in tcp.items()})}\n" if tcp else ""
        config = f"cluster: {{space: {self.space}, engine: {servers}, {mine}}}\n{more}{listens}"
        node = BrokerNode(directory, name, port, config, queues, self._tls)
        node.tcp = tcp
        node.advertised = advertised
        return node

    def _seen_from(self, name: str, at: int) -> EngineServer:
        """Where a node finds a server."""
        server = self._engine[at]
        if self._links is None or HOSTS[at] == name:
            return server
        host, _, port = server.url.rpartition(":")
        return server._replace(url=f"{host}:{self._links.link(name, HOSTS[at], int(port))}")

    def bear(self) -> None:
        """Make the stream, with a log of its own."""
        bear(self.space, self._engine, self._engine_tls)

    def __enter__(self) -> Self:
        try:
            self.bear()
            for node in self.nodes:
                node.launch()
            self.leader_after(0, _BEGIN_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            if node.launched:
                node.pause(paused=False)
        self._end()

    def _end(self) -> None:
        for node in self.nodes:
            if node.launched:
                node.__exit__()
        self._ports.close()

    def leader_after(self, epoch: int, timeout_s: float = 120.0) -> BrokerNode:
        """Whoever leads, once that is somebody of a later epoch than this, and it serves."""

        def found() -> BrokerNode | None:
            leader = max(self.nodes, key=lambda node: node.epoch)
            return leader if leader.epoch > epoch and leader.runs and leader.serves() else None

        return eventually_blocking(found, lambda: f"a leader after {epoch}; {self.said()}", timeout_s)

    def request(
        self, method: str, path: str, body: bytes | dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """One request to whoever answers it. Raises ``OSError`` where nobody does."""
        refused: Reply | None = None
        for node in (self._asked, *self.nodes):
            try:
                reply = node.request(method, path, body, headers)
            except OSError:
                continue
            if reply.status != 503:
                self._asked = node
                return reply
            refused = reply
        if refused is None:
            raise OSError("no node answers")
        return refused

    def said(self) -> str:
        """The last lines of each."""
        return "\n".join(f"{node.name}:\n{node.output()[-1_000:]}" for node in self.nodes)
