"""Shares out what all subscribers take of: attempts, leases, bytes of content. How much may one of them have now? Pure.

A subscriber that hangs holds what its window allows and does not give it back. With one counter for all, a few of those
stopped the delivery of every queue; with budgets each stops at its own threshold, and whoever holds nothing still gets
some (``model/budget.py``).
"""

from typing import NamedTuple

from syncbrok.delivery.scheduler.content_budget import ContentBudget
from syncbrok.delivery.scheduler.cursor import Cursor
from syncbrok.model import limits
from syncbrok.model.budget import Budget


class Shares(NamedTuple):
    """The owner of everything is a subscriber, or whoever pays for its content. What it has in flight its cursor knows;
    so ``attempts`` and ``leases`` are told only how much is used in all."""

    attempts: Budget
    """that are out at handlers, those included whose messages are being read"""
    leases: Budget
    """lent to those who come for their messages: no attempts, since they may last for hours"""
    content: ContentBudget
    """bytes, of attempts that are out and of leases that are not written yet; small contents are not counted"""
    short: set[int]
    """subscribers with attempts that were taken and wait for room for their content: none more are taken for them"""

    def plenty_below(self, turn: int) -> int:
        """A cursor with fewer in flight than this may take so many as one turn hands out, and ``room`` need not be
        asked: the common case, in which a budget costs a comparison."""
        if self.content.budget.owners:
            return 0
        attempts, leases = self.attempts, self.leases
        free = min(attempts.free - attempts.reserve, leases.free - leases.reserve)
        return free - 2 * turn

    def room(self, cursor: Cursor, attempts: int = 0, leases: int = 0) -> int:
        """How many more the cursor may have in flight, where so many were handed out to all a moment ago and are not
        counted yet."""
        # How large the next ones are nobody knows before they are read: those too many then wait, and it is ``short``.
        if cursor.number in self.short or self.content.is_short(cursor.number):
            return 0
        if cursor.subscriber.consumed:
            return self.leases.room_beside(len(cursor.in_flight), leases)
        return self.attempts.room_beside(len(cursor.in_flight), attempts)


def own_shares() -> Shares:
    """Budgets as large as the limits, for a scheduler that shares them with nobody else."""
    return Shares(
        Budget("attempts", limits.attempts_in_flight_max),
        Budget("leases", limits.leases_max),
        ContentBudget(Budget("content_in_flight", limits.bytes_in_flight_max)),
        set(),
    )
