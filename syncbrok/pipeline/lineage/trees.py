"""Finds each message's place in its tree, from tables of whole trees: Arrow and numpy, no Spark and no loop.

A tree is the messages of one root, each below its **first** parent (the root is that of the first parent, so the first
parent stands in the same tree or is missing from the data). Further parents are edges too; they may lead into another
tree. The columns of each message:

``children``         how many messages name it as a parent, as the first or another, in whichever tree
``descendants``      how many messages stand below it in its tree, along first parents. Messages that depend on it only
                     through another parent are not counted: one with two parents would count twice on the way up
``critical_parent``  of the parents that had ended before it, the one that ended last: the one it waited for. A parent
                     that ended after its child (scope ``same``, an operator's replay) did not hold it up
``critical``         it stands on its tree's critical path: from the message of the tree that completed last (of several
                     the latest) up through each one's ``critical_parent``, as far as that stays in the tree
``top``, ``steps``   where that way up ends in the tree, and how many steps up it is (``top_at``: when it was accepted)
``crosses``          its critical parent is in another tree, where the way goes on; ``leaves``: that is so of its top
``path_end_at``      of a critical message: when the last of its tree was complete
``tree``             on one row of each tree what is to say of all of it (``TREE``), on the others null

An end is when the last counted delivery was done, well or badly. All times are Unix microseconds, ``NEVER`` for none.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncbrok.pipeline.lineage.pointer_doubling import TopAncestors, above, descendants, greatest_of_each, upwards
from syncbrok.pipeline.numpy_columns import (
    NEVER,
    NONE,
    Flags,
    Longs,
    group_starts,
    longs,
    places_of,
    reduced,
    spread,
    taken,
)
from syncbrok.pipeline.schema import TIME

_PARENT: Final = pa.struct([("sequence", pa.int64()), ("ended_at", TIME), ("in_tree", pa.bool_())])
TREE: Final = (
    *(("root_id", pa.string()), ("queue", pa.string()), ("messages", pa.int64()), ("depth", pa.int32())),
    *(("first_at", TIME), ("last_at", TIME), ("complete", pa.int64()), ("waiting", pa.int64())),
    *(("attempts", pa.int64()), ("complete_at", TIME), ("last", pa.int64()), ("top", pa.int64())),
    *(("top_at", TIME), ("steps", pa.int64())),
)
"""``root_id`` and ``queue`` of the root's own message; ``complete``, and ``waiting`` (not ended), count messages;
``last`` was complete last, ``complete_at``; ``top``, ``top_at`` and ``steps`` are those of that message"""
_SPARK: Final = {pa.string(): "string", pa.int64(): "bigint", pa.int32(): "int", TIME: "timestamp"}
_PASSED_ON: Final = (
    *("sequence", "id", "queue", "accepted_at", "not_before", "first_attempt_at", "complete_at", "ended_at"),
    *("attempts", "root", "depth"),
)
_FOUND: Final = (
    ("parents", pa.list_(_PARENT), "array<struct<sequence:bigint,ended_at:timestamp,in_tree:boolean>>"),
    ("children", pa.int64(), "bigint"),
    ("descendants", pa.int64(), "bigint"),
    ("critical_parent", pa.int64(), "bigint"),
    ("parents_at", TIME, "timestamp"),
    ("critical", pa.bool_(), "boolean"),
    ("crosses", pa.bool_(), "boolean"),
    ("top", pa.int64(), "bigint"),
    ("top_at", TIME, "timestamp"),
    ("steps", pa.int64(), "bigint"),
    ("leaves", pa.bool_(), "boolean"),
    ("path_end_at", TIME, "timestamp"),
    ("tree", pa.struct(list(TREE)), f"struct<{','.join(f'{name}:{_SPARK[kind]}' for name, kind in TREE)}>"),
)
_POSITION_BITS: Final = 20
NODES_DDL: Final = (
    "sequence bigint, id string, queue string, accepted_at timestamp, not_before timestamp, "
    "first_attempt_at timestamp, complete_at timestamp, ended_at timestamp, attempts bigint, root bigint, depth int, "
    + ", ".join(f"{name} {spark}" for name, _, spark in _FOUND)
)


class _Waits(NamedTuple):
    """The edges of a block as columns, in the order of the children: the child, the parent, when the parent ended."""

    counts: Longs
    """how many of them each message has"""
    further: Flags
    """whether an edge is to a second or later parent"""
    child: Longs
    parent: Longs
    ended: Longs
    place: Longs
    """of the parent in the block where it is in the child's tree, else ``NONE``"""


def nodes_of(trees: pa.Table, edge_ends: pa.Table) -> pa.Table:
    """The columns of ``NODES_DDL`` for a table of whole trees, in the same order. ``edge_ends`` is what is known
    elsewhere of edges to parents that are not a message's first: at the child (``sequence``) when that parent ended
    (``other_ended_us``), by the ``position`` of the edge; at the parent, position 0, that it is named."""
    sequence, root = longs(trees["sequence"]), longs(trees["root"])
    accepted, complete = longs(trees["accepted_at"]), longs(trees["complete_at"])
    ended = np.where(complete == NEVER, longs(trees["ended_at"]), complete)
    waits = _waits(trees, edge_ends, sequence, root, ended)
    chosen = _last_parents(waits, ended)
    critical_parent = np.full(len(sequence), NEVER)
    parents_at = np.full(len(sequence), NEVER)
    held_by = np.full(len(sequence), NONE, np.int64)
    child = waits.child[chosen]
    critical_parent[child], parents_at[child] = waits.parent[chosen], waits.ended[chosen]
    held_by[child] = waits.place[chosen]
    way = above(held_by)
    done = np.flatnonzero(complete != NEVER)
    last = done[greatest_of_each(root[done], complete[done], sequence[done])]
    critical, path_end = upwards(held_by, last), np.full(len(sequence), NEVER)
    on_path = np.flatnonzero(critical)
    path_end[on_path] = complete[last][np.searchsorted(root[last], root[on_path])]
    crosses = (critical_parent != NEVER) & (held_by == NONE)
    first_parents = _first_parents(waits)
    found: dict[str, pa.Array] = {
        "parents": _parents(waits),
        "children": pa.array(_children(first_parents, edge_ends, sequence)),
        "descendants": pa.array(descendants(first_parents)),
        "critical_parent": _nullable(critical_parent, pa.int64()),
        "parents_at": _nullable(parents_at, TIME),
        "critical": pa.array(critical),
        "crosses": pa.array(crosses),
        "top": pa.array(sequence[way.top]),
        "top_at": pa.array(accepted[way.top], TIME),
        "steps": pa.array(way.steps),
        "leaves": pa.array(crosses[way.top]),
        "path_end_at": _nullable(path_end, TIME),
        "tree": _trees(trees, last, way),
    }
    passed = {name: trees[name] for name in _PASSED_ON}
    return pa.table({**passed, **{name: found[name] for name, _, _ in _FOUND}})


def _trees(trees: pa.Table, last: Longs, way: TopAncestors) -> pa.StructArray:
    """A column with a summary of each tree (``TREE``) in one of its rows, null in the others. ``last``: the place of
    the message that was complete last, of each tree that has one, in the order of roots."""
    root, complete, sequence = longs(trees["root"]), longs(trees["complete_at"]), longs(trees["sequence"])
    accepted, ended = longs(trees["accepted_at"]), longs(trees["ended_at"])
    order = np.argsort(root, kind="stable")
    heads = group_starts(root[order])
    roots = root[order][heads]

    def of_each(ufunc: np.ufunc, values: Longs | Flags) -> Longs:
        return reduced(ufunc, np.asarray(values, np.int64)[order], heads)

    own = np.full(len(roots), NONE, np.int64)
    mine = np.flatnonzero(sequence == root)
    own[np.searchsorted(roots, root[mine])] = mine
    ends = np.full(len(roots), NONE, np.int64)
    ends[np.searchsorted(roots, root[last])] = last
    has_own, has_end = pa.array(own, mask=own == NONE), pa.array(ends, mask=ends == NONE)
    columns = {
        "root_id": trees["id"].combine_chunks().take(has_own),
        "queue": trees["queue"].combine_chunks().take(has_own),
        "messages": of_each(np.add, np.ones(len(root), np.int64)),
        "depth": of_each(np.maximum, longs(trees["depth"])),
        "first_at": of_each(np.minimum, accepted),
        "last_at": of_each(np.maximum, accepted),
        "complete": of_each(np.add, complete != NEVER),
        "waiting": of_each(np.add, (complete == NEVER) & (ended == NEVER)),
        "attempts": of_each(np.add, longs(trees["attempts"], 0)),
        "complete_at": trees["complete_at"].combine_chunks().take(has_end),
        "last": pa.array(sequence).take(has_end),
        "top": pa.array(sequence[way.top]).take(has_end),
        "top_at": pa.array(accepted[way.top]).take(has_end),
        "steps": pa.array(way.steps).take(has_end),
    }
    arrays = [pa.array(columns[name]).cast(kind) for name, kind in TREE]
    summaries = pa.StructArray.from_arrays(arrays, fields=[pa.field(name, kind) for name, kind in TREE])
    at = np.full(len(root), NONE, np.int64)
    at[order[heads]] = np.arange(len(roots))
    return summaries.take(pa.array(at, mask=at == NONE))


def _waits(trees: pa.Table, edge_ends: pa.Table, sequence: Longs, root: Longs, ended: Longs) -> _Waits:
    """The edges of the block. First parents end within it; when the others ended came along in ``edge_ends``."""
    lists = _list(trees["parent_sequences"])
    counts = longs(pc.list_value_length(lists), 0)
    child, position = spread(counts)
    further = position > 0
    parent = longs(pc.list_flatten(lists))
    place = places_of(sequence, parent)
    place = np.where((place != NONE) & (root[place] == root[child]), place, NONE)
    when = np.where(place != NONE, ended[place], NEVER)
    when[further] = _parent_ends(edge_ends, sequence, child[further], position[further])
    return _Waits(counts, further, child, parent, when, place)


def _parent_ends(edge_ends: pa.Table, sequence: Longs, child: Longs, position: Longs) -> Longs:
    """For each edge the end of its parent, ``NEVER`` where that was not told."""
    at, which = places_of(sequence, longs(edge_ends["sequence"])), longs(edge_ends["position"])
    known = np.where((at != NONE) & (which > 0), (at << _POSITION_BITS) + which, NONE)
    place = places_of(known, (child << _POSITION_BITS) + position)
    return taken(longs(edge_ends["other_ended_us"]), place)


def _children(first_parents: Longs, edge_ends: pa.Table, sequence: Longs) -> Longs:
    """The number of messages that name each as a parent, as the first or another."""
    named = places_of(sequence, longs(edge_ends["sequence"]))[longs(edge_ends["position"]) == 0]
    both = np.concatenate([first_parents[first_parents != NONE], named[named != NONE]])
    return np.bincount(both, minlength=len(sequence))


def _last_parents(waits: _Waits, ended: Longs) -> Longs:
    """The edge to the critical parent, for each child that has one."""
    own = ended[waits.child]
    counted = np.flatnonzero((waits.ended != NEVER) & ((own == NEVER) | (waits.ended <= own)))
    return counted[greatest_of_each(waits.child[counted], waits.ended[counted], waits.parent[counted])]


def _first_parents(waits: _Waits) -> Longs:
    first = np.full(len(waits.counts), NONE, np.int64)
    first[waits.child[~waits.further]] = waits.place[~waits.further]
    return first


def _parents(waits: _Waits) -> pa.ListArray:
    offsets = np.concatenate(([0], np.cumsum(waits.counts))).astype(np.int32)
    columns = [pa.array(waits.parent), _nullable(waits.ended, TIME), pa.array(waits.place != NONE)]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(columns, fields=list(_PARENT)))


def _list(column: pa.ChunkedArray) -> pa.ListArray:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _nullable(values: Longs, kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values == NEVER).cast(kind)
