"""What a leader says of its cluster over HTTP, how it gives way, and what it answers while it cannot tell whether it
leads."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from syncbrok.frontends.over_http.resources.cluster import routes
from tests.support.cluster.followers import SomeNode
from tests.support.http.api import Api, Serve
from tests.support.space.fake_space import FakeSpace
from tests.support.space.spaces import running_space


@dataclass
class HeldLease:
    """As long as the test says."""

    epoch: int = 3
    held: bool = True

    def holds(self) -> bool:
        return self.held


@pytest.fixture
def node() -> SomeNode:
    return SomeNode(10_000)


@pytest.fixture
def stopped() -> list[str]:
    return []


@pytest.fixture
def lease() -> HeldLease:
    return HeldLease()


@pytest.fixture
async def api(
    tmp_path: Path, served: Serve, node: SomeNode, stopped: list[str], lease: HeldLease
) -> AsyncIterator[Api]:
    more = routes(node, lambda: stopped.append("asked"))
    async with (
        running_space(tmp_path) as running,
        served(running.space.channels, running.view, *more, lease=lease, leader_url="http://a:1") as api,
    ):
        assert (await api.post("/v1/queues", {"name": "q"})).status == 201
        yield api


async def test_it_says_who_is_there(api: Api) -> None:
    """The same members on any node."""
    found = (await api.get("/v1/cluster")).json()
    assert found["leader"] == {"node": "a", "url": "http://127.0.0.1:10000", "pid": 7}
    assert found["nodes"][0]["lag_records"] == 0
    assert set(found) == {"space", "epoch", "leader", "nodes", "engine"}


async def test_every_answer_names_the_leader(api: Api) -> None:
    """Of the short way, of a refusal on it, of aiohttp's, of no route, of a stream."""
    api.server.set_tokens(())
    for answer in (
        await api.publish("q", b"x"),
        await api.publish("nobody", b"x"),
        await api.get("/v1/queues/q"),
        await api.get("/nothing"),
        await api.get("/healthz"),
    ):
        assert answer.headers["Syncbrok-Leader"] == "http://a:1", answer


async def test_without_a_cluster_nobody_is_named(served: Serve) -> None:
    """A single node says nothing of leaders, and has no such route."""
    space = FakeSpace()
    async with served(space.channels, space) as api:
        await api.post("/v1/queues", {"name": "q"})
        for answer in (await api.publish("q", b"x"), await api.get("/v1/queues/q"), await api.get("/v1/cluster")):
            assert "Syncbrok-Leader" not in answer.headers
        assert answer.status == 404


@pytest.mark.parametrize(("body", "to"), [(None, ""), ({}, ""), ({"to": "b"}, "b")])
async def test_it_gives_way(api: Api, node: SomeNode, stopped: list[str], body: object, to: str) -> None:
    """The process is asked to end in good order; the answer comes first."""
    answer = await api.post("/v1/cluster/yield", body)
    assert (answer.status, answer.json()) == (202, {"to": to or None})
    assert (node.yielded, stopped) == ([to], ["asked"])


@pytest.mark.parametrize("body", [{"to": 5}, {"too": "b"}, b"[]", b"{"])
async def test_it_gives_way_to_nobody_by_mistake(api: Api, node: SomeNode, stopped: list[str], body: object) -> None:
    """A body that says something else changes nothing."""
    assert (await api.post("/v1/cluster/yield", body)).status == 400
    assert not node.yielded
    assert not stopped


async def test_who_led_last_is_not_taken_for_the_leader(
    api: Api, node: SomeNode, stopped: list[str], lease: HeldLease
) -> None:
    """202 says that whoever leads gives way. One that was starved may not know yet that another one does: that one
    would go on, and whoever waits for the next leader (`cluster yield`) would wait in vain."""
    lease.held = False
    (await api.post("/v1/cluster/yield", {})).problem(503, "no-quorum")
    assert not node.yielded
    assert not stopped


async def test_without_a_quorum_nothing_is_read(api: Api, lease: HeldLease) -> None:
    """While the lease does not hold, what is known may be old: reads answer 503 ``no-quorum``, and so does readiness.
    What is about the node itself is answered; publishes are decided by the log."""
    id_ = (await api.publish("q", b"x")).json()["id"]
    reads = ("/v1/queues", "/v1/queues/q", f"/v1/messages/{id_}", f"/v1/messages/{id_}/content")
    for path in reads:
        assert (await api.get(path)).status == 200
    lease.held = False
    for path in (*reads, "/readyz"):
        answer = await api.get(path)
        answer.problem(503, "no-quorum")
        assert answer.headers["Retry-After"] == "1"
    for path in ("/healthz", "/metrics", "/v1/cluster", "/openapi.json"):
        assert (await api.get(path)).status == 200, path
    assert (await api.publish("q", b"y")).status == 201
    # Another one may have been told of it since: who led last refuses nothing for want of it.
    (await api.publish("none", b"z")).problem(503, "no-quorum")
    (await api.post("/v1/queues/none/dead-letters/replay", {})).problem(503, "no-quorum")
    (await api.post("/v1/queues", {"name": "/"})).problem(400, "bad-name")
    lease.held = True
    (await api.publish("none", b"z")).problem(404, "unknown-queue")
    assert (await api.get("/readyz")).status == 200
