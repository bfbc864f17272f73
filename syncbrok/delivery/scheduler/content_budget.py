"""The budget of content that is going out. A subscriber pays for its own, unless one client has all its consumers.

Two hundred sockets without a group are two hundred subscribers of one client, and a budget has a reserve for those who
hold nothing. As newcomers, one after the other, they took all 64 MiB and read none of it, and a neighbour waited for
seconds. So they are one owner: the client that the frontends name (``payer``).
"""

from collections.abc import Hashable

from syncbrok.model.budget import Budget


class ContentBudget:
    """A ``Budget`` of bytes that is asked by subscriber (number). What a subscriber holds goes with it where its payer
    changes, so what is given back is always its payer's. ``budget``: what is held of it, by payer."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._payers: dict[int, Hashable] = {}
        """of subscribers that do not pay themselves: as many as have consumers now"""
        self._held: dict[int, int] = {}
        """by subscriber, of those in ``_payers``"""

    def __repr__(self) -> str:
        return f"<ContentBudget {self.budget!r}, {len(self._payers)} do not pay themselves>"

    def payer(self, subscriber: int) -> Hashable:
        return self._payers.get(subscriber, subscriber)

    def held(self, subscriber: int) -> int:
        """Bytes that the subscriber holds itself."""
        return self._held.get(subscriber, 0) if subscriber in self._payers else self.budget.held(subscriber)

    def room(self, subscriber: int) -> int:
        """As ``Budget.room``, of its payer."""
        return self.budget.room(self.payer(subscriber))

    def is_short(self, subscriber: int) -> bool:
        """Whether its payer holds something, and may take no more now."""
        payer = self.payer(subscriber)
        return bool(self.budget.held(payer)) and not self.budget.room(payer)

    def try_take(self, subscriber: int, size_bytes: int) -> bool:
        """As ``Budget.try_take``, for the subscriber."""
        taken = self.budget.try_take(self.payer(subscriber), size_bytes)
        if taken and subscriber in self._payers:
            self._held[subscriber] = self._held.get(subscriber, 0) + size_bytes
        return taken

    def give_back(self, subscriber: int, size_bytes: int) -> None:
        """As ``Budget.give_back``, for the subscriber."""
        if subscriber in self._payers:
            self._held[subscriber] -= size_bytes
        self.budget.give_back(self.payer(subscriber), size_bytes)

    def charge(self, subscriber: int, payer: Hashable | None) -> None:
        """From now on ``payer`` pays for the subscriber, also for what it holds; None: the subscriber itself."""
        before, held = self.payer(subscriber), self.held(subscriber)
        if payer is None:
            self._payers.pop(subscriber, None)
            self._held.pop(subscriber, None)
        else:
            self._payers[subscriber] = payer
            self._held[subscriber] = held
        if held:
            self.budget.hand_over(before, self.payer(subscriber), held)
