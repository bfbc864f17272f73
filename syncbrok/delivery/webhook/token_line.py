"""The access token of one subscriber, and its exchanges that wait for it.

A token endpoint that hangs holds what waits here, and nothing of any other subscriber: each has its own line, request
and connection, and those that wait here hold none. Their deadlines are watched as of what waits for a connection.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Final, Protocol, cast

from syncbrok.delivery.webhook.access_token import AccessToken, TokenRefused, TokenRequest, read_token
from syncbrok.delivery.webhook.connection import Exchange, LastTime
from syncbrok.delivery.webhook.connection_pool import Pool, RouteLike
from syncbrok.delivery.webhook.connector import DialFailed, NoDescriptor
from syncbrok.delivery.webhook.http_response import AnswerReader
from syncbrok.delivery.webhook.odd_response import GarbledAnswer
from syncbrok.delivery.webhook.tls_session import OriginSession
from syncbrok.model.facts import Reason

_AGAIN_AFTER_S: Final = 1.0
"""what a token server has just said holds for so long: a refusal for whoever comes next, and a token that has come in
place of one that was refused for all whose answers are still on their way"""


class TokenUser(RouteLike, Protocol):
    """The route that a line belongs to."""

    def authorized(self, line: "TokenLine", exchanges: Collection[Exchange]) -> None:
        """There is a token of this line, which may be one of before; and these have waited for it."""

    def fail(self, exchange: Exchange, reason: Reason, words: str, status: int = 0) -> None:
        """See ``connection.ExchangeSender``."""


class TokenLine:
    """``waiting``: the exchanges. ``authorization``: the header of those that go out, ``""`` before the first token."""

    __slots__ = (
        "_failed",
        "_failed_s",
        "_fetching",
        "_pool",
        "_renewed_s",
        "_replacing",
        "_until_s",
        "_user",
        "authorization",
        "request",
        "short",
        "timeout_s",
        "waiting",
    )

    def __init__(self, user: TokenUser, pool: Pool, request: TokenRequest) -> None:
        """``pool``: that of the endpoint. What that has of TLS, the token's server has too."""
        self._user = user
        self._pool = pool
        self.request = request
        self.waiting: list[Exchange] = []
        self.authorization = ""
        self.timeout_s = 0.0
        """of the newest exchange"""
        self.short = False
        """the last time it wanted to ask there was no descriptor for that"""
        self._until_s = 0.0
        self._failed, self._failed_s = "", -inf
        self._renewed_s = -inf
        """when a token came in place of one that was refused"""
        self._replacing = False
        self._fetching: asyncio.Task[AccessToken] | None = None

    def usable(self, now_s: float) -> bool:
        """Whether there is a token to send with."""
        return now_s < self._until_s

    def wait(self, exchange: Exchange) -> None:
        """Let the exchange wait. ``fetch`` once all that wait are here."""
        self.waiting.append(exchange)
        self.timeout_s = exchange.delivery.to.timeout_s
        self._pool.authorizing.add(self._user)

    def refused(self, exchange: Exchange) -> bool:
        """The endpoint has answered 401: whether the exchange waits for another token now, with which it goes again."""
        now_s = monotonic()
        if isinstance(exchange.done, LastTime) or exchange.deadline_s <= now_s:
            return False
        if self._until_s and now_s - self._renewed_s > _AGAIN_AFTER_S:
            self._until_s, self._replacing = 0.0, True
        self.wait(exchange._replace(done=LastTime(exchange.done)))
        self.fetch()
        return True

    def fetch(self) -> None:
        """See to it that what waits gets a token."""
        if self._fetching is not None or not self.waiting:
            return
        loop, now_s = asyncio.get_running_loop(), monotonic()
        if self.usable(now_s):
            loop.call_soon(self._let_go)
        elif now_s - self._failed_s < _AGAIN_AFTER_S:
            loop.call_soon(self._fail_all, self._failed)
        elif not self._pool.room.take(self._pool.origin, self._user):
            self.short = True
        else:
            self.short = False
            self._fetching = loop.create_task(self._ask(self.timeout_s), name="syncbrok token")
            self._fetching.add_done_callback(self._answered)

    def cut(self) -> tuple[list[Exchange], Collection["asyncio.Task[AccessToken]"]]:
        """Remove and return what waits; the request, cancelled, is returned too."""
        waiting, self.waiting = self.waiting, []
        self._pool.authorizing.discard(self._user)
        if self._fetching is None:
            return waiting, ()
        self._fetching.cancel()
        return waiting, (self._fetching,)

    def take(self, wanted: Callable[[Exchange], bool]) -> list[Exchange]:
        """Remove and return those of the waiting that are wanted."""
        found = [exchange for exchange in self.waiting if wanted(exchange)]
        if found:
            self.waiting = [exchange for exchange in self.waiting if not wanted(exchange)]
        return found

    async def _ask(self, timeout_s: float) -> AccessToken:
        target = self.request.target
        closed: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        made: list[_TokenConnection] = []

        def protocol() -> _TokenConnection:
            made.append(_TokenConnection(self.request.request, closed))
            return made[-1]

        try:
            async with asyncio.timeout(timeout_s):
                connector = self._pool.connector
                addresses = await connector.resolve(target)
                connection = await connector.connect(target, addresses, protocol, OriginSession(), self._pool.tls)
                body = await closed
                return read_token(connection.reader.status, body)
        finally:
            for one in made:
                one.close()

    def _answered(self, asked: "asyncio.Task[AccessToken]") -> None:
        self._fetching = None
        self._pool.room.give_back(self._pool.origin)
        if asked.cancelled():
            return
        error = asked.exception()
        if error is None:
            token = asked.result()
            now_s = monotonic()
            self.authorization, self._until_s = f"Bearer {token.text}", now_s + token.lifetime_s
            if self._replacing:
                self._renewed_s, self._replacing = now_s, False
            self._let_go()
        elif isinstance(error, NoDescriptor):
            self.short = True
            self._pool.room.system_has_none(self._user)
        else:
            self._failed = self._words(error)
            self._failed_s = monotonic()
            self._fail_all(self._failed)

    def overdue(self, timeout_s: float) -> str:
        """The words for one that has waited for so long."""
        return f"no access token: {self.request.target.authority} did not answer in {timeout_s:g} s"

    def _words(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError):
            return self.overdue(self.timeout_s)
        if isinstance(error, DialFailed):  # names the server itself
            return f"no access token: {error}"
        # What is garbled is not repeated: it may be the token.
        said = "gave no HTTP answer" if isinstance(error, GarbledAnswer) else str(error) or type(error).__name__
        return f"no access token: {self.request.target.authority} {said}"

    def _let_go(self) -> None:
        waiting, _ = self.cut()
        self._user.authorized(self, waiting)

    def _fail_all(self, words: str) -> None:
        waiting, _ = self.cut()
        for exchange in waiting:
            self._user.fail(exchange, Reason.AUTH_FAILED, words)


class _TokenConnection(asyncio.Protocol):
    """Sends one request and reads its answer; ``answered`` is given the body, or what went wrong."""

    def __init__(self, request: bytes, answered: "asyncio.Future[bytes]") -> None:
        self._request = request
        self._answered = answered
        self.reader = AnswerReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._answered.done():
            return
        try:
            if self.reader.feed(data):
                self._answered.set_result(bytes(self.reader.body))
        except GarbledAnswer as garbled:
            self._answered.set_exception(garbled)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answered.done():
            return
        if exc is None and self.reader.received and self.reader.end():
            self._answered.set_result(bytes(self.reader.body))
        else:
            self._answered.set_exception(TokenRefused("closed the connection without a whole answer"))

    def close(self) -> None:
        """Give it up."""
        if self._transport is not None:
            self._transport.abort()
        if self._answered.done() and not self._answered.cancelled():
            with suppress(Exception):
                self._answered.exception()  # nobody may ask for it any more
