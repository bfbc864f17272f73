"""The messages of one key at one subscriber, in order, and what of RULES 6 they break. Pure.

Judged is each attempt: had every earlier message of the key ended there when it began? Which earlier messages count
depends on why the message goes there:

- because it counts the subscriber: the earlier ones that count it too, and those that come there uncounted (the
  subscriber starts in the past, or does not count);
- uncounted: the earlier uncounted ones;
- in a replay: those that were in a replay then, and those that count the subscriber and had never ended there.

A walk goes back from the message to the nearest one whose own attempt was found in order: all before that one had ended
by then. So a line of any length is judged in about as many steps as it has attempts.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from syncbrok.model.facts import RULES
from syncbrok.pipeline.audit.retention_drops import Drops, dropped_before
from syncbrok.pipeline.audit.row_encoding import ENDS, NEVER, NORMAL, REPLAY_SHIFT, REPLAYED, RowEvent
from syncbrok.pipeline.audit.rules import AuditFinding

Rules = Sequence[tuple[int, int]]
"""(record, rules): those by which the records from there on were made, in order"""
_AT_END = NEVER - 1
"""a record after all that a log has"""


class KeyReplay(NamedTuple):
    """A replay of a message of the key at the subscriber: ``record`` sends it again, as a part of ``replay``.
    ``has_key``: in the order of its key (a broker of RULES 2 and before kept none in replays)."""

    record: int
    replay: int
    has_key: bool


@dataclass(slots=True)
class KeyedDelivery:
    """A message of the key at the subscriber. ``stands``: the record it stands in, which is its own or carries it.
    ``counts``: it counts the subscriber; else it comes there because of the record ``since`` (``NEVER``: in replays
    alone). ``ended_for_all``: the first record that ended it wherever it had not ended. ``end``: (record, position) of
    its first end there. Records that are not there are ``NEVER``."""

    message: int
    stands: int
    counts: bool
    since: int
    doubt: int
    end: tuple[int, int]
    ended_for_all: int
    is_open: bool
    armed: Sequence[KeyReplay]
    events: Sequence[RowEvent]
    ends: list[int] = field(default_factory=list)
    was_next: bool = False
    """an attempt of it began when all before it had ended"""
    next_in_replay: int = 0
    """the replay in which one did"""

    def __post_init__(self) -> None:
        self.ends = [one.seq for one in self.events if one.flags & ENDS]

    @property
    def own(self) -> bool:
        return self.stands == self.message

    def in_replay_at(self, after: int) -> bool:
        """True if a replay had sent it again when record ``after`` was the newest, and it had not ended since."""
        return any(
            one.record <= after and not any(one.record < end <= after for end in self.ends) for one in self.armed
        )

    def had_ended_by(self, after: int) -> bool:
        """True if it had ended when record ``after`` was the newest. What a carried record says has happened may have
        been at any time before it."""
        return self.end[0] <= max(after, self.stands)


class KeyHistory:
    """The messages of one key at one subscriber, and the findings about them. ``of``: all of them, in order."""

    def __init__(self, subscriber: int, of: Sequence[KeyedDelivery], rules: Rules, drops: Drops) -> None:
        self._subscriber, self._of, self._rules, self._drops = subscriber, of, rules, drops

    def findings(self) -> Iterator[AuditFinding]:
        """The attempts that began too early, in the order of the log."""
        events = [(one.seq, one.pos, at, one) for at, each in enumerate(self._of) for one in each.events]
        for seq, _, at, event in sorted(events, key=lambda one: one[:2]):
            early = self._early(at, event)
            if early is not None:
                what = f"message {early.message} of its key before it had not ended by then"
                yield AuditFinding("key", seq, self._of[at].message, self._subscriber, what)

    def behind(self) -> Iterator[tuple[int, bool, int]]:
        """Yield three values for each message that has not ended there, but the first: the message; true if one before
        it keeps it back at the end of the log; the newest record that ended one before it (-1 for none, ``NEVER`` where
        one is open)."""
        of_counted, of_uncounted, in_replays = -1, -1, -1
        rules = self._rules_at(_AT_END)
        for at, each in enumerate(self._of):
            if at and each.is_open:
                if each.armed:
                    last = max(of_counted, in_replays) if each.armed[-1].has_key else -1
                else:
                    last = max(of_counted, of_uncounted) if each.counts else of_uncounted
                yield each.message, last == NEVER, last
            if each.counts:
                of_counted = max(of_counted, each.end[0])
            elif rules > 2 and each.since < NEVER and not self._passed(each, _AT_END, _AT_END):
                of_uncounted = NEVER
            if each.armed:
                in_replays = max(in_replays, NEVER if each.is_open else max(each.ends, default=-1))

    def _early(self, at: int, event: RowEvent) -> KeyedDelivery | None:
        """A message before it that had not ended when the attempt began; None: the attempt was in order."""
        if event.flags & REPLAYED:
            return self._early_in_replay(at, event)
        if not event.flags & NORMAL:
            return None
        rules = self._rules_at(event.seq)
        early = self._uncounted_early(at, event) if rules > 2 else None
        if early is None and self._of[at].counts:
            early = self._counted_early(at, event) if rules > 1 else self._neighbour_early(at, event)
        if early is None and rules > 1:
            self._of[at].was_next = True
        return early

    def _counted_early(self, at: int, event: RowEvent) -> KeyedDelivery | None:
        for before in self._before(at):
            if not before.counts or before.doubt < event.seq:
                continue
            if not before.had_ended_by(event.after):
                return before
            if before.was_next:
                break
        return None

    def _neighbour_early(self, at: int, event: RowEvent) -> KeyedDelivery | None:
        """The message before it, if that had not ended when the row was written. By RULES before version 2 only the one
        next to it mattered, and that its end stood ahead of this row."""
        for before in self._before(at):
            if before.counts and before.own:
                is_open = before.end >= (event.seq, event.pos) and before.doubt >= event.seq
                return before if is_open else None
        return None

    def _uncounted_early(self, at: int, event: RowEvent) -> KeyedDelivery | None:
        for before in self._before(at):
            if before.counts or before.doubt < event.seq or before.since >= event.seq:
                continue
            if not self._passed(before, event.after, event.seq):
                return before
            if before.was_next:
                break
        return None

    def _early_in_replay(self, at: int, event: RowEvent) -> KeyedDelivery | None:
        own, replay = self._of[at], event.flags >> REPLAY_SHIFT
        if not any(one.has_key for one in own.armed if one.replay == replay):
            return None
        for before in self._before(at):
            if before.doubt < event.seq or not before.own:
                continue
            if before.next_in_replay == replay:
                break
            if before.in_replay_at(event.after) or (before.counts and before.end[0] > event.after):
                return before
        own.next_in_replay = replay
        return None

    def _before(self, at: int) -> Iterator[KeyedDelivery]:
        return (self._of[one] for one in range(at - 1, -1, -1))

    def _passed(self, one: KeyedDelivery, after: int, record: int) -> bool:
        """True if nothing of ``one``, which comes there uncounted, was to come there any more when record ``after`` was
        the newest, as far as ``record`` knows."""
        dropped = dropped_before(self._drops, record)
        return one.end[0] <= after or one.ended_for_all <= after or one.message <= dropped or not one.own

    def _rules_at(self, record: int) -> int:
        at = bisect_left(self._rules, (record, 0)) - 1
        return self._rules[at][1] if at >= 0 else RULES
