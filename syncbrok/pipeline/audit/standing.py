"""What became of each message, and what is wrong with the rows about it by themselves: over the events of a partition.

Nearly all messages of a log are plain: accepted in their own record, then at each subscriber they count some failed
attempts, perhaps, and one end. Those are judged as columns, all at once; the others one by one.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from syncbrok.pipeline.audit.audience import Audiences
from syncbrok.pipeline.audit.columns import Messages, Rows, claims_of
from syncbrok.pipeline.audit.others import others
from syncbrok.pipeline.audit.plain import plain_rows
from syncbrok.pipeline.audit.shapes import EVENTS
from syncbrok.pipeline.audit.tables import gathered


def told(batches: Iterable[pa.RecordBatch], known: Audiences) -> Iterator[pa.RecordBatch]:
    """Rows of ``TOLD`` from all ``EVENTS`` of the messages of a partition."""
    tables = gathered(batches, EVENTS)
    claims = claims_of(tables["claim"])
    messages = Messages(tables["accepted"], claims, known)
    rows = Rows(tables["row"], messages, known)
    plain = rows.plain(messages)
    yield from plain_rows(messages, rows, plain, known)
    yield from others(messages, rows, np.flatnonzero(~plain), claims, known)
