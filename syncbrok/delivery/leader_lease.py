"""Whether attempts may begin. On one machine they always may; of several only one may begin them, and must look.

The look is taken twice: where the dispatcher takes attempts, and again where the first byte of each is written
(``attempt_guard``). A process that was stopped in between, for longer than its lease, would else send a parent after
its children: the leader of now has gone on.
"""

from typing import Final, Protocol


class LeaderLease(Protocol):
    """``epoch``: the number of this leader's time, greater than those of all before it; 0: there is no cluster.
    ``lease_s``: for how long it leads at most once nothing more is stored."""

    @property
    def epoch(self) -> int: ...

    @property
    def lease_s(self) -> float: ...

    def holds(self) -> bool:
        """Whether an attempt may begin now. Asked for every batch of them; no system call but for the clock."""
        ...

    def doubt(self) -> None:
        """An endpoint has seen a later epoch: it is to be found out at once who leads."""


class _SingleNode:
    epoch = 0
    lease_s = 0.0

    def holds(self) -> bool:
        """See ``LeaderLease``."""
        return True

    def doubt(self) -> None:
        """See ``LeaderLease``: nobody else leads."""


SINGLE_NODE: Final[LeaderLease] = _SingleNode()
"""of a log that one machine alone writes"""
