"""Three brokers of one cluster beside an engine of three servers, each a process that is killed and started again."""

import json
import ssl
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from syncbrok.cluster.vault import make_key
from tests.support.nats_engine import NatsEngine, bear
from tests.support.polling import eventually_blocking
from tests.support.process import BrokerProcess, held_port

LEASE_S = 2.0


class BrokerTrio:
    """As a context manager all of them are ready inside; ``framed`` are ports of their framed listeners."""

    def __init__(self, directory: Path, more: str = "", tls: ssl.SSLContext | None = None) -> None:
        """``more``: of each one's configuration. ``tls``: with which they are asked, where that says that HTTP speaks
        TLS."""
        self._tls = tls
        self.headers: dict[str, str] = {}
        """with which each is asked for the cluster"""
        self._directory = directory
        self._more = more
        self._running = ExitStack()
        self.engine = NatsEngine(directory / "engine")
        self.brokers: dict[str, BrokerProcess] = {}
        self.framed: dict[str, int] = {}

    def __enter__(self) -> Self:
        with self._running as running:
            running.enter_context(self.engine)
            bear("main", self.engine.addresses)
            key = self._directory / "cluster.key"
            make_key(key)
            servers = [{"url": one.url, "monitor": one.monitor} for one in self.engine.addresses]
            for name in "abc":
                http, framed = (running.enter_context(held_port()) for _ in range(2))
                cluster = {
                    "node": name,
                    "engine": servers,
                    "advertise": f"http{'s' if self._tls else ''}://127.0.0.1:{http}",
                    "key": str(key),
                    "lease": f"{LEASE_S:g}s",
                }
                listens = {"framed": {"port": framed}}
                config = f"{self._more}cluster: {json.dumps(cluster)}\nfrontends: {json.dumps(listens)}\n"
                broker = BrokerProcess(self._directory / name, config=config, tls=self._tls)
                broker.port = http
                self.brokers[name], self.framed[name] = broker, framed
                running.enter_context(broker)
            self._running = running.pop_all()
        return self

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
