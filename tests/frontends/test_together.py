"""A message that enters by any frontend leaves by any other, parents first, and a crash loses nothing acknowledged.

Broken by hand to see these fail: a frontend whose subscriber is not durable; one that
acknowledges before it has written.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.broker.process import BrokerProcess
from tests.support.http.clients import Ways
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually
from tests.support.tcp import wire_clients

QUEUE = "orders"
TCP = ("framed", "topics", "multiplexed", "msgpack")
HTTP_IN = ("http", "original", "batch", "event", "events", "socket", "client")
HTTP_OUT = ("pull", "socket", "events", "client", "client_stream")
Publish = Callable[..., Awaitable[Any]]


def broker_with_all(storage: Path) -> tuple[BrokerProcess, dict[str, int]]:
    """A broker that serves every frontend, and their ports once it has started."""
    broker = BrokerProcess(storage, frontends=["framed", "topics", "multiplexed", "msgpack_bus"])
    return broker, broker.tcp


def publishers_port(ports: dict[str, int], name: str) -> int:
    """Where those publish that speak this format."""
    return ports[name if name in ports else "msgpack_bus.producer_port"]


def consumers_port(ports: dict[str, int], name: str) -> int:
    """Where those come for messages that speak this format."""
    return ports[name if name in ports else "msgpack_bus.consumer_port"]


def entrances(ways: Ways, ports: dict[str, int]) -> dict[str, Publish]:
    """Each publishes one content in ``orders`` and returns when it is durable; those over HTTP can name parents."""

    def over(name: str) -> Publish:
        publish = getattr(wire_clients, f"publish_{name}")
        return lambda content, *_: publish(publishers_port(ports, name), QUEUE, content)

    return {name: getattr(ways, f"publish_{name}") for name in HTTP_IN} | {name: over(name) for name in TCP}


def takes(ways: Ways, ports: dict[str, int], seen: dict[str, list[bytes]]) -> list[Coroutine[Any, Any, None]]:
    """Every consumer that comes for its messages, taking what there is until the end."""
    over_http = [getattr(ways, f"take_{name}")(seen[name]) for name in HTTP_OUT]
    return over_http + [
        getattr(wire_clients, f"take_{name}")(consumers_port(ports, name), QUEUE, seen[name]) for name in TCP
    ]


@asynccontextmanager
async def exits(ways: Ways, ports: dict[str, int], seen: dict[str, list[bytes]]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(take) for take in takes(ways, ports, seen)]
        yield
        for task in tasks:
            task.cancel()


async def find(session: aiohttp.ClientSession, broker: BrokerProcess, content: bytes) -> str:
    """The id of the newest message with this content."""
    async with session.get(f"{broker.url}/v1/queues/{QUEUE}/messages?limit=1000") as answer:
        messages = (await answer.json())["messages"]
    for message in reversed(messages):
        async with session.get(f"{broker.url}/v1/messages/{message['id']}/content") as answer:
            if await answer.read() == content:
                return str(message["id"])
    raise AssertionError(f"{content!r} was not accepted")


async def test_in_by_any_out_by_any_parents_first(tmp_path: Path) -> None:
    """DESIGN 1, causal, INTERFACES 3 and 4: what is published over one frontend is delivered over all of them, and a
    child comes after its parent wherever either came in: every pair of ways in, at every way out."""
    broker, ports = broker_with_all(tmp_path / "storage")
    ways = Ways(broker, QUEUE)
    with Recorder() as webhook, broker:
        broker.request("POST", "/v1/queues", {"name": QUEUE})
        broker.request("POST", f"/v1/queues/{QUEUE}/subscribers", {"endpoint": webhook.url})
        seen: dict[str, list[bytes]] = {name: [] for name in (*HTTP_OUT, *TCP)}
        async with exits(ways, ports, seen), aiohttp.ClientSession() as session:
            subscribers = f"/v1/queues/{QUEUE}/subscribers"
            wanted = len(seen)  # the webhook is one more, the reader of events is none
            everybody = lambda: len(broker.request("GET", subscribers).json()["subscribers"]) == wanted  # noqa: E731
            await eventually(everybody, "all consumers are there")
            family: dict[bytes, bytes] = {}
            publish = entrances(ways, ports)
            for above in publish:
                parent = f"parent by {above}".encode()
                await publish[above](parent)
                id_ = await find(session, broker, parent)
                for below in HTTP_IN:
                    child = f"child by {below} of {above}".encode()
                    await publish[below](child, [id_])
                    family[child] = parent
            everything = {*family, *family.values()}
            everywhere = lambda: all(everything == set(contents) for contents in seen.values())  # noqa: E731
            await eventually(everywhere, "all of it arrives everywhere", timeout_s=60)
        seen["webhook"] = [request.body for request in webhook.wait_for(len(everything))]
    for name, contents in seen.items():
        for child, parent in family.items():
            assert contents.index(parent) < contents.index(child), (name, child)


async def test_a_crash_in_the_middle_loses_nothing(tmp_path: Path, seed: int) -> None:
    """DESIGN 1, durable and at least once: kill -9 while all frontends publish and take. What was durable (a living
    broker has answered, or closed a TCP peer's connection) is received over every frontend that keeps messages for
    absent consumers, or can be read from the beginning."""
    chance = random.Random(seed)
    broker, ports = broker_with_all(tmp_path / "storage")
    ways = Ways(broker, QUEUE, give_up_s=0.3)
    keeping = [name for name in (*HTTP_OUT, *TCP) if name != "topics"]
    seen: dict[str, list[bytes]] = {name: [] for name in (*HTTP_OUT, *TCP)}
    durable: set[bytes] = set()
    with broker:
        broker.request("POST", "/v1/queues", {"name": QUEUE, "retry": ["0s"] * 20})
        for round_ in range(3):
            enough = 40 + chance.randint(0, 60)
            with_consumers = [asyncio.create_task(take) for take in takes(ways, ports, seen)]
            publishers = [
                asyncio.create_task(_publish_until_cut(broker, publish, f"{round_} {name}", durable))
                for name, publish in entrances(ways, ports).items()
            ]
            before = len(durable)
            await eventually(lambda: len(durable) >= before + enough, "messages are published", timeout_s=60)  # noqa: B023
            broker.kill()
            await asyncio.gather(*publishers)
            for task in with_consumers:
                task.cancel()  # those of the client would wait for the broker
            await asyncio.gather(*with_consumers, return_exceptions=True)
            broker.start()
        async with exits(ways, ports, seen):
            missing = lambda: {name: durable - set(seen[name]) for name in keeping}  # noqa: E731
            await eventually(lambda: not any(missing().values()), "nothing is missing", timeout_s=60)


async def _publish_until_cut(broker: BrokerProcess, publish: Publish, name: str, durable: set[bytes]) -> None:
    number = 0
    try:
        while True:
            content = f"{name} {number}".encode()
            await publish(content)
            if broker.process.poll() is not None:
                return  # a crash closes connections too
            durable.add(content)
            number += 1
    except (OSError, EOFError):
        pass
