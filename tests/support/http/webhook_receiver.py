"""Subscribers over HTTP in one process with one thread, so that all they see has one clock and one order.

``python -m tests.support.http.webhook_receiver FILE SHARE`` listens on a free port of 127.0.0.1, prints it, and refuses
a ``SHARE`` of the requests with 500. The first part of the path names the subscriber; ``crm`` closes its connection
after each answer, so that each attempt there has to dial, and there are always some that do. Each request is a line of
FILE: subscriber, id, epoch, when its first byte was read, when it was answered, whether well, digest, signatures,
replay. A line on its standard input is a new share.
"""

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Self, TextIO, cast

from tests.support.broker.process import ROOT
from tests.support.cluster.judge import Attempt, digest

_WELL: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_REFUSED: Final = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
_CLOSE: Final = b"Connection: close\r\n\r\n"
CLOSING: Final = "crm"


class WebhookReceiver:
    """The process. As a context manager it listens inside."""

    def __init__(self, file: Path, share: float = 0.05) -> None:
        self.file = file
        self._share = share

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.http.webhook_receiver", str(self.file), str(self._share)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._stream("stdout").readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for name in ("stdin", "stdout"):
            self._stream(name).close()

    def _stream(self, name: str) -> TextIO:
        return cast("TextIO", getattr(self._process, name))

    def url(self, subscriber: str) -> str:
        return f"http://127.0.0.1:{self.port}/{subscriber}"

    def refuse(self, share: float) -> None:
        """From now on this share is refused."""
        self._stream("stdin").write(f"{share}\n")
        self._stream("stdin").flush()
        self._stream("stdout").readline()

    def rows(self) -> list[list[str]]:
        """Of all requests until now, in the order of their answers."""
        self._stream("stdin").write("\n")
        self._stream("stdin").flush()
        self._stream("stdout").readline()
        return [line.split("\t") for line in self.file.read_text().splitlines()]

    def count(self, subscriber: str) -> int:
        """How many requests it got until now."""
        return sum(row[0] == subscriber for row in self.rows())

    def attempts(self) -> list[Attempt]:
        """What was seen until now, but for replays: those may come after what followed."""
        return [
            Attempt(row[0], row[1], int(row[2]), int(row[3]), int(row[4]), row[5] == "1", row[6])
            for row in self.rows()
            if not row[8]
        ]

    def replayed(self) -> set[str]:
        """What was acknowledged of a replay."""
        return {row[1] for row in self.rows() if row[8] and row[5] == "1"}


class _Requests(asyncio.Protocol):
    """One connection, whose requests come one after the other."""

    def __init__(self, out: TextIO, chance: dict[str, float]) -> None:
        self._out = out
        self._chance = chance
        self._data = bytearray()
        self._begun_ns = 0
        self._head: dict[str, str] = {}
        self._end = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self._data:
            self._begun_ns = time.monotonic_ns()
        self._data += data
        while self._whole():
            self._answer()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._head:  # broken off in the middle of its content
            self._write(0, well=False)

    def _whole(self) -> bool:
        if not self._head:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return False
            first, *lines = self._data[:end].decode("latin-1").split("\r\n")
            pairs = (line.partition(":") for line in lines)
            self._head = {":path": first.split(" ")[1]} | {name.lower(): value.strip() for name, _, value in pairs}
            self._body_at = end + 4
            self._end = self._body_at + int(self._head.get("content-length", "0"))
        return len(self._data) >= self._end

    def _answer(self) -> None:
        well = random.random() >= self._chance["refused"]
        now_ns = time.monotonic_ns()  # before the answer is written: nobody can know of it yet
        self._write(now_ns, well=well)
        answer = _WELL if well else _REFUSED
        if self._head[":path"] == f"/{CLOSING}":
            self._transport.write(answer[:-2] + _CLOSE)
            self._transport.close()
        else:
            self._transport.write(answer)
        del self._data[: self._end]
        self._head, self._begun_ns = {}, time.monotonic_ns()

    def _write(self, answered_ns: int, *, well: bool) -> None:
        head = self._head
        row = (
            head[":path"].split("/")[1],
            head.get("webhook-id", ""),
            head.get("syncbrok-epoch", "0"),
            self._begun_ns,
            answered_ns,
            int(well),
            digest(bytes(self._data[self._body_at : self._end])),
            len(head.get("webhook-signature", "").split()),
            head.get("syncbrok-replay", ""),
        )
        self._out.write("\t".join(map(str, row)) + "\n")


async def _listen(file: Path, share: float) -> None:
    loop = asyncio.get_running_loop()
    chance = {"refused": share}
    over = loop.create_future()
    with file.open("a") as out:
        server = await loop.create_server(lambda: _Requests(out, chance), "127.0.0.1", 0, backlog=1_024)
        print(server.sockets[0].getsockname()[1], flush=True)

        def told() -> None:
            line = sys.stdin.readline()
            if not line:
                over.set_result(None)
                return
            if line.strip():
                chance["refused"] = float(line)
            out.flush()
            print("done", flush=True)

        loop.add_reader(sys.stdin, told)
        await over
        server.close()


def _main(arguments: list[str]) -> Any:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_listen(Path(arguments[0]), float(arguments[1])))
    return uvloop.run(_listen(Path(arguments[0]), float(arguments[1])))


if __name__ == "__main__":
    _main(sys.argv[1:])
