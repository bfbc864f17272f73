"""TCP frontends under a real Space, and the recorded sessions of the clients they must speak to.

``tests/wire/*.jsonl`` has a line for each piece that went over the network: connection, direction, bytes in hex, or the
end of what a side sent.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.over_tcp.session.first_use import FirstUse
from syncbrok.frontends.over_tcp.session.services import TcpServices
from syncbrok.model.message import CONSUMER_SCHEME, QueueSettings
from tests.support.space.spaces import Running, consumers_of, running_space

RECORDED = Path(__file__).parents[2] / "wire"
HOST = "127.0.0.1"
PATIENCE_S = 30.0


class Piece(NamedTuple):
    """What one side sent at once; ``data`` None: it sent no more."""

    connection: int
    from_client: bool
    data: bytes | None


def recorded(name: str) -> list[Piece]:
    """The pieces of a session, in order."""
    lines = (json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines())
    return [
        Piece(line["conn"], line["dir"].startswith("client"), bytes.fromhex(line["hex"]) if "hex" in line else None)
        for line in lines
    ]


def turns(pieces: list[Piece]) -> list[Piece]:
    """The same with what one side sent in several pieces, before the other said anything, as one."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last and last.data is not None and piece.data is not None and last[:2] == piece[:2]:
            joined[-1] = last._replace(data=last.data + piece.data)
        else:
            joined.append(piece)
    return joined


def split(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """At places that ``chance`` chooses; half of the time at every byte."""
    at = 0
    finest = chance.random() < 0.5
    while at < len(data):
        size = 1 if finest else chance.randint(1, len(data))
        yield data[at : at + size]
        at += size


class Client:
    """One connection to a frontend."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection(HOST, port))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self, size: int) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readexactly(size)

    async def rest(self) -> bytes:
        """Everything up to the end, or to where the connection is cut."""
        received = b""
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                while data := await self.reader.read(65_536):
                    received += data
        return received

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


HOW = ("as recorded", "glued", "split")
"""the client's pieces as they were, those between two answers as one, or cut anew at random"""


def said(pieces: list[Piece], connection: int, *, client: bool = False) -> bytes:
    """Everything one side of a connection sent in a session."""
    return b"".join(one.data for one in pieces if one.data and one[:2] == (connection, client))


async def play(pieces: list[Piece], port: int, how: str, chance: random.Random) -> dict[int, bytes]:
    """Be the clients of a session; what each received, which is as long as it was then, and ends where it ended."""
    clients: dict[int, Client] = {}
    received: dict[int, bytes] = {}
    for piece in pieces if how == "as recorded" else turns(pieces):
        number, from_client, data = piece
        if number not in clients:
            clients[number] = await Client.connect(port)
            received[number] = b""
        client = clients[number]
        if data is None and from_client:
            client.writer.write_eof()
        elif data is None:
            received[number] += await client.rest()
            await client.close()
        elif from_client:
            for part in split(data, chance) if how == "split" else (data,):
                await client.send(part)
        else:
            received[number] += await client.receive(len(data))
    return received


class Replayed(NamedTuple):
    """A frontend beside a running Space."""

    running: Running
    frontend: Any
    services: TcpServices

    @property
    def port(self) -> int:
        port: int = self.frontend.listener.port
        return port


@asynccontextmanager
async def frontend_on(directory: Path, make: Callable[[TcpServices], Any], **journal: Any) -> AsyncIterator[Replayed]:
    """``make`` is given the services of a running Space; the frontend is started, and stopped before the Space ends."""
    async with running_space(directory, drain_s=0.1, **journal) as running:
        services = services_of(running)
        frontend = make(services)
        await frontend.start()
        try:
            yield Replayed(running, frontend, services)
        finally:
            await frontend.stop()


async def contents(running: Running, queue: str) -> list[bytes]:
    """Of all messages of a queue, in the order accepted."""
    found: list[bytes] = []
    after: int | None = 0
    while after is not None:
        page = await running.view.messages(queue, after, 1_000, None)
        found += [(await running.view.content(message.id)).content for message in page.items]
        after = page.next
    return found


def services_of(running: Running) -> TcpServices:
    """What a frontend is given of this Space, which delivers to those who come for their messages from now on."""
    space = running.space
    consumers = consumers_of(space)
    space.handle(CONSUMER_SCHEME, consumers)
    queues = FirstUse(space.channels, space.view, QueueSettings())
    return TcpServices(
        space.channels, space.view, queues, consumers, space.view.subscriber_number, Bounds(space.budgets)
    )
