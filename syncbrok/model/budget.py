"""One bounded resource that many owners share, so that none can take all of it.

The rule is the dynamic threshold of Choudhury and Hahne (IEEE/ACM Transactions on Networking 6(2), 1998, alpha = 1): an
owner may take while it holds less than what is still free. So no share has to be configured, no share of an idle owner
is wasted, and one greedy owner stops at half. An eighth of the whole is a reserve: only an owner that holds nothing
takes from it, one item. Without the reserve, owners that come one after the other and never give back would halve the
rest until nothing is left: fifteen hung subscribers would be enough for 20,000 attempts.

Fixed shares for each owner were rejected: they waste the shares of idle owners. An earlier version had one counter for
all: a single subscriber that hung could hold all of it, and every delivery stopped.
"""

from collections.abc import Callable, Hashable


class Budget:
    """``total`` units of a resource called ``name`` (an attempt, a byte, a descriptor). Knows no clock and no loop.

    An owner below its threshold may take one item that fits into what is free, even if that passes the threshold.
    Callers bound the size of an item well below ``reserve``, an eighth of ``total``.
    """

    __slots__ = ("_freed", "_held", "_short", "name", "reserve", "total", "used")

    def __init__(self, name: str, total: int) -> None:
        assert total > 0, (name, total)
        self.name = name
        self.total = total
        self.reserve = total // 8
        """for those that hold nothing"""
        self.used = 0
        """set from outside where the owners count themselves what they hold (``room_beside``): then ``held`` and
        ``owners`` know of nothing"""
        self._held: dict[Hashable, int] = {}
        """by owner, without those that hold nothing: as many entries as there are units taken at most"""
        self._freed: list[Callable[[], None]] = []
        self._short: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Budget {self.name}: {self.used} of {self.total} used by {len(self._held)}>"

    @property
    def free(self) -> int:
        return self.total - self.used

    @property
    def owners(self) -> int:
        """How many hold something."""
        return len(self._held)

    def held(self, owner: Hashable) -> int:
        return self._held.get(owner, 0)

    def room(self, owner: Hashable) -> int:
        """How many single units ``owner`` could take now, one after the other, if no other owner takes any."""
        return self.room_beside(self._held.get(owner, 0))

    def room_beside(self, held: int, others: int = 0) -> int:
        """As ``room``, for an owner that knows itself what it holds; ``others``: taken just now and not in ``used``
        yet."""
        free = self.total - self.used - others
        shared = (free - self.reserve - held + 1) // 2
        return max(shared, 0 if held or free <= 0 else 1)

    def try_take(self, owner: Hashable, amount: int = 1) -> bool:
        """Take ``amount`` units for ``owner``; False, and nothing taken, where it may not now."""
        free = self.total - self.used
        held = self._held.get(owner, 0)
        if amount > free or (held and held >= free - self.reserve):
            if free <= self.reserve + amount:
                for listener in self._short:
                    listener()
            return False
        self.used += amount
        self._held[owner] = held + amount
        return True

    def take(self, owner: Hashable, amount: int = 1) -> None:
        """Count units that ``owner`` holds already and that cannot be refused any more (an accepted socket, an answer
        that is made). The sum may pass ``total``; then all are refused until it is below again."""
        self.used += amount
        self._held[owner] = self._held.get(owner, 0) + amount

    def give_back(self, owner: Hashable, amount: int = 1) -> None:
        """Return ``amount`` units that ``owner`` holds, and tell those who asked to be told. Giving back more than was
        taken is a mistake of the programmer."""
        self._take_off(owner, amount)
        self.used -= amount
        for listener in self._freed:
            listener()

    def hand_over(self, owner: Hashable, to: Hashable, amount: int) -> None:
        """Let ``to`` hold ``amount`` units that ``owner`` holds. Nothing comes free by it."""
        self._take_off(owner, amount)
        self._held[to] = self._held.get(to, 0) + amount

    def _take_off(self, owner: Hashable, amount: int) -> None:
        held = self._held[owner] - amount
        assert held >= 0, (self.name, owner, amount)
        if held:
            self._held[owner] = held
        else:
            del self._held[owner]

    def when_freed(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each ``give_back``. It is called often: it should only note that there may be room,
        and look on the next turn of the loop."""
        self._freed.append(listener)

    def when_short(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when a request is refused and little more than the reserve is left. It should make owners
        give back what they can do without; it must not take or give back inside the call."""
        self._short.append(listener)
