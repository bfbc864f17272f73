"""Appends to the stream for the node that leads, until it is known what became of each; says whether it still leads.

An append that hears nothing, or hears that the stream does not end where it was to, is not undone and not given up: it
is made again, under the same name and behind the same message, until the stream's leader says what stands there. Mine:
it was stored. Another's: this node is fenced. Nothing: again. (An answer "wrong last sequence" alone was seen for
messages that were stored, and for messages that were not.)
"""

import threading
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from syncbrok.cluster.election import Due, Election, Role
from syncbrok.cluster.engine import Fate
from syncbrok.cluster.stream_messages import AppendNames, StreamKind, StreamMessage, pieces_of
from syncbrok.model.errors import LogFailed

_TRY_S: Final = 5.0
"""for one answer; the engine elects a leader of its own in 4 to 10 s"""
_AGAIN_S: Final = 0.05


class Fenced(LogFailed):
    """Another node of the cluster leads. What this one has in memory may be a future that did not happen: its process
    ends, and its supervisor starts it again as a follower."""

    slug = "fenced"
    exit_code = 76


class EngineLike(Protocol):
    """The questions to the engine that stand here (``engine.Engine``)."""

    def try_append(self, message: StreamMessage, last: int, timeout_s: float) -> tuple[Fate, int]: ...

    def from_leader(self, sequence: int) -> StreamMessage | None: ...


class LeadershipStatistics(NamedTuple):
    """``found`` and ``not_found``: tries whose answer did not say that it was stored, by whether the message was there
    when that was asked. ``waiting_s``: since when an append is out, 0.0 while none is. ``append_s``: what all that
    were stored took together."""

    epoch: int
    appended: int
    found: int
    not_found: int
    claims_won: int
    claims_lost: int
    waiting_s: float
    lease_s: float
    append_s: float


NO_LEADERSHIP: Final = LeadershipStatistics(0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0)
"""of a node that does not know yet what to follow"""


class Leadership:
    """``election`` is told of every append; ``clock_us`` is CLOCK_BOOTTIME. One append is out at a time, whichever
    thread asks for it: the log's writer, or ``beat``."""

    def __init__(
        self,
        engine: EngineLike,
        election: Election,
        names: AppendNames,
        claim: StreamMessage,
        clock_us: Callable[[], int],
        fenced: Callable[[], None] = lambda: None,
    ) -> None:
        """``claim``: what this node claims with; its name and place come later. ``fenced`` is told once that another
        one leads."""
        self._engine = engine
        self._election = election
        self._names = names
        self.own_claim = claim
        """without its place"""
        self._clock_us = clock_us
        self._fenced = fenced
        self._one = threading.Lock()
        self._stop = threading.Event()
        self._given_up = False
        self._since_us = 0
        self._append_us = 0
        self.last = 0
        """the last message of the stream that this node has read or appended"""
        self.appended = 0
        self._found, self._not_found = 0, 0
        self._claims_won, self._claims_lost = 0, 0
        self._doubted = (0, 0)
        """the latest epoch that an endpoint has named, and how many appends were sent when it did"""

    # -- what it says -------------------------------------------------------------------------------------------------

    def holds(self) -> bool:
        """Whether an attempt may begin now. From any thread; no system call but for the clock."""
        return self._election.holds(self._clock_us())

    def doubt(self, epoch: int) -> bool:
        """See ``LeaderLease``: the next beat is due now, and finds out. Who leads later has appended; so an append of
        this node that was sent since then, and stored, says that there was no such leader."""
        doubted, appended = self._doubted
        if epoch <= doubted and self.appended > appended:
            return False
        if epoch > doubted:
            under_way = 1 if self._since_us else 0  # that one was sent before
            self._doubted = epoch, self.appended + under_way
        self._election.beat_now()
        return True

    def hears_leader(self) -> bool:
        """Whether this node follows a leader that was heard lately. From any thread."""
        return self._election.hears_leader(self._clock_us())

    @property
    def epoch(self) -> int:
        return self._election.epoch

    @property
    def lease_s(self) -> float:
        """See ``LeaderLease``."""
        return self._election.lease_us / 1e6

    @property
    def role(self) -> Role:
        return self._election.role

    def statistics(self) -> LeadershipStatistics:
        now_us = self._clock_us()
        waiting_us = now_us - self._since_us if self._since_us else 0
        left_us = self._election.lease_left_us(now_us)
        return LeadershipStatistics(
            self.epoch,
            self.appended,
            self._found,
            self._not_found,
            self._claims_won,
            self._claims_lost,
            waiting_us / 1e6,
            left_us / 1e6,
            self._append_us / 1e6,
        )

    # -- what it does -------------------------------------------------------------------------------------------------

    def claim(self) -> bool:
        """Claim the lead, behind the last message that was read. False if something else stands there."""
        with self._one:
            message = self.own_claim._replace(n=self._names.next())
            sent_us = self._clock_us()
            place = self._until_known(message)
            if place is None:
                self._claims_lost += 1
                self._election.claim_refused(self._clock_us())
                return False
            self._claims_won += 1
            self._election.claim_stored(sent_us, place)
            return True

    def append(self, message: StreamMessage) -> None:
        """Append ``message``, in pieces where it is large. Returns once it is stored by a quorum. Raises ``Fenced``;
        and ``LogFailed`` after ``give_up``, when its fate is not known."""
        with self._one:
            for piece in pieces_of(message._replace(epoch=self.epoch), self._names):
                sent_us = self._clock_us()
                if self._until_known(piece) is None:
                    if self.role is Role.LEADING:
                        self._fenced()
                    self._election.append_refused()
                    raise Fenced(f"another node leads: its message stands at {self.last + 1} of the stream")
                self._election.append_stored(sent_us)

    def beat(self) -> None:
        """Append a beat if one is due: nothing else was appended for a fifth of the lease. Raises as ``append``."""
        if self._election.due(self._clock_us()) is Due.BEAT:
            self.append(StreamMessage(StreamKind.BEAT, 0, "", node=self.own_claim.node))

    def give_way(self, to: str = "") -> None:
        """Append that this node leads no more: another one may claim at once, ``to`` if it is named. All attempts must
        have ended. Raises as ``append``."""
        self.append(StreamMessage(StreamKind.YIELD, 0, "", node=to))
        self._election.gave_up()

    def give_up(self) -> None:
        """From any thread: an append that waits raises ``LogFailed`` soon, and so does each later one."""
        self._given_up = True
        self._stop.set()

    def _until_known(self, message: StreamMessage) -> int | None:
        """Where it stands in the stream; None where another's message stands in its place."""
        self._since_us = self._clock_us()
        try:
            while True:
                if self._given_up:
                    what = (
                        "an append to the stream was given up, since no quorum of the engine answered it; whether "
                        f"{message.n} is stored is not known"
                    )
                    raise LogFailed(what)
                fate, place = self._engine.try_append(message, self.last, _TRY_S)
                if fate is Fate.STORED:
                    return self._stored(place)
                found = self._asked(self.last + 1) if fate is Fate.ELSEWHERE else None
                if found is not None and found.n == message.n:
                    self._found += 1
                    return self._stored(self.last + 1)
                self._not_found += 1
                if found is not None:
                    return None
                self._stop.wait(_AGAIN_S)
        finally:
            self._since_us = 0

    def _stored(self, place: int) -> int:
        self.last = place
        self.appended += 1
        self._append_us += self._clock_us() - self._since_us
        return place

    def _asked(self, sequence: int) -> StreamMessage | None:
        try:
            return self._engine.from_leader(sequence)
        except OSError:
            return None  # as if nothing stood there: it is made again, and is stored once at most
