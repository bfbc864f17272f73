"""Counts bytes that were written and not read yet, by reader, and closes connections whose readers have stopped.

A socket's buffer is looked at when it is full and every second from then on. If it is not empty and nothing of it moves
for ``limits.write_timeout_s``, the reader is gone or asleep and the connection is closed. If an owner leaves more
unread than its share, its connection that has stood still longest is closed, one a second. If the unread bytes of all
are too many, the connection that has just got more is closed at once. The data is still in the log.
"""

import asyncio
import socket
from collections.abc import Hashable
from typing import Final, Protocol

from syncbrok.model import limits
from syncbrok.model.budget import Budget

HIGH_WATER_BYTES: Final = limits.uncounted_bytes
"""of each socket's buffer: beyond it a socket counts as unread"""
_STILL_S: Final = 1.0
"""so long a reader may be busy elsewhere where others of its owner leave too much unread"""


def hold_little(listening: socket.socket) -> None:
    """Limit what sockets accepted from now on keep in the system, beside bytes on their way, to
    ``limits.unsent_bytes_max``. This does not bound the whole buffer: a quick reader far away still has as much under
    way as the line takes."""
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limits.unsent_bytes_max)


class Unread(Protocol):
    """A connection that is written to. ``payer`` answers for what it does not read; ``spoken_for``: of its bytes, how
    many were taken before they were written."""

    @property
    def transport(self) -> asyncio.Transport | None: ...

    @property
    def payer(self) -> Hashable: ...

    @property
    def spoken_for(self) -> int: ...


class _Watched:
    __slots__ = ("buffered", "moved_s", "payer", "taken", "transport")

    def __init__(self, transport: asyncio.Transport, payer: Hashable, now_s: float) -> None:
        self.transport = transport  # the connection may let go of it while it still has bytes
        self.payer = payer
        self.taken = 0
        self.buffered = 0
        self.moved_s = now_s


class Sending:
    """See ``Budget``. ``check`` is called every second."""

    def __init__(self, budget: Budget, timeout_s: float = limits.write_timeout_s) -> None:
        self.budget = budget
        self.try_take, self.give_back = budget.try_take, budget.give_back
        self._timeout_s = timeout_s
        self._watched: dict[Unread, _Watched] = {}  # bounded by the connections

    def filled(self, connection: Unread) -> None:
        """Watch a connection whose buffer is full (``pause_writing``)."""
        transport, now_s = connection.transport, asyncio.get_running_loop().time()
        if transport is None:
            return
        watched = self._watched.get(connection)
        if watched is None:
            watched = self._watched[connection] = _Watched(transport, connection.payer, now_s)
        self._count(connection, watched, now_s)
        if self.budget.free < 0:
            transport.abort()

    def emptied(self, connection: Unread) -> None:
        """Watch a connection no more: its buffer has been read, or it is gone."""
        watched = self._watched.pop(connection, None)
        if watched is not None and watched.taken:
            self.give_back(watched.payer, watched.taken)

    def check(self, now_s: float) -> None:
        """Count what is unread now and close readers that have stopped. ``now_s`` is the loop's time."""
        stillest: dict[Hashable, _Watched] = {}
        for connection, watched in list(self._watched.items()):
            self._count(connection, watched, now_s)
            if now_s - watched.moved_s >= self._timeout_s:
                watched.transport.abort()
            elif not self.budget.room(watched.payer):
                before = stillest.get(watched.payer)
                if before is None or watched.moved_s < before.moved_s:
                    stillest[watched.payer] = watched
        for watched in stillest.values():
            if now_s - watched.moved_s >= _STILL_S:
                watched.transport.abort()

    def _count(self, connection: Unread, watched: _Watched, now_s: float) -> None:
        """Count the bytes that are in its buffer now."""
        buffered = watched.transport.get_write_buffer_size()
        if buffered < watched.buffered:  # what is added to it does not say that it is read
            watched.moved_s = now_s
        watched.buffered = buffered
        amount = max(0, buffered - connection.spoken_for)
        more = amount - watched.taken
        watched.taken = amount
        if more > 0:
            self.budget.take(watched.payer, more)
        elif more < 0:
            self.give_back(watched.payer, -more)
