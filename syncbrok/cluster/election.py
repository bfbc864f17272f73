"""One node's part in the election of a leader. It is told the time and what the node reads; pure.

There is one stream that all nodes read, and whose every append names the message it follows (compare-and-swap). So the
stream itself is the lease. Whoever leads appends, a beat at least every fifth of the lease. Whoever has received
nothing for longer than a lease appends a claim; only one of several can succeed, and who led before cannot append any
more.

    leader    may begin attempts until (when its last append that was stored was sent) + lease - margin
    follower  claims at (when it received the last message) + 1.2 lease + up to 0.4 lease more, by chance;
              on a stream that nobody has ever claimed within a fifth of the lease

A message is received after it was sent, so the old lease is over before the new one begins, as long as the two clocks
agree in rate to a tenth or so. They need not agree in time. Times are microseconds of one machine's CLOCK_BOOTTIME,
which goes on while that machine sleeps.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

_GENERATION_SHIFT: Final = 40
_FIRST_GENERATION: Final = 1


class Role(Enum):
    """``FENCED``: another one leads, and what this node believes of the log may be a future that did not happen: its
    process ends. ``YIELDED``: it gave up leading on purpose; its process ends as well."""

    FOLLOWING = "following"
    CLAIMING = "claiming"
    LEADING = "leading"
    FENCED = "fenced"
    YIELDED = "yielded"


class LeaseTimes(NamedTuple):
    """All in microseconds. ``patience_us`` to ``patience_us`` + ``jitter_us``: for how long a follower waits for a
    sign of the leader."""

    lease_us: int
    margin_us: int
    beat_us: int
    patience_us: int
    jitter_us: int

    @classmethod
    def of(cls, lease_s: float) -> "LeaseTimes":
        lease_us = int(lease_s * 1e6)
        return cls(lease_us, lease_us // 10, lease_us // 5, lease_us * 12 // 10, lease_us * 4 // 10)


class Due(Enum):
    """The appends that are due now."""

    CLAIM = "claim"
    BEAT = "beat"


def epoch_of(generation: int, claim: int) -> int:
    """The number of a leader's time: greater than each one before. ``generation`` counts how often the stream was made
    anew, ``claim`` is the stream sequence of the claim that began it."""
    return generation << _GENERATION_SHIFT | claim


def claim_of(epoch: int) -> int:
    """The stream sequence of the claim that began it."""
    return epoch & ((1 << _GENERATION_SHIFT) - 1)


def generation_of(epoch: int) -> int:
    """How often the stream had been made anew."""
    return epoch >> _GENERATION_SHIFT


class Election:
    """``chance`` gives numbers from 0 up to 1. The caller appends what ``due`` says, and tells what became of it."""

    def __init__(self, times: LeaseTimes, generation: int, chance: Callable[[], float], now_us: int) -> None:
        self._times = times
        self._generation = generation
        self._chance = chance
        self.role = Role.FOLLOWING
        self.epoch = 0
        """of the leader that was seen last"""
        self._lease_until_us = 0
        self._beat_due_us = 0
        self._claim_due_us = 0
        self._wait_from(now_us)

    # -- as follower --------------------------------------------------------------------------------------------------

    def received(self, now_us: int) -> None:
        """A message of the stream was read: whoever wrote it leads, or did."""
        if self.role is Role.FOLLOWING:
            self._wait_from(now_us)

    def claimed(self, claim: int, now_us: int) -> None:
        """A claim was read, at this stream sequence: another one leads now. A yield that was read before it, perhaps in
        the same moment, concerned the one who led before: this one's lease must end first."""
        self.epoch = epoch_of(self._generation, claim)
        self.received(now_us)

    def yielded(self, now_us: int) -> None:
        """Hear that the one who led has given up on purpose: nobody need wait for its lease."""
        if self.role is Role.FOLLOWING:
            self._claim_due_us = now_us + int(self._chance() * self._times.beat_us)

    def unclaimed(self, now_us: int) -> None:
        """The stream was read, and nobody has ever claimed: there is no lease to wait for. (A stream that was made anew
        may have come while a leader of the one before still holds one.)"""
        if self.role is Role.FOLLOWING and self._generation <= _FIRST_GENERATION:
            self.yielded(now_us)

    def hears_leader(self, now_us: int) -> bool:
        """Whether it follows, and the last sign of a leader is not so old yet that it would claim."""
        return self.role is Role.FOLLOWING and now_us < self._claim_due_us

    def _wait_from(self, now_us: int) -> None:
        self._claim_due_us = now_us + self._times.patience_us + int(self._chance() * self._times.jitter_us)

    # -- its own appends ----------------------------------------------------------------------------------------------

    def due(self, now_us: int, *, reluctant: bool = False) -> Due | None:
        """The append that is due now; a claim is asked for once. ``reluctant``: it claims a lease later than else."""
        if self.role is Role.FOLLOWING and now_us >= self._claim_due_us + reluctant * self._times.lease_us:
            self.role = Role.CLAIMING
            return Due.CLAIM
        if self.role is Role.LEADING and now_us >= self._beat_due_us:
            self._beat_due_us = now_us + self._times.beat_us
            return Due.BEAT
        return None

    def next_due_us(self) -> int | None:
        """When ``due`` may say something; None if it never does."""
        if self.role is Role.FOLLOWING:
            return self._claim_due_us
        return self._beat_due_us if self.role is Role.LEADING else None

    def claim_stored(self, sent_us: int, claim: int) -> None:
        """The claim is in the stream, at this sequence. It was sent at ``sent_us``."""
        assert self.role is Role.CLAIMING
        self.role = Role.LEADING
        self.epoch = epoch_of(self._generation, claim)
        self.append_stored(sent_us)

    def claim_refused(self, now_us: int) -> None:
        """Something else stands where the claim was to be: somebody leads, and is heard within a beat."""
        assert self.role is Role.CLAIMING
        self.role = Role.FOLLOWING
        self._claim_due_us = now_us + self._times.beat_us + self._times.patience_us

    def append_stored(self, sent_us: int) -> None:
        """An append of this leader is in the stream. ``sent_us``: when it was sent first, not when that was known."""
        if self.role is Role.LEADING:
            self._lease_until_us = max(self._lease_until_us, sent_us + self._times.lease_us - self._times.margin_us)
            self._beat_due_us = max(self._beat_due_us, sent_us + self._times.beat_us)

    def beat_now(self) -> None:
        """A beat is due, whenever the last one was."""
        self._beat_due_us = 0

    def append_refused(self) -> None:
        """Another's message stands where an append of this leader was to be."""
        if self.role is Role.LEADING:
            self.role = Role.FENCED

    def gave_up(self) -> None:
        """Its yield is in the stream."""
        self.role = Role.YIELDED

    # -- the lease ----------------------------------------------------------------------------------------------------

    @property
    def lease_us(self) -> int:
        return self._times.lease_us

    def holds(self, now_us: int) -> bool:
        """Whether an attempt may begin now: it leads, and nobody else can."""
        return self.role is Role.LEADING and now_us < self._lease_until_us

    def lease_left_us(self, now_us: int) -> int:
        """How long it may still begin attempts, if nothing more is stored."""
        return max(0, self._lease_until_us - now_us) if self.role is Role.LEADING else 0

    def __repr__(self) -> str:
        return f"<Election {self.role.value}, epoch {self.epoch}>"
