"""A raw HTTP endpoint on 127.0.0.1: answers the very bytes a test wants, keeps what it was sent.

And what a handler is given: subscribers, messages, deliveries; and ``Answers``, which collects what it calls back.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from syncbrok.delivery.handler import (
    NOTHING_CONFIRMED,
    Attempt,
    AttemptResult,
    Confirmed,
    Delivery,
    Destination,
    Done,
    Handler,
)
from syncbrok.model.facts import StoredMessage
from syncbrok.model.message import Format, ParentFailure, Scope, Subscriber, SubscriberSettings
from syncbrok.model.names import MessageId, SubscriberId, make_message_id
from tests.support.polling import eventually
from tests.support.servers import close_server

TIME_US = 1_700_000_000_000_000
KEY = bytes(range(16))


class Request(NamedTuple):
    """One request as it came. Header names are in lower case; ``connection`` counts from 0."""

    line: str
    pairs: list[tuple[str, str]]
    body: bytes
    connection: int

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.pairs)


class Reply(NamedTuple):
    """What to do with a request: write ``data``, piece by piece; then close, or go on."""

    data: tuple[bytes, ...] = ()
    close: bool = False


def reply(status: str = "200 OK", body: bytes = b"", *headers: str, close: bool = False) -> Reply:
    """A whole answer of one piece."""
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"))
    return Reply((head.encode() + b"\r\n" + body,), close)


HANG = Reply()


class Endpoint:
    """``answer`` decides about each request; by default it is acknowledged. ``port`` 0: any that is free."""

    def __init__(
        self,
        answer: Callable[[Request], Reply] = lambda _: reply(),
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.answer = answer
        self.port = port
        self.requests: list[Request] = []
        self.connections = 0
        self.resumed = 0
        """of ``connections``, those that resumed the TLS session of another"""
        self.open = 0
        self._tls = tls
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_server(self._server)
        await eventually(lambda: self.hang_up() == 0, "the endpoint's connections end")
        await self._server.wait_closed()

    def stop_listening(self) -> None:
        """Refuse new connections; those that are open go on."""
        self._server.close()

    def hang_up(self) -> int:
        """Close every connection, as a server does when they idle; how many there were."""
        for writer in self._writers:
            writer.close()
        return self.open

    def say(self, data: bytes, connection: int = -1) -> None:
        """Write this on a connection, the newest by default, asked or not."""
        self._writers[connection].write(data)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.connections
        self.connections += 1
        tls = writer.get_extra_info("ssl_object")
        self.resumed += tls is not None and tls.session_reused
        self.open += 1
        self._writers.append(writer)
        try:
            while True:
                request = await self._read(reader, number)
                self.requests.append(request)
                wanted = self.answer(request)
                for piece in wanted.data:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if wanted.close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()

    @staticmethod
    async def _read(reader: asyncio.StreamReader, number: int) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("utf-8", "surrogateescape").split("\r\n")
        pairs = [(name.lower(), value) for name, _, value in (line.partition(": ") for line in head[1:] if line)]
        body = await reader.readexactly(int(dict(pairs)["content-length"]))
        return Request(head[0], pairs, body, number)


def subscriber(endpoint: str, kind: Format = Format.RAW, number: int = 1, **settings: object) -> Subscriber:
    given = SubscriberSettings(endpoint, format=kind, **settings)  # type: ignore[arg-type]
    return Subscriber(number, 1, SubscriberId(f"s{number}"), 0, given)


NOWHERE = subscriber("http://127.0.0.1:1/")


def message_id(sequence: int) -> MessageId:
    return make_message_id(TIME_US // 1_000, sequence, KEY)


def message(sequence: int = 7, content: bytes = b"hello", **fields: object) -> StoredMessage:
    bare = StoredMessage(
        sequence=sequence,
        time_us=TIME_US,
        id=message_id(sequence),
        queue=1,
        root=sequence,
        depth=0,
        scope=Scope.ALL,
        parent_failure=ParentFailure.FAIL,
        parents=(),
        key="",
        idempotency_key="",
        fingerprint=b"",
        due_us=0,
        expires_us=0,
        content_type="text/plain",
        headers=(),
        content=content,
    )
    return bare._replace(**fields)  # type: ignore[arg-type]


def delivery(
    sequence: int = 7,
    *,
    timeout_s: float = 10.0,
    number: int = 1,
    replay: int = 0,
    of: StoredMessage | None = None,
    confirmed: Confirmed = NOTHING_CONFIRMED,
) -> Delivery:
    published = of if of is not None else message(sequence)
    attempt = Attempt(published.sequence, 1, number, published.sequence, TIME_US, replay, confirmed)
    return Delivery(attempt, published, Destination(NOWHERE, "orders", timeout_s))


def send(handler: Handler, to: Subscriber, deliveries: Sequence[Delivery], done: Done) -> None:
    """Deliver these to ``to``, whatever they were made for."""
    kept: dict[float, Destination] = {}  # as the Space keeps them: one object as long as nothing changes
    for one in deliveries:
        kept.setdefault(one.to.timeout_s, one.to._replace(subscriber=to))
    handler.deliver([one._replace(to=kept[one.to.timeout_s]) for one in deliveries], done)


class Answers:
    """What a handler called back, in order. ``done`` is what to give it."""

    def __init__(self) -> None:
        self.all: list[tuple[Delivery, AttemptResult]] = []
        self.given_back: list[int] = []
        """messages of attempts that were not begun"""

    def done(self, delivery: Delivery, answer: AttemptResult | None) -> None:
        if answer is None:
            self.given_back.append(delivery.attempt.message)
        else:
            self.all.append((delivery, answer))

    async def wait_for(self, count: int, timeout_s: float = 30.0) -> list[AttemptResult]:
        """The answers, once there are ``count``; more than that is a failure."""
        await eventually(lambda: len(self.all) >= count, f"{count} answers", timeout_s)
        assert len(self.all) == count
        return [answer for _, answer in self.all]
