"""Writes to several connections in one turn of the loop together, at its end.

A process that holds several of them is then woken once for all of it. Written one by one, with work between, it falls
asleep after each, and waking it costs more than the write. Large writes are shared out among turns: a megabyte to each
of a thousand connections takes the better part of a second.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from syncbrok.frontends.bounds import Turns
from syncbrok.frontends.over_tcp.session.peer_session import PeerSession
from syncbrok.model import limits


class CoalescedWrites:
    """One for each frontend whose peers take small messages and answer each. What is written first leaves first."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._waiting: deque[tuple[PeerSession, tuple[bytes, ...], Callable[[], None] | None]] = deque()
        """few for each connection: answers, and a message"""

    def write(self, session: PeerSession, *pieces: bytes) -> None:
        """Write an answer."""
        self._put(session, pieces, None)

    def begin(self, session: PeerSession, *pieces: bytes, withheld: Callable[[], None]) -> None:
        """Write an attempt; see ``PeerSession.begin_in_turn``."""
        self._put(session, pieces, withheld)

    def _put(self, session: PeerSession, pieces: tuple[bytes, ...], withheld: Callable[[], None] | None) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append((session, pieces, withheld))

    def _flush(self, turn: "asyncio.Future[None] | None" = None) -> None:
        its_turn = turn is not None
        while self._waiting:
            session, pieces, withheld = self._waiting[0]
            if len(pieces[-1]) > limits.uncounted_bytes:
                if not (its_turn or self._turns.now()):
                    self._turns.later(self, goes_on=True).add_done_callback(self._flush)
                    return
                its_turn = False
            self._waiting.popleft()
            if withheld is None:
                session.write(*pieces)
            else:
                session.begin_in_turn(pieces, 1, withheld)
