"""Reads a batch that another copy of the log has encoded, before it is written here byte for byte. Pure.

Nothing is believed of the bytes: they are whole records whose checksums fit, of one batch, which goes on where the log
ends. What is written then is what a restart would accept.
"""

import numpy as np

from syncbrok.log.format import stream
from syncbrok.log.format.codec import UNIT_END, Corrupt, Kind, gather, walk_verified
from syncbrok.log.format.layout import NEWEST_VERSION, VERSION
from syncbrok.log.format.records import RecordOrRun, SegmentOpened, facts_of
from syncbrok.log.reading.recent import Batch, OpeningBatch
from syncbrok.model.errors import LogDiverged
from syncbrok.model.facts import FactOrRun

_NEVER_IN_A_BATCH = (Kind.SEGMENT_OPENED, Kind.SEGMENT_SEALED, Kind.GAP)


def read_copy(
    data: bytes, following: int, opening: int | None, written: int
) -> tuple[Batch | OpeningBatch, tuple[FactOrRun, ...]]:
    """The batch that ``data`` are, and its facts, as recovery reads them. ``following``: the sequence that it must
    begin with; ``opening``: that of a record that opens a segment (None: any, the log is empty); ``written``: number of
    the last batch. Raises ``LogDiverged``."""
    offsets, stopped = walk_verified(data, 0, len(data))
    if stopped != len(data) or not len(offsets):
        raise LogDiverged(f"the batch that follows {following - 1} is damaged at its offset {stopped}")
    heads = gather(data, offsets)
    sequences, numbers, kinds = (heads[name].astype(np.int64) for name in ("sequence", "batch", "kind"))
    first, last, number = int(sequences[0]), int(sequences[-1]), int(numbers[0])
    opens = kinds[0] == Kind.SEGMENT_OPENED
    expected = following if not opens else first if opening is None else opening
    if first != expected:
        what = "the record that opens a segment" if opens else "the batch"
        raise LogDiverged(f"{what} has the sequence {first}, and {expected} is to follow")
    if (
        (sequences != np.arange(first, first + len(sequences))).any()
        or (numbers != number).any()
        or number <= written
        or (len(kinds) > 1 if opens else np.isin(kinds, _NEVER_IN_A_BATCH).any())
        or (heads["version"] < VERSION).any()
        or (heads["version"] > NEWEST_VERSION).any()
        or (heads["meta_bytes"] > heads["body_bytes"]).any()
        or not heads["flags"][-1] & UNIT_END
    ):
        raise LogDiverged(f"the records {first} to {last}, of batch {number}, are no batch that can follow {written}")
    records: list[RecordOrRun] = []
    for record in stream.facts_or_runs(data, offsets, 0):
        if isinstance(record, Corrupt):
            raise LogDiverged(f"the batch of {first} to {last} cannot be read at its offset {record.offset}")
        records.append(record)
    facts = tuple(facts_of(records))
    if isinstance(records[0], SegmentOpened):
        return OpeningBatch(number, records[0], data), facts
    time_us, synced_through = int(heads["time_us"][-1]), int(heads["synced_through"].max())
    ends = [*offsets[1:].tolist(), len(data)]
    misread = bool((heads["version"] != VERSION).any())
    return Batch(number, first, last, time_us, data, ends, misread=misread, synced_through=synced_through), facts
