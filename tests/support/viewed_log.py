"""A log without a disk under a real scheduler, a real registry and a real view of them."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from syncbrok.log.damage import Damage
from syncbrok.model.facts import Fact, Outcomes, Published, Row
from syncbrok.model.names import MessageId, sequence_of
from syncbrok.space.meters import Meters
from syncbrok.space.queue import Registry
from syncbrok.space.sources import Sources
from syncbrok.space.view import View
from tests.support.factlog import KEY, FactLog


class MemorySegment(NamedTuple):
    bytes: int
    first_time_us: int


class MemoryJournal:
    """Answers what a journal is asked, from a list of facts. ``drop_through`` does what retention does."""

    def __init__(self, facts: list[Fact]) -> None:
        self.facts = facts
        self.id_key = KEY
        self.damaged: dict[str, str] = {}
        self.damages: dict[int, tuple[Damage, ...]] = {}
        self.dropped_through = 0
        self.caches = False
        self.reads = 0

    @property
    def next_sequence(self) -> int:
        return len(self.facts) + 1

    @property
    def durable_sequence(self) -> int:
        return len(self.facts)

    def segments(self) -> tuple[MemorySegment, ...]:
        return (MemorySegment(1_000, self.facts[0].time_us),)

    def cached(self, sequence: int) -> Published | None:
        return self._message(sequence) if self.caches else None

    def replay(self, after: int = 0) -> Iterator[Fact]:
        for fact in self.facts[max(after, self.dropped_through) :]:
            yield fact._replace(content=b"") if isinstance(fact, Published) else fact

    def read_many(self, sequences: Sequence[int]) -> list[Published | None]:
        self.reads += len(sequences)
        return [self._message(sequence) for sequence in sequences]

    def rows_of(self, sequence: int) -> list[tuple[int, Row]]:
        outcomes = [fact for fact in self.facts if isinstance(fact, Outcomes)]
        return [(fact.sequence, row) for fact in outcomes for row in fact.rows if row.message == sequence]

    def children_of(self, sequence: int, limit: int) -> list[int]:
        found = [fact.sequence for fact in self._kept() if sequence in map(sequence_of, fact.parents)]
        return found[:limit]

    def queue_sequences(self, queue: int, after: int, limit: int) -> list[int]:
        return [fact.sequence for fact in self._kept() if fact.queue == queue and fact.sequence > after][:limit]

    def lost(self, sequence: int) -> Published | None:
        return None

    def place_of(self, sequence: int) -> tuple[MessageId, int] | None:
        message = self.read_many([sequence])[0]
        return None if message is None else (message.id, message.queue)

    def with_key(self, key: str, queue: int | None, limit: int, before: int | None = None) -> list[int]:
        """As a sidecar of hashes may: every message that has any key at all."""
        older = (fact for fact in self._kept() if before is None or fact.sequence < before)
        found = [fact.sequence for fact in older if fact.key and queue in (None, fact.queue)]
        return found[::-1][:limit]

    def with_idempotency_key(self, key: str, queue: int | None, since_us: int) -> list[int]:
        found = [fact.sequence for fact in self._kept() if fact.idempotency_key and queue in (None, fact.queue)]
        return found[::-1]

    def kind_of(self, sequence: int) -> str:
        if not 0 < sequence <= len(self.facts):
            return "unknown"
        if sequence <= self.dropped_through:
            return "dropped"
        return "message" if isinstance(self.facts[sequence - 1], Published) else "other"

    def _kept(self) -> list[Published]:
        return [f for f in self.facts[self.dropped_through :] if isinstance(f, Published)]

    def _message(self, sequence: int) -> Published | None:
        fact = self.facts[sequence - 1] if self.dropped_through < sequence <= len(self.facts) else None
        return fact if isinstance(fact, Published) else None


class ViewedLog(FactLog):
    """A ``FactLog`` that tells registry and view as the Space does. ``fields`` are given to the next message."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry()
        self.journal = MemoryJournal(self.facts)
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
            )
        )
        self.view.state = "serving"

    def add(self, make: Callable[[int, int], Fact]) -> int:
        fact = make(len(self.facts) + 1, self.now_us)
        if isinstance(fact, Published) and self.fields:
            fact = fact._replace(**self.fields)  # type: ignore[arg-type]
            self.fields = {}
        self.facts.append(fact)
        self.registry.apply(fact)
        self.scheduler.apply(fact)
        self.view.apply(fact)
        self.view.ended(self.scheduler.take_watched())
        return fact.sequence

    def id(self, sequence: int) -> MessageId:
        return MessageId(self.ids[sequence])
