"""The route to one subscriber: the form of its requests, and its exchanges that wait for a connection to its origin.

Connections belong to the ``Pool`` of the origin and serve all endpoints behind it. A subscriber has for itself what
could make one wait for another: the line of exchanges without an idle connection, and the dials for them. So a hanging
subscriber holds only as many connections as its own window, and others take a free one or dial.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import islice
from math import inf
from time import monotonic
from typing import Any

from syncbrok.delivery.handler import AttemptResult, Delivery, DeliveryBatch, Destination, members_of
from syncbrok.delivery.webhook.access_token import token_request
from syncbrok.delivery.webhook.connection import Exchange, Usual, WebhookConnection
from syncbrok.delivery.webhook.connection_pool import PATIENCE_S, Pool
from syncbrok.delivery.webhook.connector import DialFailed, NoDescriptor
from syncbrok.delivery.webhook.dial_ramp import DialRamp
from syncbrok.delivery.webhook.dial_room import PAUSE_S
from syncbrok.delivery.webhook.http_request import RequestForm
from syncbrok.delivery.webhook.http_response import kept
from syncbrok.delivery.webhook.signing import SignerLike
from syncbrok.delivery.webhook.token_line import TokenLine
from syncbrok.model import limits
from syncbrok.model.auth_settings import CLIENT_SECRET, OAUTH2
from syncbrok.model.facts import Reason
from syncbrok.model.message import Format

log = logging.getLogger(__name__)

DIALS_MAX = 64
"""connections being opened at once, for one subscriber"""
EAGER_MAX = 64
"""an origin with fewer connections gets another for whatever waits. With more of them one is free within a turn or two
of the loop, unless they hang: so what waits gets a new one when it has waited for ``PATIENCE_S``"""
REDIAL_PAUSE_S = 0.5
"""while other connections work, a failed dial is not repeated sooner: what waits gets one of those"""


def _with(line: deque[Exchange] | tuple[()], exchange: Exchange) -> deque[Exchange]:
    """The line with another exchange at its end."""
    if not line:
        return deque((exchange,))
    line.append(exchange)
    return line


class SubscriberRoute:
    """``waiting``: exchanges that any connection of the origin may take; ``_redials``: those for a new one only.
    ``_dials``: the tasks that open connections for them. ``used_s``: when something was last sent."""

    __slots__ = (
        "_dial_after_s",
        "_dials",
        "_paced",
        "_ramp",
        "_redials",
        "_short",
        "_timeout_s",
        "form",
        "keys",
        "pool",
        "signers",
        "to",
        "token_line",
        "used_s",
        "usual",
        "waiting",
    )

    def __init__(self, form: RequestForm, pool: Pool) -> None:
        self.pool = pool
        pool.users += 1
        self.keys: Sequence[bytes] | None = None
        """what it is signed with; None until it is asked for"""
        self.signers: tuple[SignerLike, ...] = ()
        """of those keys, and of its settings"""
        self.waiting: deque[Exchange] | tuple[()] = ()
        self._redials: deque[Exchange] | tuple[()] = ()
        self._dials: dict[asyncio.Task[WebhookConnection], list[WebhookConnection]] = {}
        self._short = False
        """the last time it wanted a connection there was no descriptor for one"""
        self._ramp = DialRamp()
        self._paced = False
        """the last time it wanted a connection it had just been given many of which nothing was heard"""
        self._dial_after_s = 0.0
        self._timeout_s = limits.timeout_default_s
        self.token_line: TokenLine | None = None
        """where an access token is to be fetched first"""
        self.used_s = 0.0
        self.to: Destination | None = None
        """what it was last used for; while that is the same object nothing about the way has changed"""
        self.reform(form)

    def __repr__(self) -> str:
        return (
            f"<SubscriberRoute to subscriber {self.form.subscriber.number}: {len(self._dials)} dials, "
            f"{len(self.waiting) + len(self._redials)} waiting>"
        )

    def reform(self, form: RequestForm) -> None:
        """The subscriber's settings, now; they lead to the same origin."""
        self.form = form
        self.keys = None
        settings = form.subscriber.settings
        # The same bytes may be an acknowledgement to one and none to another.
        plain = self.pool.usual_read if settings.verdicts else self.pool.usual
        self.usual: Usual = self.pool.usual_true if settings.format == Format.ORIGINAL else plain
        self._fetch_as(form)

    def _fetch_as(self, form: RequestForm) -> None:
        """A token is good for who asked for it: where that is another one what waits goes out again, another way."""
        old, auth = self.token_line, form.subscriber.settings.auth
        request = None
        if auth is not None and auth.scheme == OAUTH2:
            request = token_request(auth, form.credentials[CLIENT_SECRET])
        if old is not None and old.request == request:
            form.authorize(old.authorization)
            return
        if old is None and request is None:
            return
        self.token_line = None if request is None else TokenLine(self, self.pool, request)
        waited, self.waiting = [*self.waiting, *(old.cut()[0] if old is not None else ())], ()
        for exchange in waited:
            asyncio.get_running_loop().call_soon(exchange.done, exchange.delivery, None)

    def sign_with(self, keys: Sequence[bytes]) -> None:
        """Sign with these keys from now on; none: not at all."""
        self.keys = keys
        self.signers = self.form.signers(keys)

    # -- exchanges ----------------------------------------------------------------------------------------------------

    def may_send(self, now_s: float) -> bool:
        """False where an access token is needed first, and there is none: then what is to go out waits."""
        return self.token_line is None or self.token_line.usable(now_s)

    def wait(self, exchange: Exchange) -> None:
        """No connection is free for it. ``dial_for_waiting`` once all that wait are here."""
        if not self.may_send(monotonic()) and self.token_line is not None:
            self.token_line.wait(exchange)
        else:
            self._wait_for_connection(exchange)

    def _wait_for_connection(self, exchange: Exchange) -> None:
        self.waiting = _with(self.waiting, exchange)
        self._timeout_s = exchange.delivery.to.timeout_s

    def dial_for_waiting(self) -> None:
        """Exchanges wait: they are in turn for what becomes free, and connections are opened for them."""
        if self.waiting:
            self.pool.queue(self)
        self.dial()

    def authorized(self, line: TokenLine, exchanges: Collection[Exchange]) -> None:
        """See ``token_line.TokenUser``."""
        if line is not self.token_line:
            return  # its settings have changed since, and took with them what waited
        self.form.authorize(line.authorization)
        now_s = monotonic()
        for exchange in exchanges:
            connection = self.pool.take_idle(now_s)
            if connection is None:  # not ``wait``: a token that is over by now would be asked for again and again
                self._wait_for_connection(exchange)
            else:
                self.send(connection, exchange)
        self.dial_for_waiting()

    def goes_again(self, exchange: Exchange) -> bool:
        """See ``connection.ExchangeSender``."""
        return self.token_line is not None and self.token_line.refused(exchange)

    def make_ready(self, delivery: Delivery, timestamp_s: str) -> None:
        """Make the request of a delivery that will probably start next."""
        with suppress(Exception):  # what cannot be made is answered when it is started
            self.form.make_ready(delivery, timestamp_s, self.signers)

    def send(self, connection: WebhookConnection, exchange: Exchange) -> None:
        """See ``connection_pool.RouteLike``."""
        if exchange.delivery.__class__ is DeliveryBatch and self.form.subscriber.settings.batch is None:
            self.pool.give_back(connection)  # its messages get a request each by now, and go out anew
            asyncio.get_running_loop().call_soon(exchange.done, exchange.delivery, None)
            return
        connection.hold(self, *exchange)
        try:
            request = self.form.render(exchange.delivery, str(self.pool.wall_us() // 1_000_000), self.signers)
        except Exception as error:  # noqa: BLE001 - see ``start``
            self.unmade(connection, error)
        else:
            connection.write(request)

    def unmade(self, connection: WebhookConnection, error: Exception) -> None:
        """The exchange on ``connection`` could not be put into a request: it is answered, and the others go on."""
        exchange = connection.take_off()
        sequence = exchange.delivery.attempt.message
        log.error("syncbrok.delivery.render_failed", exc_info=error, extra={"sequence": sequence})
        self.pool.give_back(connection)
        # Not from inside deliver(): the caller is promised that.
        words = "the message cannot be put into a request"
        asyncio.get_running_loop().call_soon(self.fail, exchange, Reason.PROTOCOL, words)

    def fail(self, exchange: Exchange, reason: Reason, words: str, status: int = 0) -> None:
        """See ``connection.ExchangeSender``."""
        latency_us = int((monotonic() - exchange.started_s) * 1e6)
        answer = AttemptResult(reason, status, None, latency_us, kept(words.encode("utf-8", "replace")))
        exchange.done(exchange.delivery, answer)

    # -- what waits (see ``connection_pool.RouteLike``) ---------------------------------------------------------------

    def take_overdue(self, now_s: float) -> list[Exchange]:
        """See ``connection_pool.RouteLike``."""
        overdue = [exchange for exchange in (*self.waiting, *self._redials) if exchange.deadline_s <= now_s]
        if self.token_line is not None:
            overdue += self.token_line.take(lambda exchange: exchange.deadline_s <= now_s)
        if overdue:
            self.waiting = deque(exchange for exchange in self.waiting if exchange.deadline_s > now_s) or ()
            self._redials = deque(exchange for exchange in self._redials if exchange.deadline_s > now_s) or ()
        return overdue

    def overdue(self, exchange: Exchange) -> None:
        """See ``connection_pool.RouteLike``. One that waited for nothing but a descriptor or its turn to be dialled for
        has not failed: it goes out again."""
        if self._short or self._paced or (self.token_line is not None and self.token_line.short):
            exchange.done(exchange.delivery, None)
        elif self.token_line is not None and not self.may_send(monotonic()):
            self.fail(exchange, Reason.AUTH_FAILED, self.token_line.overdue(exchange.delivery.to.timeout_s))
        else:
            self.fail(exchange, Reason.TIMEOUT, f"no connection in {exchange.delivery.to.timeout_s:g} s")

    def deadlines_s(self) -> list[float]:
        """See ``connection_pool.RouteLike``."""
        return [exchange.deadline_s for exchange in self._all_waiting()]

    def _all_waiting(self) -> list[Exchange]:
        return [*self.waiting, *self._redials, *(self.token_line.waiting if self.token_line is not None else ())]

    def cut(self) -> tuple[list[Exchange], Collection["asyncio.Task[Any]"]]:
        """See ``connection_pool.RouteLike``."""
        cut = [*self.waiting, *self._redials]
        self.waiting = self._redials = ()
        asked: Collection[asyncio.Task[Any]] = ()
        if self.token_line is not None:
            waiting, asked = self.token_line.cut()
            cut += waiting
        for dial in list(self._dials):
            dial.cancel()
        return cut, [*self._dials, *asked]

    @property
    def waits(self) -> bool:
        """Whether anything waits for a connection, or for a token first."""
        return bool(self._all_waiting())

    def withdraw(self, messages: Collection[int] | None) -> None:
        """Send nothing more of these messages; None: of any. Exchanges that have not begun are given back. Those that
        have wait for their answer; where none can come, because the connection was closed, they have failed and are not
        sent again."""

        def meant(delivery: Delivery) -> bool:
            return messages is None or any(one.attempt.message in messages for one in members_of(delivery))

        call_soon = asyncio.get_running_loop().call_soon  # it may be ``deliver`` that found the endpoint changed
        waiting, redials = self.waiting, self._redials
        self.waiting = self._redials = ()
        for exchange in waiting:
            if meant(exchange.delivery):
                call_soon(exchange.done, exchange.delivery, None)
            else:
                self.waiting = _with(self.waiting, exchange)
        for exchange in redials:
            if meant(exchange.delivery):
                call_soon(self.fail, exchange, Reason.CONNECT, "its connection was closed, and it is not sent again")
            else:
                self._redials = _with(self._redials, exchange)
        for exchange in self.token_line.take(lambda one: meant(one.delivery)) if self.token_line is not None else ():
            call_soon(exchange.done, exchange.delivery, None)
        for connection in self.pool.open:
            if connection.delivery is not None and connection.sender is self and meant(connection.delivery):
                connection.send_no_more()
        if messages is None:
            self.cut()

    # -- dialling -----------------------------------------------------------------------------------------------------

    def redial(self, exchange: Exchange) -> None:
        """See ``connection.ExchangeSender``."""
        self._redials = _with(self._redials, exchange)
        self._timeout_s = exchange.delivery.to.timeout_s
        self.dial()

    def responded(self) -> None:
        """See ``connection.ExchangeSender``."""
        self._ramp.responded()

    def dial(self) -> None:
        """Open as many connections as exchanges wait for one, ``DIALS_MAX`` at a time, at the pace of its ramp."""
        pool = self.pool
        if self.token_line is not None:
            self.token_line.fetch()
        if self._short and monotonic() < self._dial_after_s:
            pool.next_check_s = min(pool.next_check_s, self._dial_after_s)
            return
        wanted = len(self._redials)
        if self.waiting:
            now_s = monotonic()
            if not pool.open or now_s >= self._dial_after_s:
                wanted += self._wanted(now_s)
            else:
                pool.next_check_s = min(pool.next_check_s, self._dial_after_s)
        self._paced = False
        for begun in range(min(wanted, DIALS_MAX) - len(self._dials)):
            if not self._ramp.allows(monotonic()):
                self._paced = True
                pool.pace(self)
                break
            if not pool.room.has_time(self, begun):
                break
            if not pool.room.take(pool.origin, self):
                self._short = True
                break
            self._ramp.begin()
            made: list[WebhookConnection] = []
            dial = asyncio.get_running_loop().create_task(self._connect(made), name="syncbrok dial")
            self._dials[dial] = made
            pool.dials += 1
            pool.dialling.add(self)
            dial.add_done_callback(self._dialled)

    def _wanted(self, now_s: float) -> int:
        """For how many of those that wait it is time to open a connection; more than ``DIALS_MAX`` are not counted: a
        hung window of ten thousand is asked for each connection that it gets."""
        pool = self.pool
        eager = EAGER_MAX - len(pool.open) - pool.dials + len(self._dials)
        if eager >= len(self.waiting):
            return len(self.waiting)
        pool.serve_soon()
        patient_since_s = now_s - PATIENCE_S
        overdue = 0
        for exchange in islice(self.waiting, DIALS_MAX):
            if exchange.started_s > patient_since_s:
                break
            overdue += 1
        return max(eager, overdue)

    async def _connect(self, made: list[WebhookConnection]) -> WebhookConnection:
        """Dial. ``made`` gets each connection that is made, also if this fails; only a returned one is open."""
        pool = self.pool

        def protocol() -> WebhookConnection:
            made.append(WebhookConnection(pool))
            return made[-1]

        try:
            async with asyncio.timeout(self._timeout_s):
                addresses = await pool.connector.resolve(pool.target)
                return await pool.connector.connect(pool.target, addresses, protocol, pool.session, pool.tls)
        except BaseException:
            for connection in made:
                connection.cut_off()
            pool.session.forget()  # whatever it was, no other dial fails over the same session
            raise

    def _dialled(self, dial: "asyncio.Task[WebhookConnection]") -> None:
        """Handle the end of a dial, also of one that was cancelled before it began."""
        made = self._dials.pop(dial)
        self.pool.dials -= 1
        if not any(connection.was_made for connection in made):  # else it is given back when that is closed
            self.pool.room.give_back(self.pool.origin)
        if not self._dials:
            self.pool.dialling.discard(self)
        if dial.cancelled():
            self._give_up(Reason.CONNECT, "the dial was cancelled")
            return
        error = dial.exception()
        if error is None and (connection := dial.result()).usable:
            self._take_up(connection)
        elif error is None:
            self._ramp.responded()
            self._give_up(Reason.CONNECT, "the connection was closed at once")
        elif isinstance(error, NoDescriptor):
            self._ramp.responded()  # nothing was tried
            self._short = True
            self._dial_after_s = monotonic() + PAUSE_S
            self.pool.room.system_has_none(self)
            return
        elif isinstance(error, DialFailed):
            self._ramp.responded()
            self._give_up(error.reason, str(error))
        elif not isinstance(error, TimeoutError):  # those who waited for it are at their deadline; ``expire`` sees it
            log.error("syncbrok.delivery.dial_broke", exc_info=error, extra={"endpoint": self.form.target.authority})
            self._give_up(Reason.CONNECT, str(error))
        self.dial()

    def _take_up(self, connection: WebhookConnection) -> None:
        """Use a new connection for this subscriber, which dialled it: for its redials, then for its line. If neither
        waits, the connection goes to the pool of the origin."""
        self._short = False
        now_s = monotonic()
        connection.expires_s = now_s + limits.connection_age_max_s
        if self._redials:
            self.send(connection, self._redials.popleft())
            self._redials = self._redials or ()
        elif self.waiting:
            self.send(connection, self.waiting.popleft())
        else:
            self.pool.release(connection, now_s)

    def _give_up(self, reason: Reason, words: str) -> None:
        """A dial came to nothing: it fails one exchange, the oldest of those that need a new connection, else the
        oldest that waits. While connections of the origin work that one waits for one of those: as long as some are
        this subscriber's own; those of others, which may hang, for a moment only."""
        if self._redials:
            self.fail(self._redials.popleft(), reason, words)
        elif self.waiting:
            now_s = monotonic()
            patience_s = inf if self._has_connections() else REDIAL_PAUSE_S
            if self.pool.open and now_s - self.waiting[0].started_s < patience_s:
                self._dial_after_s = now_s + REDIAL_PAUSE_S
            else:
                self.fail(self.waiting.popleft(), reason, words)

    def _has_connections(self) -> bool:
        return any(one.delivery is not None and one.sender is self for one in self.pool.open)
