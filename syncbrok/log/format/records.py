"""The records of a log that are no facts of the broker, and how they are told as facts. Pure.

A log in files has three kinds of records of its own: the one that a segment begins with, its seal, and the gap that
salvage leaves. What they mean to others than the log is a ``Snapshot``, nothing, and ``FactsLost``.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, overload

from syncbrok.model.facts import (
    Fact,
    FactOrRun,
    FactsLost,
    FileApplied,
    JobChanged,
    Messages,
    Outcome,
    QueueSet,
    RecordedFact,
    Snapshot,
    SubscriberSet,
)


class SegmentOpened(NamedTuple):
    """The first record of every segment: a snapshot of all queues and subscribers (``Snapshot``). With it a segment can
    be read alone, and retention may drop those before it.

    ``sealed_us``: the wall clock when the segment before was sealed and this one opened; it is smaller than ``time_us``
    where an older record was written while the clock was ahead, and 0 where an older version wrote the record.
    ``rules`` is 1 where an older version wrote it.
    """

    sequence: int
    time_us: int
    queues: tuple[QueueSet, ...]
    subscribers: tuple[SubscriberSet, ...]
    applied: tuple[FileApplied, ...]
    bad: tuple[tuple[int, Outcome], ...]
    sealed_us: int = 0
    rules: int = 1
    lost: tuple[tuple[int, int], ...] = ()
    jobs: tuple[JobChanged, ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot, sealed_us: int) -> "SegmentOpened":
        """The record of a segment that begins with ``snapshot``."""
        return cls(*snapshot[:6], sealed_us, snapshot.rules, snapshot.lost, snapshot.jobs)

    @property
    def snapshot(self) -> Snapshot:
        """The fact in the record: all that it says to others than the log."""
        return Snapshot(*self[:6], self.rules, self.lost, self.jobs)


class SegmentSealed(NamedTuple):
    """The last record of a sealed segment: how many records stand before it and the CRC-32C of all their bytes."""

    sequence: int
    time_us: int
    records: int
    crc: int


class Gap(NamedTuple):
    """Written by salvage: the sequences from ``first`` to ``last`` could not be recovered."""

    sequence: int
    time_us: int
    first: int
    last: int
    why: str


Record = RecordedFact | SegmentOpened | SegmentSealed | Gap

RecordOrRun = Record | Messages
"""The unit of writing, and of reading many."""


@overload
def facts_of(records: Iterable[Record]) -> Iterator[Fact]: ...
@overload
def facts_of(records: Iterable[RecordOrRun]) -> Iterator[FactOrRun]: ...
def facts_of(records: Iterable[RecordOrRun]) -> Iterator[FactOrRun]:
    """The facts of these records, in order. A seal says nothing to others than the log."""
    for record in records:
        if isinstance(record, SegmentOpened):
            yield record.snapshot
        elif isinstance(record, Gap):
            yield FactsLost(*record)
        elif not isinstance(record, SegmentSealed):
            yield record
