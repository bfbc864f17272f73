"""The load generator: ``python -m syncbrok.bench.load '{...}'``, one JSON line out. A process of its own.

What is asked for: ``port``, ``path``, ``connections``, ``seconds`` or ``requests``, ``body`` (text) or ``stamped``
(each body begins with its time of sending, Unix nanoseconds), ``headers``, ``per_second`` (0: as fast as it goes).
"""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

import orjson
import uvloop

from syncbrok.bench.exchange import Asker, request


class Paced(Asker):
    """A connection that waits in ``free`` between two requests, and sends when told."""

    def __init__(
        self, next_request: Callable[[], bytes], answered: Callable[[int, float], None], free: "asyncio.Queue[Paced]"
    ) -> None:
        super().__init__(next_request, answered)
        self._free = free

    def send(self) -> None:
        super()._send()

    def _send(self) -> None:
        self._free.put_nowait(self)


async def generate(wish: dict[str, Any]) -> dict[str, Any]:
    """Send until the time is over or all requests are sent. Returns the result."""
    loop = asyncio.get_running_loop()
    port, path = wish["port"], wish["path"]
    body = wish.get("body", "").encode()
    prepared = request(path, port, body, wish.get("headers", ""))
    stamped = wish.get("stamped", False)
    left = wish.get("requests", 1 << 60)
    statuses: dict[int, int] = {}
    took_s: list[float] = []
    done = loop.create_future()
    began = time.perf_counter()
    ends = began + wish.get("seconds", 3_600.0)

    def next_request() -> bytes | None:
        nonlocal left
        if left <= 0 or time.perf_counter() >= ends:
            if not done.done():
                done.set_result(None)
            return None
        left -= 1
        return request(path, port, b"%d" % time.time_ns() + body, wish.get("headers", "")) if stamped else prepared

    def answered(status: int, seconds: float) -> None:
        statuses[status] = statuses.get(status, 0) + 1
        took_s.append(seconds)

    per_second = wish.get("per_second", 0)
    if per_second:
        await _paced(wish, per_second, ends, answered)
    else:
        for _ in range(wish["connections"]):
            await loop.create_connection(lambda: Asker(next_request, answered), "127.0.0.1", port)
        await done
    elapsed_s = time.perf_counter() - began
    took_s.sort()
    return {
        "requests": len(took_s),
        "seconds": elapsed_s,
        "per_second": len(took_s) / elapsed_s,
        "p50_ms": 1e3 * took_s[len(took_s) // 2] if took_s else None,
        "p99_ms": 1e3 * took_s[len(took_s) * 99 // 100] if took_s else None,
        "statuses": statuses,
    }


async def _paced(wish: dict[str, Any], per_second: float, ends: float, answered: Any) -> None:
    """One request at each tick, over connections that are free."""
    loop = asyncio.get_running_loop()
    free: asyncio.Queue[Paced] = asyncio.Queue()

    def stamped() -> bytes:
        body = b"%d" % time.time_ns() + wish.get("body", "").encode()
        return request(wish["path"], wish["port"], body, wish.get("headers", ""))

    for _ in range(wish["connections"]):
        await loop.create_connection(lambda: Paced(stamped, answered, free), "127.0.0.1", wish["port"])
    tick_at = time.perf_counter()
    while tick_at < ends:
        (await free.get()).send()
        tick_at += 1 / per_second
        await asyncio.sleep(max(0.0, tick_at - time.perf_counter()))
    for _ in range(wish["connections"]):
        await free.get()


def main() -> None:
    wish = orjson.loads(sys.argv[1])
    sys.stdout.buffer.write(orjson.dumps(uvloop.run(generate(wish)), option=orjson.OPT_NON_STR_KEYS) + b"\n")


if __name__ == "__main__":
    main()
