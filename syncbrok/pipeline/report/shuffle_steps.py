"""The steps of the report that Spark runs. Each takes rows and sends rows to where the next step needs them; counts
travel along, added up on the way.

``whole_messages``  all rows about a message -> its edges, and rows for its parents and children
``at_parents``      all rows about a parent -> its edges, with the time when it was done
``at_waiters``      all edges of a waiter -> the parent that it waited for, if it had to
``at_trees``        all waiters of a tree -> the charges; how many steps lead to another tree, where there are any
``at_claims``       the same, and claims that come from other trees -> the charges; claims that go on in another tree
``at_end``          all counts -> one table a kind
"""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from syncbrok.pipeline.completion.message_groups import MessageGroup
from syncbrok.pipeline.numpy_columns import NEVER, longs
from syncbrok.pipeline.report.blame import CLAIMS, WaitSteps, blame, charge, own_claims
from syncbrok.pipeline.report.counts import BLAME, GOES_ON, SCHEMAS, SENT, WAIT, Counts, beside, counts_of, parted
from syncbrok.pipeline.report.parent_waits import EDGES, LAST_PARENTS, PARENT_ENDS, edges_of, last_parents, parent_ends
from syncbrok.pipeline.report.period import Period
from syncbrok.pipeline.schema import ddl_of

_BATCH_ROWS: Final = 10_000
_STEPS: Final = pa.schema([*LAST_PARENTS, ("above_us", pa.int64())])
TO_CLAIMS: Final = pa.schema([*_STEPS, *(one for one in CLAIMS if one.name not in LAST_PARENTS.names)])
"""rows for ``at_claims``: those with ``at`` are claims, the others steps"""


def whole_messages(same_queues: frozenset[str], period: Period, group: MessageGroup) -> pa.Table:
    table, state = group.table, group.state
    # Counts go to where the first message goes, else one task would get those of all.
    first = int(state.messages.message[0]) if len(state.messages.message) else 0
    return beside(edges_of(table, state, same_queues), counts_of(table, state, period), key=first)


def at_parents(period: Period, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows, counts, first = _parted(batches, EDGES, "key")
    yield from _batches(beside(parent_ends(rows, period.until_us), counts, key=first))


def at_waiters(period: Period, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows, counts, first = _parted(batches, PARENT_ENDS, "key")
    waited, waits = last_parents(rows, period)
    yield from _batches(beside(waited, {**counts, WAIT: waits}, root=first))


def at_trees(period: Period, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows, counts, _ = _parted(batches, LAST_PARENTS, "root")
    none = pa.nulls(len(rows), pa.int64())
    steps = WaitSteps.of(rows.append_column("above_us", none))
    charges, _ = charge(steps, own_claims(steps))
    # To a parent of the same tree that is not here nothing goes on: it did not wait.
    leads_out = int((longs(rows["root"]) != longs(rows["parent_root"])).sum())
    yield from _batches(beside(pa.table({}), {**counts, **_going_on(leads_out), BLAME: blame(charges, period)}))


def at_claims(period: Period, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = pa.Table.from_batches([batch.cast(TO_CLAIMS) for batch in batches], TO_CLAIMS).combine_chunks()
    is_claim = longs(rows["at"]) != NEVER
    steps = WaitSteps.of(rows.filter(pa.array(~is_claim)))
    claims = rows.filter(pa.array(is_claim)).select(CLAIMS.names)
    charges, further = charge(steps, claims if len(claims) else own_claims(steps))
    yield from _batches(beside(further, {**_going_on(len(further)), BLAME: blame(charges, period)}))


def at_end(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    _, counts, _ = _parted(batches, pa.schema([]))
    yield from _batches(beside(pa.table({}), counts))


def _going_on(count: int) -> Counts:
    return {GOES_ON: pa.table([["all"], [count]], schema=SCHEMAS[GOES_ON])} if count else {}


def _parted(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, by: str | None = None
) -> tuple[pa.Table, Counts, int]:
    """The rows, the counts beside them, added up, and the least value of the column ``by`` among these."""
    whole = pa.unify_schemas([schema, SENT])
    table = pa.Table.from_batches([batch.cast(whole) for batch in batches], whole).combine_chunks()
    rows, counts = parted(table)
    places = longs(table[by])[np.asarray(table["kind"].is_valid())] if by else longs(pa.array([], pa.int64()))
    return rows, counts, int(places.min()) if len(places) else 0


def _batches(together: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from together.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)


def _ddl(schema: pa.Schema) -> str:
    return ddl_of(pa.unify_schemas([schema, SENT]))


AFTER_MESSAGES: Final = _ddl(EDGES)
AFTER_PARENTS: Final = _ddl(PARENT_ENDS)
AFTER_WAITERS: Final = _ddl(LAST_PARENTS)
AFTER_CLAIMS: Final = _ddl(CLAIMS)
AFTER_END: Final = _ddl(pa.schema([]))
