"""The history of one message, event by event, for messages with something out of the ordinary. Pure.

That is: replays, late answers, cancels, deleted subscribers and queues, carried messages, gaps. ``bulk_histories``
judges all others by the million, and comes to the same result where both can judge.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from syncbrok.model.facts import DELETED_SUBSCRIBER
from syncbrok.pipeline.audit.audience import Audiences
from syncbrok.pipeline.audit.row_encoding import (
    BAD,
    COUNTED,
    ENDS,
    FAILED,
    GOOD,
    LATE,
    NEVER,
    NORMAL,
    OUTCOMES,
    REPLAY_SHIFT,
    REPLAYED,
    RowEvent,
)
from syncbrok.pipeline.audit.rules import ALL as EVERYBODY
from syncbrok.pipeline.audit.rules import AuditFinding

_PURGED_AT: Final = 0
_DELETED_AT: Final = 1
"""positions in the record that deletes a queue: its messages end before its subscribers are gone"""


class AcceptedMessage(NamedTuple):
    """A message as it was accepted. ``record``: where it stands (its own record, or the one that carries it, else
    ``NEVER``). ``doubt``: the record from which on nothing about it is sure. ``alone``: it has no parents."""

    message: int
    record: int
    own: bool
    queue: int
    queue_gone: int
    only: int
    counted: tuple[int, ...]
    doubt: int
    alone: bool


class OutcomeRow(NamedTuple):
    """A row of an outcomes record."""

    seq: int
    pos: int
    s: int
    attempt: int
    outcome: int
    good: bool
    after: int
    due_us: int


class AuditedReplay(NamedTuple):
    """A replay sends the message again."""

    record: int
    pos: int
    replay: int
    queue: int
    subscribers: tuple[int, ...]
    parents: tuple[int, ...]
    has_key: bool = False
    """it keeps the order of keys"""
    only: int = 0
    """the only subscriber that the replay is for; 0: it is not narrowed to one"""


class CarriedClaim(NamedTuple):
    """A record carries the message, and says how far it had come: (subscriber, outcome), (subscriber, attempts, when
    the next was due)."""

    record: int
    ended: tuple[tuple[int, int], ...]
    tried: tuple[tuple[int, int, int], ...]


@dataclass(slots=True)
class DeliveryHistory:
    """The message at one subscriber. ``replay``: the replay that it has yet to end in; ``retry_us``: when its next
    attempt is due, where it has been tried; ``touched``: the newest record about it."""

    is_counted: bool
    is_open: bool
    ends: list[tuple[int, int, bool]] = field(default_factory=list)
    attempts: int = 0
    replay: int = 0
    retry_us: int = NEVER
    touched: int = 0


class AuditHistory:
    """The history of one message: feed it all events, then read the result.

    ``ended`` and ``complete``: the records with which it ended and became complete; they never go back (RULES 21). A
    message without counted subscribers is complete once its parents are; ``end_propagation`` says when that was.
    """

    def __init__(self, accepted: AcceptedMessage, known: Audiences) -> None:
        self.accepted = accepted
        self.ended = self.complete = accepted.record if not accepted.counted and accepted.alone else NEVER
        self.cancelled = self.ended_for_all = NEVER
        self.pairs = {number: DeliveryHistory(is_counted=True, is_open=True) for number in accepted.counted}
        self.events: list[RowEvent] = []
        self.entries: list[AuditedReplay] = []
        self.found: list[AuditFinding] = []
        self.known = known

    def apply(self, rows: list[OutcomeRow], entries: list[AuditedReplay], claims: list[CarriedClaim]) -> None:
        """Take in everything that happened to the message, in any order."""
        happened: list[tuple[int, int, Any]] = [(one.seq, one.pos, one) for one in rows]
        happened += [(one.record, one.pos, one) for one in entries]
        happened += [(one.record, -1, one) for one in claims]
        happened += self._deletions(entries)
        for seq, pos, one in sorted(happened, key=lambda each: each[:2]):
            if isinstance(one, OutcomeRow):
                self._row(one)
            elif isinstance(one, CarriedClaim):
                self._carried(one)
            elif seq > self.accepted.record:
                self._operated(seq, pos, one)

    def _deletions(self, entries: list[AuditedReplay]) -> Iterator[tuple[int, int, int | None]]:
        if self.accepted.queue_gone != NEVER:
            yield self.accepted.queue_gone, _PURGED_AT, None
        for number in {*self.accepted.counted, *(number for one in entries for number in one.subscribers)}:
            if (gone := self.known.deleted(number)) != NEVER:
                yield gone, _DELETED_AT, number

    def _operated(self, seq: int, pos: int, one: AuditedReplay | int | None) -> None:
        """Take in what an operator did: a replay, the deletion of a subscriber (its number), or of the queue (None)."""
        if one is None:
            self._end_all(seq, pos, good=False)
        elif isinstance(one, AuditedReplay):
            self.entries.append(one)
            for number in one.subscribers:
                if one.only not in (0, number):
                    what = f"replay {one.replay}, which is for subscriber {one.only} only, sends it there"
                    self._report("addressee", seq, number, what)
                pair = self._at(number)
                pair.replay, pair.retry_us, pair.touched = one.replay, NEVER, seq
                pair.is_open = pair.is_open or self.known.deleted(number) > seq
        elif one in self.pairs and self.pairs[one].is_open:
            self._end(one, seq, pos, good=True)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _row(self, row: OutcomeRow) -> None:
        accepted, number = self.accepted, row.s
        if row.seq <= accepted.record:
            if not self.known.is_gone(accepted.message, row.seq):
                self._report("addressee", row.seq, number, "no such message was accepted")
            return
        if number == EVERYBODY:
            self._end_all(row.seq, row.pos, good=row.good)
            return
        if self.known.deleted(number) < row.seq:
            return
        pair = self._at(number)
        flags = 0 if accepted.doubt < row.seq else self._judge(pair, row)
        if row.outcome != LATE:
            pair.attempts = max(row.attempt, pair.attempts)
            pair.retry_us, pair.touched = row.due_us if row.outcome == FAILED else NEVER, row.seq
        if row.outcome in (FAILED, LATE):
            counted = COUNTED if pair.is_counted else 0
            self.events.append(RowEvent(number, row.seq, row.pos, row.after, row.attempt, flags | counted))
        else:
            self._end(number, row.seq, row.pos, good=row.good, row=row, judged=flags)

    def _judge(self, pair: DeliveryHistory, row: OutcomeRow) -> int:
        """The flags of an attempt: by which rules it is to be judged, 0 for none. Reports what is wrong with the row
        itself."""
        late = row.outcome == LATE
        if not (pair.is_counted or pair.is_open or self._catches_up(row)):
            self._report("addressee", row.seq, row.s, "the message is not for this subscriber")
        if not pair.is_open and pair.ends and not late:
            named = f"{OUTCOMES[row.outcome - 1].upper()} (attempt {row.attempt})"
            self._report("end", row.seq, row.s, f"{named} after its end in record {pair.ends[-1][0]}")
        if row.attempt and row.attempt <= pair.attempts and not late:
            self._report("attempts", row.seq, row.s, f"attempt {row.attempt} after attempt {pair.attempts}")
        if not row.attempt:
            return 0
        if pair.replay:
            return 0 if late else REPLAYED | pair.replay << REPLAY_SHIFT
        # Which of its lives a late attempt belongs to is not known.
        return 0 if late and len(pair.ends) > 1 else NORMAL

    def _catches_up(self, row: OutcomeRow) -> bool:
        """True if the subscriber, which the message does not count, may have it all the same (RULES 14)."""
        is_its = self.accepted.only in (0, row.s)
        return is_its and self.known.comes_uncounted(row.s, self.accepted.queue, self.accepted.message, row.seq)

    def _carried(self, claim: CarriedClaim) -> None:
        """Take over the state that a carried record tells. If the message's own record is gone, the first carried one
        is all that is known of it."""
        accepted = self.accepted
        is_all = not accepted.own and claim.record == accepted.record
        if is_all and any(number == DELETED_SUBSCRIBER for number, _ in claim.ended):
            self.pairs[DELETED_SUBSCRIBER] = DeliveryHistory(is_counted=True, is_open=True)
        for pos, (number, outcome) in enumerate(claim.ended):
            if not self._is_open_at(number, claim.record):
                continue
            if is_all:
                self._end(number, claim.record, pos, good=outcome not in BAD)
            elif accepted.record < claim.record <= accepted.doubt:
                what = f"is carried as {OUTCOMES[outcome - 1].upper()} where it has not ended"
                self._report("carried", claim.record, number, what)
        for number, attempts, due_us in claim.tried if is_all else ():
            pair = self._at(number)
            pair.attempts = attempts
            if pair.is_open or not pair.ends:
                pair.retry_us, pair.touched = due_us, claim.record

    def _is_open_at(self, number: int, seq: int) -> bool:
        """True if the delivery to ``number`` is open. For deleted subscribers: True if the message has ended badly at
        none of them."""
        if number in self.pairs or number != DELETED_SUBSCRIBER:
            return number in self.pairs and self.pairs[number].is_open
        gone = [pair for one, pair in self.pairs.items() if self.known.deleted(one) < seq]
        return all(pair.ends[-1][2] for pair in gone if pair.ends)

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _end_all(self, seq: int, pos: int, *, good: bool) -> None:
        self.ended_for_all = min(self.ended_for_all, seq)
        for number in sorted(number for number, pair in self.pairs.items() if pair.is_open):
            self._end(number, seq, pos, good=good)
        if not self.accepted.counted:
            self.cancelled = min(self.cancelled, seq)
            self.ended = min(self.ended, seq)

    def _end(
        self, number: int, seq: int, pos: int, *, good: bool, row: OutcomeRow | None = None, judged: int = 0
    ) -> None:
        pair = self._at(number)
        pair.ends.append((seq, pos, good))
        pair.is_open, pair.replay, pair.retry_us, pair.touched = False, 0, NEVER, seq
        flags = judged | ENDS | (GOOD if good else 0) | (COUNTED if pair.is_counted else 0)
        after, attempt = (row.after, row.attempt) if row else (0, 0)
        self.events.append(RowEvent(number, seq, pos, after, attempt, flags))
        counted = [(one, each) for one, each in self.pairs.items() if each.is_counted]
        if not counted or self.complete != NEVER or any(each.is_open for _, each in counted):
            return
        # The first end is decided by all of them (RULES 10, 12). To mend it, a dead letter of a subscriber that is gone
        # does not matter: nobody could be sent a replay.
        forgiving, self.ended = self.ended != NEVER, min(self.ended, seq)
        if all(each.ends[-1][2] or (forgiving and self._is_gone(one, seq, pos)) for one, each in counted):
            self.complete = seq

    def _is_gone(self, number: int, seq: int, pos: int) -> bool:
        return number == DELETED_SUBSCRIBER or (self.known.deleted(number), _DELETED_AT) <= (seq, pos)

    def _at(self, number: int) -> DeliveryHistory:
        if number not in self.pairs:
            self.pairs[number] = DeliveryHistory(is_counted=False, is_open=False)
        return self.pairs[number]

    def _report(self, rule: str, record: int, subscriber: int, what: str) -> None:
        self.found.append(AuditFinding(rule, record, self.accepted.message, subscriber, what))
