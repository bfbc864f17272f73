"""One connection to an endpoint: carries one request at a time and is kept alive between them.

No task, future or timer belongs to a message: an exchange is a tuple that a connection holds until its answer is
read, and a deadline is a number that one coarse timer looks at. Requests are not pipelined: a slow answer would hold
up those behind it, which have no ancestor there.
"""

import asyncio
import ssl
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import NamedTuple, Protocol, cast

from syncbrok.delivery.attempt_guard import AttemptGuard
from syncbrok.delivery.handler import AttemptResult, Delivery, Done
from syncbrok.delivery.webhook.http_request import RequestForm
from syncbrok.delivery.webhook.http_response import AnswerReader, evaluate_response
from syncbrok.delivery.webhook.odd_response import GarbledAnswer
from syncbrok.delivery.webhook.tls_session import keep_session
from syncbrok.model.facts import Reason

_CONFLICT = 409
_UNAUTHORIZED = 401


class Exchange(NamedTuple):
    """One attempt on its way. Times are of the monotonic clock, in seconds."""

    delivery: Delivery
    done: Done
    started_s: float
    deadline_s: float


class LastTime:
    """In place of an exchange's ``done``: it is not sent again within its attempt, whatever is answered."""

    __slots__ = ("_done",)

    def __init__(self, done: Done) -> None:
        self._done = done

    def __call__(self, delivery: Delivery, answer: AttemptResult | None) -> None:
        self._done(delivery, answer)


class Usual:
    """The bytes of the last acknowledgement that came in one piece (``b""`` for none) and its status."""

    __slots__ = ("answer", "status")

    def __init__(self) -> None:
        self.answer = b""
        self.status = 0


class ExchangeSender(Protocol):
    """The sender of the exchange that a connection carries."""

    form: RequestForm
    usual: Usual
    """shared by all senders whose answers mean the same"""

    def fail(self, exchange: Exchange, reason: Reason, words: str, status: int = 0) -> None:
        """The exchange, which no connection holds any more, has failed."""

    def goes_again(self, exchange: Exchange) -> bool:
        """The answer was 401: whether the exchange waits now for another access token, within the same attempt."""

    def redial(self, exchange: Exchange) -> None:
        """The kept-alive connection under it was closed before any byte of an answer (RULES 23)."""

    def responded(self) -> None:
        """A connection that was new was answered or closed: somebody is there (see ``dial_ramp``)."""


class ConnectionOwner(Protocol):
    """Receives events of a connection: its pool."""

    wall_us: Callable[[], int]
    attempt_guard: AttemptGuard

    def opened(self, connection: "WebhookConnection") -> None:
        """The connection is open."""

    def give_back(self, connection: "WebhookConnection") -> None:
        """The connection was taken and not used: it may carry another exchange."""

    def release(self, connection: "WebhookConnection", now_s: float) -> None:
        """Its exchange is over and it is in step: it may carry another."""

    def discard(self, connection: "WebhookConnection") -> None:
        """The connection cannot be used again. It carries no exchange."""

    def closed(self, connection: "WebhookConnection") -> None:
        """The connection is closed."""

    def acknowledged(
        self, connection: "WebhookConnection", delivery: Delivery, done: Done, started_s: float, status: int
    ) -> None:
        """The usual answer, of that status, came to an exchange begun at ``started_s``; the connection, which was
        taken off it, is free."""


class WebhookConnection(asyncio.Protocol):
    """One connection; holds at most one exchange, spread over its own fields (an object for each would cost more than
    the rest of sending it). ``delivery`` None: it is free."""

    __slots__ = (
        "_done",
        "_pool",
        "_reader",
        "_started_s",
        "_transport",
        "_usual",
        "answers",
        "deadline_s",
        "delivery",
        "expires_s",
        "idle_since_s",
        "lost",
        "sender",
        "write",
    )

    sender: ExchangeSender
    """of the exchange that it holds, or held last"""
    _usual: Usual
    """the sender's: by the time of the answer there are other things in the processor's cache than the sender"""

    def __init__(self, pool: ConnectionOwner) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._reader: AnswerReader | None = None
        self.delivery: Delivery | None = None
        self._done: Done = _nobody
        self._started_s = 0.0
        self.deadline_s = inf
        self.answers = 0
        self.expires_s = inf
        self.idle_since_s = 0.0
        self.lost = False
        self.write: Callable[[bytes], None] = _nowhere
        """sends the request of the exchange that it holds"""

    def hold(self, sender: ExchangeSender, delivery: Delivery, done: Done, started_s: float, deadline_s: float) -> None:
        """Take over an exchange whose request is written next. The connection must be idle."""
        assert self.delivery is None
        self.sender = sender
        self._usual = sender.usual
        self.delivery = delivery
        self._done = done
        self._started_s = started_s
        self.deadline_s = deadline_s

    def take_off(self) -> Exchange:
        """The exchange on it, which it holds no more."""
        assert self.delivery is not None
        exchange = Exchange(self.delivery, self._done, self._started_s, self.deadline_s)
        self.delivery = None
        self.deadline_s = inf
        return exchange

    def send_no_more(self) -> None:
        """Treat the connection as new: its request is not repeated if the other side closes it, nor after a 401."""
        self.answers, self.idle_since_s = 0, 0.0
        if not isinstance(self._done, LastTime):
            self._done = LastTime(self._done)

    @property
    def was_made(self) -> bool:
        """True if the connection is or was open. Then its owner was told, or will be told, of its end."""
        return self._transport is not None

    @property
    def usable(self) -> bool:
        """True if it may carry a request: not closed by us nor, as far as we know, by the other side."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def sent(self) -> bool:
        """The whole request has gone out; an answer may come before that, and then the connection is no good."""
        return self._transport is not None and not self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Give it up at once."""
        if self._transport is not None and not self.lost:
            self._transport.abort()

    def cut_off(self) -> None:
        """The dial for it came to nothing. If it was opened all the same, and the dial was cancelled before being told
        so, uvloop has closed the transport and calls ``connection_lost`` no more; asyncio does, and is not heard."""
        if self._transport is not None:
            self.close()
            self.connection_lost(None)

    def time_out(self) -> None:
        """Its exchange has reached its deadline."""
        assert self.delivery is not None
        begun = self._reader is not None and self._reader.received > 0
        words = f"{'the answer did not end' if begun else 'no answer'} in {self.delivery.to.timeout_s:g} s"
        self._fail(Reason.TIMEOUT, words)

    # -- called by the loop -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass of it
        guard = self._pool.attempt_guard
        guard.carries(self._transport)
        self.write = self._write_while_leading if guard.looks else self._transport.write
        self._pool.opened(self)

    def _write_while_leading(self, request: bytes) -> None:
        """See ``attempt_guard``: a connection that is free has sent all. Where this node leads no more the exchange has
        not begun, and is given back."""
        assert self._transport is not None
        if self._pool.attempt_guard.lets_begin():
            self._transport.write(request)
            return
        exchange = self.take_off()
        self._pool.give_back(self)
        asyncio.get_running_loop().call_soon(exchange.done, exchange.delivery, None)

    def data_received(self, data: bytes) -> None:
        delivery = self.delivery
        if delivery is None:
            self._pool.discard(self)  # nobody asked: it is out of step
            return
        reader = self._reader
        usual = self._usual
        if data == usual.answer and (reader is None or not reader.received):
            # Reading is a function of the bytes: the same ones mean the same answer, and need no second parsing.
            self.delivery = None
            self.deadline_s = inf
            if not self.answers:
                self.sender.responded()
            self.answers += 1
            self._pool.acknowledged(self, delivery, self._done, self._started_s, usual.status)
            return
        if reader is None:
            reader = self._reader = AnswerReader()
        whole = not reader.received
        try:
            if not reader.feed(data):
                return
        except GarbledAnswer as garbled:
            self._fail(Reason.PROTOCOL, str(garbled))
            return
        self._finish(reader, data if whole else b"")

    def eof_received(self) -> None:
        if self.delivery is None:
            self._pool.discard(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.lost:
            return
        self.lost = True
        if self._transport is not None:
            keep_session(self._transport)
        pool, reader = self._pool, self._reader
        pool.discard(self)
        begun = reader is not None and reader.received > 0
        if self.delivery is None:
            pass
        elif begun and exc is None and reader is not None and reader.end():
            self._finish(reader, b"")
        elif isinstance(exc, ssl.SSLError):
            self._fail(Reason.TLS, str(exc))
        elif begun:
            self._fail(Reason.PROTOCOL, "the connection broke in the middle of the answer")
        elif self.answers or self.idle_since_s:  # kept alive; a redial goes to a new one, so there is one at most
            self.sender.redial(self.take_off())
        else:
            self._fail(Reason.PROTOCOL, "the connection was closed without an answer")
        pool.closed(self)

    # -- the end of an exchange ---------------------------------------------------------------------------------------

    def _finish(self, reader: AnswerReader, data: bytes) -> None:
        """``data`` is the answer where it came in one piece."""
        pool, sender = self._pool, self.sender
        now_s = monotonic()
        exchange = self.take_off()
        delivery, done, started_s, _ = exchange
        latency_us = int((now_s - started_s) * 1e6)
        answer: AttemptResult | None
        settings = sender.form.subscriber.settings
        answer = evaluate_response(
            reader, settings.format, latency_us, pool.wall_us() / 1e6, verdicts=settings.verdicts
        )
        lease = pool.attempt_guard.lease
        if reader.status == _CONFLICT and reader.epoch > lease.epoch > 0 and lease.doubt(reader.epoch):
            answer = None  # it was not made by whoever leads: it costs the message no attempt
        is_unauthorized = reader.status == _UNAUTHORIZED
        reusable = reader.reusable and not self.lost
        reader.clear()
        if not self.answers:
            sender.responded()
        self.answers += 1
        if reusable:
            if data and answer is not None and answer.reason == Reason.NONE:
                sender.usual.answer = data
                sender.usual.status = answer.status
            pool.release(self, now_s)
        else:
            pool.discard(self)
        if is_unauthorized and sender.goes_again(exchange):
            return
        done(delivery, answer)

    def _fail(self, reason: Reason, words: str) -> None:
        status = self._reader.status if self._reader is not None else 0
        exchange = self.take_off()
        if not self.answers and reason is not Reason.TIMEOUT:
            self.sender.responded()
        self._pool.discard(self)
        self.sender.fail(exchange, reason, words, status)


def _nowhere(_: bytes) -> None:
    raise AssertionError("a connection that was never made cannot carry a request")


def _nobody(delivery: Delivery, answer: AttemptResult | None) -> None:
    raise AssertionError(f"an answer to nobody: {delivery.attempt} {answer}")
