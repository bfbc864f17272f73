"""The scheduler's state as bytes and back: what a checkpoint holds (DESIGN section 4).

Columns and bitmaps go as they are in memory, but for what says the same thousands of times: chunks whose rows are all
alike, and neighbours in a backlog. Both are what a long backlog consists of, and the loop stands still while this is
made. What consists of many objects is only copied here, a pointer or a row each; whoever writes the checkpoint makes
bytes of it, in a thread (``encoded``). Everything small is one JSON document.

What was out at a handler, or had its row under way, is written as waiting: if the row made it into the log, replaying
the log behind the checkpoint ends it; if not, it is tried again. Queues and subscribers are not in it: the caller has
them as facts.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain, islice
from typing import Any, Final

import numpy as np
import orjson

from syncbrok.delivery.scheduler.bad_messages import Bad
from syncbrok.delivery.scheduler.content_sizes import ContentSizes
from syncbrok.delivery.scheduler.cursor import Backlog, Cursor, TriedState
from syncbrok.delivery.scheduler.dead_letters import DeadLetters
from syncbrok.delivery.scheduler.delivered_below import DeliveredBelow
from syncbrok.delivery.scheduler.edges import IN_REPLAY, ON_HOLD, Edges
from syncbrok.delivery.scheduler.key_chains import KeyChains
from syncbrok.delivery.scheduler.key_lines import KeyLines
from syncbrok.delivery.scheduler.lifecycle import MessageState
from syncbrok.delivery.scheduler.message_chunk import CHUNK, MessageChunk
from syncbrok.delivery.scheduler.message_table import MessageTable
from syncbrok.delivery.scheduler.state import ForcedEnd, QueueState, ReplayEntry, ReplayProgress, SchedulerState
from syncbrok.delivery.scheduler.timer_wheel import TimerWheel
from syncbrok.model.facts import Outcome, Reason
from syncbrok.model.message import ParentFailure
from syncbrok.model.sequence_set import SequenceSet

Part = bytes | Callable[[], bytes]
"""of a checkpoint; what is no bytes yet is a copy that gives them when it is called, in any thread"""
VERSION: Final = 11
_BEFORE: Final = (5, 6, 7, 8, 9, 10)
"""what they wrote is read too; they read nothing of this version, and begin from the log"""
_FULL, _THIN, _ALIKE = range(3)
"""forms of a chunk: all rows, those of messages that have not ended, one row that stands for all"""
_NEIGHBOURS_MIN: Final = 16
"""sequences in a stretch of a backlog, on the average, for it to be written as stretches"""
_DIFFED: Final = 1 << 16
_SWEPT: Final = 25_000
"""entries of the wheel that are looked at for each checkpoint, some 8 ms; more is done as messages come"""
_SETS: Final = {"blocked": "parked", "eligible": "ready", "due": "due", "ended_out_of_order": "ahead",
                "history_taken": "history_taken", "skipped": "skipped"}  # fmt: skip
"""a cursor's sets -> their names in a checkpoint, which are older"""


def dump(scheduler_state: SchedulerState) -> dict[str, Part]:
    """All parts. The caller has finished every slice of work that was under way."""
    scheduler_state.timers.sweep(scheduler_state.still_waits, _SWEPT)
    parts: dict[str, Part] = {"wheel": scheduler_state.timers.dump(), "chains": scheduler_state.keys.dump()}
    tried = {number: cursor.ending | cursor.retrying for number, cursor in scheduler_state.cursors.items()
             if cursor.ending or cursor.retrying}  # fmt: skip
    parts["tried"] = partial(_rows_of_tried, tried)
    alike = _Alike()
    for number, chunk in scheduler_state.table.chunks.items():
        parts[f"chunk/{number}"] = _dump_chunk(chunk, alike)
    parts |= {f"bad/{name}": column for name, column in scheduler_state.table.bad.dump().items()}
    for number, queue_state in scheduler_state.queues.items():
        parts[f"backlog/{number}"] = _dump_backlog(queue_state.backlog)
        for place, sizes in () if queue_state.sizes is None else queue_state.sizes.dump().items():
            parts[f"sizes/{number}/{place}"] = sizes
    for number, cursor in scheduler_state.cursors.items():
        for attribute, name in _SETS.items():
            members: SequenceSet = getattr(cursor, attribute)
            if members:
                parts[f"cursor/{number}/{name}"] = members.dump()
        if above := cursor.delivered_below.above():
            parts[f"cursor/{number}/delivered"] = above
        if cursor.dead:
            parts[f"cursor/{number}/letters"], parts[f"cursor/{number}/reasons"] = cursor.dead.dump()
    parts["state"] = orjson.dumps(_state(scheduler_state), option=orjson.OPT_NON_STR_KEYS)
    return parts


def encoded(parts: Mapping[str, Part]) -> dict[str, bytes]:
    """All of it as bytes. Takes long where much waits, and lets other threads have their turn."""
    return {name: part if isinstance(part, bytes) else part() for name, part in parts.items()}


def load(scheduler_state: SchedulerState, parts: Mapping[str, bytes]) -> None:
    """Fill a fresh state, in which queues and subscribers have been declared. Raises ``ValueError`` or ``KeyError``
    where the parts are of another version or not whole; then the state is of no use."""
    state = orjson.loads(parts["state"])
    if state["version"] not in (*_BEFORE, VERSION):
        raise ValueError(f"a checkpoint of version {state['version']}, this is {VERSION}")
    scheduler_state.timers = TimerWheel.load(parts["wheel"])
    _load_chunks_and_letters(scheduler_state, parts)
    if "bad" in parts:
        _load_bad(scheduler_state.table, parts["bad"])
    else:
        scheduler_state.table.bad.load(parts["bad/kinds"], parts["bad/sequences"], parts["bad/numbers"])
    _load_state(scheduler_state, state)
    _load_chains(scheduler_state.keys, state, parts)
    tried = _tried(state, parts)
    for number, queue_state in scheduler_state.queues.items():
        _load_backlog(queue_state.backlog, parts.get(f"backlog/{number}", b""))
    _load_sizes(scheduler_state, parts, state["queues"])
    for number, cursor in scheduler_state.cursors.items():
        for attribute, name in _SETS.items():
            members = parts.get(f"cursor/{number}/{name}")
            if members is not None:
                setattr(cursor, attribute, SequenceSet.load(members))
        kept = state["cursors"].get(str(number))
        _load_cursor(cursor, kept, tried.get(number, {}))
        if kept is not None and "confirmed" in kept:  # else a version before this one wrote it: less is known
            above = parts.get(f"cursor/{number}/delivered", b"")
            cursor.delivered_below = DeliveredBelow.load(kept["confirmed"], above)
        _forget_ended(scheduler_state, cursor, () if kept is None else kept["out"])
        if cursor.abandoned:
            scheduler_state.abandoned.add(number)
        scheduler_state.activate(cursor)


def _load_chunks_and_letters(scheduler_state: SchedulerState, parts: Mapping[str, bytes]) -> None:
    for name, data in parts.items():
        if name.startswith("chunk/"):
            scheduler_state.table.chunks[int(name[6:])] = _load_chunk(data)
        elif name.endswith("/letters"):
            cursor = scheduler_state.cursors[int(name.split("/")[1])]
            cursor.dead.load(data, parts[f"cursor/{cursor.number}/reasons"])
        elif "/dead/" in name:  # a version before this one wrote it
            _, number, _, reason = name.split("/")
            scheduler_state.cursors[int(number)].dead.load_bitmaps(Reason(int(reason)), data)


def _load_sizes(scheduler_state: SchedulerState, parts: Mapping[str, bytes], kept: dict[str, Any]) -> None:
    for number in scheduler_state.sized:
        queue_state = scheduler_state.queues[number]
        sizes = queue_state.sizes = ContentSizes()
        span = kept.get(str(number), {}).get("unknown_sizes")
        if span is not None:
            sizes.unknown = int(span[0]), int(span[1])
        elif queue_state.waiting:  # a version before this one wrote it, or its bound is younger than what was written
            sizes.lacks(1, scheduler_state.table.newest)
    for name, data in parts.items():
        if name.startswith("sizes/"):
            _, queue, place = name.split("/")
            known = scheduler_state.queues[int(queue)].sizes
            if known is not None:
                known.load(int(place), data)


def _load_bad(table: MessageTable, data: bytes) -> None:
    """As versions before this one wrote it."""
    words = iter(array("Q", data))
    for sequence, state, reason, queue, lost in zip(*[words] * 5, strict=True):
        table.restore_bad(sequence, Bad(MessageState(state), Reason(reason), queue))
        if lost:
            table.lose(sequence, islice(words, lost))


def _state(scheduler_state: SchedulerState) -> dict[str, Any]:
    return {
        "version": VERSION,
        "newest": scheduler_state.table.newest,
        "open": scheduler_state.table.open,
        "time_us": scheduler_state.time_us,
        "replay_number": scheduler_state.replay_number,
        "only": list(scheduler_state.table.only.items()),
        "dying": [(d.message, d.outcome, d.reason, d.replay) for d in _all_pending_ends(scheduler_state)],
        "edges": scheduler_state.edges.dump(),
        "replays": [
            (
                sequence,
                entry.number,
                entry.queue,
                list(entry.left),
                list(entry.attempts.items()),
                list(entry.waiting),
                entry.parent_failure,
                list(entry.failed),
                [(parent, list(missing)) for parent, missing in entry.held.items()],
                entry.hold_over_us,
                entry.key,
                list(entry.before.items()),
            )
            for sequence, entry in scheduler_state.replays.items()
        ],
        "progress": [(number, one.total, one.done, one.failed) for number, one in scheduler_state.progress.items()],
        "ended_again": [(sequence, list(failed)) for sequence, failed in scheduler_state.ended_again.items()],
        "queues": {number: _queue_state(queue_state) for number, queue_state in scheduler_state.queues.items()},
        "cursors": {number: _cursor_state(cursor) for number, cursor in scheduler_state.cursors.items()},
    }


def _all_pending_ends(scheduler_state: SchedulerState) -> Iterable[ForcedEnd]:
    """All that are to die: after a restart nothing is out, and no row has been asked for."""
    return chain(scheduler_state.pending_ends, *scheduler_state.still_out.values(), scheduler_state.asked.values())


def _queue_state(queue_state: QueueState) -> dict[str, Any]:
    return {
        "offset": queue_state.backlog.offset,
        "counts": [
            queue_state.waiting,
            queue_state.last_sequence,
            queue_state.accepted,
            queue_state.delivered,
            queue_state.failed,
            queue_state.dead,
        ],
        "oldest_hint": queue_state.oldest_hint,
        "unknown_sizes": None if queue_state.sizes is None else queue_state.sizes.unknown,
        "cascaded": [(sequence, reason, at) for sequence, (reason, at) in queue_state.cascaded.items()],
    }


def _cursor_state(cursor: Cursor) -> dict[str, Any]:
    return {
        "position": cursor.position,
        "seen": cursor.scanned_through,
        "out": [*cursor.in_flight, *cursor.unconfirmed],
        "doomed": cursor.abandoned,
        "history": [cursor.history_after, cursor.history_done],
        "passed": list(cursor.passed.items()),
        "key_lines": cursor.key_lines,
        "counts": [cursor.delivered, cursor.failed, cursor.last_status, cursor.last_reason],
        "times": [cursor.last_attempt_us, cursor.failing_since_us],
        "unused_us": cursor.unused_us,
        "confirmed": cursor.delivered_below.numbers(),
    }


def _rows_of_tried(tried: Mapping[int, Mapping[int, TriedState]]) -> bytes:
    """Subscriber, message and what a ``TriedState`` says, of each delivery that has been tried."""
    rows = array("q")
    for number, of_each in tried.items():
        for message, one in of_each.items():
            rows.extend((number, message, *one))
    return rows.tobytes()


def _tried(state: dict[str, Any], parts: Mapping[str, bytes]) -> dict[int, dict[int, TriedState]]:
    """By subscriber and message, what was tried."""
    tried: dict[int, dict[int, TriedState]] = {
        int(number): {message: TriedState(*said) for message, *said in kept["tried"]}
        for number, kept in state["cursors"].items()
        if "tried" in kept  # a version before this one wrote it
    }
    rows = array("q", parts.get("tried", b""))
    for number, message, *said in zip(*[iter(rows)] * (2 + len(TriedState._fields)), strict=True):
        tried.setdefault(number, {})[message] = TriedState(*said)
    return tried


def _load_state(scheduler_state: SchedulerState, state: dict[str, Any]) -> None:
    scheduler_state.table.newest, scheduler_state.table.open = state["newest"], state["open"]
    scheduler_state.time_us, scheduler_state.replay_number = state["time_us"], state["replay_number"]
    scheduler_state.table.only = dict(state["only"])
    scheduler_state.pending_ends.extend(
        ForcedEnd(message, Outcome(outcome), Reason(reason), replay)
        for message, outcome, reason, replay in state["dying"]
    )
    _load_edges(scheduler_state.edges, state)
    # Not there in checkpoints of before.
    scheduler_state.ended_again = {sequence: set(failed) for sequence, failed in state.get("ended_again", ())}
    scheduler_state.progress = {number: ReplayProgress(*counts) for number, *counts in state.get("progress", ())}
    for sequence, number, queue, left, attempts, waiting, policy, failed, held, hold_over_us, *more in state["replays"]:
        scheduler_state.replays[sequence] = ReplayEntry(
            number, queue, set(left), dict(attempts), {parent: set() for parent in waiting}, ParentFailure(policy),
            more[0] if more else "", set(failed), hold_over_us,
            {one: (Outcome(outcome), Reason(reason)) for one, (outcome, reason) in more[1]} if len(more) > 1 else {},
        )  # fmt: skip
        scheduler_state.replays[sequence].waiting.update((parent, set(missing)) for parent, missing in held)
        if number in scheduler_state.progress:
            scheduler_state.progress[number].left.add(sequence)
    for number, queue_state in scheduler_state.queues.items():
        kept = state["queues"].get(str(number))
        if kept is None:
            continue
        queue_state.backlog.offset, queue_state.oldest_hint = kept["offset"], kept["oldest_hint"]
        (
            queue_state.waiting,
            queue_state.last_sequence,
            queue_state.accepted,
            queue_state.delivered,
            queue_state.failed,
            queue_state.dead,
        ) = kept["counts"]
        for sequence, reason, at in kept["cascaded"]:
            queue_state.cascaded[sequence] = Reason(reason), tuple(at) if at is not None else None


def _load_chains(keys: KeyChains, state: dict[str, Any], parts: Mapping[str, bytes]) -> None:
    if "keys" not in state:
        keys.load(parts["chains"])
        return
    for number, queue, key, messages in state["keys"]:  # a version before this one wrote it
        keys.load_chain(number, queue, key, messages)


def _load_edges(edges: Edges, state: dict[str, Any]) -> None:
    if state["version"] >= 7:
        for scope, message, dependents, told in state["edges"]:
            edges.load(scope, message, dependents, [(tuple(one[0]), one[1]) if one else None for one in told])
        return
    for scope, name in ((ON_HOLD, "held_on"), (IN_REPLAY, "followers")):
        for message, dependents in state[name]:
            edges.load(scope, message, dependents, ())
    for number, cursor in state["cursors"].items():
        for message, waiting in cursor["behind"]:
            for child, parents, *key in waiting:
                edges.add(int(number), message, child, (tuple(parents), key[0] if key else ""))


def _load_cursor(cursor: Cursor, kept: dict[str, Any] | None, tried: dict[int, TriedState]) -> None:
    if kept is None:
        return
    cursor.retrying = tried
    cursor.position, cursor.scanned_through, cursor.abandoned = kept["position"], kept["seen"], kept["doomed"]
    for sequence in kept["out"]:
        (cursor.due if sequence in cursor.retrying else cursor.eligible).add(sequence)
    if "dead" in kept:  # a version before this one wrote them here
        cursor.dead = DeadLetters((sequence, Reason(reason)) for sequence, reason in kept["dead"])
    cursor.history_after, cursor.history_done = kept["history"]
    # Not there in checkpoints of before: then one that a replay mends comes at the next start from the log.
    cursor.passed = {
        sequence: (tuple(told[0]), told[1]) if told and isinstance(told[0], list) else (tuple(told), "")
        for sequence, told in kept.get("passed", ())
    }
    cursor.key_lines = KeyLines(kept.get("key_lines", {}))
    cursor.delivered, cursor.failed, cursor.last_status, reason = kept["counts"]
    cursor.last_reason = Reason(reason)
    cursor.last_attempt_us, cursor.failing_since_us = kept["times"]
    cursor.unused_us = kept.get("unused_us", 0)


def _forget_ended(scheduler_state: SchedulerState, cursor: Cursor, out: Iterable[int]) -> None:
    """Leave out, of what was ``out``, messages that had ended for everybody meanwhile (a cancel, an expiry). Nobody
    waits for them, and a subscriber that counts no more would take them for its own."""
    table, replays = scheduler_state.table, scheduler_state.replays
    for sequence in out:
        over = table.state(sequence) >= MessageState.COMPLETE and not replays.goes_to(sequence, cursor.number)
        if over and cursor.counts(sequence):
            cursor.forget(sequence)


def _dump_backlog(backlog: Backlog) -> bytes:
    """Nothing for none. Whether as stretches (8 bytes), then first and count of each; else the sequences."""
    sequences = backlog.sequences
    if not sequences:
        return b""
    starts = [0]
    values = np.frombuffer(sequences, np.uint64)
    for at in range(0, len(values) - 1, _DIFFED):
        steps = np.diff(values[at : at + _DIFFED + 1])
        starts += (np.flatnonzero(steps != 1) + at + 1).tolist()
    del values  # else the backlog could not grow
    if len(starts) * _NEIGHBOURS_MIN > len(sequences):
        return bytes(8) + sequences.tobytes()
    stretches = array("Q", (1,))
    for start, end in zip(starts, (*starts[1:], len(sequences)), strict=True):
        stretches.extend((sequences[start], end - start))
    return stretches.tobytes()


def _load_backlog(backlog: Backlog, data: bytes) -> None:
    if any(data[:8]):
        stretches = array("Q", data)
        for at in range(1, len(stretches), 2):
            backlog.extend(stretches[at], stretches[at + 1])
    else:
        backlog.sequences.frombytes(memoryview(data)[8:])


class _Alike:
    """Whether all rows of a chunk are as its first one; remembers what the columns of such a chunk are."""

    def __init__(self) -> None:
        self._columns: dict[tuple[int, ...], tuple[bytes, ...]] = {}

    def __call__(self, chunk: MessageChunk) -> bool:
        queue, state, left, flags = chunk.queue, chunk.state, chunk.left, chunk.flags
        if chunk.thin or chunk.edges or chunk.first_child is not None:
            return False
        assert isinstance(queue, array)
        assert isinstance(left, array)
        assert isinstance(flags, bytearray)
        first = queue[0], state[0], left[0], flags[0]
        columns = self._columns.get(first)
        if columns is None:
            columns = self._columns[first] = tuple(
                _column(kind, value).tobytes() for kind, value in zip("IBHB", first, strict=True)
            )
        return (
            state == columns[1]
            and flags == columns[3]
            and queue.tobytes() == columns[0]
            and left.tobytes() == columns[2]
        )


def _column(kind: str, value: int) -> "array[int]":
    return array(kind, (value,)) * CHUNK


def _dump_chunk(chunk: MessageChunk, alike: _Alike) -> bytes:
    columns: list[bytes] = []
    form = _THIN if chunk.thin else _ALIKE if alike(chunk) else _FULL
    rows = list(chunk.open_rows()) if chunk.thin else range(CHUNK)
    if form == _THIN:
        columns += [
            array("I", rows).tobytes(),
            array("I", [chunk.queue[i] for i in rows]).tobytes(),
            bytes(chunk.state[i] for i in rows),
            array("H", [chunk.left[i] for i in rows]).tobytes(),
            bytes(chunk.flags[i] for i in rows),
        ]
    elif form == _ALIKE:
        columns.append(array("Q", (chunk.queue[0], chunk.state[0], chunk.left[0], chunk.flags[0])).tobytes())
    else:
        assert isinstance(chunk.queue, array)
        assert isinstance(chunk.left, array)
        columns += [chunk.queue.tobytes(), bytes(chunk.state), chunk.left.tobytes(), bytes(chunk.flags)]
    if chunk.edge_start is not None and chunk.edge_count is not None:
        columns += [chunk.edge_start.tobytes(), bytes(chunk.edge_count), chunk.edges.tobytes(), chunk.links.tobytes()]
    if chunk.first_child is not None and chunk.last_child is not None:
        columns += [chunk.first_child.tobytes(), chunk.last_child.tobytes()]
    head = array(
        "Q",
        (
            chunk.open,
            form,
            len(rows),
            len(chunk.edges),
            chunk.edge_start is not None,
            chunk.first_child is not None,
        ),
    )
    return head.tobytes() + b"".join(columns)


def _load_chunk(data: bytes) -> MessageChunk:
    chunk = MessageChunk()
    head = array("Q", data[:48])
    chunk.open, form, rows, edges, has_edges, has_children = head
    at = 48

    def column(size: int) -> bytes:
        nonlocal at
        at += size
        return data[at - size : at]

    if form == _THIN:
        places = array("I", column(4 * rows))
        values = (array("I", column(4 * rows)), column(rows), array("H", column(2 * rows)), column(rows))
        columns = (_column("I", 0), bytearray(CHUNK), _column("H", 0), bytearray(CHUNK))
        for target, source in zip(columns, values, strict=True):
            for place, value in zip(places, source, strict=True):
                target[place] = value
        chunk.restore(*columns)
        chunk.make_thin()
    elif form == _ALIKE:
        queue, state, left, flags = array("Q", column(32))
        states, flagged = bytearray((state,)) * CHUNK, bytearray((flags,)) * CHUNK
        chunk.restore(_column("I", queue), states, _column("H", left), flagged)
    else:
        whole = array("I", column(4 * CHUNK)), bytearray(column(CHUNK)), array("H", column(2 * CHUNK))
        chunk.restore(*whole, bytearray(column(CHUNK)))
    if has_edges:
        chunk.edge_start, chunk.edge_count = array("I", column(4 * CHUNK)), bytearray(column(CHUNK))
        chunk.edges, chunk.links = array("Q", column(8 * edges)), array("Q", column(8 * edges))
    if has_children:
        chunk.first_child, chunk.last_child = array("Q", column(8 * CHUNK)), array("Q", column(8 * CHUNK))
    return chunk
