"""A node that follows: it reads the stream, writes its own files, and tells what it read to whoever keeps the state.

Nothing is ever cut back but what a start finds torn or damaged: the files are a prefix of the stream. A log that goes
on where the stream has ended, or once did, is another log, or a stream that has lost its end: nobody here decides
which, the node refuses.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from syncbrok.cluster.election import Due, Election, claim_of
from syncbrok.cluster.engine import StreamState
from syncbrok.cluster.leadership import Leadership
from syncbrok.cluster.replicated_journal import ReplicatedJournal
from syncbrok.cluster.stream_messages import EraseOrder, PieceBuffer, StreamKind, StreamMessage
from syncbrok.model.errors import LogDiverged, LogFull
from syncbrok.model.facts import FactOrRun

_log: Final = logging.getLogger(__name__)
_READ_S: Final = 2.0
"""for one reply. The engine gives each read to any of its servers, to one that has just vanished too, and a node that
waits for that one hears no leader and claims nothing"""
_FOLLOWS_MAX: Final = 512
"""what follows a roll stands within so many messages"""
_BYTES: Final = (StreamKind.BATCH, StreamKind.ROLL)


class ReadableEngine(Protocol):
    """The questions to the engine that stand here (``engine.Engine``)."""

    def read(self, after: int, timeout_s: float) -> list[StreamMessage]: ...

    def state(self) -> StreamState: ...


def read_on(engine: ReadableEngine, after: int) -> list[StreamMessage]:
    """Messages of the stream after this place that follow each other, some of them; empty where there is none, or the
    server that was asked has less than there is. Raises ``OSError`` where it does not answer, and where it lacks the
    next one, which the stream has kept: a server whose files were damaged leaves out what it cannot read until others
    have mended it. Whoever took its word would believe that the log has a hole, and refuse to go on for good."""
    found = engine.read(after, _READ_S)
    if found and found[0].sequence != after + 1 and engine.state().first <= after + 1:
        raise OSError(f"a server of the engine lacks the message {after + 1}, which the stream has kept")
    hole = next((at for at, one in enumerate(found) if one.sequence != found[0].sequence + at), len(found))
    return found[:hole]


def place_of(engine: ReadableEngine, sequence: int) -> int:
    """The place in the stream behind all messages with bytes of the log before ``sequence``. Raises ``OSError``."""
    state = engine.state()
    low, high = max(1, state.first), state.last + 1  # an empty stream says 0
    while low < high:
        middle = (low + high) // 2
        found = _bytes_from(engine, middle, high)
        if found is None or found.first >= sequence:
            high = middle
        else:
            low = found.sequence + 1
    return low


def roll_of(engine: ReadableEngine, first: int) -> StreamMessage | None:
    """The message, or its first piece, that opens the segment whose first record is ``first``; None where the stream
    holds none. Raises ``OSError``."""
    found = _bytes_from(engine, place_of(engine, first), engine.state().last + 1)
    return found if found is not None and (found.kind, found.first) == (StreamKind.ROLL, first) else None


def beginning_of(engine: ReadableEngine) -> int:
    """The first record of the log that the stream holds; 0 where it holds none. Raises ``OSError``."""
    state = engine.state()
    found = _bytes_from(engine, max(1, state.first), state.last + 1)
    return found.first if found is not None else 0


def order_behind(engine: ReadableEngine, roll: int) -> EraseOrder | None:
    """The order that stands behind the roll whose first piece is at this place, before the log goes on; None where none
    does. Raises ``OSError``."""
    order, at = None, roll
    while at < roll + _FOLLOWS_MAX and (found := read_on(engine, at)):
        for one in found:
            if one.kind in _BYTES and one.piece == 1:
                return order
            if one.kind is StreamKind.ERASE:
                order = EraseOrder(one.first, one.last)
        at = found[-1].sequence
    return order


def _bytes_from(engine: ReadableEngine, at: int, before: int) -> StreamMessage | None:
    """The first message with bytes of the log at this place of the stream or after it, and before another."""
    while at < before:
        found = _kept_from(engine, at)
        first = next((one for one in found if one.kind in _BYTES), None)
        if first is not None:
            return first if first.sequence < before else None
        at = found[-1].sequence + 1
    return None


def _kept_from(engine: ReadableEngine, at: int) -> list[StreamMessage]:
    """As ``read_on``, of a place that the stream has kept: there is something."""
    found = read_on(engine, at - 1)
    if not found:
        raise OSError(f"a server of the engine has nothing from the message {at} on, which the stream has kept")
    return found


class StreamTooShort(LogDiverged):
    """By what the engine says, its stream lacks what this log has. A damaged server that leads may say so for a moment:
    only what is said again and again is certain."""


class PassedBy(Exception):
    """The stream has forgotten what this node has not read yet."""


class Following:
    """``apply`` is told the facts of each batch once it stands in the files, ``vault`` what is sealed in the stream.
    ``leadership`` is told how far the stream was read: a claim goes behind that."""

    def __init__(
        self,
        engine: ReadableEngine,
        journal: ReplicatedJournal,
        election: Election,
        leadership: Leadership,
        apply: Callable[[Sequence[FactOrRun]], None],
        vault: Callable[[bytes], None],
        node: str,
        clock_us: Callable[[], int],
    ) -> None:
        """``node``: the name of this one."""
        self._node = node
        self._engine = engine
        self._journal = journal
        self._election = election
        self._leadership = leadership
        self._apply = apply
        self._vault = vault
        self._clock_us = clock_us
        self._pieces = PieceBuffer()
        self.claim: StreamMessage | None = None
        """the last one that was read: whoever wrote it leads, or led last"""
        self.caught_up = False
        """all that the stream held was read at least once; before that ``claim`` may be one of long ago"""
        self._unwritten: StreamMessage | None = None

    @property
    def stalled(self) -> bool:
        """Whether there is no room here for what was read last. It reads on once there is; until then it must not
        claim: it does not know what the others know."""
        return self._unwritten is not None

    def claim_is_due(self) -> bool:
        """Whether to claim now, which is asked for once. Never while it is stalled; and a lease later than others where
        there is no room for more: leading, it could take no message."""
        if self.stalled:
            return False
        return self._election.due(self._clock_us(), reluctant=not self._journal.has_room()) is Due.CLAIM

    def begin(self) -> None:
        """Find where the stream goes on behind what the files have. Raises ``StreamTooShort`` where it does not, and
        ``OSError`` where the engine does not answer."""
        end = self._engine.state().last + 1
        low = place_of(self._engine, self._journal.next_sequence)
        before = read_on(self._engine, low - 2) if low > 1 else []
        if before and before[0].kind in _BYTES and before[0].last >= self._journal.next_sequence > before[0].first:
            low = place_of(self._engine, before[0].first)  # a crash has left a part of it here
        self._leadership.last = max(0, low - 1)
        self._look_for_order()
        if _bytes_from(self._engine, low, end) is None:
            self._check_end(low)

    def _look_for_order(self) -> None:
        """Take the order that a run before this one may have read, and not followed."""
        sections = self._journal.sections()
        roll = roll_of(self._engine, sections[-1].first) if sections else None
        order = order_behind(self._engine, roll.sequence) if roll is not None else None
        if order is not None:
            self._journal.take_order(order)

    def _check_end(self, low: int) -> None:
        """The stream has nothing that is missing in the files; they must not have anything that is missing there. What
        stands before ``low`` is the last message with bytes of the log, if there is one."""
        before = _kept_from(self._engine, low - 1) if low > max(1, self._engine.state().first) else []
        last = before[0].last if before else 0
        if self._journal.next_sequence - 1 > last:
            what = f"the log here ends with {self._journal.next_sequence - 1}, the stream with {last}"
            raise StreamTooShort(f"{what}: the engine has lost its end, or it is that of another log")

    def step(self) -> int:
        """Read some of what is new, if anything is; how many messages that were. Raises ``LogDiverged``, ``PassedBy``,
        ``OSError`` where the engine does not answer, and what the journal raises."""
        if self._unwritten is not None:
            return self._try_again(self._unwritten)
        found = read_on(self._engine, self._leadership.last)
        if found:
            self._election.received(self._clock_us())  # first: a message may say that nobody need wait
        for message in found:
            whole = self._pieces.add(message)
            try:
                self._take(whole)
            except LogFull as full:
                _log.error("syncbrok.cluster.stalled", extra={"sequence": self._last, "detail": full.detail})
                self._unwritten = whole
                return 0
            self._leadership.last = message.sequence
        if found:
            self._learn_claim(found[-1].epoch)
        elif not self.caught_up and self._has_all():
            self._look_for_claim()
            self.caught_up = True
        return len(found)

    def _has_all(self) -> bool:
        """All the stream had was read. Raises ``LogDiverged`` where what was cut off here at the start is not in it."""
        missing = self._journal.lost_through
        if missing < self._journal.next_sequence:
            return True
        if self._leadership.last < self._engine.state().last:
            return False  # a replica has said less than there is
        what = f"the files here had {missing} once, and the stream ends with {self._journal.next_sequence - 1}"
        raise StreamTooShort(f"{what}: the engine has lost its end, or it is that of another log")

    def _look_for_claim(self) -> None:
        """All there was has been read. Whatever is appended after a claim bears its epoch: where the last message bears
        none, nobody has claimed. Should a replica have said less than there is, a claim behind that is refused."""
        last = self._leadership.last
        found = read_on(self._engine, last - 1) if last else []
        if found and found[0].sequence == last and not found[0].epoch and found[0].kind is not StreamKind.CLAIM:
            self._election.unclaimed(self._clock_us())

    def _try_again(self, whole: StreamMessage) -> int:
        """Write what there was no room for; how many messages that were."""
        if not self._journal.has_room():
            return 0
        try:
            self._take(whole)
        except LogFull:
            return 0
        self._unwritten = None
        self._leadership.last = whole.sequence
        _log.info("syncbrok.cluster.follows", extra={"sequence": self._last})
        return 1

    @property
    def _last(self) -> int:
        """The last record that the files have."""
        return self._journal.next_sequence - 1

    def _learn_claim(self, epoch: int) -> None:
        """Take the claim from the epoch: the leader may have claimed before the first message that this node has
        read."""
        at = claim_of(epoch)
        if at and (self.claim is None or self.claim.sequence < at):
            found = read_on(self._engine, at - 1)
            if found and found[0].sequence == at and found[0].kind is StreamKind.CLAIM:
                self._claimed(found[0])
            elif found and found[0].sequence > at:
                self._learn_from_roll(epoch)

    def _learn_from_roll(self, epoch: int) -> None:
        """The claim was purged, so the stream begins behind it: with a roll of the same leader, who says there what the
        claim said."""
        first = read_on(self._engine, self._engine.state().first - 1)
        if first and first[0].kind is StreamKind.ROLL and first[0].epoch == epoch and first[0].url:
            one = first[0]
            body = one.listeners.encode()
            self._claimed(
                StreamMessage(StreamKind.CLAIM, 0, one.n, body, node=one.node, url=one.url, sequence=claim_of(epoch))
            )

    def _claimed(self, claim: StreamMessage) -> None:
        self.claim = claim
        self._election.claimed(claim.sequence, self._clock_us())

    def _take(self, whole: StreamMessage | None) -> None:
        """Raises ``LogFull`` where there is no room for it; it may be taken again."""
        if whole is None:
            return  # a piece that is not the last
        match whole.kind:
            case StreamKind.BATCH | StreamKind.ROLL:
                self._write(whole)
            case StreamKind.DROP:
                self._journal.drop_before(whole.first)
            case StreamKind.CLAIM:
                self._claimed(whole)
            case StreamKind.YIELD:
                if whole.node in ("", self._node):  # else whoever it names goes first
                    self._election.yielded(self._clock_us())
            case _:
                self._take_what_follows(whole)

    def _take_what_follows(self, whole: StreamMessage) -> None:
        match whole.kind:
            case StreamKind.VAULT:
                self._vault(whole.body)
            case StreamKind.NOTE:
                self._journal.archived.take(whole.body)
            case StreamKind.ERASE:
                self._journal.take_order(EraseOrder(whole.first, whole.last))
            case StreamKind.BIRTH | StreamKind.BEAT:
                pass

    def _write(self, whole: StreamMessage) -> None:
        if whole.last < self._journal.next_sequence:
            return  # written before
        journal = self._journal
        if whole.kind is StreamKind.ROLL and journal.sections() and whole.first > journal.next_sequence + 1:
            raise PassedBy(f"the stream goes on with {whole.first}, and this log ends with {journal.next_sequence - 1}")
        if whole.kind is StreamKind.ROLL and whole.sealed and journal.active_checksum not in ("", whole.sealed):
            what = f"the segment before {whole.first} has the checksum {journal.active_checksum} here"
            mend = "move the directory of this node away, and start it empty"
            raise LogDiverged(f"the replicas differ: {what}, {whole.sealed} at the leader; {mend}")
        batch, facts = self._journal.prepare_copy(whole.body)
        self._journal.append(batch, essential=True)
        self._apply(facts)
