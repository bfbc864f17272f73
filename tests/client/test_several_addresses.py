"""The client with the addresses of a cluster: it goes where the leader is, and to another node where one cannot.

Nodes that answer as a test wants them to show what is sent where; one real broker behind two ways, of which one is cut
or frozen, shows that nothing is lost and nothing is twice.

Broken by hand to see these fail: a token sent wherever a header says; a publish without a key repeated after silence;
a stream that begins anew at the next address; a pause before the next address.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from syncbrok.client import Client, Connection, Received, Refused, SyncClient, Unreachable
from syncbrok.client.connection import Broken, NoStream
from tests.support.broker.process import BrokerProcess
from tests.support.broker.ways import Way
from tests.support.certificates import Authority
from tests.support.cluster.nodes import Node
from tests.support.polling import eventually

DECLARE = "/v1/queues"


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    with ExitStack() as running:
        yield [running.enter_context(Node()) for _ in range(3)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "storage") as running:
        assert running.request("POST", "/v1/queues", {"name": "shop", "retry": ["0s", "0s", "0s"]}).status == 201
        yield running


@pytest.fixture
def ways(broker: BrokerProcess) -> Iterator[list[Way]]:
    with Way(broker.port) as one, Way(broker.port) as other:
        yield [one, other]


@pytest.fixture
async def client(ways: list[Way]) -> AsyncIterator[Client]:
    async with Client([way.url for way in ways], give_up_s=20) as connected:
        yield connected


def urls(nodes: list[Node]) -> list[str]:
    return [node.url for node in nodes]


def accepted(broker: BrokerProcess) -> int:
    return int(broker.request("GET", "/v1/queues/shop").json()["statistics"]["accepted"])


# -- where the leader is ----------------------------------------------------------------------------------------------


async def test_a_leader_is_asked_directly_from_the_next_request_on(nodes: list[Node]) -> None:
    """INTERFACES 7: the answer of one that follows names it; both clients, with the token."""
    follower, other, leader = nodes
    follower.leader = leader.leader = leader.url
    async with Client(urls(nodes), "secret") as client:
        await client.declare("shop")
        for number in range(3):
            await client.publish("shop", f"{number}")
    assert (follower.paths(), other.paths()) == ([DECLARE], [])
    assert [(one.path, one.token) for one in leader.asked] == 3 * [("/v1/queues/shop/messages:batch", "Bearer secret")]
    with Connection(urls(nodes), "secret") as connection:
        for _ in range(3):
            assert connection.request("GET", DECLARE).status == 200
    assert (len(follower.asked), len(leader.asked)) == (2, 5)


async def test_a_token_goes_nowhere_that_was_not_given(nodes: list[Node], tmp_path: Path) -> None:
    """INTERFACES 7, who may speak: what a node says over TLS is followed to another that shows a certificate, never
    into the clear; and a redirection never."""
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.signs("node").both)
    clear = nodes[0]
    with Node(context) as given, Node(context) as named:
        given.leader = clear.url
        async with Client(given.url, "secret", tls=authority.client()) as client:
            for _ in range(2):
                await client.declare("shop")
            assert (len(given.asked), clear.asked) == (2, [])
            given.leader = named.url
            for _ in range(2):
                await client.declare("shop")
            assert (len(given.asked), len(named.asked)) == (3, 1)
            named.status, named.location = 307, clear.url + DECLARE
            with pytest.raises(Refused) as refused:
                await client.declare("shop")
            assert refused.value.status == 307
        given.leader = clear.url
        with Connection(given.url, "secret", tls=authority.client()) as connection:
            for _ in range(2):
                connection.request("GET", DECLARE)
    assert clear.asked == []


async def test_a_socket_follows_no_redirection(nodes: list[Node]) -> None:
    """INTERFACES 7, who may speak: no more than any other request."""
    nodes[0].status, nodes[0].location = 302, nodes[1].url
    async with Client(nodes[0].url, "secret") as client:

        @client.stream("shop")
        async def never(_: Received) -> None:
            raise AssertionError

        running = asyncio.create_task(client.run())
        await eventually(lambda: len(nodes[0].asked) == 2, "it has come back")
        client.stop()
        await running
    assert nodes[1].asked == []


async def test_a_leader_that_cannot_be_reached_from_here_costs_one_try(nodes: list[Node]) -> None:
    """INTERFACES 7: nodes may call each other by names that lead nowhere from here; they relay, and that is taken."""
    follower, _, gone = nodes
    follower.leader = gone.url
    gone.end()
    async with Client([follower.url]) as client:
        for number in range(5):
            await client.publish("shop", f"{number}")
    with Connection(follower.url) as connection:
        assert [connection.request("GET", DECLARE).status for _ in range(5)] == [200] * 5
    assert len(follower.asked) == 10


# -- where one cannot -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["no-leader", "no-quorum", "draining", "crowded"])
async def test_a_node_that_cannot_now_makes_way_for_the_next(nodes: list[Node], problem: str) -> None:
    """INTERFACES 7: without a pause, for a publish without a key too, since such a node has kept nothing; then the one
    that could is asked first."""
    nodes[0].says(problem, retry_after="100")
    nodes[1].end()
    async with Client(urls(nodes), idempotent=False, give_up_s=5) as client:
        for _ in range(2):
            await client.publish("shop", "x")
    assert (len(nodes[0].asked), len(nodes[2].asked)) == (1, 2)
    with Connection(urls(nodes), timeout_s=5) as connection:
        for _ in range(2):
            assert connection.request("POST", DECLARE, b"{}").status == 200
    assert (len(nodes[0].asked), len(nodes[2].asked)) == (2, 4)


async def test_while_none_leads_all_are_asked_again(nodes: list[Node]) -> None:
    """INTERFACES 7: an election takes seconds; who has the time waits for its end, and is told the last answer where
    the time is over."""
    for node in nodes:
        node.says("no-leader")
    async with Client(urls(nodes), give_up_s=2) as client:
        with pytest.raises(Unreachable, match="it is no-leader") as told:
            await client.declare("shop")
        assert all(node.url in str(told.value) for node in nodes)
    with Connection(urls(nodes), timeout_s=3) as connection:
        assert connection.request("POST", DECLARE, b"{}").status == 503
        with pytest.raises(NoStream):
            list(connection.lines("/stream"))

    async def elect() -> None:
        before = len(nodes[2].asked)
        await eventually(lambda: len(nodes[2].asked) > before, "all were asked")
        nodes[1].serves()

    async with Client(urls(nodes), give_up_s=20) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(elect())
        await client.declare("shop")
    nodes[1].says("no-leader")
    with Connection(urls(nodes), timeout_s=20) as connection:
        electing = asyncio.create_task(elect())
        assert (await asyncio.to_thread(connection.request, "POST", DECLARE, b"{}")).status == 200
        await electing


async def test_a_silent_node_leaves_time_for_the_others(nodes: list[Node]) -> None:
    """INTERFACES 7: a frozen node takes its part of the time and no more; what changes nothing the second time goes to
    the next."""
    nodes[0].silent.set()
    began_s = time.monotonic()
    async with Client(urls(nodes[:2]), give_up_s=2) as client:
        for _ in range(3):
            await client.publish("shop", "x")
    assert len(nodes[0].asked) == 1
    assert nodes[0].asked[0].body == nodes[1].asked[0].body
    with Connection(urls(nodes[:2]), timeout_s=1) as connection:
        assert [connection.request("GET", DECLARE).status for _ in range(3)] == [200] * 3
    with Connection(urls(nodes[:2]), timeout_s=1) as connection:
        assert connection.request("POST", DECLARE, b"{}", {"Idempotency-Key": "k"}).status == 200
    with Connection(urls(nodes[:2]), timeout_s=1) as connection:
        assert connection.request("POST", DECLARE, b"{}", again=True).status == 200
    assert len(nodes[0].asked) == 4
    assert time.monotonic() - began_s < 20


async def test_what_may_have_been_kept_is_not_sent_to_another(nodes: list[Node]) -> None:
    """INTERFACES 3: no answer means unknown, and so does a log that has failed meanwhile: without a key the publisher
    is told, with several addresses as with one."""
    first, second, _ = nodes
    first.says("log-failed")
    for given in (first.url, urls([first, second])):
        async with Client(given, idempotent=False, give_up_s=5) as client:
            with pytest.raises(Unreachable, match="not known whether the broker has it"):
                await client.publish("shop", "x")
        with Connection(given, timeout_s=5) as connection:
            assert connection.request("POST", DECLARE, b"{}").status == 503
    async with Client(urls([first, second])) as client:
        await client.publish("shop", "x")
    assert (len(first.asked), len(second.asked)) == (5, 1)
    first.silent.set()
    with Connection(urls([first, second]), timeout_s=1) as connection, pytest.raises(Broken):
        connection.request("POST", DECLARE, b"{}")
    assert len(second.asked) == 1


async def test_an_answer_that_is_the_asker_s_to_mend_is_not_asked_elsewhere(nodes: list[Node]) -> None:
    """INTERFACES 7: only what another node may do better; a refusal or a full disk are the same everywhere."""
    for status, problem in ((404, "unknown-queue"), (507, "log-full"), (429, "overloaded"), (503, "log-unreadable")):
        nodes[0].status, nodes[0].problem = status, problem
        with Connection(urls(nodes)) as connection:
            assert connection.request("GET", DECLARE).status == status
    nodes[0].status = 404
    async with Client(urls(nodes)) as client:
        with pytest.raises(Refused):
            await client.declare("shop")
    assert nodes[1].asked == nodes[2].asked == []


def test_nobody_there_is_told_at_once(nodes: list[Node]) -> None:
    """CONTRIBUTING, errors: where no node answers there is no election to wait for."""
    for node in nodes:
        node.end()
    with Connection(urls(nodes), timeout_s=60) as connection, pytest.raises(ConnectionRefusedError):
        connection.request("GET", DECLARE)


# -- one broker, two ways ---------------------------------------------------------------------------------------------


async def test_a_batch_whose_answer_was_lost_is_published_once(
    broker: BrokerProcess, ways: list[Way], client: Client
) -> None:
    """RULES 4: the node that took it goes before it has answered; the batch is repeated at the next, with its keys."""
    ways[0].swallow = b'"ids"'
    published = await client.publish_many("shop", ["x"] * 700)
    assert (ways[0].swallow, ways[1].taken) == (b"", 1)
    assert len({one.id for one in published}) == accepted(broker) == 700


def test_what_may_be_asked_twice_is_asked_until_a_node_answers(broker: BrokerProcess, ways: list[Way]) -> None:
    """INTERFACES 7: where the leader goes each node breaks off what it had passed on to it. Another one leads soon, so
    all are asked again."""
    for way in ways:
        way.swallow = b'"id"'
    with Connection([way.url for way in ways], timeout_s=20) as connection:
        path = "/v1/queues/shop/messages"
        assert connection.request("POST", path, b"x", {"Idempotency-Key": "k"}).status == 200
    assert sum(way.taken for way in ways) == 3
    assert accepted(broker) == 1


async def test_without_keys_a_lost_answer_is_told(broker: BrokerProcess, ways: list[Way]) -> None:
    """INTERFACES 3: no answer means unknown; another address does not make it known."""
    ways[0].swallow = b'"ids"'
    async with Client([way.url for way in ways], idempotent=False) as client:
        with pytest.raises(Unreachable, match="not known whether"):
            await client.publish("shop", "x")
    assert (ways[1].taken, accepted(broker)) == (0, 1)


async def test_consumers_go_on_at_the_next_address(broker: BrokerProcess, ways: list[Way], client: Client) -> None:
    """INTERFACES 7: by pull, over a WebSocket with a group and without: each message that is accepted before and after
    the end of a node reaches each of them, and without a group the stream goes on behind its last."""
    declared = {"name": "watchers", "pull": True, "start": "beginning"}
    assert broker.request("POST", "/v1/queues/shop/subscribers", declared).status == 201
    seen: dict[str, list[str]] = {"workers": [], "watchers": [], "": []}

    async def saw(who: str, message: Received) -> None:
        seen[who].append(message.text())

    client.consumer("shop", group="workers")(lambda message: saw("workers", message))
    client.stream("shop", group="watchers", start="beginning")(lambda message: saw("watchers", message))
    client.stream("shop", start="beginning")(lambda message: saw("", message))
    running = asyncio.create_task(client.run())
    await client.publish_many("shop", [str(number) for number in range(10)])
    await eventually(lambda: all(len(set(some)) == 10 for some in seen.values()), "ten each")
    await asyncio.to_thread(ways[0].cut)
    after = await client.publish_many("shop", [str(number) for number in range(10, 20)])
    expected = [str(number) for number in range(20)]
    await eventually(lambda: all(set(some) == {*expected} for some in seen.values()), "twenty each")
    assert await client.wait(after[-1], 40) == "complete"
    assert seen[""] == expected
    client.stop()
    await running


async def test_a_stream_whose_node_is_full_goes_to_the_next(nodes: list[Node], ways: list[Way]) -> None:
    """INTERFACES 7: a node that answers a socket with 503, and one that is silent, make way as for any request."""
    nodes[0].says("no-leader")
    nodes[1].silent.set()
    seen: list[str] = []
    async with Client([nodes[0].url, nodes[1].url, ways[0].url], give_up_s=1.5) as client:

        @client.stream("shop", start="beginning")
        async def saw(message: Received) -> None:
            seen.append(message.text())
            client.stop()

        running = asyncio.create_task(client.run())
        async with Client(ways[1].url) as publisher:
            await publisher.publish("shop", "x")
        await running
    assert seen == ["x"]
    assert [len(node.asked) for node in nodes] == [1, 1, 0]


async def test_a_pull_leaves_a_frozen_node(ways: list[Way]) -> None:
    """INTERFACES 7: a node that holds the connection and says nothing is left after its time and that of the pull."""
    async with Client([way.url for way in ways], give_up_s=2) as client:
        assert await client.pull("shop", "workers", wait_s=0) == []
        ways[0].frozen = True
        await client.publish("shop", "x")
        assert [message.text() for message in await client.pull("shop", "workers", wait_s=1)] == ["x"]
        ways[0].frozen = False


def test_the_same_without_asyncio(ways: list[Way]) -> None:
    """INTERFACES 7: several addresses, the same words."""
    with SyncClient([way.url for way in ways]) as client:
        first = client.publish("shop", "first")
        ways[0].cut()
        second = client.publish("shop", "second", parents=[first])
        assert client.message(second)["parents"] == [first.id]


def test_lines_go_on_at_the_next_address(broker: BrokerProcess, ways: list[Way]) -> None:
    """INTERFACES 7: whoever reads events comes back with the last id at another address."""
    broker.request("POST", "/v1/queues/shop/messages", b"one")
    with Connection([way.url for way in ways]) as connection:
        begun = connection.lines("/v1/queues/shop/stream?start=beginning")
        seen = []
        while not seen or not seen[-1].startswith(b"data: "):
            seen.append(next(begun))
        ways[0].cut()
        with suppress(*Broken):  # or it ends
            list(begun)
        broker.request("POST", "/v1/queues/shop/messages", b"two")
        last = [int(line[4:]) for line in seen if line.startswith(b"id: ")][-1]
        data = next(line for line in connection.lines(f"/v1/queues/shop/stream?start={last + 1}") if b"data: " in line)
    assert b'"two"' in data
    assert ways[1].taken == 1
