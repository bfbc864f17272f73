"""The steps of the report that Spark runs. Each takes rows and sends rows to where the next step needs them; counts
travel along.

``whole_messages``  all rows about a message -> its edges, and rows for its parents and children
``at_parents``      all rows about a parent -> its edges, with the time when it was done
``at_waiters``      all edges of a waiter -> the parent that it waited for, if it had to
``at_end``          all waiters -> the charges
"""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from syncbrok.pipeline.completion.message_groups import MessageGroup
from syncbrok.pipeline.report.blame import blame
from syncbrok.pipeline.report.counts import BLAME, SENT, WAIT, beside, counts_of, parted
from syncbrok.pipeline.report.parent_waits import EDGES, LAST_PARENTS, PARENT_ENDS, edges_of, last_parents, parent_ends
from syncbrok.pipeline.report.period import Period
from syncbrok.pipeline.schema import ddl_of

_BATCH_ROWS: Final = 10_000


def whole_messages(same_queues: frozenset[str], period: Period, group: MessageGroup) -> pa.Table:
    table, state = group.table, group.state
    return beside(edges_of(table, state, same_queues), counts_of(table, state, period))


def at_parents(period: Period, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows, sent = parted(_all(batches, EDGES))
    yield from _batches(parent_ends(rows, period.until_us), sent)


def at_waiters(period: Period, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows, sent = parted(_all(batches, PARENT_ENDS))
    waited, waits = last_parents(rows, period)
    yield from _batches(beside(waited, {WAIT: waits}), sent)


def at_end(period: Period, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows, sent = parted(_all(batches, LAST_PARENTS))
    yield from _batches(beside(pa.table({}), {BLAME: blame(rows, period)}), sent)


def _all(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    whole = pa.unify_schemas([schema, SENT])
    return pa.Table.from_batches([batch.cast(whole) for batch in batches], whole).combine_chunks()


def _batches(rows: pa.Table, sent: pa.Table) -> Iterator[pa.RecordBatch]:
    together = pa.concat_tables([rows, sent], promote_options="default")
    yield from together.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)


def _ddl(schema: pa.Schema) -> str:
    return ddl_of(pa.unify_schemas([schema, SENT]))


AFTER_MESSAGES: Final = _ddl(EDGES)
AFTER_PARENTS: Final = _ddl(PARENT_ENDS)
AFTER_WAITERS: Final = _ddl(LAST_PARENTS)
AFTER_END: Final = _ddl(pa.schema([]))
