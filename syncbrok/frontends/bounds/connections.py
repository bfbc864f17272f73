"""The connections of one frontend by owner, and which of them makes way for another.

Idle sockets never lock anybody out. When an owner may have no more connections, its new one takes the place of one of
its own that is not being served: first of one that has not asked for anything yet (but not of the newest of these,
whose request may be on its way), else of the one that has been idle longest between two requests. A client that asks is
served, whether it came first or last.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from syncbrok.model.budget import Budget

_EXPECTED: Final = 16
"""new connections of one owner whose requests may be on their way: they are not closed for another new one"""


class HeldConnection(Protocol):
    """A connection. ``owner`` does not change while it is held."""

    owner: str

    @property
    def unproven(self) -> bool:
        """The connection has not sent a whole request yet."""

    def rests_since(self) -> float | None:
        """The loop time since when it rests between two requests; None while it is served, or sends."""

    def make_way(self) -> None:
        """Close, for another connection needs the place."""


class Connections:
    """``budget``: descriptors, of the whole process. ``connections_max`` bounds this frontend's, ``per_owner_max``
    those of each owner that is no proxy."""

    def __init__(
        self, budget: Budget, is_proxy: Callable[[str], bool], connections_max: int, per_owner_max: int
    ) -> None:
        self._budget = budget
        self._is_proxy = is_proxy
        self._connections_max = connections_max
        self._per_owner_max = per_owner_max
        self._by_owner: dict[str, dict[HeldConnection, None]] = {}  # in the order they came; bounded by the budget
        self._resting: dict[str, list[tuple[float, HeldConnection]]] = {}
        """by owner, found at one look for the next newcomers: the longest at rest last"""
        self.count = 0

    def enter(self, connection: HeldConnection) -> bool:
        """Count ``connection`` until it leaves. Returns False, and does not count it, where there is no room for it."""
        owner = connection.owner
        its = self._by_owner.get(owner, {})
        if len(its) >= self._per_owner_max and not self._is_proxy(owner):
            if not self._one_makes_way(owner):
                return False
        elif self.count >= self._connections_max and not self._one_makes_way(self._greatest(owner)):
            return False
        if not self._budget.try_take(owner) and not (
            self._one_makes_way(owner if its else self._greatest(owner)) and self._budget.try_take(owner)
        ):
            return False
        self._by_owner.setdefault(owner, {})[connection] = None
        self.count += 1
        return True

    def leave(self, connection: HeldConnection) -> None:
        """Remove a connection that is closed. One that has made way has been removed before."""
        its = self._by_owner.get(connection.owner)
        if its is None or connection not in its:
            return
        del its[connection]
        if not its:
            del self._by_owner[connection.owner]
            self._resting.pop(connection.owner, None)
        self.count -= 1
        self._budget.give_back(connection.owner)

    def become(self, before: HeldConnection, after: HeldConnection) -> None:
        """Replace ``before`` by ``after``, which has the same socket."""
        its = self._by_owner.get(before.owner)
        if its is not None and before in its:
            del its[before]
            its[after] = None

    def held(self, owner: str) -> int:
        return len(self._by_owner.get(owner, ()))

    def _greatest(self, owner: str) -> str:
        """The owner with the most connections; ``owner`` where none has more."""
        most = max(self._by_owner, key=lambda one: len(self._by_owner[one]), default=owner)
        return most if self.held(most) > self.held(owner) else owner

    def _one_makes_way(self, owner: str) -> bool:
        its = self._by_owner.get(owner)
        if its is None:
            return False
        newest = (one for one in reversed(its) if one.unproven)
        chosen = next(islice(newest, _EXPECTED, None), None) or self._longest_at_rest(owner, its)
        if chosen is None:
            return False
        self.leave(chosen)
        chosen.make_way()
        return True

    def _longest_at_rest(self, owner: str, its: dict[HeldConnection, None]) -> HeldConnection | None:
        found = self._resting.setdefault(owner, [])
        for look in (False, True):
            if look:
                resting = ((since, one) for one in its if not one.unproven and (since := one.rests_since()) is not None)
                found[:] = sorted(resting, key=lambda entry: -entry[0])
            while found:
                since, one = found.pop()
                if one in its and one.rests_since() == since:
                    return one
        return None
