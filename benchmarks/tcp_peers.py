"""The other ends of the TCP rows, each a process of its own: ``python -m benchmarks.tcp_peers WHAT ...``.

send PORT COUNT CONNECTIONS     framed publishers: so many messages over so many connections; prints the seconds
take PORT COUNT CONNECTIONS     topics subscribers, each of a topic of its own, acknowledging; prints the seconds
drain PORT                      a server that reads and throws away: the ceiling of send
ping PORT                       a server that sends the next message for each acknowledgement: the ceiling of take
publish URL COUNT               the Python client; prints the seconds
"""

import asyncio
import json
import struct
import sys
import time
from typing import Final, cast

import uvloop

from benchmarks.load import content
from syncbrok.client import Client

_ACK: Final = struct.pack(">H", 4)
_HOST: Final = "127.0.0.1"
_PIECE: Final = 250
"""messages written at once"""


def frame(topic: str) -> bytes:
    """A framed publish."""
    name, data = topic.encode(), content()
    return struct.pack(">IBq", 9 + len(name) + len(data), 2, 1) + bytes((len(name),)) + name + b"\0" + data


def pushed(topic: str) -> bytes:
    """A message as a topics subscriber receives it."""
    name, data = topic.encode(), content()
    return struct.pack(">H", len(name)) + name + struct.pack(">Q", len(data)) + data


async def send(port: int, count: int, connections: int) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(_send(port, count // connections) for _ in range(connections)))
    return time.perf_counter() - began


async def _send(port: int, count: int) -> None:
    reader, writer = await asyncio.open_connection(_HOST, port)
    piece = frame("bench") * _PIECE
    for _ in range(count // _PIECE):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()
    await reader.read()  # the broker closes its side when all of it is durable
    writer.close()


class _Taker(asyncio.Protocol):
    """Acknowledges each message as it comes."""

    def __init__(self, topic: str, count: int, done: "asyncio.Future[None]") -> None:
        self._topic = topic
        self._count = count
        self._done = done
        self._size = len(pushed(topic))
        self._bytes = -2  # the answer to the subscription

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        listed = json.dumps([self._topic]).encode()
        self._transport.write(struct.pack(">HI", 1, len(listed)) + listed + struct.pack(">H", 0))

    def data_received(self, data: bytes) -> None:
        before = max(self._bytes, 0) // self._size
        self._bytes += len(data)
        whole = max(self._bytes, 0) // self._size
        if whole > before:
            self._transport.write(_ACK * (whole - before))
        if whole >= self._count and not self._done.done():
            self._done.set_result(None)


async def take(port: int, count: int, connections: int) -> float:
    loop = asyncio.get_running_loop()
    done = [loop.create_future() for _ in range(connections)]
    began = time.perf_counter()
    for number, one in enumerate(done):
        await loop.create_connection(lambda n=number, d=one: _Taker(f"bench{n}", count // connections, d), _HOST, port)  # type: ignore[misc]
    await asyncio.gather(*done)
    return time.perf_counter() - began


class _Drain(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def eof_received(self) -> None:
        self._transport.close()


class _Ping(asyncio.Protocol):
    """A topics server with nothing behind it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._message = b""

    def data_received(self, data: bytes) -> None:
        if not self._message:
            listed = json.loads(data[6:-2])
            self._message = pushed(listed[0])
            self._transport.write(struct.pack(">H", 1) + self._message)
        else:
            self._transport.write(self._message * (len(data) // len(_ACK)))


async def serve(port: int, protocol: type[asyncio.Protocol]) -> None:
    server = await asyncio.get_running_loop().create_server(protocol, _HOST, port)
    print("ready", flush=True)
    await server.serve_forever()


async def publish(url: str, count: int) -> float:
    text = content().decode()
    async with Client(url) as client:
        began = time.perf_counter()
        sent = [await client.post("bench", text) for _ in range(count)]
        for one in sent:
            await one.future
        return time.perf_counter() - began


def main(what: str, *given: str) -> None:
    if what == "drain":
        uvloop.run(serve(int(given[0]), _Drain))
    elif what == "ping":
        uvloop.run(serve(int(given[0]), _Ping))
    elif what == "publish":
        print(uvloop.run(publish(given[0], int(given[1]))))
    else:
        work = send if what == "send" else take
        print(uvloop.run(work(*map(int, given))))


if __name__ == "__main__":
    main(*sys.argv[1:])
