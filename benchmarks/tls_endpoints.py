"""Both ends of the rows about TLS, each a process: ``python -m benchmarks.tls_endpoints serve|steady|closing WISH``.

``serve`` is many origins in one process: addresses of the loopback range at one port, a certificate each. ``steady``
and ``closing`` are bare clients that send what a broker would deliver, without a broker: they are the ceilings. WISH is
JSON; times are Unix nanoseconds of the one clock of this machine, as those of ``benchmarks.stopwatch`` are.
"""

import asyncio
import gc
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import orjson
import trustme
import uvloop

from benchmarks.stopwatch import NUMBER_DIGITS, Subscriber
from syncbrok.bench.exchange import ACKNOWLEDGED, request

AUTHORITY: Final = "authority.pem"
"""in the folder of ``serve``: what a client must trust"""
_PER_BLOCK: Final = 250
_CLOSING: Final = ACKNOWLEDGED.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
_BACKLOG: Final = 4096


def address(origin: int) -> str:
    """Of the loopback range; none is 127.0.0.1, where others listen."""
    return f"127.{1 + origin // _PER_BLOCK}.0.{1 + origin % _PER_BLOCK}"


class Served:
    """What all origins of a process saw."""

    def __init__(self, delay_s: float, *, closing: bool) -> None:
        self.delay_s = delay_s
        self.closing = closing
        self.seen: list[tuple[int, int, int]] = []
        self.connections = 0
        self.resumed = 0
        """of ``connections``, those whose TLS session was one of an earlier connection"""


class Origin(Subscriber):
    """A connection: answers after the delay, and closes behind its answer where it is told to."""

    def __init__(self, served: Served) -> None:
        super().__init__(served.seen)
        self._served = served

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._served.connections += 1
        tls = transport.get_extra_info("ssl_object")
        self._served.resumed += bool(tls is not None and tls.session_reused)

    def answer(self) -> None:
        """See ``Subscriber``."""
        if self._served.delay_s:
            asyncio.get_running_loop().call_later(self._served.delay_s, self._answer)
        else:
            self._answer()

    def _answer(self) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(_CLOSING if self._served.closing else ACKNOWLEDGED)
        if self._served.closing:
            self._transport.close()


def certified(folder: Path, origins: int) -> list[ssl.SSLContext]:
    """What each origin shows, and in ``folder`` the authority that signed it all."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / AUTHORITY)
    contexts: list[ssl.SSLContext] = []
    shown = folder / "origin.pem"
    for origin in range(origins):
        authority.issue_cert(address(origin)).private_key_and_cert_chain_pem.write_to_path(shown)
        contexts.append(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        contexts[-1].load_cert_chain(shown)
    return contexts


async def serve(wish: dict[str, Any]) -> dict[str, Any]:
    """``folder``, ``origins``, ``tls``, ``delay_s``, ``closing`` -> what was seen, when standard input ends. Says its
    port once all listen."""
    loop = asyncio.get_running_loop()
    served = Served(wish["delay_s"], closing=wish["closing"])
    shown = certified(Path(wish["folder"]), wish["origins"]) if wish["tls"] else [None] * wish["origins"]
    port = 0
    for origin, tls in enumerate(shown):
        server = await loop.create_server(
            lambda: Origin(served), address(origin), port, ssl=tls, backlog=_BACKLOG, reuse_address=True
        )
        port = server.sockets[0].getsockname()[1]
    gc.freeze()  # what is here now stays: looking through it again and again would make endpoints late
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)
    return {"seen": served.seen, "connections": served.connections, "resumed": served.resumed}


class Sender(asyncio.Protocol):
    """A bare client's connection. ``answered`` is called at the end of each answer."""

    def __init__(self, answered: Callable[["Sender"], None], usual: bytes = ACKNOWLEDGED) -> None:
        self._answered = answered
        self._usual = usual
        self._came = b""
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        while self._came.startswith(self._usual):
            self._came = self._came[len(self._usual) :]
            self._answered(self)
        if self._came and not self._usual.startswith(self._came):
            raise SystemExit(f"an origin answered {self._came[:80]!r}")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.transport.is_closing():
            raise SystemExit(f"an origin closed a connection: {exc}")


def trusting(folder: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(Path(folder) / AUTHORITY))


async def steady(wish: dict[str, Any]) -> dict[str, Any]:
    """``folder``, ``port``, ``origins``, ``tls``, ``groups``, ``per_s``, ``seconds``, ``message_bytes``, ``first``
    number -> when each message was sent, and the CPU it took. Message after message, evenly spread: the groups take
    turns, and a message goes to every origin of its group, over connections that were opened before."""
    loop = asyncio.get_running_loop()
    count, left = int(wish["per_s"] * wish["seconds"]), 0
    done = loop.create_future()

    def answered(_: Sender) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set_result(None)

    tls = trusting(wish["folder"]) if wish["tls"] else None
    groups: list[list[Sender]] = [[] for _ in range(wish["groups"])]
    for origin in range(wish["origins"]):
        _, sender = await loop.create_connection(lambda: Sender(answered), address(origin), wish["port"], ssl=tls)
        groups[origin % len(groups)].append(sender)
    left = sum(len(groups[(wish["first"] + number) % len(groups)]) for number in range(count))
    gc.freeze()
    sent_ns: list[int] = []
    cpu_s, began_s = time.process_time(), loop.time()
    for number in range(wish["first"], wish["first"] + count):
        await asyncio.sleep(max(0.0, began_s + len(sent_ns) / wish["per_s"] - loop.time()))
        body = (b"%0*d" % (NUMBER_DIGITS, number)).ljust(wish["message_bytes"], b"x")
        sent_ns.append(time.time_ns())
        for sender in groups[number % len(groups)]:
            sender.transport.write(request("/", wish["port"], body))
    await done
    return {"sent_ns": sent_ns, "cpu_s": time.process_time() - cpu_s}


class Resuming:
    """In place of a context: each connection resumes the session that was kept last."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.session: ssl.SSLSession | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | None = None,
    ) -> ssl.SSLObject:
        """See ``ssl.SSLContext.wrap_bio``."""
        return self._context.wrap_bio(incoming, outgoing, server_side, server_hostname, self.session)


async def closing(wish: dict[str, Any]) -> dict[str, Any]:
    """``folder``, ``port``, ``messages``, ``at_once``, ``message_bytes`` -> the seconds and the CPU it took to send
    that many to the first origin, each over a connection of its own that resumes the session of an earlier one."""
    loop = asyncio.get_running_loop()
    tls: Any = Resuming(trusting(wish["folder"]))
    data = request("/", wish["port"], (b"%0*d" % (NUMBER_DIGITS, 0)).ljust(wish["message_bytes"], b"x"))
    left = wish["messages"]

    async def one_after_the_other() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            done = loop.create_future()
            transport, _ = await loop.create_connection(
                lambda done=done: Sender(lambda _: done.done() or done.set_result(None), _CLOSING),  # type: ignore[misc]
                address(0),
                wish["port"],
                ssl=tls,
            )
            transport.write(data)
            await done
            tls.session = transport.get_extra_info("ssl_object").session
            transport.abort()

    cpu_s, began = time.process_time(), time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(wish["at_once"])))
    return {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu_s}


if __name__ == "__main__":
    wanted = {"serve": serve, "steady": steady, "closing": closing}[sys.argv[1]]
    said = orjson.dumps(uvloop.run(wanted(orjson.loads(sys.argv[2]))))
    # megabytes: without a buffer, as PYTHONUNBUFFERED has it, one write to a pipe may take less than all
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(said + b"\n")
