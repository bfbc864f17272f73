"""Rule ``key``: at one subscriber, no attempt of a message begins before every earlier message of its key has ended
there (RULES 6).

One shuffle brings the messages of a key at a subscriber together. Nearly all such lines are in order, which columns
show at once; ``key_history`` judges the others, one by one.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from syncbrok.pipeline.audit.key_history import KeyedDelivery, KeyHistory, KeyReplay, Rules
from syncbrok.pipeline.audit.retention_drops import Drops
from syncbrok.pipeline.audit.row_encoding import (
    FOUND,
    Flags,
    Longs,
    ddl,
    events_of,
    flags,
    gathered,
    longs,
    packed_rows,
    texts,
)
from syncbrok.pipeline.audit.row_kinds import HISTORY_KINDS

KEY_INPUT: Final = {"line": HISTORY_KINDS["line"]}
KEY_OUTPUT: Final = {
    # At a subscriber where a message has not ended: whether one before it keeps it back, and the record that ended the
    # last.
    "behind": {"message": "bigint", "s": "bigint", "is_open": "boolean", "ended": "bigint"},
    "found": FOUND,
}
"""what comes out"""


def judged_keys(lines: DataFrame, partitions: int, rules: Rules, drops: Mapping[int, Drops]) -> DataFrame:
    """Rows of ``KEY_OUTPUT`` from those of kind ``line``. ``drops``: by subscriber."""
    together = lines.repartition(partitions, "queue", "key", "s").select(f.struct(*KEY_INPUT["line"]).alias("line"))
    return together.mapInArrow(partial(judged, rules=rules, drops=drops), ddl(KEY_OUTPUT))


def judged(batches: Iterable[pa.RecordBatch], rules: Rules, drops: Mapping[int, Drops]) -> Iterator[pa.RecordBatch]:
    """Rows of ``KEY_OUTPUT`` for all lines of a partition."""
    table = gathered(batches, KEY_INPUT)["line"].sort_by(
        [(name, "ascending") for name in ("queue", "key", "s", "message")]
    )
    if not len(table):
        return
    line = _line_of(table)
    begins = np.append(np.flatnonzero(np.diff(line, prepend=-1)), len(table))
    found: list[Any] = []
    behind: list[Any] = []
    for at in np.flatnonzero(_may_report(table, line)).tolist():
        rows = table.slice(begins[at], begins[at + 1] - begins[at]).to_pylist()
        subscriber = rows[0]["s"]
        one = KeyHistory(subscriber, [_delivery(row) for row in rows], rules, drops.get(subscriber, ()))
        found += one.findings()
        behind += [(message, subscriber, is_open, ended) for message, is_open, ended in one.behind()]
    yield from packed_rows(KEY_OUTPUT, "behind", behind)
    yield from packed_rows(KEY_OUTPUT, "found", found)


def _line_of(table: pa.Table) -> Longs:
    """The number of the line that each row is in."""
    changed = np.zeros(len(table), bool)
    keys = table.column("key").combine_chunks().dictionary_encode().indices.to_numpy()
    for column in (longs(table, "queue"), keys, longs(table, "s")):
        changed[1:] |= column[1:] != column[:-1]
    return np.cumsum(changed)


def _may_report(table: pa.Table, line: Longs) -> Flags:
    """For each line: true if there can be something to say of it. It has a message that has not ended, or one that
    comes there uncounted or in a replay, or an attempt that began before one of the ends ahead of it."""
    is_special = flags(table, "is_open") | ~flags(table, "counts") | (np.array(texts(table, "armed"), object) != "")
    # An end is NEVER where there is none: every attempt is before it. The highest end so far within each line, from one
    # pass over all: lines are ranked apart.
    done, first = longs(table, "done"), longs(table, "first_after")
    _, ranks = np.unique(np.concatenate([done, first]), return_inverse=True)
    apart = line * (len(ranks) + 1)
    highest = np.maximum.accumulate(ranks[: len(done)] + apart)
    is_early = np.zeros(len(done), bool)
    is_early[1:] = (line[1:] == line[:-1]) & (ranks[len(done) + 1 :] + apart[1:] < highest[:-1])
    tells = np.zeros(int(line[-1]) + 1, bool)
    tells[line[is_special | is_early]] = True
    return tells


def _delivery(row: dict[str, Any]) -> KeyedDelivery:
    return KeyedDelivery(
        row["message"],
        row["stands"],
        row["counts"],
        row["since"],
        row["doubt"],
        (row["end_seq"], row["end_pos"]),
        row["ended_for_all"],
        row["is_open"],
        [KeyReplay(*one) for one in orjson.loads(row["armed"])] if row["armed"] else (),
        events_of(row["events"]),
    )
