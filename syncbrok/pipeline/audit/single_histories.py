"""The history of messages that are not ordinary: one by one, by ``life``."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from syncbrok.pipeline.audit.audience import NOBODY, Audiences
from syncbrok.pipeline.audit.columns import AuditMessages, AuditRows, Claims
from syncbrok.pipeline.audit.life import Born, Life, OutcomeRow, Pair
from syncbrok.pipeline.audit.shapes import TOLD
from syncbrok.pipeline.audit.tables import COUNTED, ENDS, JUDGED, NEVER, NORMAL, REPLAYED, Longs, found, packed_rows


def others(
    messages: AuditMessages, rows: AuditRows, at: Longs, claims: Claims, known: Audiences
) -> Iterator[pa.RecordBatch]:
    gathering = _Gathering()
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
        life = Life(_born(messages, place, bool(parents), known), known)
        life.tell(_rows_of(rows, life.born.message), *claims.get(life.born.message, ([], [])))
        gathering.add(life, detail, parents, keys[place] if has_key[place] else None, uncounted.get(place, {}))
    for message in np.unique(rows.message[rows.of < 0]).tolist():
        born = Born(message, NEVER, own=True, queue=NOBODY, queue_gone=NEVER, only=0, counted=(), doubt=NEVER,
                    alone=False)  # fmt: skip
        life = Life(born, known)
        life.tell(_rows_of(rows, message), [], [])
        gathering.found += life.found
    yield from gathering.batches()


def _born(messages: AuditMessages, at: int, has_parents: bool, known: Audiences) -> Born:
    message, only = int(messages.message[at]), int(messages.only[at])
    counted = tuple(
        one.number for one in known.members[messages.audience[at]] if one.since < message and only in (0, one.number)
    )
    return Born(
        message, int(messages.record[at]), bool(messages.own[at]), int(messages.queue[at]),
        int(messages.queue_gone[at]), only, counted, int(messages.doubt[at]), not has_parents,
    )  # fmt: skip


def _rows_of(rows: AuditRows, message: int) -> list[OutcomeRow]:
    here = slice(*np.searchsorted(rows.message, [message, message + 1]).tolist())
    columns = (rows.seq, rows.pos, rows.s, rows.attempt, rows.outcome, rows.good, rows.after, rows.due_us)
    return [OutcomeRow(*one) for one in zip(*(column[here].tolist() for column in columns), strict=True)]


class _Gathering:
    """The rows of ``TOLD`` of messages that are judged one by one."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from found(TOLD, self.found)
        for kind, rows in self._rows.items():
            yield from packed_rows(TOLD, kind, rows)

    def add(
        self, life: Life, detail: dict[str, Any], parents: list[int], key: str | None, apart: dict[int, int]
    ) -> None:
        born = life.born
        follows = not born.counted and bool(parents)
        events = _bytes(life.events)
        normal = [one for one in life.events if one.flags & NORMAL]
        counted = [one.after for one in normal if one.flags & COUNTED]
        uncounted = [one.after for one in normal if not one.flags & COUNTED]
        entries = orjson.dumps([[*one] for one in life.entries]).decode() if life.entries else ""
        open_ones = {number: pair for number, pair in life.pairs.items() if pair.is_open}
        rearmed = [(number, pair.replay) for number, pair in open_ones.items() if pair.replay]
        is_apart = any(
            one.flags & NORMAL and not one.flags & COUNTED and life.known.is_apart(one.s, one.seq, one.after)
            for one in life.events
        )
        is_replayed = any(one.flags & REPLAYED for one in life.events)
        self.found += life.found
        self._rows["standing"].append((
            born.message, born.record, born.queue, born.doubt, life.ended, life.ended_for_all, life.complete,
            born.only, max(counted, default=-1), follows, np.array(born.counted, np.int64).tobytes(), events, entries,
        ))  # fmt: skip
        self._rows["edge"] += [(
            parent, born.message, born.record, born.queue, born.own, detail["is_same"], detail["policy"],
            min(counted, default=NEVER), min(uncounted, default=NEVER), is_replayed, is_apart,
            bool(open_ones) or follows, follows, life.ended, life.cancelled, events, entries,
            orjson.dumps(rearmed).decode() if rearmed else "",
        ) for parent in parents]  # fmt: skip
        waiting = [(number, bool(pair.replay), pair.retry_us, pair.touched) for number, pair in open_ones.items()]
        if follows and not open_ones and life.cancelled == NEVER:
            waiting = [(0, False, NEVER, 0)]
        self._rows["open"] += [(
            born.message, number, born.record, detail["queue"], detail["time_us"], detail["policy"],
            detail["not_before_us"], detail["expires_us"], is_rearmed, retry_us, touched,
        ) for number, is_rearmed, retry_us, touched in waiting]  # fmt: skip
        self._add_lines(life, key, apart)
        self._rows["count"].append((
            1, len(parents), len(born.counted), sum(one.attempt > 0 for one in life.events),
            sum(bool(one.flags & JUDGED) for one in life.events), sum(bool(one.flags & ENDS) for one in life.events),
            int(key is not None), int(follows), int(life.complete != NEVER), len(waiting),
        ))  # fmt: skip

    def _add_lines(self, life: Life, key: str | None, apart: dict[int, int]) -> None:
        """``apart``: the subscribers to which it comes though it does not count them, with the record because of
        which."""
        born = life.born
        for number in {*life.pairs, *apart} if key is not None else ():
            pair = life.pairs.get(number) or Pair(is_counted=False, is_open=False)
            events = [one for one in life.events if one.s == number]
            end_seq, end_pos = min((one[:2] for one in pair.ends), default=(NEVER, 0))
            first = min((one.after for one in events if one.flags & NORMAL), default=NEVER)
            done = -1 if not born.own and end_seq == born.record else end_seq
            armed = [(one.record, one.replay, one.has_key) for one in life.entries if number in one.subscribers]
            self._rows["line"].append(
                (born.queue, key, number, born.message, born.record, pair.is_counted, apart.get(number, NEVER),
                 born.doubt, end_seq, end_pos, life.ended_for_all, done, pair.is_open, first,
                 orjson.dumps(armed).decode() if armed else "", _bytes(events))
            )  # fmt: skip


def _bytes(events: Iterable[Any]) -> bytes:
    return np.array(list(events), np.int64).tobytes()
