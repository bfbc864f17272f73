"""Everything in memory that follows from the log, changed in one place: ``apply``, live and on recovery alike."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import orjson

from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.delivery.scheduler.snapshot import Part
from syncbrok.log.format.declaration_bodies import decode_snapshot, encode_body
from syncbrok.model.facts import (
    Carried,
    Erased,
    Fact,
    FactOrRun,
    JobChanged,
    Messages,
    Outcomes,
    QueueSet,
    Snapshot,
    StoredMessage,
    SubscriberSet,
    last_sequence,
)
from syncbrok.model.names import sequence_of
from syncbrok.space.state.erasures import Erasures
from syncbrok.space.state.idempotency import KeyIndex
from syncbrok.space.state.jobs import JobTable, counted
from syncbrok.space.state.lineage import Lineage
from syncbrok.space.state.own_times import OwnTimes
from syncbrok.space.state.registry import Registry

_REGISTRY = "registry"
_DELETED = "deleted"
_KEYS = "idempotency"
_ERASURES = "erasures"
_JOBS = "jobs"
_OWN_TIMES = "own_times"
_SMALL = "small"
_small_bytes: Final = 4_096


class State:
    """The state that the facts up to ``through`` (a sequence) make. ``time_us`` is the newest fact's."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.registry = Registry()
        self.lineage = Lineage()
        self.keys = KeyIndex()
        self.erasures = Erasures()
        self.jobs = JobTable()
        self.own_times = OwnTimes()
        self.scheduler = scheduler
        self.through = 0
        self.time_us = 0
        self.backfill_needed: Callable[[], None] = lambda: None
        """called when a subscriber was declared that starts in the past, or does not count: it may be behind"""
        self.sizes_wanted: Callable[[], None] = lambda: None
        """called when a queue was declared that bounds the bytes of its backlog: what waits may have to be sized"""

        self.keeping_wanted: Callable[[], None] = lambda: None
        """called when a queue was declared: it may want its messages erased in time"""

    def apply(self, facts: Sequence[FactOrRun]) -> None:
        """Facts that are durable, in log order."""
        for fact in facts:
            if isinstance(fact, (Messages, StoredMessage)):
                messages = Messages.of(fact) if isinstance(fact, StoredMessage) else fact
                self.lineage.note(messages)
                if messages.extras or messages.keyed is not None:
                    self.keys.note(messages)
                if messages.extras and self.own_times.note(messages.sequence, messages.extras):
                    self.keeping_wanted()
            elif not isinstance(fact, Outcomes):
                self._declared(fact)
        self.scheduler.apply_all(facts)
        self.through = last_sequence(facts[-1])
        self.time_us = max(self.time_us, facts[-1].time_us)

    def _declared(self, fact: Fact) -> None:
        if type(fact) is Carried:
            carried = Messages.of(fact.message)
            self.keys.note(carried)
            self.own_times.note(carried.sequence, carried.extras)
            return
        if type(fact) is Erased:
            self.erasures.note(fact)
            if self.own_times:
                self.own_times.forget([sequence_of(one) for one in fact.messages])
            return
        if type(fact) is JobChanged:
            self.jobs.note(fact)
            return
        if type(fact) is Snapshot:
            self.jobs.take_over(fact.jobs)
        self.registry.apply(fact)
        if type(fact) is SubscriberSet and (fact.settings.start is not None or not fact.settings.counts):
            self.backfill_needed()
        elif type(fact) is QueueSet:
            self.keeping_wanted()
            if fact.settings.max_backlog is not None:
                self.sizes_wanted()

    def snapshot(self, sequence: int, time_us: int, *, dropped_through: int) -> Snapshot:
        """The ``Snapshot`` of the present state, as the fact of that sequence. It also says how messages up to
        ``dropped_through`` ended badly, of which the log tells nothing else."""
        snapshot = self.registry.snapshot(sequence, time_us, self.scheduler.bad_messages(dropped_through))
        # With their figures of now: the facts that those follow from may go.
        jobs = tuple(counted(job, self.scheduler.progress(job.replay)) for job in self.jobs.unfinished)
        return snapshot._replace(lost=self.scheduler.lost_letters(dropped_through), jobs=jobs)

    def save(self) -> dict[str, Part]:
        """Parts of a checkpoint, copied; ``encoded`` makes bytes of all of them."""
        parts = _packed(self.scheduler.copied())
        parts[_REGISTRY] = encode_body(self.registry.snapshot(self.through, self.time_us)).body
        parts[_DELETED] = self.registry.save_deleted()
        parts[_KEYS] = self.keys.save()
        if self.erasures.facts:
            parts[_ERASURES] = self.erasures.save()
        if self.own_times:
            parts[_OWN_TIMES] = self.own_times.save()
        if len(self.jobs):
            parts[_JOBS] = self.jobs.save()
        return parts

    @classmethod
    def load(cls, scheduler: Scheduler, through: int, parts: Mapping[str, bytes]) -> "State":
        """The state that ``save`` wrote, applied through the sequence ``through``. ``scheduler`` must be new. Raises
        ``ValueError``, ``TypeError``, ``KeyError`` or ``IndexError`` where the parts are not in this version's form:
        then throw all of it away and replay the log."""
        declared = decode_snapshot(through, 0, parts[_REGISTRY])
        state = cls(scheduler)
        state.registry.apply(declared)
        if _DELETED in parts:  # a version before this one did not keep it
            state.registry.load_deleted(parts[_DELETED])
        state.keys.load(parts[_KEYS])
        if _ERASURES in parts:
            state.erasures.load(parts[_ERASURES])
        if _OWN_TIMES in parts:
            state.own_times.load(parts[_OWN_TIMES])
        if _JOBS in parts:
            state.jobs.load(parts[_JOBS])
        state.through = through
        scheduler.restore(_unpacked(parts), (*declared.queues, *declared.subscribers))
        return state


def _packed(parts: Mapping[str, Part]) -> dict[str, Part]:
    """The scheduler's parts, the many small ones (one or more for each queue and subscriber) as one: a checkpoint has
    room for some ten thousand names. Large ones go as they are, so that they are not copied."""
    small = {name: part for name, part in parts.items() if isinstance(part, bytes) and len(part) < _small_bytes}
    large = {name: part for name, part in parts.items() if name not in small}
    lengths = orjson.dumps({name: len(part) for name, part in small.items()})
    return {**large, _SMALL: b"".join((len(lengths).to_bytes(8, "little"), lengths, *small.values()))}


def _unpacked(parts: Mapping[str, bytes]) -> dict[str, bytes]:
    packed = parts[_SMALL]
    at = 8 + int.from_bytes(packed[:8], "little")
    own = (_REGISTRY, _DELETED, _KEYS, _ERASURES, _OWN_TIMES, _JOBS, _SMALL)
    unpacked = {name: part for name, part in parts.items() if name not in own}
    for name, length in orjson.loads(packed[8:at]).items():
        unpacked[name] = packed[at : at + length]
        at += length
    return unpacked
