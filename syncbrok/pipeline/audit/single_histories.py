"""The history of messages that are not ordinary: one by one, by ``message_history``."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from syncbrok.pipeline.audit.audience import NOBODY, Audiences
from syncbrok.pipeline.audit.event_columns import AuditMessages, AuditRows, Claims
from syncbrok.pipeline.audit.message_history import AcceptedMessage, AuditHistory, DeliveryHistory, OutcomeRow
from syncbrok.pipeline.audit.row_encoding import (
    COUNTED,
    ENDS,
    JUDGED,
    NEVER,
    NORMAL,
    REPLAYED,
    Longs,
    found,
    packed_rows,
)
from syncbrok.pipeline.audit.row_kinds import HISTORY_KINDS


def single_rows(
    messages: AuditMessages, rows: AuditRows, at: Longs, claims: Claims, known: Audiences
) -> Iterator[pa.RecordBatch]:
    rows_found = _HistoryRows()
    has_key, keys = messages.key_of()
    uncounted: dict[int, dict[int, int]] = defaultdict(dict)
    if len(at):
        for place, number, since in zip(
            *(one.tolist() for one in messages.uncounted(at[has_key[at] & messages.own[at]])), strict=True
        ):
            uncounted[place][number] = since
    details = messages.table.take(pa.array(at)).to_pylist()
    begins = np.cumsum(messages.parent_counts) - messages.parent_counts
    for place, detail in zip(at.tolist(), details, strict=True):
        parents = messages.parents[begins[place] :][: messages.parent_counts[place]].tolist()
        history = AuditHistory(_accepted(messages, place, bool(parents), known), known)
        history.apply(_rows_of(rows, history.accepted.message), *claims.get(history.accepted.message, ([], [])))
        rows_found.add(history, detail, parents, keys[place] if has_key[place] else None, uncounted.get(place, {}))
    for message in np.unique(rows.message[rows.of < 0]).tolist():
        unknown = AcceptedMessage(
            message, NEVER, own=True, queue=NOBODY, queue_gone=NEVER, only=0, counted=(), doubt=NEVER, alone=False
        )
        history = AuditHistory(unknown, known)
        history.apply(_rows_of(rows, message), [], [])
        rows_found.found += history.found
    yield from rows_found.batches()


def _accepted(messages: AuditMessages, at: int, has_parents: bool, known: Audiences) -> AcceptedMessage:
    message, only = int(messages.message[at]), int(messages.only[at])
    counted = tuple(
        one.number for one in known.members[messages.audience[at]] if one.since < message and only in (0, one.number)
    )
    return AcceptedMessage(
        message, int(messages.record[at]), bool(messages.own[at]), int(messages.queue[at]),
        int(messages.queue_gone[at]), only, counted, int(messages.doubt[at]), not has_parents,
    )  # fmt: skip


def _rows_of(rows: AuditRows, message: int) -> list[OutcomeRow]:
    here = slice(*np.searchsorted(rows.message, [message, message + 1]).tolist())
    columns = (rows.seq, rows.pos, rows.s, rows.attempt, rows.outcome, rows.good, rows.after, rows.due_us)
    return [OutcomeRow(*one) for one in zip(*(column[here].tolist() for column in columns), strict=True)]


class _HistoryRows:
    """The rows of ``HISTORY_KINDS`` of messages that are judged one by one."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from found(HISTORY_KINDS, self.found)
        for kind, rows in self._rows.items():
            yield from packed_rows(HISTORY_KINDS, kind, rows)

    def add(
        self, history: AuditHistory, detail: dict[str, Any], parents: list[int], key: str | None, apart: dict[int, int]
    ) -> None:
        own = history.accepted
        follows = not own.counted and bool(parents)
        events = _bytes(history.events)
        normal = [one for one in history.events if one.flags & NORMAL]
        counted = [one.after for one in normal if one.flags & COUNTED]
        uncounted = [one.after for one in normal if not one.flags & COUNTED]
        entries = orjson.dumps([[*one] for one in history.entries]).decode() if history.entries else ""
        open_ones = {number: pair for number, pair in history.pairs.items() if pair.is_open}
        rearmed = [(number, pair.replay) for number, pair in open_ones.items() if pair.replay]
        is_apart = any(
            one.flags & NORMAL and not one.flags & COUNTED and history.known.is_apart(one.s, one.seq, one.after)
            for one in history.events
        )
        is_replayed = any(one.flags & REPLAYED for one in history.events)
        self.found += history.found
        self._rows["history"].append((
            own.message, own.record, own.queue, own.doubt, history.ended, history.ended_for_all, history.complete,
            own.only, max(counted, default=-1), follows, np.array(own.counted, np.int64).tobytes(), events, entries,
        ))  # fmt: skip
        self._rows["edge"] += [(
            parent, own.message, own.record, own.queue, own.own, detail["is_same"], detail["policy"],
            min(counted, default=NEVER), min(uncounted, default=NEVER), is_replayed, is_apart,
            bool(open_ones) or follows, follows, history.ended, history.cancelled, events, entries,
            orjson.dumps(rearmed).decode() if rearmed else "",
        ) for parent in parents]  # fmt: skip
        waiting = [(number, bool(pair.replay), pair.retry_us, pair.touched) for number, pair in open_ones.items()]
        if follows and not open_ones and history.cancelled == NEVER:
            waiting = [(0, False, NEVER, 0)]
        self._rows["open"] += [(
            own.message, number, own.record, detail["queue"], detail["time_us"], detail["policy"],
            detail["not_before_us"], detail["expires_us"], is_rearmed, retry_us, touched,
        ) for number, is_rearmed, retry_us, touched in waiting]  # fmt: skip
        self._add_lines(history, key, apart)
        self._rows["count"].append((
            1, len(parents), len(own.counted), sum(one.attempt > 0 for one in history.events),
            sum(bool(one.flags & JUDGED) for one in history.events),
            sum(bool(one.flags & ENDS) for one in history.events),
            int(key is not None), int(follows), int(history.complete != NEVER), len(waiting),
        ))  # fmt: skip

    def _add_lines(self, history: AuditHistory, key: str | None, apart: dict[int, int]) -> None:
        """Add rows of kind ``line`` where the message has a key. ``apart``: the subscribers to which it comes though it
        does not count them, with the record because of which."""
        own = history.accepted
        for number in {*history.pairs, *apart} if key is not None else ():
            pair = history.pairs.get(number) or DeliveryHistory(is_counted=False, is_open=False)
            events = [one for one in history.events if one.s == number]
            end_seq, end_pos = min((one[:2] for one in pair.ends), default=(NEVER, 0))
            first = min((one.after for one in events if one.flags & NORMAL), default=NEVER)
            done = -1 if not own.own and end_seq == own.record else end_seq
            armed = [(one.record, one.replay, one.has_key) for one in history.entries if number in one.subscribers]
            self._rows["line"].append(
                (own.queue, key, number, own.message, own.record, pair.is_counted, apart.get(number, NEVER),
                 own.doubt, end_seq, end_pos, history.ended_for_all, done, pair.is_open, first,
                 orjson.dumps(armed).decode() if armed else "", _bytes(events))
            )  # fmt: skip


def _bytes(events: Iterable[Any]) -> bytes:
    return np.array(list(events), np.int64).tobytes()
