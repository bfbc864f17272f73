"""The shared resources of one process, in one object: each field is a ``Budget`` with owners of its own.

It is made once, at the start, from what the system grants and from ``limits``. The log and the listeners have their
descriptors before any client is let in: a broker that lacks one for its next segment cannot keep its promises.
"""

import resource
from typing import Final, NamedTuple

from syncbrok.delivery.scheduler.content_budget import ContentBudget
from syncbrok.delivery.scheduler.shares import Shares
from syncbrok.model import limits
from syncbrok.model.budget import Budget
from syncbrok.model.errors import BadConfig

_INDEXES_SHARE: Final = 8
"""the indexes that the log keeps open take at most one descriptor in so many"""


class Descriptors(NamedTuple):
    """``limit``: how many files and sockets the process may have open. ``indexes_max``: how many of them are for the
    indexes of sealed segments. ``shared``: what is left once the log, the process and its listeners have theirs."""

    limit: int
    indexes_max: int
    shared: int


def share_out(limit: int) -> Descriptors:
    """Raises ``BadConfig`` where so few do not do."""
    if limit < limits.descriptors_min:
        raise BadConfig(
            f"this process may have {limit} files and sockets open; a broker needs {limits.descriptors_min} at least. "
            "Raise it before the start: ulimit -n 4096, or LimitNOFILE= of the unit"
        )
    indexes_max = min(limits.indexes_kept_max, limit // _INDEXES_SHARE)
    return Descriptors(limit, indexes_max, limit - limits.descriptors_reserved - indexes_max)


def raise_descriptors() -> int:
    """Raise the soft limit of open files to the hard one, and at most to ``limits.descriptors_max``; what it is then.
    The soft limit that a shell hands down (often 1,024) is for programs that still use ``select``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    granted = limits.descriptors_max if hard == resource.RLIM_INFINITY else min(hard, limits.descriptors_max)
    if soft not in (resource.RLIM_INFINITY, granted) and soft < granted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    return granted


class Budgets:
    """All budgets of a broker, with their owners:

    descriptors        an address that connects (its /64, where it is IPv6); an origin whose endpoints are dialled
    receiving          bytes of requests and frames that are not whole yet, or wait to be worked on: a token's name,
                       else the address
    sending            bytes of answers and streams that were not read yet: as ``receiving``
    attempts           deliveries that are out: the subscriber
    leases             messages lent to consumers that come for them: the subscriber
    content_in_flight  bytes of content held for them: the subscriber; as ``receiving`` where one client has all its
                       consumers
    """

    def __init__(self, descriptors: Descriptors) -> None:
        self.indexes_max = descriptors.indexes_max
        self.descriptors = Budget("descriptors", descriptors.shared)
        self.receiving = Budget("receiving", limits.receiving_bytes_max)
        self.sending = Budget("sending", limits.sending_bytes_max)
        self.attempts = Budget("attempts", limits.attempts_in_flight_max)
        self.leases = Budget("leases", limits.leases_max)
        self.content_in_flight = Budget("content_in_flight", limits.bytes_in_flight_max)
        self.all: tuple[Budget, ...] = (
            *(self.descriptors, self.receiving, self.sending),
            *(self.attempts, self.leases, self.content_in_flight),
        )

        self.shares = Shares(self.attempts, self.leases, ContentBudget(self.content_in_flight), set())
        """what subscribers share, for scheduler and dispatcher"""

    @classmethod
    def of(cls, descriptors: int = limits.descriptors_max) -> "Budgets":
        """Budgets for a process that may open ``descriptors`` descriptors."""
        return cls(share_out(descriptors))

    def __repr__(self) -> str:
        return f"<Budgets {', '.join(f'{one.name} {one.used}/{one.total}' for one in self.all)}>"
