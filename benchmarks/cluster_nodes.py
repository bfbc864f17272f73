"""A cluster that is measured: what ``syncbrok cluster demo`` runs, three servers of the engine and three brokers, each
a process, on loopback; and who of them is what at the moment."""

import json
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from benchmarks.log_end import LogEnd
from benchmarks.processes import Failed, Serving, answers, free_ports
from syncbrok.cluster.engine import EngineServer
from syncbrok.cluster.local_cluster import NAMES, LocalCluster, LocalProcess

_WITHIN_S: Final = 120.0
_POLL_S: Final = 0.02
_MEND_POLL_S: Final = 0.2
_DRAIN_S: Final = 60.0
_STREAM: Final = "SB_main"


class Leader(Serving):
    """The node that leads, as a broker that is loaded and asked directly."""

    def __init__(self, name: str, port: int, pid: int) -> None:
        super().__init__()
        self.name = name
        self.port = port
        self._pid = pid

    @property
    def pid(self) -> int:
        """See ``Serving``."""
        return self._pid


class Replicas(NamedTuple):
    """Of the stream: which server leads it, and whether both others have all of it."""

    leader: str
    current: bool


class ClusterNodes:
    """As a context manager it is whole inside: one leads, two follow, and the engine has its three replicas. Nothing
    that has ended is started again but by ``mend``."""

    def __init__(self, folder: Path, lease: str = "3s") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        queues = folder / "queues.yml"
        queues.write_text("queues: {}\n")
        self._said: list[str] = []
        self.local = LocalCluster(folder, free_ports(len(NAMES)), self._said.append, lease, queues)

    def __enter__(self) -> Self:
        try:
            self.local.__enter__()
        except OSError as error:
            raise Failed(f"the cluster did not start: {error}") from error
        try:
            self.mend()
        except BaseException:
            self.local.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.local.stop()

    # -- its parts ----------------------------------------------------------------------------------------------------

    def broker(self, name: str) -> LocalProcess:
        return self.local.brokers[NAMES.index(name)]

    def server(self, name: str) -> LocalProcess:
        """Of the engine, on the host of the broker of that name."""
        return self.local.servers[NAMES.index(name)]

    def log_end(self, name: str) -> LogEnd:
        return LogEnd(self.log(name))

    def log(self, name: str) -> Path:
        return self._folder / name / "log"

    @property
    def engine(self) -> list[EngineServer]:
        told = json.loads(self.local.config(NAMES[0]).read_text())["cluster"]["engine"]
        return [EngineServer(**one) for one in told]

    def status(self) -> dict[str, Any]:
        return self.local.status() or {"leader": None, "nodes": [], "engine": [], "epoch": 0}

    def leader(self) -> Leader:
        """Raises ``Failed`` where nobody leads within two minutes."""
        found: list[Leader] = []

        def leads() -> bool:
            told = self.status()["leader"]
            name = told["node"] if told else ""
            process = self.broker(name).process if name else None
            if process is None or told["pid"] != process.pid:
                return False
            leader = Leader(name, self.local.ports[NAMES.index(name)], process.pid)
            found.append(leader)
            return answers(leader.port, "/readyz")

        self.wait_for(leads, "a node leads")
        return found[-1]

    def followers(self) -> list[str]:
        """Names of all but the leader."""
        leader = self.leader().name
        return [name for name in NAMES if name != leader]

    def replicas(self) -> Replicas:
        """As the engine's own monitor says; ``current`` false where nobody does."""
        for server in self.engine:
            try:
                with urllib.request.urlopen(f"{server.monitor}/jsz?accounts=1&streams=1", timeout=5) as answer:
                    told = json.load(answer)
            except (OSError, ValueError):
                continue
            for account in told.get("account_details") or ():
                for stream in account.get("stream_detail") or ():
                    cluster = stream.get("cluster") or {}
                    if stream.get("name") == _STREAM and cluster.get("leader") == told.get("server_name", ""):
                        return _replicas(cluster)
                    if stream.get("name") == _STREAM and cluster.get("leader"):
                        found = _replicas(cluster)
                        if found.current:
                            return found
        return Replicas("", current=False)

    # -- what is done to it -------------------------------------------------------------------------------------------

    def mend(self) -> None:
        """Start what has ended, and wait until all of it is there: one leads, two follow and have what it has, the
        stream has its three replicas. Raises ``Failed``."""

        def whole() -> bool:
            self.local.check()
            running = [one.process for one in (*self.local.brokers, *self.local.servers)]
            if None in running:
                return False
            status = self.status()
            pids = {one["node"]: one["pid"] for one in status["nodes"]}
            wanted = {name: process.pid for name, process in zip(NAMES, running, strict=False) if process is not None}
            roles = sorted(one["role"] for one in status["nodes"])
            if pids != wanted or roles != ["following", "following", "leading"]:
                return False
            return self.replicas().current

        self.wait_for(whole, "the cluster is whole", _MEND_POLL_S)
        self.wait_until_alike()

    def wait_for(self, holds: Callable[[], bool], what: str, every_s: float = _POLL_S) -> None:
        """Raises ``Failed`` with what the cluster has said meanwhile."""
        until_s = time.monotonic() + _WITHIN_S
        while not holds():
            if time.monotonic() > until_s:
                raise Failed(f"after {_WITHIN_S:g} s it is still not so that {what}; {'; '.join(self._said[-5:])}")
            time.sleep(every_s)

    def stop_followers(self) -> None:
        """Only the leader runs from now on, beside the whole engine."""
        for name in self.followers():
            self.broker(name).stop(_DRAIN_S)

    def wait_until_alike(self) -> None:
        """Until the files of every node that runs have all that the leader's have now."""
        wanted = self.log_end(self.leader().name).look()
        ends = [self.log_end(name) for name in NAMES if self.broker(name).process is not None]
        self.wait_for(lambda: all(one.look() >= wanted for one in ends), "all have what the leader has")

    @contextmanager
    def resting(self) -> Iterator[None]:
        """The followers are stopped (SIGSTOP) inside: they look for news thirty times a second, which whatever else is
        measured would feel. What the leader and the engine do with nothing to do is a beat now and then."""
        running = [one.process for one in self.local.brokers if one.process is not None]
        leader = self.leader().pid
        for process in running:
            if process.pid != leader:
                process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in running:
                if process.pid != leader:
                    process.send_signal(signal.SIGCONT)
        self.wait_until_alike()


def _replicas(cluster: dict[str, Any]) -> Replicas:
    others = cluster.get("replicas") or []
    current = len(others) == len(NAMES) - 1 and all(one.get("current") and not one.get("offline") for one in others)
    return Replicas(cluster["leader"], current)
