"""Rules ``parents``, ``gate`` and ``inversion``: the order between a message and its parents. Pure.

First every edge is judged by a few numbers, all edges at once: the earliest ``after`` of the child's attempts against
the records of the parent's end and completion. A parent complete by then is done for every scope. The other edges are
judged attempt by attempt, with every end of the parent. In a sound log these are edges of replays, and of children of
scope ``same`` that went out before the parent was complete everywhere.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from syncbrok.pipeline.audit.audience import Audiences
from syncbrok.pipeline.audit.message_history import AuditedReplay
from syncbrok.pipeline.audit.retention_drops import Drops, dropped_before
from syncbrok.pipeline.audit.row_encoding import (
    COUNTED,
    DELIVER,
    ENDS,
    FAIL,
    FOUND,
    GOOD,
    JUDGED,
    NEVER,
    NORMAL,
    REPLAY_SHIFT,
    REPLAYED,
    Flags,
    Longs,
    RowEvent,
    events_of,
    flags,
    found,
    gathered,
    longs,
    numbers_of,
    packed,
    packed_rows,
    places,
    texts,
)
from syncbrok.pipeline.audit.row_kinds import HISTORY_KINDS
from syncbrok.pipeline.audit.rules import AuditFinding

ALL_OF_IT: Final = -1
"""the subscriber of a state that holds for all deliveries that no replay has re-armed"""

CAUSAL_INPUT: Final = {
    "history": HISTORY_KINDS["history"],
    "edge": HISTORY_KINDS["edge"],
    "bad": HISTORY_KINDS["bad"],
    "settled": {"message": "bigint", "complete": "bigint", "ended": "bigint"},
}
"""what comes in. ``settled``: when a message that follows its parents became complete and ended"""
CAUSAL_OUTPUT: Final = {
    # How a parent of a message that waits stands; ``done``: the record with which it was, -1 while it is not.
    "state": {"message": "bigint", "s": "bigint", "is_failed": "boolean", "is_open": "boolean", "done": "bigint"},
    "found": FOUND,
}
"""what comes out"""


def judged_edges(
    batches: Iterable[pa.RecordBatch], known: Audiences, began: dict[int, int], drops: Mapping[int, Drops]
) -> Iterator[pa.RecordBatch]:
    """Rows of ``CAUSAL_OUTPUT`` from all ``CAUSAL_INPUT`` of a partition, where edges come to their parents. ``began``:
    the first record of each replay."""
    tables = gathered(batches, CAUSAL_INPUT)
    edges = _Edges(tables, known)
    if not len(edges.child):
        return
    yield from found(CAUSAL_OUTPUT, _unknown(edges, known.first))
    yield from found(CAUSAL_OUTPUT, _early(edges, began, known, drops))
    yield from found(CAUSAL_OUTPUT, _inverted(edges))
    yield from _states(edges, began)


class _Edges:
    """The edges as columns, beside what is known of their parents: ``above`` is the parent's record (``NEVER``: it is
    not there)."""

    def __init__(self, tables: dict[str, pa.Table], known: Audiences) -> None:
        edges, histories = tables["edge"], tables["history"]
        order = np.argsort(longs(histories, "message"), kind="stable")
        histories = histories.take(pa.array(order))
        self.parents_there = longs(histories, "message")
        ended, complete = longs(histories, "ended").copy(), longs(histories, "complete").copy()
        at, is_there = places(self.parents_there, longs(tables["settled"], "message"))
        ended[at[is_there]] = longs(tables["settled"], "ended")[is_there]
        complete[at[is_there]] = longs(tables["settled"], "complete")[is_there]
        self.parent, self.child = longs(edges, "parent"), longs(edges, "child")
        self.record, self.queue = longs(edges, "record"), longs(edges, "queue")
        self.own, self.policy = flags(edges, "own"), longs(edges, "policy")
        self.first_counted, self.first_uncounted = longs(edges, "first_counted"), longs(edges, "first_uncounted")
        self.at, self.is_there = places(self.parents_there, self.parent)

        def above(values: Longs, missing: int) -> Longs:
            return np.where(self.is_there, values[self.at], missing) if len(values) else np.full(len(self.at), missing)

        self.above = above(longs(histories, "record"), NEVER)
        self.above_queue, self.above_doubt = (
            above(longs(histories, "queue"), -1),
            above(longs(histories, "doubt"), NEVER),
        )
        self.ended, self.complete = above(ended, NEVER), above(complete, NEVER)
        self.last_counted = above(longs(histories, "last_counted"), -1)
        self.bad_since, self.mended = _listed(tables["bad"], self.parent)
        self.doubt = known.doubt(self.parent)
        self.table, self.histories = edges, histories

    @cached_property
    def delivers(self) -> Flags:
        found: Flags = self.policy == DELIVER
        return found

    def pair(self, edge: int) -> "_Pair":
        """The child and the parent of the edge number ``edge``, with all that is known of both."""
        row = self.table.slice(edge, 1).to_pylist()[0]
        above = self.histories.slice(int(self.at[edge]), 1).to_pylist()[0] if self.is_there[edge] else None
        return _Pair(
            row["parent"], row["child"], row["is_same"] and row["queue"] == int(self.above_queue[edge]),
            row["queue"], bool(self.delivers[edge]), events_of(row["events"]), _entries(row["entries"]),
            int(self.above[edge]), int(self.above_doubt[edge]), int(self.ended[edge]), int(self.complete[edge]),
            min(row["ended"], row["cancelled"]), row["record"] if row["follows"] and row["policy"] == FAIL else NEVER,
            above["ended_for_all"] if above else NEVER, above["only"] if above else 0, int(self.above_queue[edge]),
            int(self.bad_since[edge]), int(self.mended[edge]),
            frozenset(numbers_of(above["counted"])) if above else frozenset(),
            events_of(above["events"]) if above else [], _entries(above["entries"]) if above else [],
        )  # fmt: skip


class _Pair(NamedTuple):
    """A child and one of its parents. ``is_same``: scope ``same`` compares them by subscriber; ``above...`` is the
    parent's."""

    parent: int
    child: int
    is_same: bool
    queue: int
    delivers: bool
    events: list[RowEvent]
    entries: list[AuditedReplay]
    above: int
    above_doubt: int
    ended: int
    complete: int
    child_ended: int
    may_die: int
    """the record from which on the child, which counts nobody, dies with its parent; ``NEVER``: it does not"""
    above_ended_for_all: int
    above_only: int
    above_queue: int
    bad_since: int
    mended: int
    above_counted: frozenset[int]
    above_events: list[RowEvent]
    above_entries: list[AuditedReplay]


def _listed(table: pa.Table, parents: Longs) -> tuple[Longs, Longs]:
    """Two columns for ``parents``: the record from which on each is known to have ended badly though its own record is
    gone, and the record from which on it may be mended. ``NEVER``: none."""
    order = np.argsort(longs(table, "message"), kind="stable")
    at, is_listed = places(longs(table, "message")[order], parents)
    if not len(order):
        return np.full(len(parents), NEVER), np.full(len(parents), NEVER)
    since, mended = (np.where(is_listed, longs(table, name)[order][at], NEVER) for name in ("since", "mended"))
    return since, mended


def _entries(said: str) -> list[AuditedReplay]:
    rows = orjson.loads(said) if said else ()
    return [
        AuditedReplay(record, pos, replay, queue, tuple(whom), tuple(above), has_key, only)
        for record, pos, replay, queue, whom, above, has_key, only in rows
    ]


# -- parents -----------------------------------------------------------------------------------------------------------


def _unknown(edges: _Edges, first: int) -> Iterator[AuditFinding]:
    """Findings of rule ``parents``: edges to what was not accepted before."""
    is_gone = (edges.parent < first) | (edges.doubt < edges.record)
    is_before = (edges.parent < edges.child) & ((edges.above < edges.record) | is_gone)
    # A carried message was judged where it was accepted.
    for at in np.flatnonzero(edges.own & ~is_before).tolist():
        child = int(edges.child[at])
        yield AuditFinding("parents", child, child, 0, f"parent {edges.parent[at]} was not accepted before it")


# -- gates -------------------------------------------------------------------------------------------------------------


def _early(
    edges: _Edges, began: dict[int, int], known: Audiences, drops: Mapping[int, Drops]
) -> Iterator[AuditFinding]:
    """Findings of rule ``gate``, attempt by attempt, for the edges where columns do not settle it."""
    for at in np.flatnonzero(_may_be_early(edges)).tolist():
        pair = edges.pair(at)
        for event in pair.events:
            if not event.flags & JUDGED:
                continue
            is_apart = not event.flags & (COUNTED | REPLAYED) and known.is_apart(event.s, event.seq, event.after)
            if not (_done_apart(pair, event, known, drops) if is_apart else _was_done(pair, event, began)):
                what = (
                    f"attempt {event.attempt} began after record {event.after}, its parent {pair.parent} was not done"
                )
                yield AuditFinding("gate", event.seq, pair.child, event.s, f"{what} by then")


def _may_be_early(edges: _Edges) -> Flags:
    """For each edge: true if an attempt of the child may have begun before the parent was done."""
    strict = np.where(edges.delivers, NEVER, edges.first_counted)
    either = np.where(edges.delivers, np.minimum(edges.first_counted, edges.first_uncounted), edges.first_uncounted)
    is_early = (strict < edges.complete) | (either < edges.ended)
    # A parent whose record is gone counts as complete, unless a snapshot says otherwise (RULES 2).
    is_bad = ~edges.is_there & (edges.bad_since != NEVER) & (strict != NEVER)
    is_late_known = edges.is_there & (edges.above >= edges.record)
    is_special = flags(edges.table, "is_replayed") | flags(edges.table, "is_apart")
    found: Flags = is_special | is_late_known | (edges.is_there & is_early) | is_bad
    return found


def _was_done(pair: _Pair, event: RowEvent, began: dict[int, int]) -> bool:
    """True if the parent was done for the attempt ``event`` when that began (RULES 11, 12, 21)."""
    if not event.flags & REPLAYED:
        return _done(pair, event, strict=bool(event.flags & COUNTED) and not pair.delivers)
    replay = event.flags >> REPLAY_SHIFT
    own, above = _entry(pair.entries, replay, event.seq), _entry(pair.above_entries, replay, event.seq)
    if own is None or above is None or pair.parent not in own.parents:
        return _done(pair, event, strict=False)
    if pair.above >= event.seq or pair.above_doubt < event.seq:
        return True
    since = began.get(replay, 0)
    return all(
        any(
            one.s == number and since < one.seq <= event.after and (one.flags & GOOD or pair.delivers)
            for one in pair.above_events
            if one.flags & ENDS
        )
        for number in _gates(pair, above, event.s)
    )


def _done(pair: _Pair, event: RowEvent, *, strict: bool) -> bool:
    """True if the parent was done for this attempt of the child; for attempts outside of replays. ``strict``: only a
    good end counts."""
    if pair.above >= event.seq:
        return not (strict and pair.bad_since < event.seq and event.after < pair.mended)
    if pair.above_doubt < event.seq:
        return True
    if pair.is_same and event.s in pair.above_counted:
        return any(
            one.s == event.s and one.seq <= event.after and (one.flags & GOOD or not strict)
            for one in pair.above_events
            if one.flags & ENDS
        )
    return (pair.complete if strict else pair.ended) <= event.after


def _done_apart(pair: _Pair, event: RowEvent, known: Audiences, drops: Mapping[int, Drops]) -> bool:
    """True if the parent was done for this attempt at a subscriber that did not count: it is complete, and has ended
    there too, either way. A message that has ended itself may go though its parent was not: nobody it counted was left,
    or it was to go out all the same."""
    if pair.above >= event.seq or pair.above_doubt < event.seq:
        return True
    child_ended = min(pair.child_ended, max(pair.may_die, pair.ended))
    if (pair.ended if pair.delivers or child_ended <= event.after else pair.complete) > event.after:
        return False
    there = [one for one in pair.above_events if one.s == event.s and one.seq < event.seq]
    armed = [one.record for one in pair.above_entries if event.s in one.subscribers and one.record < event.seq]
    ends = [one.seq for one in there if one.flags & ENDS]
    if not ends and pair.above_ended_for_all <= event.after:
        return True
    # What a carried one had come to at others nobody says, nor what retention had dropped before this one came.
    is_own = pair.above == pair.parent > dropped_before(drops.get(event.s, ()), event.seq)
    if not is_own or not (pair.parent > known.subscribers[event.s].uncounted[0][0] or there or armed):
        return True
    is_for = (
        event.s in pair.above_counted
        or any(not any(end > record for end in ends) for record in armed)
        or (
            pair.above_only in (0, event.s) and known.comes_uncounted(event.s, pair.above_queue, pair.parent, event.seq)
        )
    )
    return not is_for or any(end <= event.after for end in ends)


def _entry(entries: list[AuditedReplay], replay: int, seq: int) -> AuditedReplay | None:
    """The latest entry of the replay for the message before record ``seq``; None without one."""
    return max((one for one in entries if one.replay == replay and one.record < seq), default=None)


def _gates(pair: _Pair, above: AuditedReplay, number: int) -> tuple[int, ...]:
    """The subscribers at which the parent must have ended before the child's delivery to ``number``, inside a replay.
    An entry without subscribers, which no broker writes, holds nothing back."""
    is_by_one = pair.is_same and above.queue == pair.queue and number in above.subscribers
    return (number,) if is_by_one else above.subscribers


# -- inversions --------------------------------------------------------------------------------------------------------


def _inverted(edges: _Edges) -> Iterator[AuditFinding]:
    """Findings of rule ``inversion``: each edge once, at the record with which it shows."""
    reported: set[tuple[int, int]] = set()
    maybe = np.minimum(edges.first_counted, edges.first_uncounted) < edges.last_counted
    for at in np.flatnonzero(maybe).tolist():
        pair = edges.pair(at)
        if (pair.parent, pair.child) in reported:
            continue
        reported.add((pair.parent, pair.child))
        earlier = [one for one in pair.above_events if one.flags & NORMAL and one.flags & COUNTED]
        later = [one for one in pair.events if one.flags & NORMAL]
        shown = [
            max((one.seq, one.pos, pair.parent, one.s), (other.seq, other.pos, pair.child, other.s))
            for other in later
            for one in earlier
            if one.after > other.after
            and (one.s == other.s or not _is_by_one(pair, other.s, later, max(one[1:3], other[1:3])))
        ]
        if shown:
            seq, _, message, number = min(shown)
            what = f"an attempt of parent {pair.parent} began after one of its child {pair.child}"
            yield AuditFinding("inversion", seq, message, number, what)


def _is_by_one(pair: _Pair, s: int, later: list[RowEvent], shows: tuple[int, ...]) -> bool:
    """True if the child's attempts up to the row that ``shows`` it waited for the parent at their own subscriber alone.
    A carried parent does not tell whether it counted one that is gone by then."""
    if not pair.is_same or s in pair.above_counted:
        return pair.is_same
    return min(one.after for one in later if one.s == s and one[1:3] <= shows) < pair.above


# -- for what waits ----------------------------------------------------------------------------------------------------


def _states(edges: _Edges, began: dict[int, int]) -> Iterator[pa.RecordBatch]:
    """Rows of kind ``state`` for the parents of waiting deliveries."""
    waiting = flags(edges.table, "is_waiting")
    if not waiting.any():
        return
    done = np.where(edges.delivers, np.minimum(edges.complete, edges.ended), edges.complete)
    is_failed = np.where(
        edges.is_there,
        (done == NEVER) & (edges.ended != NEVER),
        (edges.bad_since != NEVER) & (edges.mended == NEVER) & ~edges.delivers,
    )
    is_open = edges.is_there & (done == NEVER) & (edges.ended == NEVER)
    yield packed(CAUSAL_OUTPUT, "state", {
        "message": edges.child[waiting], "s": np.full(int(waiting.sum()), ALL_OF_IT), "is_failed": is_failed[waiting],
        "is_open": is_open[waiting], "done": np.where(edges.is_there & (done != NEVER), done, -1)[waiting],
    })  # fmt: skip
    said = texts(edges.table, "rearmed")
    yield from packed_rows(CAUSAL_OUTPUT, "state", [
        (pair.child, number, *_state_in_replay(pair, number, replay, began))
        for at in (np.flatnonzero(waiting).tolist() if any(said) else ()) if said[at]
        for pair in [edges.pair(at)]
        for number, replay in orjson.loads(said[at])
    ])  # fmt: skip


def _state_in_replay(pair: _Pair, number: int, replay: int, began: dict[int, int]) -> tuple[bool, bool, int]:
    """Three values for the parent of a delivery that a replay has re-armed: failed, open, and the record with which it
    was done (-1: it is not). Parents that are in the replay too are waited for again, the others until they have ended
    once (RULES 21)."""
    own, above = _entry(pair.entries, replay, NEVER), _entry(pair.above_entries, replay, NEVER)
    if pair.above == NEVER:
        return False, False, -1
    if own is None or above is None or pair.parent not in own.parents:
        ends = [one.seq for one in pair.above_events if one.flags & ENDS and one.s == number]
        is_by_one = pair.is_same and number in pair.above_counted
        ended = min(ends, default=NEVER) if is_by_one else pair.ended
        return False, ended == NEVER, -1 if ended == NEVER else ended
    since, done, is_failed = began.get(replay, 0), -1, False
    for gate in _gates(pair, above, number):
        ends_there = [one for one in pair.above_events if one.flags & ENDS and one.s == gate and one.seq > since]
        good = [one.seq for one in ends_there if one.flags & GOOD or pair.delivers]
        if not ends_there:
            return False, True, -1
        is_failed = is_failed or not good
        done = max([done, *good[:1]])
    return is_failed, False, -1 if is_failed else done
