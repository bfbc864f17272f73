"""Clients of every frontend, as small as can be: each publishes contents, or takes a queue's messages one after the
other and keeps what it saw."""

import asyncio
import base64
import json
import struct
from collections.abc import Awaitable, Callable
from typing import Final

import msgpack

from tests.support.tcp.wire import Client

Publish = Callable[[int, str, bytes], Awaitable[None]]
Take = Callable[[int, str, list[bytes]], Awaitable[None]]
_PAUSE_S: Final = 0.02


def framed_frame(kind: int, topic: str, data: bytes, key: str = "") -> bytes:
    name, mark = topic.encode(), key.encode()
    head = struct.pack(">IBq", 9 + len(name) + len(mark) + len(data), kind, 1)
    return b"".join((head, bytes((len(name),)), name, bytes((len(mark),)), mark, data))


async def _send_all(port: int, data: bytes) -> None:
    """One connection; returns when the broker has closed its side: then all of it is durable."""
    client = await Client.connect(port)
    try:
        await client.send(data)
        client.writer.write_eof()
        await client.rest()
    finally:
        await client.close()


async def publish_framed(port: int, queue: str, content: bytes) -> None:
    await _send_all(port, framed_frame(2, queue, content))


async def publish_topics(port: int, queue: str, content: bytes) -> None:
    name = b"topic:" + queue.encode()
    await _send_all(port, struct.pack(">HH", 3, len(name)) + name + struct.pack(">I", len(content)) + content)


async def publish_multiplexed(port: int, queue: str, content: bytes) -> None:
    body = base64.b64encode(content).decode()
    written = json.dumps({"MessageType": "EPMessage", "Route": queue, "Type": "P2P", "Body": body, "StreamID": "p"})
    await _send_all(port, struct.pack("<I", len(written)) + written.encode())


async def publish_msgpack(port: int, queue: str, content: bytes) -> None:
    await _send_all(port, msgpack.packb({"Topic": queue, "Data": content}))


async def take_framed(port: int, queue: str, seen: list[bytes]) -> None:
    client = await Client.connect(port)
    try:
        while True:
            await client.send(framed_frame(3, queue, b""))
            length, kind, _ = struct.unpack(">IBq", await client.receive(13))
            rest = await client.receive(length - 9 + (2 if kind == 3 else 0))
            if kind == 3:
                key_at = 1 + rest[0]
                seen.append(rest[key_at + 1 + rest[key_at] :])
            else:
                await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=_PAUSE_S)
    finally:
        await client.close()


async def take_topics(port: int, queue: str, seen: list[bytes]) -> None:
    client = await Client.connect(port)
    listed = json.dumps([queue]).encode()
    try:
        await client.send(struct.pack(">HI", 1, len(listed)) + listed + struct.pack(">H", 0))
        assert await client.receive(2) == b"\0\1"
        while True:
            (length,) = struct.unpack(">H", await _patiently(client, 2))
            await client.receive(length)
            (length,) = struct.unpack(">Q", await client.receive(8))
            seen.append(await client.receive(length))
            await client.send(struct.pack(">H", 4))
    finally:
        await client.close()


async def take_multiplexed(port: int, queue: str, seen: list[bytes]) -> None:
    client = await Client.connect(port)
    written = json.dumps({"MessageType": "Queue", "Name": queue, "Type": "PUBSUB", "Durable": True, "StreamID": "s"})
    try:
        await client.send(struct.pack("<I", len(written)) + written.encode())
        while True:
            (length,) = struct.unpack("<I", await _patiently(client, 4))
            seen.append(base64.b64decode(json.loads(await client.receive(length))["Body"]))
    finally:
        await client.close()


async def take_msgpack(port: int, queue: str, seen: list[bytes]) -> None:
    while True:
        client = await Client.connect(port)
        try:
            await client.send(queue.encode() + b"\n")
            seen += (await client.rest()).splitlines()
        finally:
            await client.close()


async def _patiently(client: Client, size: int) -> bytes:
    """Until something comes, however long."""
    return await client.reader.readexactly(size)
