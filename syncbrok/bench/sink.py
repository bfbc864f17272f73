"""The subscriber and the bare server: ``python -m syncbrok.bench.sink [--log FILE]``. A process of its own.

It says its port, answers every POST with ``true``, and at the end of its standard input says how many there were and
how old the stamped ones were when they came. With ``--log`` it appends each body to the file and answers when that is
fsynced, many together: the least that a durable broker can do, and so the ceiling of publishing.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable

import aiofiles
import orjson
import uvloop

from syncbrok.bench.exchange import Answerer

_STAMP_DIGITS = 19


class Sink:
    """Counts, and keeps the ages of stamped bodies in milliseconds."""

    def __init__(self) -> None:
        self.count = 0
        self.ages_ms: list[float] = []

    def received(self, body: bytes) -> None:
        self.count += 1
        if body[:_STAMP_DIGITS].isdigit():
            self.ages_ms.append((time.time_ns() - int(body[:_STAMP_DIGITS])) / 1e6)

    def report(self) -> dict[str, float | int | None]:
        ages = sorted(self.ages_ms)
        return {
            "count": self.count,
            "p50_ms": ages[len(ages) // 2] if ages else None,
            "p99_ms": ages[len(ages) * 99 // 100] if ages else None,
        }


class GroupCommit:
    """Bodies to a file; one write and one fsync for all that gathered while the one before was under way."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DSYNC, 0o600)
        os.posix_fallocate(self._file, 0, 1 << 28)
        self._bodies: list[bytes] = []
        self._answers: list[Callable[[], None]] = []
        self._writing = False
        self._at = 0

    def add(self, body: bytes) -> None:
        self._bodies.append(body)

    def later(self, answer: Callable[[], None]) -> None:
        self._answers.append(answer)
        if not self._writing:
            self._writing = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        data, answers = b"".join(self._bodies), self._answers
        self._bodies, self._answers = [], []
        at, self._at = self._at, (self._at + len(data)) % (1 << 28)
        written = asyncio.get_running_loop().run_in_executor(None, os.pwrite, self._file, data, at)
        written.add_done_callback(lambda _: self._answer(answers))

    def _answer(self, answers: list[Callable[[], None]]) -> None:
        for answer in answers:
            answer()
        self._writing = bool(self._answers)
        if self._writing:
            self._write()


async def serve(log: str | None) -> None:
    """Until the standard input ends."""
    loop = asyncio.get_running_loop()
    sink = Sink()
    if log is None:
        server = await loop.create_server(lambda: Answerer(sink.received, None), "127.0.0.1", 0)
    else:
        commit = GroupCommit(log)

        def received(body: bytes) -> None:
            sink.received(body)
            commit.add(body)

        server = await loop.create_server(lambda: Answerer(received, commit.later), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await aiofiles.stdin.read()
    sys.stdout.buffer.write(orjson.dumps(sink.report()) + b"\n")
    sys.stdout.flush()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log")
    uvloop.run(serve(parser.parse_args().log))
    os._exit(0)  # connections that are still open are nobody's business any more


if __name__ == "__main__":
    main()
