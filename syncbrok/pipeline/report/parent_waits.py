"""The waits of messages for their parents, with begin and end: blame goes up along them. Arrow and numpy, no Spark.

A **waiter** has a gate of its own (RULES 11): it is a message of scope ``all``, or a counted delivery of a message of
scope ``same``. It could have gone at ``ready`` (accepted, its delay over). Its gate opened when the last of its parents
was done: complete; or ended, if its policy is ``deliver``; at this subscriber alone for scope ``same``. If the gate
never opened, the waiter waited until it ended for that reason, or waits now.

Three steps, with a shuffle before the second and the third: ``edges_of`` makes rows about each message for its children
and its parents; ``parent_ends`` finds for each edge when its parent was done, with all rows about a parent at one
place; ``last_parents`` finds the last parent of each waiter, with all rows about a waiter at one place.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncbrok.pipeline.numpy_columns import (
    NEVER,
    NONE,
    Longs,
    group_starts,
    longs,
    places_in_order,
    places_of,
    reduced,
    taken,
)
from syncbrok.pipeline.report.counts import summed
from syncbrok.pipeline.report.period import BEFORE, Period
from syncbrok.pipeline.states.completion_state import NOBODY, CompletionTables
from syncbrok.pipeline.states.input_columns import HAS_PARENTS, SAME

_SUBSCRIBER_BITS: Final = 20
"""of a waiter's number the lower ones are the subscriber's, 0 for a message as a whole"""
_EDGE, _PARENT, _OWN = 0, 1, 2
_NUMBERS: Final = (
    *("key", "what", "child", "root", "subscriber", "accepted", "ready", "ended", "complete"),
    *("shares", "last", "is_same", "deliver"),
)
EDGES: Final = pa.schema([*((name, pa.int64()) for name in _NUMBERS), ("queue", pa.string())])
"""``key`` is the parent that the row is about. An edge has its child's times, queue and root, a parent its own;
``last`` is the subscriber a parent ended with; a row of its own says when a delivery of a parent ended (``ended``)."""
PARENT_ENDS: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("key", "root", "subscriber", "accepted", "ready", "ended", "shares")),
        *((name, pa.int64()) for name in ("is_same", "open", "done", "parent", "parent_root", "parent_ready")),
        ("culprit", pa.int64()),
        ("queue", pa.string()),
    ]
)
"""``key`` is the child; ``done`` is when the parent was, or now where it is not (``open``); ``parent`` is its number as
a waiter, ``parent_root`` the root of its tree"""
LAST_PARENTS: Final = pa.schema(
    [
        *((name, pa.int64()) for name in ("root", "waiter", "parent", "parent_root", "gate_us", "ready_us")),
        *(("parent_ready_us", pa.int64()), ("culprit", pa.int64()), ("weight", pa.float64())),
    ]
)


def edges_of(table: pa.Table, state: CompletionTables, same_queues: frozenset[str]) -> pa.Table:
    """Rows of ``EDGES`` for ``parent_ends``, from a table of whole messages (with ``parent_sequences``,
    ``parent_failure`` and ``root``). ``same_queues``: queues that have had the scope ``same``, whose deliveries are
    judged one by one."""
    found = [_parents(table, state), *_edges(table, state)]
    if same_queues:
        found.append(_own(table, state, same_queues))
    return pa.concat_tables(found)


def parent_ends(rows: pa.Table, now_us: int) -> pa.Table:
    """Rows of ``PARENT_ENDS``: for each edge the time when its parent was done. A parent that is missing from the data
    holds nothing up."""
    key, what = longs(rows["key"]), longs(rows["what"])
    parents = rows.filter(pa.array(what == _PARENT)).sort_by("key").combine_chunks()
    at = places_in_order(longs(parents["key"]), key)
    chosen = np.flatnonzero((what == _EDGE) & (at != NONE))
    edge, parent = rows.take(pa.array(chosen)), parents.take(pa.array(at[chosen]))
    subscriber, is_same = longs(edge["subscriber"]), longs(edge["is_same"]) == 1
    own = _own_ends(rows.filter(pa.array(what == _OWN)), longs(edge["key"]), subscriber)
    here = is_same & (own != _ABSENT) & np.asarray(pc.fill_null(pc.equal(edge["queue"], parent["queue"]), False))
    by_all = np.where(longs(edge["deliver"]) == 1, longs(parent["ended"]), longs(parent["complete"]))
    done = np.where(here, own, by_all)
    culprit = np.where(here, subscriber, longs(parent["last"]))
    of_subscriber = np.where(longs(parent["is_same"]) == 1, np.maximum(culprit, 0), 0)
    columns = {
        "key": edge["child"],
        **{name: edge[name] for name in ("root", "subscriber", "accepted", "ready", "ended", "shares", "is_same")},
        "open": (done == NEVER).astype(np.int64),
        # A parent that failed holds its child longer than any that is done: until the child ends of it, or still.
        "done": np.where(done == NEVER, now_us, done),
        "parent": _waiter(longs(edge["key"]), of_subscriber),
        "parent_root": parent["root"],
        "parent_ready": parent["ready"],
        "culprit": culprit,
        "queue": edge["queue"],
    }
    return pa.table(columns, schema=PARENT_ENDS)


def last_parents(rows: pa.Table, period: Period) -> tuple[pa.Table, pa.Table]:
    """Two tables: for each waiting message the parent that finished last, if the message waited for it; and by queue
    and hour the total wait, in microseconds, of the messages whose parents have all finished. ``rows`` has all edges of
    each waiter it has."""
    key, subscriber, done = longs(rows["key"]), longs(rows["subscriber"]), longs(rows["done"])
    order = np.lexsort((done, subscriber, key))
    starts = group_starts(key[order], subscriber[order])
    is_open = reduced(np.maximum, longs(rows["open"])[order], starts)
    last = rows.take(pa.array(order[np.append(starts[1:], len(order))[: len(starts)] - 1]))
    done, ended, ready = longs(last["done"]), longs(last["ended"]), longs(last["ready"])
    until = np.where(ended == NEVER, period.until_us, ended)
    gate = np.where(is_open == 1, np.minimum(done, until), done)
    over = (is_open == 0) & (period.hours_of(gate) != BEFORE)
    keys = {"queue": last["queue"].combine_chunks().filter(pa.array(over)), "hour": period.hours_of(gate)[over]}
    waits = summed(keys, (gate - ready)[over])
    # Where all parents were done before it was accepted, neither it nor anybody below it waited through this step.
    waited = gate > longs(last["accepted"])
    columns = {
        "root": last["root"],
        "waiter": _waiter(longs(last["key"]), longs(last["subscriber"])),
        "parent": last["parent"],
        "parent_root": last["parent_root"],
        "gate_us": gate,
        "ready_us": ready,
        "parent_ready_us": last["parent_ready"],
        "culprit": np.maximum(longs(last["culprit"]), -1),
        "weight": np.where(longs(last["is_same"]) == 1, 1 / longs(last["shares"]), 1.0),
    }
    return pa.table(columns, schema=LAST_PARENTS).filter(pa.array(waited)), waits


_ABSENT: Final = NEVER + 1


def _parents(table: pa.Table, state: CompletionTables) -> pa.Table:
    mine = state.messages
    return _rows(
        len(mine.message),
        _PARENT,
        table["queue"].take(pa.array(mine.row)),
        key=mine.message,
        root=longs(table["root"].take(pa.array(mine.row))),
        ready=mine.ready,
        ended=mine.ended_at,
        complete=mine.complete_at,
        last=mine.last_subscriber,
        is_same=(mine.holds & SAME > 0).astype(np.int64),
    )


def _edges(table: pa.Table, state: CompletionTables) -> list[pa.Table]:
    """The edges of messages of scope ``all``, and for scope ``same`` one for each counted subscriber."""
    mine = state.messages
    place = np.flatnonzero(mine.holds & HAS_PARENTS)
    lists = table["parent_sequences"].combine_chunks().take(pa.array(mine.row[place]))
    counts = longs(pc.list_value_length(lists), 0)
    child, parent = np.repeat(place, counts), longs(pc.list_flatten(lists))
    order = np.lexsort((parent, child))
    child, parent = child[order], parent[order]
    once = group_starts(child, parent)  # a parent may be named twice
    child, parent = child[once], parent[once]
    is_same = mine.holds[child] & SAME > 0
    found = [_of_children(table, state, child[~is_same], parent[~is_same], None)]
    if is_same.any():
        own = state.deliveries
        counted = np.flatnonzero(own.counted & (own.subscriber != NOBODY))
        begin, end = (np.searchsorted(own.place[counted], child[is_same], side) for side in ("left", "right"))
        many = end - begin
        at = counted[np.repeat(begin - np.cumsum(many) + many, many) + np.arange(many.sum())]
        each = (np.repeat(child[is_same], many), np.repeat(parent[is_same], many))
        found.append(_of_children(table, state, *each, own.subscriber[at]))
    return found


def _of_children(
    table: pa.Table, state: CompletionTables, child: Longs, parent: Longs, subscriber: Longs | None
) -> pa.Table:
    mine = state.messages
    row = pa.array(mine.row[child])
    deliver = pc.fill_null(pc.equal(table["parent_failure"].take(row), "deliver"), False)
    return _rows(
        len(child),
        _EDGE,
        table["queue"].take(row),
        key=parent,
        child=mine.message[child],
        root=longs(table["root"].take(row)),
        subscriber=np.zeros(len(child), np.int64) if subscriber is None else subscriber,
        accepted=mine.accepted[child],
        ready=mine.ready[child],
        ended=mine.ended_at[child],
        shares=np.maximum(mine.subscribers[child], 1),
        is_same=np.full(len(child), int(subscriber is not None)),
        deliver=np.asarray(deliver).astype(np.int64),
    )


def _own(table: pa.Table, state: CompletionTables, queues: frozenset[str]) -> pa.Table:
    own, mine = state.deliveries, state.messages
    queue = table["queue"].take(pa.array(mine.row)).combine_chunks()
    wanted = np.asarray(pc.is_in(queue, value_set=pa.array(sorted(queues), pa.string())).to_numpy(zero_copy_only=False))
    counted = np.flatnonzero(own.counted & (own.subscriber != NOBODY))
    counted = counted[wanted[own.place[counted]]]
    return _rows(
        len(counted),
        _OWN,
        pa.nulls(len(counted), pa.string()),
        key=own.message[counted],
        subscriber=own.subscriber[counted],
        ended=own.first_at[counted],
    )


def _own_ends(rows: pa.Table, key: Longs, subscriber: Longs) -> Longs:
    """The end of the delivery of each key to each subscriber; ``NEVER`` while it has not ended, ``_ABSENT`` where there
    is none."""
    place = places_of(_waiter(longs(rows["key"]), longs(rows["subscriber"])), _waiter(key, subscriber))
    return taken(longs(rows["ended"]), place, _ABSENT)


def _rows(count: int, what: int, queue: pa.ChunkedArray, **columns: Longs) -> pa.Table:
    """Rows of ``EDGES``; null where nothing is said."""
    made = {name: pa.nulls(count, pa.int64()) for name in _NUMBERS}
    made["what"] = pa.array(np.full(count, what))
    for name, values in columns.items():
        made[name] = pa.array(values, mask=values == NEVER)
    return pa.table({**made, "queue": queue}, schema=EDGES)


def _waiter(message: Longs, subscriber: Longs) -> Longs:
    return (message << _SUBSCRIBER_BITS) + subscriber
