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

    def doubt(self, epoch: int) -> bool:
        """An endpoint says that it has seen this later epoch. True where it may have: it is found out at once who
        leads. False where this node has led since an endpoint said so first."""


class _SingleNode:
    epoch = 0
    lease_s = 0.0

    def holds(self) -> bool:
        """See ``LeaderLease``."""
        return True

    def doubt(self, epoch: int) -> bool:  # noqa: ARG002
        """See ``LeaderLease``: nobody else leads."""
        return False


SINGLE_NODE: Final[LeaderLease] = _SingleNode()
"""of a log that one machine alone writes"""
