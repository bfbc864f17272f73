"""The position of a stream in a log, as JSON that survives restarts, rolls and retention; and how far one trigger may
go. No Spark.

A position is a sequence; segment and offset beside it are a hint that is verified before it is used. It also says which
carried messages belong to the stream: those whose own records were gone when it began (see ``decode.plan``). Messages
carried later were read before, from their own records.
"""

from typing import Any, NamedTuple

import numpy as np

from syncbrok.model.errors import BadSetting, Gone
from syncbrok.pipeline.decode.arrow_arrays import gather_header
from syncbrok.pipeline.decode.open_segment import OpenSegment
from syncbrok.pipeline.log_snapshot import LogSnapshot, SegmentSnapshot


class StreamPosition(NamedTuple):
    """How far a stream has come. ``next`` is the sequence to go on with, in the segment ``base`` at ``offset`` (0: not
    known; where ``base`` is 0 too the log had not come so far). Messages with own sequences from ``carried_low`` to
    before ``carried_below`` are rows where a record up to ``carried_through`` carries them."""

    log: str
    next: int
    base: int = 0
    offset: int = 0
    carried_low: int = 0
    carried_below: int = 0
    carried_through: int = 0

    def as_json(self) -> dict[str, Any]:
        return self._asdict()

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> "StreamPosition":
        """The position that ``as_json`` wrote. Raises ``BadSetting``."""
        try:
            known = {name: kind(value[name]) for name, kind in cls.__annotations__.items() if name in value}
            return cls(**known)
        except (TypeError, ValueError) as problem:
            raise BadSetting(f"the checkpoint's offset {value} is none of this source: {problem}") from problem


def earliest(log: LogSnapshot) -> StreamPosition:
    """The position at the beginning of the log as it is left, with messages carried over from before."""
    here = StreamPosition(log.uuid.hex(), log.oldest, log.oldest if log.segments else 0)
    return here if log.oldest <= 1 else here._replace(carried_below=log.oldest, carried_through=log.durable)


def latest(log: LogSnapshot) -> StreamPosition:
    """The position behind all that may be read."""
    if not log.segments:
        return earliest(log)
    last = log.segments[-1]
    return StreamPosition(log.uuid.hex(), log.durable + 1, last.base, last.end)


def at_sequence(log: LogSnapshot, sequence: int) -> StreamPosition:
    """The position at ``sequence``, which may still be to come."""
    return StreamPosition(log.uuid.hex(), sequence, _segment_of(log, sequence).base if sequence <= log.durable else 0)


def at_time(log: LogSnapshot, time_us: int) -> StreamPosition:
    """The position at the first record of ``time_us`` or later; behind the end where there is none."""
    for one in log.segments:
        if one.last_time_us < time_us:
            continue
        opened = OpenSegment(one, log.uuid, verify=False)
        found = opened.offsets(one.base, one.last)
        later = np.flatnonzero(gather_header(opened.view, found, "time_us") >= time_us)
        if len(later):
            return at_sequence(log, _sequence_at(opened, found[later[0]]))
    return latest(log)


def check(start: StreamPosition, log: LogSnapshot, *, fail_on_data_loss: bool) -> None:
    """Raise ``BadSetting`` where ``start`` is of another log or behind its end, ``Gone`` where retention has taken
    what follows it."""
    if start.log != log.uuid.hex():
        raise BadSetting(
            f"the checkpoint is of the log {start.log}; {log.place} holds the log {log.uuid.hex()}. Give the "
            "directory it was made with, or another checkpointLocation to begin anew"
        )
    check_reaches(start, log)
    if start.next < log.oldest and fail_on_data_loss:
        raise Gone(
            f"sequences {start.next} to {log.oldest - 1} were dropped by retention before the stream read them; "
            f"{log.place} begins with {log.oldest}. Read them from the archive, or go on without them: "
            "failOnDataLoss=false",
            first=start.next,
            last=log.oldest - 1,
        )


def check_reaches(position: StreamPosition, log: LogSnapshot) -> None:
    """Raises ``BadSetting`` where the log does not reach so far as it did: what is missing would be passed over."""
    if position.base and position.next > log.durable + 1:
        raise BadSetting(
            f"the checkpoint goes on with sequence {position.next}; {log.place} ends with {log.durable}. It was "
            "restored from an older copy: begin anew with another checkpointLocation"
        )


def forward(
    start: StreamPosition, log: LogSnapshot, *, bytes_max: int | None, records_max: int | None, through: int
) -> StreamPosition:
    """The end of one trigger from ``start``: not behind ``through``, at most ``bytes_max`` bytes and ``records_max``
    records further, but at least one record if there is one."""
    end = min(through, log.durable)
    if start.next < log.oldest:  # lost; what of it was carried along is still there
        carried = StreamPosition(start.log, log.oldest, log.oldest, 0, start.next, log.oldest, log.durable)
        return forward(carried, log, bytes_max=bytes_max, records_max=records_max, through=through)
    if start.next > end:
        return start
    if records_max is not None:
        end = min(end, start.next + max(1, records_max) - 1)
    if bytes_max is not None:
        end = min(end, _within_bytes(start, log, bytes_max))
    one = _segment_of(log, end)
    if end == one.last:
        return start._replace(next=end + 1, base=one.base, offset=one.end if one is log.segments[-1] else 0)
    offset = 0 if one.sealed else _offset_of(_opened(one, log, start), end + 1)
    return start._replace(next=end + 1, base=one.base, offset=offset)


def hint(start: StreamPosition, one: SegmentSnapshot) -> tuple[int, int] | None:
    """The sequence and offset of the next record, if it is in this segment."""
    return (start.next, start.offset) if start.offset and start.base == one.base else None


def _segment_of(log: LogSnapshot, sequence: int) -> SegmentSnapshot:
    return next(one for one in reversed(log.segments) if one.base <= sequence or one is log.segments[0])


def _opened(one: SegmentSnapshot, log: LogSnapshot, start: StreamPosition) -> OpenSegment:
    return OpenSegment(one, log.uuid, verify=False, hint=hint(start, one))


def _offset_of(opened: OpenSegment, sequence: int) -> int:
    """The offset in the file of the first record from ``sequence`` on."""
    found = opened.offsets(sequence, opened.segment.last)
    return int(found[0]) + opened.shift if len(found) else opened.segment.end


def _within_bytes(start: StreamPosition, log: LogSnapshot, bytes_max: int) -> int:
    """The last sequence that ``bytes_max`` from ``start`` on hold."""
    left = bytes_max
    for one in log.segments:
        if one.last < start.next:
            continue
        first = max(one.base, start.next)
        # Most often all of it fits, or nothing of it was read before: then it need not be opened.
        begins = start.offset if hint(start, one) else 0
        if one.end - begins > left:
            opened = _opened(one, log, start)
            found = opened.offsets(first, one.last)
            begins = int(found[0]) + opened.shift
            if one.end - begins > left:
                fitting = int((found[1:] - found[0]).searchsorted(left, "right"))
                return (
                    first - 1
                    if not fitting and first > start.next
                    else _sequence_at(opened, found[max(1, fitting) - 1])
                )
        left -= one.end - begins
    return log.durable


def _sequence_at(opened: OpenSegment, place: np.int64) -> int:
    return int(gather_header(opened.view, np.array([place]), "sequence")[0])
