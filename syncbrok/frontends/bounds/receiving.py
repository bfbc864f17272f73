"""Counts bytes of requests, bodies and frames that are not whole yet, by sender.

Bytes that arrive are counted at once or refused. A body of known length waits in line and is admitted as a whole before
the rest of it is read. So every sender that is admitted can finish, and none waits for another that waits too. If
pieces were counted instead, a hundred bodies could stop each other half way until their time is over.
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from contextlib import suppress
from typing import NamedTuple

from syncbrok.model.budget import Budget


class _WaitingSender(NamedTuple):
    owner: Hashable
    amount: int
    admitted: "asyncio.Future[None]"


class Receiving:
    """See ``Budget``."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.try_take, self.give_back = budget.try_take, budget.give_back
        self._line: deque[_WaitingSender] = deque()  # one for each connection at most
        self._serving = False
        budget.when_freed(self._freed)

    def hold(self, owner: Hashable, more: int) -> bool:
        """Count ``more`` bytes that have come (negative: bytes that are kept no longer). False where that is too much:
        they are counted all the same, and the caller drops them."""
        if more < 0:
            self.give_back(owner, -more)
        elif more and not self.try_take(owner, more):
            self.budget.take(owner, more)
            return False
        return True

    def try_admit(self, owner: Hashable, amount: int) -> bool:
        """Take ``amount`` for the whole of a body. It leaves a third of what its owner may have to what comes
        unasked: beginnings that wait in this line, and whatever else its owner sends."""
        budget = self.budget
        free = budget.free - budget.reserve
        return 2 * budget.held(owner) <= free and budget.try_take(owner, amount)

    async def admit(self, owner: Hashable, amount: int) -> None:
        """Count ``amount`` bytes as soon as there is room. The caller bounds how long that may take."""
        if not self._line and self.try_admit(owner, amount):
            return
        waiting = _WaitingSender(owner, amount, asyncio.get_running_loop().create_future())
        self._line.append(waiting)
        self._serve()
        try:
            await waiting.admitted
        except asyncio.CancelledError:
            if waiting.admitted.done() and not waiting.admitted.cancelled():
                self.give_back(owner, amount)
            else:
                with suppress(ValueError):  # passed over already
                    self._line.remove(waiting)
            raise

    def _freed(self) -> None:
        if self._line and not self._serving:
            self._serving = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Admit in the order of arrival. A sender that may not have more yet holds up no other."""
        self._serving = False
        left: deque[_WaitingSender] = deque()
        for waiting in self._line:
            if waiting.admitted.done():
                continue
            if self.try_admit(waiting.owner, waiting.amount):
                waiting.admitted.set_result(None)
            else:
                left.append(waiting)
        self._line = left
