"""The connections to one origin (scheme, host and port), shared by all endpoints behind it.

All subscribers of an origin share its connections, as the clients of a web server do. A thousand subscribers with
little traffic keep a few connections busy instead of a few thousand idle. They do not share a line. An exchange takes
the idle connection that was used last. Without one it waits in the line of its own subscriber while a connection is
opened for it (``route``); connections that become free earlier serve these lines in turn. So no subscriber waits for
the answers of another, and there are never more connections than the attempts that the subscribers had out at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from math import inf
from time import monotonic
from typing import Any, Protocol

from syncbrok.delivery.attempt_guard import AttemptGuard
from syncbrok.delivery.handler import AttemptResult, Delivery, Done
from syncbrok.delivery.webhook.connection import Exchange, ExchangeSender, Usual, WebhookConnection
from syncbrok.delivery.webhook.connector import Connector
from syncbrok.delivery.webhook.dial_room import DialRoom
from syncbrok.delivery.webhook.endpoint_tls import EndpointTls
from syncbrok.delivery.webhook.http_request import EndpointTarget
from syncbrok.delivery.webhook.tls_session import OriginSession
from syncbrok.model.facts import Reason

IDLE_MAX_S = 60.0
PATIENCE_S = 0.01
"""how long an exchange waits for one of many connections before one is opened for it"""
_ACKNOWLEDGED = Reason.NONE


class RouteLike(ExchangeSender, Protocol):
    """A route as its pool sees it: exchanges that wait for a connection, and dials for them."""

    waiting: deque[Exchange] | tuple[()]
    """those that any connection may take. Without any it is ``()``, or will be: an empty deque has 760 bytes, and there
    are many subscribers for which nothing waits"""

    def send(self, connection: WebhookConnection, exchange: Exchange) -> None:
        """Put the exchange on the connection, which is free, and write it."""

    def take_overdue(self, now_s: float) -> list[Exchange]:
        """Remove and return the waiting exchanges whose deadline has passed."""

    def overdue(self, exchange: Exchange) -> None:
        """No connection carried it in time, and it waits no more."""

    def deadlines_s(self) -> list[float]:
        """The deadlines of all waiting exchanges."""

    def dial(self) -> None:
        """See to it that what waits gets connections."""

    def cut(self) -> tuple[list[Exchange], Collection["asyncio.Task[Any]"]]:
        """Remove and return all waiting exchanges and cancel the dials, which are returned too."""


class Pool:
    """The connections to one origin.

    ``open``: every connection; ``_idle``: those without an exchange, the last used last. ``_turns``: routes with
    exchanges that wait, the next to be served first; ``_in_turns``: the same as a set. ``dialling``: routes that open
    connections. ``users``: how many subscribers have a route here; with none nothing is kept idle. ``next_check_s``:
    no deadline comes before it.
    """

    __slots__ = (
        "_again",
        "_idle",
        "_in_turns",
        "_paced",
        "_turns",
        "attempt_guard",
        "authorizing",
        "connector",
        "dialling",
        "dials",
        "next_check_s",
        "open",
        "origin",
        "room",
        "session",
        "target",
        "tls",
        "users",
        "usual",
        "usual_read",
        "usual_true",
        "wall_us",
    )

    def __init__(
        self,
        target: EndpointTarget,
        connector: Connector,
        room: DialRoom,
        wall_us: Callable[[], int],
        attempt_guard: AttemptGuard,
        tls: EndpointTls | None = None,
    ) -> None:
        """``target``: any endpoint of the origin. ``room``: for its connections among all others. ``tls``: spoken on
        them, where it is not everybody's."""
        self.tls = tls
        self.attempt_guard = attempt_guard
        self.origin = target[:3]
        """what owns the descriptors of its connections"""
        self.room = room
        self.target = target
        self.connector = connector
        self.session = OriginSession()
        self.wall_us = wall_us
        self.usual = Usual()
        """acknowledges where any 2xx does"""
        self.usual_true = Usual()
        """acknowledges where the body must be ``true``"""
        self.usual_read = Usual()
        """acknowledges where a body may say more"""
        self.next_check_s = inf
        self.users = 0
        self.open: set[WebhookConnection] = set()
        self._idle: dict[WebhookConnection, None] = {}
        self._turns: deque[RouteLike] = deque()
        self._in_turns: set[RouteLike] = set()
        self.dialling: set[RouteLike] = set()
        self.dials = 0
        """connections being opened"""
        self._again: asyncio.TimerHandle | None = None
        self.authorizing: set[RouteLike] = set()
        """routes with exchanges that wait for an access token"""
        self._paced: dict[RouteLike, None] = {}
        """routes that may not dial yet, and want to"""

    def __repr__(self) -> str:
        return (
            f"<Pool of {self.target.authority}: {self.users} subscribers, {len(self.open)} open, {len(self._idle)} "
            f"idle, {len(self._turns)} with something waiting>"
        )

    @property
    def empty(self) -> bool:
        """True if the pool has nothing left and may be dropped."""
        return not (
            self.users or self.open or self.dialling or self.authorizing or any(route.waiting for route in self._turns)
        )

    # -- routes -------------------------------------------------------------------------------------------------------

    def leave(self, route: RouteLike) -> None:
        """Note that a subscriber is gone, with nothing waiting. The last one closes idle connections; the others are
        closed when their answers are read."""
        self.users -= 1
        self._paced.pop(route, None)
        self.authorizing.discard(route)
        if route in self._in_turns:
            self._in_turns.remove(route)
            self._turns.remove(route)
        if not self.users:
            for connection in list(self._idle):
                self.discard(connection)

    def take_idle(self, now_s: float) -> WebhookConnection | None:
        """Remove and return an idle connection that can carry a request; None without one."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if now_s < connection.expires_s:
                return connection
            connection.close()
        return None

    def give_back(self, connection: WebhookConnection) -> None:
        """Return an idle connection that was taken and not used."""
        self._idle[connection] = None

    def queue(self, route: RouteLike) -> None:
        """Note that a route has an exchange that waits."""
        if route not in self._in_turns:
            self._in_turns.add(route)
            self._turns.append(route)

    def serve_soon(self) -> None:
        """In a moment, serve what will still be waiting then."""
        if self._again is None:
            self._again = asyncio.get_running_loop().call_later(PATIENCE_S, self._dial_again)

    def pace(self, route: RouteLike) -> None:
        """The route may open no more connections for now (see ``dial_ramp``): it tries again in a moment."""
        self._paced[route] = None
        self.serve_soon()

    def _dial_again(self) -> None:
        """Let each route that still waits for a connection open one."""
        self._again = None
        routes = dict.fromkeys((*self._turns, *self._paced))
        self._paced.clear()
        for route in routes:
            route.dial()

    def senders(self) -> set[ExchangeSender]:
        """The senders with an exchange under way."""
        return {connection.sender for connection in self.open if connection.delivery is not None}

    # -- connections (see ``connection.ConnectionOwner``)
    # -----------------------------------------------------------------------

    def opened(self, connection: WebhookConnection) -> None:
        self.open.add(connection)

    def acknowledged(
        self, connection: WebhookConnection, delivery: Delivery, done: Done, started_s: float, status: int
    ) -> None:
        now_s = monotonic()
        if self._turns or not self.users or now_s >= connection.expires_s or not connection.sent:
            self.release(connection, now_s)
        else:
            self._keep_idle(connection, now_s)
        # Past the Python-level __new__ of a NamedTuple: half a microsecond of the dozen that a delivery may take.
        done(
            delivery,
            tuple.__new__(AttemptResult, (_ACKNOWLEDGED, status, None, int((now_s - started_s) * 1e6), b"", 0, 1)),
        )

    def release(self, connection: WebhookConnection, now_s: float) -> None:
        """``connection`` is free and in step: it takes what waits, of each subscriber in turn, or idles."""
        if now_s >= connection.expires_s or not connection.sent:
            self.discard(connection)
            return
        while self._turns:
            route = self._turns.popleft()
            waiting = route.waiting
            exchange = waiting.popleft() if waiting else None
            if waiting:
                self._turns.append(route)
            else:
                self._in_turns.remove(route)
                route.waiting = ()
            if exchange is not None:
                route.send(connection, exchange)
                return
        if not self.users:
            self.discard(connection)
            return
        self._keep_idle(connection, now_s)

    def _keep_idle(self, connection: WebhookConnection, now_s: float) -> None:
        connection.idle_since_s = now_s
        self._idle[connection] = None
        if self.room.waiting:
            self.room.idled()

    def discard(self, connection: WebhookConnection) -> None:
        self._idle.pop(connection, None)
        connection.close()

    def closed(self, connection: WebhookConnection) -> None:
        self.open.discard(connection)
        self.room.give_back(self.origin)
        if not self.open:
            for route in list(self._turns):
                route.dial()

    # -- those it can do without (see ``dial_room.Idle``) -------------------------------------------------------------

    def idle_longest_s(self) -> float:
        return next(iter(self._idle)).idle_since_s if self._idle else inf

    def close_idlest(self) -> None:
        self.discard(next(iter(self._idle)))

    # -- time ---------------------------------------------------------------------------------------------------------

    def expire(self, now_s: float) -> None:
        """End exchanges that have reached their deadline, and dial for those that wait."""
        routes = self._in_turns | self.dialling | self._paced.keys() | self.authorizing
        overdue = [(route, exchange) for route in routes for exchange in route.take_overdue(now_s)]
        late = [connection for connection in self.open if connection.deadline_s <= now_s]
        rest = [connection.deadline_s for connection in self.open if connection.deadline_s > now_s]
        for route in routes:
            rest += route.deadlines_s()
        self.next_check_s = min(rest, default=inf)
        for route, exchange in overdue:
            route.overdue(exchange)
        for connection in late:
            connection.time_out()
        for route in routes:
            route.dial()

    def sweep(self, now_s: float) -> None:
        """Close what has been idle for long or is too old (addresses change: RULES 23)."""
        idle_since_s = now_s - IDLE_MAX_S
        for connection in [c for c in self._idle if c.expires_s <= now_s or c.idle_since_s <= idle_since_s]:
            self.discard(connection)

    def shut(self) -> list["asyncio.Task[Any]"]:
        """Fail every exchange, close every connection; the dials, cancelled, for the caller to await."""
        self.users = 0
        if self._again is not None:
            self._again.cancel()
        cut: list[tuple[ExchangeSender, Exchange]] = []
        dials: list[asyncio.Task[Any]] = []
        for route in self._in_turns | self.dialling | self._paced.keys() | self.authorizing:
            waiting, dialled = route.cut()
            cut += [(route, exchange) for exchange in waiting]
            dials += dialled
        self._turns.clear()
        self._in_turns.clear()
        self._paced.clear()
        for connection in list(self.open):
            if connection.delivery is not None:
                cut.append((connection.sender, connection.take_off()))
            self.discard(connection)
        for sender, exchange in cut:
            sender.fail(exchange, Reason.CONNECT, "the broker is stopping")
        return dials
