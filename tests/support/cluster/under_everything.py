"""Everything that a broker can be asked (``everything_traffic``), asked of a cluster: where the one broker was killed
and started again, whoever leads is killed and another one takes over."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.support.broker.process import Reply, held_port
from tests.support.cluster.broker_nodes import BrokerNodes
from tests.support.cluster.judge import wrong_logs
from tests.support.cluster.nats_engine import NatsEngine
from tests.support.crash.everything_judge import broken
from tests.support.crash.everything_traffic import counts, life
from tests.support.crash.traffic import verified
from tests.support.polling import eventually_blocking

_FORMATS = ("framed", "multiplexed")


class ClusterAsBroker:
    """What ``life`` asks of a ``BrokerProcess``. Sockets and formats over TCP come to one node, leader or not."""

    def __init__(self, storage: Path, *, queues: str, frontends: list[str]) -> None:
        self.storage, self._queues = storage, queues
        assert set(frontends) == set(_FORMATS)

    def __enter__(self) -> Self:
        with ExitStack() as running:
            self.storage.mkdir()
            self._ports = {name: {one: running.enter_context(held_port()) for one in _FORMATS} for name in "abc"}
            engine = running.enter_context(NatsEngine(self.storage / "engine"))
            self.nodes = BrokerNodes(self.storage, engine.addresses, self._queues, more=self._listens)
            running.enter_context(self.nodes)
            self._running = running.pop_all()
        self._at = self.nodes.nodes[1]
        self.tcp = self._ports[self._at.name]
        return self

    def _listens(self, name: str) -> str:
        ports = ", ".join(f"{one}: {{port: {port}}}" for one, port in self._ports[name].items())
        return f"frontends: {{{ports}}}\n"

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def url(self) -> str:
        return self._at.url

    def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Reply:
        """See ``BrokerNodes``; whoever asks in vain asks again."""
        return self.nodes.request(method, path, body, headers)

    def kill(self) -> None:
        """Whoever leads."""
        self._killed = self.nodes.leader_after(0)
        self._killed.kill()

    def start(self) -> None:
        """Another one leads, and all run."""
        self.nodes.leader_after(self._killed.epoch)
        for node in self.nodes.nodes:
            if not node.runs:
                node.launch()

    def terminate(self) -> int:
        """Followers first; the worst of their exit codes."""
        eventually_blocking(lambda: all(node.runs and node.follows for node in self.nodes.nodes), self.nodes.said)
        leader = self.nodes.leader_after(0)
        return max(node.terminate() for node in sorted(self.nodes.nodes, key=lambda one: one is leader))

    def output(self) -> str:
        return self.nodes.said()


def everything_asked(directory: Path, seed: int, kills: int) -> tuple[str, list[str]]:
    """What was done, and what is wrong with it."""
    lived = life(directory / "cluster", seed, kills, made=ClusterAsBroker)
    places = {name: directory / "cluster" / name for name in "abc"}
    logs = {
        name: {path.name: path.read_bytes().rstrip(b"\0") for path in place.glob("[0-9]*.log")}
        for name, place in places.items()
    }
    wrong = [*broken(lived), *wrong_logs(logs)]
    wrong += [f"{name}: {what}" for name, place in places.items() for what in verified(place)]
    return f"{kills} kills of the leader, {counts(lived)}", wrong
