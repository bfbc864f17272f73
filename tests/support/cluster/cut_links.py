"""TCP between hosts that can be cut, one way or both: a proxy for each link, all in a process of their own.

A link that is cut carries nothing and closes nothing, as a network that has lost its packets; what was under way goes
on when it is mended, as what TCP sends again does. ``python -m tests.support.cluster.cut_links`` is that process; it is
told on its standard input, a JSON list a line, what to do, and answers each.
"""

import asyncio
import json
import subprocess
import sys
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self, TextIO, cast

from tests.support.broker.process import ROOT

_PIECE_BYTES: Final = 1 << 16


class Link(NamedTuple):
    """Who dials ``port`` on loopback reaches ``to_port`` of host ``target``; ``source`` is the host that dials."""

    source: str
    target: str
    to_port: int
    port: int


class CutLinks:
    """The process. As a context manager it runs inside."""

    def __init__(self) -> None:
        self.links: list[Link] = []

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.cluster.cut_links"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for one in (self._process.stdin, self._process.stdout):
            cast("TextIO", one).close()

    def link(self, source: str, target: str, to_port: int) -> int:
        """The port of a new link; it listens."""
        port = int(self._tell("link", source, target, to_port))
        self.links.append(Link(source, target, to_port, port))
        return port

    def cut(self, source: str, target: str) -> None:
        """Nothing that ``source`` sends reaches ``target`` any more; the other way it does."""
        self._tell("cut", source, target)

    def isolate(self, host: str, others: str) -> None:
        """Between ``host`` and each of ``others`` nothing goes, either way."""
        for one in others:
            self.cut(host, one)
            self.cut(one, host)

    def mend(self) -> None:
        """Everything goes everywhere again."""
        self._tell("mend")

    def _tell(self, *words: object) -> str:
        stdin, stdout = cast("TextIO", self._process.stdin), cast("TextIO", self._process.stdout)
        stdin.write(json.dumps(words) + "\n")
        stdin.flush()
        return stdout.readline().strip()


class _Network:
    """What the process keeps. A way is (who sends, who receives)."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def way(self, source: str, target: str) -> asyncio.Event:
        if (source, target) not in self._open:
            self._open[source, target] = asyncio.Event()
            self._open[source, target].set()
        return self._open[source, target]

    def mend(self) -> None:
        for one in self._open.values():
            one.set()

    async def link(self, source: str, target: str, to_port: int) -> int:
        there, back = self.way(source, target), self.way(target, source)

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A dial needs both ways, and so does the end of one: neither is seen before.
            await there.wait()
            await back.wait()
            try:
                to_reader, to_writer = await asyncio.open_connection("127.0.0.1", to_port)
            except OSError:
                writer.transport.abort()
                return
            ways = ((reader, to_writer, there), (to_reader, writer, back))
            await asyncio.gather(*(_carry(*one) for one in ways))

        server = await asyncio.start_server(accepted, "127.0.0.1", 0, backlog=256)
        return int(server.sockets[0].getsockname()[1])


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: asyncio.Event) -> None:
    """All that comes, while the way is open."""
    with suppress(OSError):
        while data := await reader.read(_PIECE_BYTES):
            await way.wait()
            writer.write(data)
            await writer.drain()
    await way.wait()
    writer.close()


async def _run() -> None:
    network = _Network()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        what, *given = cast("list[Any]", json.loads(line))
        answer: object = "done"
        if what == "link":
            answer = await network.link(*given)
        elif what == "cut":
            network.way(*given).clear()
        else:
            network.mend()
        print(answer, flush=True)


if __name__ == "__main__":
    asyncio.run(_run())
