"""The history of ordinary messages, all at once. Nearly all messages of a log are ordinary."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from syncbrok.pipeline.audit.audience import Audiences
from syncbrok.pipeline.audit.event_columns import AuditMessages, AuditRows
from syncbrok.pipeline.audit.row_encoding import (
    COUNTED,
    ENDS,
    GOOD,
    NEVER,
    NORMAL,
    Flags,
    Longs,
    events_packed,
    flags,
    found,
    longs,
    numbers_packed,
    packed,
    packed_rows,
    places,
    ranges,
)
from syncbrok.pipeline.audit.row_kinds import HISTORY_KINDS
from syncbrok.pipeline.audit.rules import AuditFinding


class _BulkHistories:
    """The history of ordinary messages, as columns. ``at``: their places among all messages."""

    def __init__(self, messages: AuditMessages, rows: AuditRows, ordinary: Flags, known: Audiences) -> None:
        size = len(ordinary)
        self._messages, self._rows, self._known = messages, rows, known
        self.at = np.flatnonzero(ordinary)
        self.mine = (rows.of >= 0) & ordinary[rows.of] if size else np.zeros(len(rows.of), bool)
        tried = self.mine & (rows.attempt > 0)
        nobody, orphan = messages.size == 0, messages.parent_counts == 0
        is_over = ~nobody & (rows.closed == messages.size)
        self.follows = (nobody & ~orphan)[self.at]
        ended = np.where(nobody & orphan, messages.record, np.where(is_over, rows.closed_by, NEVER))
        self.ended = ended[self.at]
        self.complete = np.where(is_over & (rows.closed_badly > 0), NEVER, ended)[self.at]
        self.is_open = (~nobody & ~is_over)[self.at]
        self.first = rows.least(rows.after, tried, size)[self.at]
        self.last = rows.most(rows.after, tried, size)[self.at]
        self.row_flags = COUNTED | NORMAL * (rows.attempt > 0) | rows.ends * (ENDS | GOOD * rows.good)
        self.events = self._events(np.flatnonzero(self.mine), np.bincount(rows.of[self.mine], minlength=size)[self.at])
        lasts = np.flatnonzero(self.mine & rows.is_last)
        self._deliveries = _codes(rows.of[lasts], rows.s[lasts])
        self._lasts, self._firsts = lasts, np.flatnonzero(self.mine & rows.is_first)

    def of(self, values: Longs) -> Longs:
        return values[self.at]

    def counted(self) -> pa.Array:
        """The numbers of the subscribers that each message counts, packed as bytes."""
        return numbers_packed(self._pairs(self.at)[1], self._messages.size[self.at])

    def edges(self) -> tuple[Longs, Longs]:
        """Two columns: the child's place among the ordinary messages, and the parent's sequence."""
        counts = self._messages.parent_counts
        begins, widths = (np.cumsum(counts) - counts)[self.at], counts[self.at]
        return np.repeat(np.arange(len(self.at)), widths), self._messages.parents[ranges(begins, widths)]

    def deliveries(self, at: Longs) -> tuple[Longs, Longs, Longs, Longs]:
        """The deliveries of the messages ``at``, one for each subscriber, as four columns: the message's place, the
        subscriber, its first and its last row (-1 for none)."""
        which, s = self._pairs(at)
        if not len(self._deliveries):
            none = np.full(len(which), -1, np.int64)
            return which, s, none, none
        place, is_there = places(self._deliveries, _codes(which, s))
        return which, s, np.where(is_there, self._firsts[place], -1), np.where(is_there, self._lasts[place], -1)

    def events_between(self, firsts: Longs, lasts: Longs) -> pa.Array:
        widths = np.where(firsts < 0, 0, lasts - firsts + 1)
        return self._events(ranges(firsts, widths), widths)

    def _events(self, at: Longs, counts: Longs) -> pa.Array:
        rows = self._rows
        return events_packed(
            [one[at] for one in (rows.s, rows.seq, rows.pos, rows.after, rows.attempt, self.row_flags)], counts
        )

    def _pairs(self, at: Longs) -> tuple[Longs, Longs]:
        audience, widths = self._messages.audience[at], self._messages.size[at]
        return np.repeat(at, widths), self._known.numbers[ranges(self._known.begins[audience], widths)]


def _codes(which: Longs, s: Longs) -> Longs:
    return which << 32 | s


def bulk_rows(messages: AuditMessages, rows: AuditRows, ordinary: Flags, known: Audiences) -> Iterator[pa.RecordBatch]:
    kept = _BulkHistories(messages, rows, ordinary, known)
    yield from found(HISTORY_KINDS, _misnamed(messages))
    if not len(kept.at):
        return
    none = np.full(len(kept.at), "")
    yield packed(HISTORY_KINDS, "history", {
        "message": kept.of(messages.message), "record": kept.of(messages.record), "queue": kept.of(messages.queue),
        "doubt": kept.of(messages.doubt), "ended": kept.ended,
        "ended_for_all": np.full(len(kept.at), NEVER), "complete": kept.complete, "only": kept.of(messages.only),
        "last_counted": kept.last, "follows": kept.follows, "counted": kept.counted(),
        "events": kept.events, "entries": none,
    })  # fmt: skip
    yield from _edges(messages, kept)
    yield from _open(messages, rows, kept)
    has_key, keys = messages.key_of()
    yield from _lines(messages, rows, kept, kept.at[has_key[kept.at]], keys)
    judged = int((kept.mine & (rows.attempt > 0)).sum())
    deliveries = int(kept.of(messages.size).sum())
    ends = int((kept.mine & rows.ends).sum())
    yield from packed_rows(HISTORY_KINDS, "count", [(
        len(kept.at), int(kept.of(messages.parent_counts).sum()), deliveries, judged, judged, ends,
        int(has_key[kept.at].sum()), int(kept.follows.sum()), int((kept.complete != NEVER).sum()),
        deliveries - ends + int(kept.follows.sum()),
    )])  # fmt: skip


def _edges(messages: AuditMessages, kept: _BulkHistories) -> Iterator[pa.RecordBatch]:
    at, parents = kept.edges()
    if not len(at):
        return
    never, no, none = np.full(len(at), NEVER), np.zeros(len(at), bool), np.full(len(at), "")
    same, policy = flags(messages.table, "is_same"), longs(messages.table, "policy")
    yield packed(HISTORY_KINDS, "edge", {
        "parent": parents, "child": kept.of(messages.message)[at], "record": kept.of(messages.record)[at],
        "queue": kept.of(messages.queue)[at], "own": ~no, "is_same": same[kept.at][at], "policy": policy[kept.at][at],
        "first_counted": kept.first[at], "first_uncounted": never, "is_replayed": no, "is_apart": no,
        "is_waiting": (kept.is_open | kept.follows)[at], "follows": kept.follows[at], "ended": kept.ended[at],
        "cancelled": never,
        "events": kept.events.take(pa.array(at)), "entries": none, "rearmed": none,
    })  # fmt: skip


def _open(messages: AuditMessages, rows: AuditRows, kept: _BulkHistories) -> Iterator[pa.RecordBatch]:
    which, s, _, last = kept.deliveries(kept.at[kept.is_open])
    is_open = (last < 0) | ~rows.ends[last] if len(rows.ends) else np.ones(len(which), bool)
    follows = kept.at[kept.follows]
    at, s = np.append(which[is_open], follows), np.append(s[is_open], np.zeros(len(follows), np.int64))
    if not len(at):
        return
    last = np.append(last[is_open], np.full(len(follows), -1))
    is_tried = last >= 0
    table = messages.table.take(pa.array(at))
    empty = np.zeros(1, np.int64)
    due_us, seq = (one if len(one) else empty for one in (rows.due_us, rows.seq))
    yield packed(HISTORY_KINDS, "open", {
        "message": messages.message[at], "s": s, "record": messages.record[at], "queue": table.column("queue"),
        "time_us": table.column("time_us"), "policy": table.column("policy"),
        "not_before_us": table.column("not_before_us"), "expires_us": table.column("expires_us"),
        "is_rearmed": np.zeros(len(at), bool), "retry_us": np.where(is_tried, due_us[last], NEVER),
        "touched": np.where(is_tried, seq[last], 0),
    })  # fmt: skip


def _lines(
    messages: AuditMessages, rows: AuditRows, kept: _BulkHistories, at: Longs, keys: list[str | None]
) -> Iterator[pa.RecordBatch]:
    yield from _uncounted_lines(messages, at, keys)
    which, s, first, last = kept.deliveries(at)
    if not len(which):
        return
    is_there = last >= 0
    has_rows = len(rows.ends) > 0
    has_ended = is_there & rows.ends[last] if has_rows else is_there
    never = np.full(len(which), NEVER)
    end_seq = np.where(has_ended, rows.seq[last], NEVER) if has_rows else never
    yield packed(HISTORY_KINDS, "line", {
        "queue": messages.queue[which], "key": [keys[one] for one in which.tolist()], "s": s,
        "message": messages.message[which], "stands": messages.record[which], "counts": np.ones(len(which), bool),
        "since": never, "doubt": messages.doubt[which], "end_seq": end_seq,
        "end_pos": np.where(has_ended, rows.pos[last], 0) if has_rows else never, "ended_for_all": never,
        "done": end_seq, "is_open": ~has_ended,
        "first_after": np.where(is_there, rows.first_after()[first], NEVER) if has_rows else never,
        "armed": np.full(len(which), ""), "events": kept.events_between(first, last),
    })  # fmt: skip


def _uncounted_lines(messages: AuditMessages, at: Longs, keys: list[str | None]) -> Iterator[pa.RecordBatch]:
    """Rows of kind ``line`` for messages at subscribers to which they were to come uncounted, and never have."""
    which, s, since = messages.uncounted(at)
    if not len(which):
        return
    never, no = np.full(len(which), NEVER), np.zeros(len(which), bool)
    yield packed(HISTORY_KINDS, "line", {
        "queue": messages.queue[which], "key": [keys[one] for one in which.tolist()], "s": s,
        "message": messages.message[which], "stands": messages.record[which], "counts": no, "since": since,
        "doubt": messages.doubt[which], "end_seq": never, "end_pos": never, "ended_for_all": never, "done": never,
        "is_open": no, "first_after": never, "armed": np.full(len(which), ""),
        "events": numbers_packed(np.zeros(0, np.int64), np.zeros(len(which), np.int64)),
    })  # fmt: skip


def _misnamed(messages: AuditMessages) -> Iterator[AuditFinding]:
    named = longs(messages.table, "named")
    for at in np.flatnonzero(messages.own & (named != messages.message)).tolist():
        sequence = int(messages.message[at])
        yield AuditFinding("parents", sequence, sequence, 0, f"its id names sequence {named[at]}")
