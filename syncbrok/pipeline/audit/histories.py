"""The history of each message, and what is wrong with its rows taken alone: over the events of a partition.

Nearly all messages of a log are ordinary: accepted in their own record, then at each subscriber they count perhaps some
failed attempts, and one end. These are judged as columns, all at once; the others one by one.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from syncbrok.pipeline.audit.audience import Audiences
from syncbrok.pipeline.audit.bulk_histories import bulk_rows
from syncbrok.pipeline.audit.event_columns import AuditMessages, AuditRows, claims_of
from syncbrok.pipeline.audit.row_encoding import DELIVERED, NEVER, gathered, longs, packed_rows
from syncbrok.pipeline.audit.row_kinds import EVENT_KINDS, HISTORY_KINDS
from syncbrok.pipeline.audit.single_histories import single_rows


def histories(batches: Iterable[pa.RecordBatch], known: Audiences) -> Iterator[pa.RecordBatch]:
    """Rows of ``HISTORY_KINDS`` from all ``EVENT_KINDS`` of the messages of a partition."""
    tables = gathered(batches, EVENT_KINDS)
    claims = claims_of(tables["claim"])
    messages = AuditMessages(tables["accepted"], claims, known)
    rows = AuditRows(tables["row"], messages, known)
    ordinary = rows.ordinary(messages)
    yield from bulk_rows(messages, rows, ordinary, known)
    yield from single_rows(messages, rows, np.flatnonzero(~ordinary), claims, known)
    yield from _ended_badly(tables["bad"], rows)


def _ended_badly(table: pa.Table, rows: AuditRows) -> list[pa.RecordBatch]:
    """Rows of kind ``bad``, one for each message that snapshots list: the record that first does, and the first
    delivery after that. The delivery may have mended the message; nobody can tell without knowing where it had failed.
    So from that record on it is not held against the message's children."""
    since: dict[int, int] = {}
    for message, record in zip(longs(table, "message").tolist(), longs(table, "since").tolist(), strict=True):
        since[message] = min(record, since.get(message, record))
    mended = dict.fromkeys(since, NEVER)
    for at in np.flatnonzero((rows.outcome == DELIVERED) & np.isin(rows.message, list(since))).tolist():
        message, record = int(rows.message[at]), int(rows.seq[at])
        if record > since[message]:
            mended[message] = min(record, mended[message])
    return packed_rows(HISTORY_KINDS, "bad", [(message, since[message], mended[message]) for message in since])
