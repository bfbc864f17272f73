"""The relay alone, between sockets: bytes, their order, half-closes, what it holds, and how it ends."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.relay import Relay, TcpRelay, Upstream
from syncbrok.space.budgets import Budgets
from tests.support.broker.process import held_port
from tests.support.polling import eventually

_DIAL_TIMEOUT_S = 60.0
"""long: what is asked here is what is passed on, and a machine that stands still for two seconds does not change it"""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Running:
    def __init__(self, bounds: Bounds, port: int) -> None:
        self.bounds, self.relay = bounds, Relay(bounds, _DIAL_TIMEOUT_S)
        self.upstream: Upstream | None = Upstream(1, "127.0.0.1", port)
        self.listener = TcpRelay(self.relay, "127.0.0.1", 0, lambda: self.upstream)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.ports[0])


@asynccontextmanager
async def relayed(serve: Serve, descriptors: int = 4_096) -> AsyncIterator[Running]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    running = Running(Bounds(Budgets.of(descriptors)), server.sockets[0].getsockname()[1])
    running.relay.start()
    await running.listener.start()
    async with server:
        try:
            yield running
        finally:
            await running.listener.stop()
            await running.relay.stop()
    await eventually(lambda: not running.bounds.descriptors.used, "all descriptors are given back")


async def echo_after_eof(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read())
    writer.write_eof()
    writer.close()


async def test_bytes_pass_in_order_and_so_does_the_end() -> None:
    """Nothing is lost, moved or added, of some MiB each way; who sends no more still gets the answer."""
    content = bytes(range(251)) * 20_000
    async with relayed(echo_after_eof) as running:
        reader, writer = await running.connect()
        writer.write(content)
        await writer.drain()
        writer.write_eof()
        async with asyncio.timeout(20):
            assert await reader.read() == content
        writer.close()
        await eventually(lambda: not running.relay.splices, "it has ended")


async def test_what_comes_while_it_is_dialled_goes_first() -> None:
    """And so does the client's end, which it may tell at once: nothing is moved or lost, however often."""
    async with relayed(echo_after_eof) as running:

        async def say(number: int) -> None:
            reader, writer = await running.connect()
            pieces = [b"%d.%d " % (number, at) for at in range(number % 7)]
            for piece in pieces:
                writer.write(piece)
                for _ in range(number % 3):
                    await asyncio.sleep(0)
            writer.write_eof()
            async with asyncio.timeout(20):
                assert await reader.read() == b"".join(pieces)
            writer.close()

        for first in range(0, 200, 40):  # all of them at once may take longer than a dial may, on a slow machine
            await asyncio.gather(*map(say, range(first, first + 40)))


async def test_who_does_not_read_is_not_sent_more() -> None:
    """Backpressure: a server that sends without end to a client that does not read is stopped after some buffers."""
    sent = 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            while True:
                writer.write(bytes(100_000))
                await writer.drain()
                sent += 100_000
        except ConnectionError:
            pass

    async with relayed(flood) as running:
        client = socket.create_connection(("127.0.0.1", running.listener.ports[0]))
        moved = (0, time.monotonic())

        def stands_still() -> bool:
            nonlocal moved
            if sent != moved[0]:
                moved = (sent, time.monotonic())
            return bool(sent) and time.monotonic() - moved[1] > 0.5

        await eventually(stands_still, "it has stopped sending")
        assert 0 < sent < 30_000_000
        client.close()
        await eventually(lambda: not running.relay.splices, "the client has gone")


async def test_it_ends_with_where_it_goes_to() -> None:
    """Another epoch, or nowhere: the client is cut off, and comes again."""

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        await reader.read()
        writer.close()

    async with relayed(wait) as running:
        for after in (lambda one: one._replace(epoch=2), lambda _: None):
            reader, writer = await running.connect()
            assert await reader.readexactly(4) == b"here"
            assert running.upstream is not None
            running.upstream = after(running.upstream)
            async with asyncio.timeout(5):
                assert await reader.read() == b""
            writer.close()


async def test_without_anybody_a_client_is_closed() -> None:
    """Nobody leads, or who does refuses connections."""
    async with relayed(echo_after_eof) as running:
        with held_port() as nobody:
            for upstream in (None, Upstream(1, "127.0.0.1", nobody)):
                running.upstream = upstream
                reader, writer = await running.connect()
                async with asyncio.timeout(5):
                    assert await reader.read() == b""
                writer.close()
        assert not running.relay.splices


async def test_each_splice_has_taken_two_descriptors() -> None:
    """INTERFACES 5: both ends count, and a crowd beyond what there is to share is closed."""
    async with relayed(echo_after_eof, descriptors=128) as running:
        clients = [await running.connect() for _ in range(100)]
        await eventually(lambda: running.relay.splices, "some are there")
        budget = running.bounds.descriptors
        await eventually(lambda: budget.used == 2 * running.relay.splices, "two for each that was let in")
        assert budget.used <= budget.total
        for _, writer in clients:
            writer.close()
        await eventually(lambda: not running.relay.splices, "all have ended")
