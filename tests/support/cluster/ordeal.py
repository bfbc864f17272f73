"""A cluster of three hosts, each with a server of the engine and a node, under families of messages: what is done to it
is the scenario's, what came of it the judge's (``judge``)."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from tests.support.broker.process import ROOT
from tests.support.cluster.broker_nodes import ANYBODY, BrokerNode, BrokerNodes
from tests.support.cluster.cut_links import CutLinks
from tests.support.cluster.judge import ClusterLife, Isolated, Stored, broken, counts
from tests.support.cluster.nats_engine import HOSTS, NatsEngine, NatsServer
from tests.support.cluster.stream_reader import stream_leader, stream_of
from tests.support.cluster.traffic import SUBSCRIBERS, FamilyPublisher, Home, Ledger, queues
from tests.support.crash.traffic import verified, waiting
from tests.support.http.webhook_receiver import WebhookReceiver
from tests.support.polling import eventually_blocking

FENCED: Final = 76
KILLED: Final = -9
_LOOK_S: Final = 0.1
_AGAIN_S: Final = 0.5
_SETTLE_S: Final = 300.0


class ClusterOrdeal:
    """As a context manager it runs inside, under traffic; a node that ends is started again, as its unit does, but
    those in ``held``."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        lease: str = "2s",
        more: str = "",
        apart: bool = False,
        publishers: int = 6,
        refused: float = 0.05,
        size_max: int = 200,
        tree: Path = ROOT,
        settle_s: float = _SETTLE_S,
    ) -> None:
        """``apart``: hosts reach each other by links that can be cut. ``more``: of each node's configuration. ``tree``:
        the project whose brokers run. ``settle_s``: for everything to be delivered in the end."""
        self.directory = directory
        self._settle_s = settle_s
        self.subscribers: dict[str, tuple[str, ...]] = dict(SUBSCRIBERS)
        """those that count, of each queue"""
        self.stream: list[Stored] = []
        """what it held in the end"""
        self.chance = random.Random(seed)
        self._lease, self._more, self._tree = lease, more, tree
        self._publishers_count, self._size_max = publishers, size_max
        self.links = CutLinks() if apart else None
        self.receiver = WebhookReceiver(directory / "attempts", refused)
        self.ledger = Ledger()
        self.held: set[str] = set()
        self.ended: list[tuple[str, int]] = []
        """each end of a node's process: name and exit code"""
        self.may_end = {KILLED, FENCED, 0}
        """exit codes that the scenario explains"""
        self.isolated: list[Isolated] = []
        self.done: Counter[str] = Counter()
        """what the scenario counts"""
        self.gaps_s: list[float] = []
        """from a blow until the next acknowledgement of what was sent after it"""
        self._publishers: list[FamilyPublisher] = []
        self._over = threading.Event()
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with self._running as running:
            if self.links is not None:
                running.enter_context(self.links)
            running.enter_context(self.receiver)
            self.engine = NatsEngine(self.directory / "engine", links=self.links)
            running.enter_context(self.engine)
            urls = {name: self.receiver.url(name) for names in SUBSCRIBERS.values() for name in names}
            declared = queues(urls)
            self.nodes = BrokerNodes(
                self.directory,
                self.engine.addresses,
                declared,
                self._lease,
                links=self.links,
                more=lambda _: self._more,
            )
            for node in self.nodes.nodes:
                node.tree = self._tree
            supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)
            supervisor.start()

            def leave_them() -> None:
                self._over.set()
                supervisor.join()

            running.callback(leave_them)  # where they do not come up
            running.enter_context(self.nodes)
            running.callback(leave_them)  # before they are killed
            running.callback(self._stop_publishers)
            self._running = running.pop_all()
        self._publish()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    # -- traffic ------------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        homes = [Home(node.name, node.port, node.advertised) for node in self.nodes.nodes]
        for number in range(self._publishers_count):
            first = number % len(homes)
            at_home = [*homes[first:], *homes[:first]]
            seed = self.chance.randrange(1 << 30)
            self._publishers.append(FamilyPublisher(at_home, self.ledger, f"p{number}", seed, self._size_max))
            self._publishers[-1].start()

    def _stop_publishers(self) -> None:
        for one in self._publishers:
            one.stop()
        for one in self._publishers:
            one.join(_SETTLE_S)
            if one.is_alive():
                self.ledger.refused.append(f"{one.name} has no answer after {_SETTLE_S:g} s")
        self._publishers.clear()

    def storm(self, more: int = 60, timeout_s: float = _SETTLE_S) -> None:
        """Until so many more were acknowledged."""
        wanted = self.ledger.count + more
        eventually_blocking(
            lambda: self.ledger.count >= wanted or self.ledger.refused,
            lambda: f"{wanted} acknowledged, not {self.ledger.count}; {self.nodes.said()}",
            timeout_s,
        )

    def pause_s(self, seconds: float) -> None:
        """Time passes, for a fault that lasts."""
        self._over.wait(seconds)

    @contextmanager
    def gap(self, name: str) -> Iterator[None]:
        """Inside a blow is struck; how long nothing that was sent after it is acknowledged is noted."""
        yield
        struck_ns, at = time.monotonic_ns(), self.ledger.count
        self.done[name] += 1

        def acknowledged() -> int:
            return next((one.answered_ns for one in self.ledger.published[at:] if one.sent_ns > struck_ns), 0)

        found_ns = eventually_blocking(acknowledged, lambda: f"publishing again; {self.nodes.said()}", _SETTLE_S)
        self.gaps_s.append((found_ns - struck_ns) / 1e9)

    # -- who is who ---------------------------------------------------------------------------------------------------

    def leader(self) -> BrokerNode:
        return self.nodes.leader_after(0)

    def lead(self, node: BrokerNode) -> None:
        """Make it so."""

        def leads() -> bool:
            leader = self.leader()
            if leader is not node:
                with suppress(OSError):
                    self.nodes.request("POST", "/v1/cluster/yield", {"to": node.name})
                self.pause_s(1.0)
            return leader is node

        eventually_blocking(leads, lambda: f"{node.name} leads; {self.nodes.said()}", _SETTLE_S)

    def followers(self) -> list[BrokerNode]:
        leader = self.leader()
        return [node for node in self.nodes.nodes if node is not leader]

    def server_of(self, node: BrokerNode) -> NatsServer:
        """The server of the engine on its host."""
        return self.engine.servers[HOSTS.index(node.name)]

    def engine_leader(self) -> NatsServer:
        """The server that leads the stream."""

        def found() -> NatsServer | None:
            urls = [one.server.url for one in self.engine.servers if one.process is not None]
            try:
                name = stream_leader(self.nodes.space, urls)
            except Exception:  # noqa: BLE001 (of nats-py: nobody answers yet)
                return None
            return next((one for one in self.engine.servers if one.name == name), None)

        return eventually_blocking(found, "the stream has a leader", _SETTLE_S)

    # -- what is done to it -------------------------------------------------------------------------------------------

    @contextmanager
    def cut_off(self, node: BrokerNode) -> Iterator[None]:
        """Inside nothing goes between its host and the others. Subscribers and publishers are reached as before."""
        assert self.links is not None
        others = "".join(one for one in HOSTS if one != node.name) + ANYBODY
        self.links.isolate(node.name, others)
        from_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self.isolated.append(Isolated(node.name, from_ns, time.monotonic_ns()))
            self.links.mend()

    @contextmanager
    def cut_one_way(self, node: BrokerNode, *, inward: bool) -> Iterator[None]:
        """Inside nothing reaches its host from the others, or nothing from it reaches them."""
        assert self.links is not None
        for other in (*(one for one in HOSTS if one != node.name), ANYBODY):
            self.links.cut(*((other, node.name) if inward else (node.name, other)))
        try:
            yield
        finally:
            self.links.mend()

    @contextmanager
    def stopped(self, node: BrokerNode) -> Iterator[None]:
        """Inside its process is stopped."""
        node.pause(paused=True)
        try:
            yield
        finally:
            node.pause(paused=False)

    @contextmanager
    def down(self, node: BrokerNode) -> Iterator[None]:
        """Inside nobody starts it again."""
        self.held.add(node.name)
        try:
            yield
        finally:
            self.held.discard(node.name)

    def _supervise(self) -> None:
        seen: dict[str, int] = {}
        while not self._over.wait(_LOOK_S):
            for node in self.nodes.nodes:
                if node.name in self.held or not node.launched or node.runs:
                    continue
                if seen.get(node.name) != node.process.pid:
                    seen[node.name] = node.process.pid
                    self.ended.append((node.name, int(node.process.returncode)))
                    continue  # a moment later
                if self._over.wait(_AGAIN_S):
                    return
                if node.name not in self.held and not node.runs:
                    node.launch()

    # -- the end ------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Everything runs again, and reaches everything."""
        if self.links is not None:
            self.links.mend()
        for server in self.engine.servers:
            if server.process is None or server.process.poll() is not None:
                server.start()
            else:
                server.pause(paused=False)
        for node in self.nodes.nodes:
            if node.runs:
                node.pause(paused=False)
        self.held.clear()

    def judged(self) -> tuple[str, list[str]]:
        """Heal it, let everything be delivered, end it: what was done, and what is wrong."""
        self.heal()
        self.storm(30, _SETTLE_S)
        self._stop_publishers()
        eventually_blocking(lambda: self._waiting() == 0, lambda: f"all delivered; {self.nodes.said()}", self._settle_s)
        eventually_blocking(lambda: self.level_nearly(0), lambda: f"all have all; {self.nodes.said()}", _SETTLE_S)
        self.stream = stream_of(self.nodes.space, [one.server.url for one in self.engine.servers])
        wrong = [*self.ledger.refused, *self._end()]
        life = ClusterLife(
            self.subscribers, self.ledger.published, self.receiver.attempts(), self.isolated, self.stream, self.logs()
        )
        wrong += broken(life)
        codes = Counter(code for _, code in self.ended)
        wrong += [f"a node ended with {code}, {n} times" for code, n in codes.items() if code not in self.may_end]
        found = {**self.done, **counts(life), "fenced": codes[FENCED]}
        told = ", ".join(f"{n} {what}" for what, n in found.items())
        if self.gaps_s:
            sorted_s = sorted(self.gaps_s)
            told += f"; gaps {sorted_s[len(sorted_s) // 2]:.1f} s median, {sorted_s[-1]:.1f} s at most"
        return told, wrong

    def _waiting(self) -> int:
        try:
            return waiting(self.nodes)
        except (OSError, KeyError):
            return -1

    def level_nearly(self, behind: int = 200) -> bool:
        """Each runs, and lacks no more than so many records that another has."""
        if not all(node.runs and node.follows for node in self.nodes.nodes):
            return False
        try:
            nodes = self.nodes.request("GET", "/v1/cluster").json()["nodes"]
        except OSError:
            return False
        return len(nodes) == len(HOSTS) and all(one["lag_records"] <= behind for one in nodes)

    def _end(self) -> list[str]:
        """Followers first, so that nobody takes over meanwhile."""
        leader = self.leader()
        self._over.set()
        wrong = []
        for node in sorted(self.nodes.nodes, key=lambda one: one is leader):
            code = node.terminate()
            wrong += [f"{node.name} ended with {code}: {node.output()[-1_000:]}"] if code else []
            wrong += [f"{node.name}: {what}" for what in verified(node.storage)]
        return wrong

    def logs(self) -> dict[str, dict[str, bytes]]:
        """The segments of each node; the zeros at an end are room that was taken before it was needed."""
        return {
            node.name: {path.name: path.read_bytes().rstrip(b"\0") for path in node.storage.glob("[0-9]*.log")}
            for node in self.nodes.nodes
        }
