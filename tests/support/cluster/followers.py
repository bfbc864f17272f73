"""A node that follows, whose leader is what the test says."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from typing import Any

from syncbrok.cluster.job_lease import LASTS_S, JobLease, JobPhase
from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.listening import ListenerTls
from syncbrok.frontends.over_http.follower_server import FollowerServer
from syncbrok.frontends.over_http.requests.connection import Limits
from syncbrok.frontends.over_http.requests.context import HttpOptions
from syncbrok.frontends.over_http.resources.log_archived import ArchivedSegments
from syncbrok.frontends.over_http.resources.log_segments import HeldSegment, ReadableLog
from syncbrok.frontends.relay import Relay, Upstream


def _after_a_lease() -> Callable[[], float]:
    """A clock of a node that has led for as long, when it is asked again."""
    return partial(next, chain([0.0], repeat(LASTS_S)))


@dataclass
class SomeNode:
    """Of a cluster. ``yielded``: whom it was told to give way to."""

    port: int = 0
    """of the leader; 0: there is none"""
    epoch: int = 1
    ready: bool = True
    yielded: list[str] = field(default_factory=list)
    held: list[HeldSegment] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    failing: Exception | None = None
    """what noting raises"""
    jobs: JobLease = field(default_factory=lambda: JobLease(_after_a_lease()))

    @property
    def leader_url(self) -> str:
        return f"http://127.0.0.1:{self.port}" if self.port else ""

    def upstream(self) -> Upstream | None:
        return Upstream(self.epoch, "127.0.0.1", self.port) if self.port else None

    def status(self) -> dict[str, Any]:
        leader = {"node": "a", "url": self.leader_url, "pid": 7} if self.port else None
        node = {"node": "b", "url": "http://b", "pid": 8, "role": "following", "sequence": 5, "lag_records": 0}
        return {"space": "main", "epoch": self.epoch, "leader": leader, "nodes": [node]}

    def metrics(self) -> bytes:
        return b"syncbrok_cluster_leader 0\n"

    def erased_before(self) -> int | None:
        return 0

    def held_segments(self) -> list[HeldSegment]:
        return self.held

    def held_segment(self, first: int) -> HeldSegment | None:
        return next((one for one in self.held if one.first == first), None)

    def readable(self) -> ReadableLog:
        return ReadableLog("00ff", max((one.last for one in self.held), default=0), self.held)

    def held_index(self, first: int) -> HeldSegment | None:
        return None

    def archived(self) -> ArchivedSegments:
        return ArchivedSegments("00ff", self.noted)

    def note_archived(self, asked: ArchivedSegments) -> int:
        if self.failing is not None:
            raise self.failing
        if asked.job:
            self.jobs.take(asked.job, JobPhase(asked.phase))
        new = [one for one in asked.lines if one not in self.noted]
        self.noted += new
        return len(new)

    def forget_archived(self) -> None:
        self.noted.clear()

    def yields_to(self, node: str) -> None:
        self.yielded.append(node)


@dataclass
class Follower:
    node: SomeNode
    server: FollowerServer
    relay: Relay
    bounds: Bounds


@asynccontextmanager
async def following(
    node: SomeNode, bounds: Bounds | None = None, tls: ListenerTls | None = None, **options: Any
) -> AsyncIterator[Follower]:
    """What such a node listens on, until the block ends; ``options`` are fields of ``HttpOptions``."""
    bounds = bounds or Bounds()
    given = HttpOptions(**{"port": 0, "machine_names": ("x",), **options})
    connections = bounds.connections(given.connections_max, given.connections_per_address_max)
    relay = Relay(bounds)
    relay.start()
    server = FollowerServer(given, Limits(given.headers_timeout_s, bounds, connections), node, relay, tls)
    try:
        async with server:
            yield Follower(node, server, relay, bounds)
    finally:
        await relay.stop()
        server.close()
