"""Counts what a newcomer meets: ``python -m tools.house``. docs/architecture.md keeps the figures.

A real broker runs in this process under ``sys.setprofile``: one message is published over HTTP and delivered to a real
endpoint, then a parent is acknowledged and its child goes out. Counted are the functions of ``syncbrok`` that were
called meanwhile, the files they stand in, how often the call after a call stands in another file, and how often that
file had been left before; not what goes on all the time, whether there are messages or none (``_BESIDE``). The rest is
counted in the source.

Files are the same in each run, functions but for a few (a write in the thread or on the loop), moves are not: what is
due meanwhile (a timer, a second commit) passes the same functions again. Take the lowest of some runs.
"""

import ast
import asyncio
import itertools
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, Self, TypeVar

from syncbrok.cli.serve.broker import serve
from syncbrok.config import Config, load_config
from syncbrok.space.budgets import Budgets

T = TypeVar("T")
PACKAGE: Final = Path(__file__).parents[1] / "syncbrok"
_SETTLED_S: Final = 0.1
"""after the endpoint has answered: the record of the end is written and applied by then"""
_BESIDE: Final = frozenset({"PreallocatedFile._make", "Webhook._tick", "watch_loop"})
"""the next file of the log is written in a thread, and two tasks look at the time"""
_EVASIVE: Final = ("Of", "Those", "What", "Whatever", "Who", "Whoever", "Whom", "Whose")
"""words that a docstring's contract does not begin with"""


class Way(NamedTuple):
    """``back``: of the moves from file to file, those into one that had been left before."""

    files: int
    functions: int
    moves: int
    back: int


class Walker:
    """Notes calls while it is ``on``."""

    def __init__(self) -> None:
        self.on = False
        self.calls: list[tuple[str, str]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self.on and event == "call":
            code = frame.f_code
            if code.co_filename.startswith(str(PACKAGE)) and not _is_beside(frame):
                self.calls.append((code.co_filename, code.co_qualname))

    def way(self) -> Way:
        files = [file for file, _ in self.calls]
        moves = [(one, following) for one, following in itertools.pairwise(files) if one != following]
        left: set[str] = set()
        back = 0
        for one, following in moves:
            left.add(one)
            back += following in left
        return Way(len(set(files)), len(set(self.calls)), len(moves), back)


def _is_beside(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_qualname in _BESIDE:
            return True
        frame = frame.f_back
    return False


class Endpoint:
    """Acknowledges each request once ``go_on`` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.bodies: list[bytes] = []
        self.answers = asyncio.Semaphore(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                writer.close()
                return
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            self.bodies.append(await reader.readexactly(int(length.partition(b":")[2])))
            await self.go_on.wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            self.answers.release()


class Client:
    """One connection to the broker."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def post(self, path: str, body: bytes, *headers: str) -> bytes:
        lines = (f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{self._port}", f"Content-Length: {len(body)}", *headers)
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return await self._reader.readexactly(int(length.partition(b":")[2]))


async def walk(walker: Walker, endpoint: Endpoint, requests: int, work: Callable[[], Awaitable[object]]) -> Way:
    """What is called from ``work`` on until the endpoint has answered so many requests more, and a moment longer."""
    walker.calls.clear()
    walker.on = True
    await work()
    for _ in range(requests):
        await endpoint.answers.acquire()
    await asyncio.sleep(_SETTLED_S)
    walker.on = False
    return walker.way()


async def ways(walker: Walker, port: int) -> tuple[Way, Way]:
    """Of a message from its publish to the record of its end, and from a parent's acknowledgement to its child's."""
    endpoint = Endpoint()
    async with await asyncio.start_server(endpoint.serve, "127.0.0.1", 0) as server, Client(port) as client:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        json = "Content-Type: application/json"
        await client.post("/v1/queues", b'{"name": "q"}', json)
        await client.post("/v1/queues/q/subscribers", f'{{"name": "s", "endpoint": "{url}"}}'.encode(), json)
        async with Client(port) as publisher:
            for _ in range(3):  # so that connections are open and heads are known
                await publisher.post("/v1/queues/q/messages", b"warm")
                await endpoint.answers.acquire()
            await asyncio.sleep(_SETTLED_S)
            one = await walk(walker, endpoint, 1, lambda: publisher.post("/v1/queues/q/messages", b"one"))
            endpoint.go_on.clear()
            parent = await publisher.post("/v1/queues/q/messages", b"parent")
            id_ = parent.split(b'"id":"')[1].split(b'"')[0].decode()
            await publisher.post("/v1/queues/q/messages", b"child", f"Syncbrok-Parent: {id_}")
            await asyncio.sleep(_SETTLED_S)

            async def answer() -> None:
                endpoint.go_on.set()

            released = await walk(walker, endpoint, 2, answer)
            assert endpoint.bodies[-2:] == [b"parent", b"child"], endpoint.bodies
        server.close()
    return one, released


async def with_broker(storage: str, work: Callable[[int], Awaitable[T]]) -> T:
    """What ``work`` returns, which is given the HTTP port of a broker that runs meanwhile, its log in ``storage``."""
    flags = {"--storage": storage, "--port": "0"}
    config: Config = load_config(None, {}, flags, None)
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(config, None, {}, Budgets.of(), address.set_result, lambda: config))
    try:
        return await work(int((await address).rpartition(":")[2]))
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


def names_used_twice() -> list[str]:
    """Class names of the package that stand in more than one module."""
    found: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        found.update({node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)})
    return sorted(name for name, count in found.items() if count > 1)


def evasive_docstrings() -> list[str]:
    """Docstrings that begin with a word which puts off what is returned or done; of each the file and the line."""
    return [
        f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (ast.get_docstring(node) or "").split(" ", 1)[0] in _EVASIVE
    ]


def lines() -> dict[str, int]:
    """Of each file of the package."""
    return {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}


class Releases(NamedTuple):
    """``by``: functions that let a message go to a subscriber. ``asked_by``: those that have them do it."""

    by: list[str]
    asked_by: list[str]


def releases() -> Releases:
    """A message that waits is let go by ``Cursor.release``, whatever the variable is called; who calls ``release`` of
    the dependency tracker asks for it."""
    functions = [
        (f"{path.stem}.{function.name}", node.func)
        for path in sorted((PACKAGE / "delivery" / "scheduler").glob("*.py"))
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "release"
    ]
    by = {name for name, call in functions if ast.unparse(call.value) not in ("self", "self._dependencies")}
    return Releases(sorted(by), sorted({name for name, _ in functions} - by))


def main() -> None:
    walker = Walker()
    threading.setprofile(walker)
    sys.setprofile(walker)
    with tempfile.TemporaryDirectory() as storage, asyncio.Runner() as runner:
        one, released = runner.run(with_broker(storage, lambda port: ways(walker, port)))
    sys.setprofile(None)
    threading.setprofile(None)
    for what, way in (("a publish", one), ("parent acknowledged to child's end", released)):
        print(f"{what}: {way.files} files, {way.functions} functions, {way.moves} moves, {way.back} of them back")
    letting_go = releases()
    print(f"functions that let go what waits: {len(letting_go.by)}: {', '.join(letting_go.by)}")
    print(f"functions that ask for it: {len(letting_go.asked_by)}: {', '.join(letting_go.asked_by)}")
    twice = names_used_twice()
    print(f"class names used in more than one module: {len(twice)}: {', '.join(twice)}")
    evasive = evasive_docstrings()
    print(f"docstrings that begin with {', '.join(_EVASIVE)}: {len(evasive)}: {', '.join(evasive)}")
    files = lines()
    longest = max(files, key=files.__getitem__)
    print(f"lines in syncbrok/: {sum(files.values()):,} in {len(files)} files, the longest {longest}: {files[longest]}")


if __name__ == "__main__":
    main()
