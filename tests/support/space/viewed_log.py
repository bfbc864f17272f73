"""A log without a disk under a real scheduler, a real registry and a real view of them."""

import asyncio
from collections.abc import Callable, Sequence

from syncbrok.log.format.records import Record, facts_of
from syncbrok.model.facts import Fact, StoredMessage
from syncbrok.model.journal import JournalOptions
from syncbrok.model.message import RetryPolicy
from syncbrok.model.names import MessageId
from syncbrok.space.meters import Meters
from syncbrok.space.queries.sources import Sources
from syncbrok.space.queries.view import View
from syncbrok.space.state.erasures import Erasures
from syncbrok.space.state.jobs import JobTable
from syncbrok.space.state.registry import Registry
from tests.support.delivery.factlog import KEY, FactLog
from tests.support.log.memory_journal import Batch, Kept, MemoryJournal


class WatchedJournal(MemoryJournal):
    """That counts what is read from it as if it stood on a disk: it has nothing at hand."""

    def __init__(self) -> None:
        kept = Kept()
        kept.id_key, kept.firsts = KEY, [1]
        super().__init__(kept, JournalOptions())
        self.reads = 0

    def add(self, fact: Fact) -> None:
        self.append(Batch(fact.sequence, fact.sequence, b"", (fact,), (0,), frozenset({fact.sequence})))

    def trim_through(self, sequence: int) -> None:
        self._kept.firsts.append(sequence + 1)
        self.trim_oldest()

    def cached(self, sequence: int) -> StoredMessage | None:
        return None

    def read_many(self, sequences: Sequence[int], bytes_max: int | None = None) -> list[StoredMessage | None]:
        self.reads += len(sequences)
        return super().read_many(sequences, bytes_max)


class ViewedLog(FactLog):
    """A ``FactLog`` that tells registry and view as the Space does. ``fields`` are given to the next message."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry()
        self.journal = WatchedJournal()
        self.meters = Meters()
        self.fields: dict[str, object] = {}
        self.view = View(
            Sources(
                registry=self.registry,
                journal=self.journal,
                schedule=self.scheduler,
                run_blocking=asyncio.to_thread,
                clock_us=lambda: self.now_us,
                meters=self.meters,
                jobs=JobTable(),
                erasures=Erasures(),
            )
        )
        self.view.state = "serving"

    def add(self, make: Callable[[int, int], Record]) -> int:
        fact = make(len(self.facts) + 1, self.now_us)
        if isinstance(fact, StoredMessage) and self.fields:
            fact = fact._replace(**self.fields)  # type: ignore[arg-type]
            self.fields = {}
        self.facts.append(fact)
        for one in facts_of((fact,)):
            self.journal.add(one)
            self.registry.apply(one)
            self.scheduler.apply(one)
            self.view.apply_all((one,))
        self.view.ended(self.scheduler.take_watched())
        return fact.sequence

    def id(self, sequence: int) -> MessageId:
        return MessageId(self.ids[sequence])


def log_of_two_queues() -> ViewedLog:
    """Queue 2 has nobody; queue 1 has subscriber 1, and what fails there is tried once more."""
    log = ViewedLog()
    log.retry = RetryPolicy((10.0,), 0.0)
    log.queue(1)
    log.queue(2)
    log.subscriber(1, 1)
    return log
