"""The connections to one subscriber and what waits for one.

An exchange goes to an idle connection (the last used first), else it waits while one is opened; a connection that
becomes free before that takes it. So there are never more connections than there were attempts at once. Only opening
a connection is a task.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from time import monotonic

from syncbrok.delivery.connection import Connection, Exchange
from syncbrok.delivery.dialling import AddressInfo, DialFailed, Dialler
from syncbrok.delivery.handler import Answer, Delivery, Done
from syncbrok.delivery.http_answer import kept
from syncbrok.delivery.http_request import RequestForm
from syncbrok.delivery.signing import Signer
from syncbrok.model import limits
from syncbrok.model.facts import Reason

log = logging.getLogger(__name__)

DIALS_MAX = 64
"""connections being opened at once, to one endpoint"""
IDLE_MAX_S = 60.0
RESOLVED_MAX_S = 5.0
"""how long the addresses of a name are used again, so that a burst of dials asks once"""
REDIAL_PAUSE_S = 0.5
"""while other connections work, a failed dial is not repeated sooner: what waits gets one of those"""
_ACKNOWLEDGED = Reason.NONE


Made = tuple[Connection, Delivery, bytes]
"""a request and the connection that holds its delivery"""


class Pool:
    """The connections to one subscriber and the exchanges that wait for one.

    ``_open``: every connection; ``_idle``: those without an exchange, the last used last. ``_waiting``: exchanges that
    any connection may take; ``_redials``: those for a new one only. ``_dials``: the tasks that open connections.
    ``usual_answer``: the bytes of the last acknowledgement that came in one piece, and ``usual_status`` its status.
    ``next_check_s``: no deadline comes before it.
    """

    __slots__ = (
        "_addresses",
        "_addresses_until_s",
        "_dial_after_s",
        "_dialler",
        "_dials",
        "_idle",
        "_keys",
        "_open",
        "_redials",
        "_resolving",
        "_retired",
        "_signers",
        "_timeout_s",
        "_waiting",
        "form",
        "next_check_s",
        "usual_answer",
        "usual_status",
        "wall_us",
    )

    def __init__(self, form: RequestForm, dialler: Dialler, wall_us: Callable[[], int]) -> None:
        self.form = form
        self._keys: Sequence[bytes] = ()
        self._signers: tuple[Signer, ...] = ()
        self.wall_us = wall_us
        self.usual_answer = b""
        self.usual_status = 0
        self.next_check_s = inf
        self._dialler = dialler
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}
        self._waiting: deque[Exchange] = deque()
        self._redials: deque[Exchange] = deque()
        self._dials: set[asyncio.Task[Connection]] = set()
        self._dial_after_s = 0.0
        self._timeout_s = limits.timeout_default_s
        self._resolving = asyncio.Lock()
        self._addresses: list[AddressInfo] = []
        self._addresses_until_s = 0.0
        self._retired = False

    def __repr__(self) -> str:
        return (
            f"<Pool of subscriber {self.form.subscriber.number}: {len(self._open)} open, {len(self._idle)} idle, "
            f"{len(self._dials)} dials, {len(self._waiting) + len(self._redials)} waiting>"
        )

    @property
    def empty(self) -> bool:
        """Nothing is left of it: it may be dropped."""
        return not (self._open or self._dials or self._waiting or self._redials)

    @property
    def open_count(self) -> int:
        return len(self._open)

    def reform(self, form: RequestForm) -> None:
        """The subscriber's settings changed, but not where its endpoint leads."""
        self.form = form
        self.usual_answer = b""  # its format may be another, and then the same answer means something else

    def sign_with(self, keys: Sequence[bytes]) -> None:
        """Sign with these keys from now on; none: not at all."""
        if keys != self._keys:
            self._keys = keys
            self._signers = tuple(Signer(key) for key in keys)

    # -- exchanges ----------------------------------------------------------------------------------------------------

    def start(self, deliveries: Sequence[Delivery], done: Done) -> list[Made]:
        """Put each on an idle connection, or let it wait for one. What is to be written now, by whoever calls.

        All requests are made before the first is written. Writing them one after the other keeps the endpoint busy;
        with the making of a request between two writes it falls asleep each time, and waking it doubles the cost of a
        write."""
        now_s = monotonic()
        timestamp_s = self._timestamp_s()
        render, signers, idle = self.form.render, self._signers, self._idle
        made: list[Made] = []
        for delivery in deliveries:
            timeout_s = delivery.timeout_s
            deadline_s = now_s + timeout_s
            if deadline_s < self.next_check_s:  # noqa: PLR1730 - min() costs three times as much here
                self.next_check_s = deadline_s
            connection = self._take_idle(now_s) if idle else None
            if connection is None:
                self._timeout_s = timeout_s
                self._waiting.append(Exchange(delivery, done, now_s, deadline_s))
                continue
            connection.hold(delivery, done, now_s, deadline_s)
            try:
                made.append((connection, delivery, render(delivery, timestamp_s, signers)))
            except Exception as error:  # noqa: BLE001 - whatever is in a message, it is answered and the others go on
                self._unmade(connection, error)
        if self._waiting:
            self._dial()
        return made

    def make_ready(self, delivery: Delivery) -> None:
        """It will probably be started next: make its request now."""
        with suppress(Exception):  # what cannot be made is answered when it is started
            self.form.make_ready(delivery, self._timestamp_s(), self._signers)

    def _timestamp_s(self) -> str:
        return str(self.wall_us() // 1_000_000)

    def _take_idle(self, now_s: float) -> Connection | None:
        while self._idle:
            connection, _ = self._idle.popitem()
            if now_s < connection.expires_s:
                return connection
            connection.close()
        return None

    def _send(self, connection: Connection, exchange: Exchange) -> None:
        connection.hold(*exchange)
        try:
            request = self.form.render(exchange.delivery, self._timestamp_s(), self._signers)
        except Exception as error:  # noqa: BLE001 - see ``start``
            self._unmade(connection, error)
        else:
            connection.write(request)

    def _unmade(self, connection: Connection, error: Exception) -> None:
        """The exchange on ``connection`` could not be put into a request."""
        exchange = connection.take_off()
        sequence = exchange.delivery.attempt.message
        log.error("syncbrok.delivery.render_failed", exc_info=error, extra={"sequence": sequence})
        self._idle[connection] = None
        # Not from inside deliver(): the caller is promised that.
        words = "the message cannot be put into a request"
        asyncio.get_running_loop().call_soon(self.fail, exchange, Reason.PROTOCOL, words)

    def acknowledged(self, connection: Connection, delivery: Delivery, done: Done, started_s: float) -> None:
        """See ``Owner``."""
        now_s = monotonic()
        if self._waiting or self._retired or now_s >= connection.expires_s or not connection.sent:
            self.release(connection, now_s)
        else:
            connection.idle_since_s = now_s
            self._idle[connection] = None
        # Past the Python-level __new__ of a NamedTuple: half a microsecond of the dozen that a delivery may take.
        done(
            delivery,
            tuple.__new__(Answer, (_ACKNOWLEDGED, self.usual_status, None, int((now_s - started_s) * 1e6), b"")),
        )

    def fail(self, exchange: Exchange, reason: Reason, words: str, status: int = 0) -> None:
        """End ``exchange``, which no connection holds any more."""
        latency_us = int((monotonic() - exchange.started_s) * 1e6)
        answer = Answer(reason, status, None, latency_us, kept(words.encode("utf-8", "replace")))
        exchange.done(exchange.delivery, answer)

    def expire(self, now_s: float) -> None:
        """End what has reached its deadline; see to what waits for a dial."""
        overdue = [exchange for exchange in (*self._waiting, *self._redials) if exchange.deadline_s <= now_s]
        if overdue:
            self._waiting = deque(exchange for exchange in self._waiting if exchange.deadline_s > now_s)
            self._redials = deque(exchange for exchange in self._redials if exchange.deadline_s > now_s)
        late = [connection for connection in self._open if connection.deadline_s <= now_s]
        rest = [connection.deadline_s for connection in self._open if connection.deadline_s > now_s]
        rest += [exchange.deadline_s for exchange in (*self._waiting, *self._redials)]
        self.next_check_s = min(rest, default=inf)
        for exchange in overdue:
            self.fail(exchange, Reason.TIMEOUT, f"no connection in {exchange.delivery.timeout_s:g} s")
        for connection in late:
            connection.time_out()
        self._dial()

    # -- connections --------------------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        self._open.add(connection)

    def release(self, connection: Connection, now_s: float) -> None:
        """``connection`` is free and in step: it takes what waits, or idles."""
        if now_s >= connection.expires_s or not connection.sent:
            self.discard(connection)
        elif self._waiting:
            self._send(connection, self._waiting.popleft())
        elif self._retired:
            self.discard(connection)
        else:
            connection.idle_since_s = now_s
            self._idle[connection] = None

    def discard(self, connection: Connection) -> None:
        """Give up ``connection``, which holds no exchange any more."""
        self._idle.pop(connection, None)
        connection.close()

    def closed(self, connection: Connection) -> None:
        self._open.discard(connection)
        if self._waiting:
            self._dial()

    def sweep(self, now_s: float) -> None:
        """Close what has been idle for long or is too old (addresses change: RULES 23)."""
        idle_since_s = now_s - IDLE_MAX_S
        for connection in [c for c in self._idle if c.expires_s <= now_s or c.idle_since_s <= idle_since_s]:
            self.discard(connection)

    def retire(self) -> None:
        """Close what is idle; the rest when its answer is read."""
        self._retired = True
        for connection in list(self._idle):
            self.discard(connection)

    def shut(self) -> list["asyncio.Task[Connection]"]:
        """Fail every exchange, close every connection; the dials, cancelled, for the caller to await."""
        self._retired = True
        cut = [*self._waiting, *self._redials]
        self._waiting.clear()
        self._redials.clear()
        for connection in list(self._open):
            if connection.delivery is not None:
                cut.append(connection.take_off())
            self.discard(connection)
        dials = list(self._dials)
        for dial in dials:
            dial.cancel()
        for exchange in cut:
            self.fail(exchange, Reason.CONNECT, "the broker is stopping")
        return dials

    # -- dialling -----------------------------------------------------------------------------------------------------

    def redial(self, exchange: Exchange) -> None:
        """The kept-alive connection under ``exchange`` was closed before any byte of an answer (RULES 23)."""
        self._redials.append(exchange)
        self._timeout_s = exchange.delivery.timeout_s
        self._dial()

    def _dial(self) -> None:
        """Open as many connections as exchanges wait for one, ``DIALS_MAX`` at a time."""
        wanted = len(self._redials)
        if self._waiting:
            if not self._open or monotonic() >= self._dial_after_s:
                wanted += len(self._waiting)
            else:
                self.next_check_s = min(self.next_check_s, self._dial_after_s)
        for _ in range(min(wanted, DIALS_MAX) - len(self._dials)):
            dial = asyncio.get_running_loop().create_task(self._connect(), name="syncbrok dial")
            self._dials.add(dial)
            dial.add_done_callback(self._dialled)

    async def _connect(self) -> Connection:
        async with asyncio.timeout(self._timeout_s):
            addresses = await self._resolved()
            return await self._dialler.connect(self.form.target, addresses, lambda: Connection(self))

    def _dialled(self, dial: "asyncio.Task[Connection]") -> None:
        """What came of a dial, however it ended: cancelled before it began, for instance."""
        self._dials.discard(dial)
        if dial.cancelled():
            self._give_up(Reason.CONNECT, "the dial was cancelled")
            return
        error = dial.exception()
        if error is None and (connection := dial.result()).usable:
            self._take_up(connection)
        elif error is None:
            self._give_up(Reason.CONNECT, "the connection was closed at once")
        elif isinstance(error, DialFailed):
            self._give_up(error.reason, str(error))
        elif not isinstance(error, TimeoutError):  # those who waited for it are at their deadline; ``expire`` sees it
            log.error("syncbrok.delivery.dial_broke", exc_info=error, extra={"endpoint": self.form.target.authority})
            self._give_up(Reason.CONNECT, str(error))
        self._dial()

    async def _resolved(self) -> list[AddressInfo]:
        async with self._resolving:
            if monotonic() >= self._addresses_until_s:
                self._addresses = await self._dialler.resolve(self.form.target)
                self._addresses_until_s = monotonic() + RESOLVED_MAX_S
            return self._addresses

    def _take_up(self, connection: Connection) -> None:
        now_s = monotonic()
        connection.expires_s = now_s + limits.connection_age_max_s
        if self._redials:
            self._send(connection, self._redials.popleft())
        else:
            self.release(connection, now_s)

    def _give_up(self, reason: Reason, words: str) -> None:
        """A dial came to nothing: it fails one exchange, the oldest of those that need a new connection, else the
        oldest that waits, unless other connections work: those will take it."""
        if self._redials:
            self.fail(self._redials.popleft(), reason, words)
        elif self._open:
            self._dial_after_s = monotonic() + REDIAL_PAUSE_S
        elif self._waiting:
            self.fail(self._waiting.popleft(), reason, words)
