"""What the engine does at best, asked by nats-py alone, without Syncbrok: the ceiling of a cluster."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import nats

from syncbrok.cluster.engine import Engine, EngineServer

_SPACE: Final = "bench"
_SUBJECT: Final = f"sb.{_SPACE}.log"
_EXPECTED_LAST: Final = "Nats-Expected-Last-Sequence"
_TIMEOUT_S: Final = 10.0


def append_s(servers: Sequence[EngineServer], times: int, size_bytes: int) -> float:
    """Seconds that an append of so many bytes to a stream like that of a Space takes, one after the other, each behind
    the one before: all three servers of it are asked to fsync, two must have."""
    engine = Engine(_SPACE, servers)
    engine.connect()
    try:
        if engine.stream_state() is None:
            engine.make_stream()
        last = engine.state().last
    finally:
        engine.close()
    return asyncio.run(_append_s(servers, times, b"x" * size_bytes, last))


async def _append_s(servers: Sequence[EngineServer], times: int, body: bytes, last: int) -> float:
    client = await nats.connect([one.url for one in servers])
    try:
        context = client.jetstream(timeout=_TIMEOUT_S)
        began = time.perf_counter()
        for number in range(times):
            await context.publish(_SUBJECT, body, headers={_EXPECTED_LAST: str(last + number)})
        return (time.perf_counter() - began) / times
    finally:
        await client.close()


def read_mb_per_s(servers: Sequence[EngineServer], space: str = "main") -> float:
    """The whole stream of a Space, read as a follower does and thrown away."""
    engine = Engine(space, servers)
    engine.connect()
    try:
        size_bytes, last, began = 0, 0, time.perf_counter()
        while found := engine.read(last, _TIMEOUT_S):
            size_bytes += sum(len(one.body) for one in found)
            last = found[-1].sequence
        return size_bytes / 1e6 / (time.perf_counter() - began)
    finally:
        engine.close()
