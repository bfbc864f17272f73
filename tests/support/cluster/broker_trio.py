"""``BrokerNodes`` and the engine beside them, for tests of what clients see of a cluster."""

import json
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.support.broker.process import held_port
from tests.support.certificates import Authority
from tests.support.cluster.broker_nodes import BrokerNode, BrokerNodes
from tests.support.cluster.nats_engine import HOSTS, NatsEngine
from tests.support.polling import eventually_blocking

_ANSWER_S = 70.0


class BrokerTrio:
    """As a context manager all of them are ready inside; ``framed`` are ports of their framed listeners."""

    def __init__(
        self,
        directory: Path,
        more: str = "",
        tls: ssl.SSLContext | None = None,
        keep: str = "retention",
        cluster: Mapping[str, str] = {},
        authority: Authority | None = None,
    ) -> None:
        """``more``: of each one's configuration; ``cluster``, and ``keep``: of its section. ``tls``: with which they
        are asked, where ``more`` says that HTTP speaks TLS. ``authority``: of the engine's certificates."""
        self._tls = tls
        self._cluster = {"keep": keep, **cluster}
        self.headers: dict[str, str] = {}
        """with which each is asked for the cluster"""
        self._directory = directory
        self._more = more
        self._running = ExitStack()
        self.engine = NatsEngine(directory / "engine", authority=authority)
        self.space = ""
        """theirs in the engine, once they run"""
        self.brokers: dict[str, BrokerNode] = {}
        self.framed: dict[str, int] = {}

    def __enter__(self) -> Self:
        with self._running as running:
            running.enter_context(self.engine)
            self.framed = {name: running.enter_context(held_port()) for name in HOSTS}
            nodes = BrokerNodes(
                self._directory,
                self.engine.addresses,
                more=self._configured,
                tls=self._tls,
                cluster=self._cluster,
                engine_tls=self.engine.servers[0].tls,
            )
            self.space, self.brokers = nodes.space, {node.name: node for node in nodes.nodes}
            for node in nodes.nodes:
                node.answer_s = _ANSWER_S
            running.enter_context(nodes)
            eventually_blocking(lambda: all(node.serves() for node in nodes.nodes), nodes.said)
            self._running = running.pop_all()
        return self

    def _configured(self, name: str) -> str:
        return f"{self._more}frontends: {json.dumps({'framed': {'port': self.framed[name]}})}\n"

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def status(self, name: str) -> Any:
        """What a node says of the cluster."""
        return self.brokers[name].request("GET", "/v1/cluster", None, self.headers).json()

    def leader(self) -> str:
        """Whom all that run agree about."""

        def agreed() -> str:
            try:
                found = {self._leader_of(name) for name, one in self.brokers.items() if one.process.poll() is None}
            except OSError:
                return ""
            return found.pop() if len(found) == 1 else ""

        return eventually_blocking(agreed, "they agree who leads")

    def _leader_of(self, name: str) -> str:
        leader = self.status(name)["leader"]
        if leader is None:
            return ""
        process = self.brokers[leader["node"]].process
        return str(leader["node"]) if process.pid == leader["pid"] and process.poll() is None else ""

    def followers(self) -> list[str]:
        """All but the leader."""
        leader = self.leader()
        return [name for name in self.brokers if name != leader]
