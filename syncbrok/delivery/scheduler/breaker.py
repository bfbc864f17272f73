"""A circuit breaker: after many failures of an endpoint nothing is tried there but a probe now and then. Pure.

``BREAKER`` says which event leads from which state to which, and ``Breaker`` changes its state by it alone. It opens
after so many failures in a row, or when so large a share of the newest answers were some. Once the wait is over the
probe goes out, one message; if it fails the wait is twice as long, and after an answer 1, 2, 4, ... messages may be out
at once, until the breaker closes: who comes back is not run over.
"""

from enum import IntEnum
from typing import Final

from syncbrok.model.facts import Reason
from syncbrok.model.message import BreakerPolicy


class BreakerState(IntEnum):
    CLOSED = 0
    """all goes as the window allows"""
    OPEN = 1
    """nothing goes out before the next probe"""
    PROBING = 2
    """the probe is out, or it was answered and few may be out at once"""


class BreakerEvent(IntEnum):
    TRIPPED = 0
    """so many answers were failures that it opens"""
    PROBED = 1
    """the probe has gone out"""
    FAILED = 2
    """the probe has failed, or one of those that followed"""
    RAMPED = 3
    """as many as there is room for may be out again, or nothing more waits"""


S = BreakerState
E = BreakerEvent

BREAKER: Final[dict[tuple[BreakerState, BreakerEvent], BreakerState]] = {
    (S.CLOSED, E.TRIPPED): S.OPEN,
    (S.OPEN, E.PROBED): S.PROBING,
    (S.PROBING, E.FAILED): S.OPEN,
    (S.PROBING, E.RAMPED): S.CLOSED,
}
"""What is not here cannot happen."""

NO_ANSWER: Final = frozenset(
    {Reason.TIMEOUT, Reason.CONNECT, Reason.TLS, Reason.FORBIDDEN_ADDRESS, Reason.PROTOCOL, Reason.AUTH_FAILED}
)
_NOT_REACHED: Final = frozenset({Reason.CONNECT, Reason.TLS})
_SAYS_NOTHING: Final = frozenset({Reason.CONTENT_LOST, Reason.UNSUBSCRIBED})
_SAYS_NOTHING_OF_AN_ORIGIN: Final = _SAYS_NOTHING | {Reason.TIMEOUT, Reason.FORBIDDEN_ADDRESS, Reason.AUTH_FAILED}


def has_failed(reason: Reason, status: int) -> bool | None:
    """Whether an attempt that ended so is a failure of its endpoint: no answer, 408, 429 or 5xx. Any other answer is
    about the message. None: it says nothing."""
    if reason in _SAYS_NOTHING:
        return None
    if reason is Reason.STATUS:
        return status in (408, 429) or status >= 500
    return reason in NO_ANSWER


def is_unreachable(reason: Reason) -> bool | None:
    """Whether an attempt that ended so has not reached its origin (DNS, connect, TLS). None: it says nothing."""
    if reason in _SAYS_NOTHING_OF_AN_ORIGIN:
        return None
    return reason in _NOT_REACHED


class Breaker:
    """That of a subscriber, or of an origin. An attempt is known by message and subscriber (number)."""

    __slots__ = ("_all", "_allowed", "_in_row", "_out", "_passed", "_recent", "_wait_s", "failing", "held", "number",
                 "origin", "policy", "probe_us", "probed", "since_us", "state")  # fmt: skip

    def __init__(self, number: int, policy: BreakerPolicy, origin: str = "") -> None:
        """``number`` names it in the timer wheel; ``origin``: the one it is for, else it is a subscriber's."""
        self.number, self.policy, self.origin = number, policy, origin
        self.state = BreakerState.CLOSED
        self._recent = 0
        """of the newest answers those that were failures, a bit each, the newest first; as if before all were well"""
        self._all = (1 << policy.of) - 1
        self._in_row = 0
        self.failing = 0
        """how many in a row had failed when it opened, or how many of the newest where they were not in a row"""
        self.since_us = 0
        """when it opened first, since it was closed"""
        self._wait_s = 0.0
        self.probe_us = 0
        """open: when the next probe is due"""
        self.probed = 0
        """the message that the last probe took"""
        self._out: set[tuple[int, int]] = set()
        """probing: what is out since; bounded by what is allowed"""
        self._allowed = 1
        self._passed = 0
        self.held: dict[int, None] = {}
        """numbers of the subscribers that it holds back, in the order in which they came; each looks again when
        something has changed"""

    def __repr__(self) -> str:
        return f"<Breaker {self.origin or self.number}: {self.state.name.lower()}>"

    @property
    def holds(self) -> bool:
        """Whether nothing goes out but a probe."""
        return self.state is not S.CLOSED and not (self._passed or self._allowed > 1)

    def room(self, now_us: int) -> int | None:
        """How many more may go out now; None for as many as else."""
        if self.state is S.CLOSED:
            return None
        if self.state is S.OPEN:
            return int(now_us >= self.probe_us)
        return self._allowed - len(self._out)

    def begun(self, message: int, subscriber: int) -> None:
        """An attempt goes out, for which there was room."""
        if self.state is S.CLOSED:
            return
        if self.state is S.OPEN:
            self._step(E.PROBED)
        if self.holds:
            self.probed = message
        self._out.add((message, subscriber))

    def is_well(self, count: int) -> None:
        """So many answers came while it was closed, and none was a failure."""
        self._in_row = 0
        self._recent = self._recent << min(count, self.policy.of) & self._all

    def failed(self, message: int, subscriber: int, now_us: int) -> bool:
        """An answer was a failure; whether the breaker has opened. What was begun before it opened is too late to say
        anything more."""
        if self.state is S.CLOSED:
            self._in_row += 1
            self._recent = (self._recent << 1 | 1) & self._all
            policy, failures = self.policy, self._recent.bit_count()
            if self._in_row < policy.failures and failures < policy.share * policy.of:
                return False
            self.failing = self._in_row if self._in_row >= policy.failures else failures
            self.since_us, self._wait_s = now_us, policy.probe_s[0]
            self._open(E.TRIPPED, now_us)
            return True
        if self.state is S.PROBING and (message, subscriber) in self._out:
            self._wait_s = min(2 * self._wait_s, self.policy.probe_s[1])
            self._open(E.FAILED, now_us)
        return False

    def passed(self, message: int, subscriber: int, enough: int) -> None:
        """An answer was no failure. ``enough``: where so many may be out it closes."""
        if self.state is S.CLOSED:
            self.is_well(1)
        elif self.state is S.PROBING and (message, subscriber) in self._out:
            self._out.discard((message, subscriber))
            self._passed += 1
            if self._passed >= self._allowed:
                self._allowed, self._passed = 2 * self._allowed, 0
            if self._allowed >= enough:
                self.close()

    def close(self) -> None:
        """Nothing more waits, or as much may be out as there is room for."""
        self._step(E.RAMPED)
        self._recent = self._in_row = self.failing = 0

    def is_back(self, message: int, subscriber: int) -> None:
        """An attempt is back that says nothing, or was not begun."""
        self._out.discard((message, subscriber))

    def forget(self, subscriber: int) -> None:
        """Wait no more for what is out of this subscriber."""
        self._out = {one for one in self._out if one[1] != subscriber}
        self.held.pop(subscriber, None)

    @property
    def rests(self) -> bool:
        """True of one that is closed and remembers no failure: a new one would be the same."""
        return self.state is S.CLOSED and not self._recent

    def has_room_for(self, waiting: int) -> bool:
        """Whether the probe was answered, nothing is out, and so many could go at once."""
        return self.state is S.PROBING and not self.holds and not self._out and waiting <= self._allowed

    def _open(self, event: BreakerEvent, now_us: int) -> None:
        self._step(event)
        self.probe_us = now_us + int(self._wait_s * 1e6)

    def _step(self, event: BreakerEvent) -> None:
        self.state = BREAKER[self.state, event]
        self._out.clear()
        self._allowed, self._passed = 1, 0
