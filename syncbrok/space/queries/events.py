"""Streams of events, told as they become durable (``GET /v1/events``).

The committer hands every durable fact to ``Events.apply``. Without a listener that costs one comparison. A listener
gets facts, bounded by ``limits.listener_events_max`` events, and turns them into events in its own time: naming
messages may need the disk, and the committer must not wait for that. A listener that falls too far behind is cut off
with a last event that says so. It comes back with the id of its last event and gets the missed ones from the log.

    apply(fact) --> Listener (facts, bounded) --> EventRendering (names, slices) --> events
                    replay(after, bounded) ------^
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from syncbrok.model import limits
from syncbrok.model.errors import Draining, Overloaded
from syncbrok.model.facts import (
    ALL_SUBSCRIBERS,
    Fact,
    FactOrRun,
    FactsLost,
    Messages,
    Outcome,
    Outcomes,
    QueueDeleted,
    QueueSet,
    Rearmed,
    StoredMessage,
    SubscriberDeleted,
    SubscriberSet,
    last_sequence,
)
from syncbrok.model.journal import MessageIndex
from syncbrok.space.queries.event_rendering import BreakerTurned, EventRendering, Happened, first_of, size, weight
from syncbrok.space.queries.reading import Reading
from syncbrok.space.queries.sources import Sources
from syncbrok.space.reports import Event

REPORTED_FACTS: Final = (
    StoredMessage,
    Outcomes,
    Rearmed,
    QueueSet,
    QueueDeleted,
    SubscriberSet,
    SubscriberDeleted,
    FactsLost,
)
_ENDS: Final = frozenset(Outcome) - {Outcome.FAILED, Outcome.LATE}
_BATCH: Final = 512
"""events handed on at once, and between two looks at other work"""


class Missed(NamedTuple):
    """A stretch of the log between two sequences that a listener missed. ``first``: where telling begins."""

    facts: tuple[Fact, ...]
    first: int


class Events:
    """The fan-out. Owned by the view; written by the committer on the event loop, read there by listeners."""

    def __init__(self, sources: Sources, reading: Reading) -> None:
        self._sources = sources
        self._reading = reading
        self._listeners: list[EventStream] = []
        self._applied = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._listeners)

    def apply_all(self, facts: Sequence[FactOrRun]) -> None:
        """As ``apply``, for what became durable together."""
        if not self._listeners:
            self._applied = last_sequence(facts[-1])
            return
        for fact in facts:
            self.apply(fact)

    def apply(self, fact: FactOrRun) -> None:
        """A fact that is durable and that the scheduler has been told; listeners hear of each message."""
        self._applied = last_sequence(fact)
        if not self._listeners:
            return
        if isinstance(fact, Messages):
            for message in fact.messages():
                self._notify(message)
        elif isinstance(fact, REPORTED_FACTS):
            self._notify(fact)

    def turned(self, subscriber: int, *, opened: bool, origin: str) -> None:
        """A breaker has opened or closed; those who listen now are told, unless the subscriber is gone."""
        known = self._sources.registry.subscriber_numbered(subscriber)
        if self._listeners and known is not None:
            now_us = self._sources.clock_us()
            self._notify(BreakerTurned(self._applied, now_us, known.queue, subscriber, opened, origin))

    def listen(self, queue: int | None = None, after: int | None = None, rate: int = 0) -> "EventStream":
        """Listen to events from now on; with ``after`` also to those since that sequence. ``queue`` (number) narrows it
        to one queue, ``rate`` to so many events a second (0: all). Use it as a context manager. Raises ``Overloaded``
        when there are too many listeners and ``Draining`` when the broker is stopping."""
        if self._closed:
            raise Draining("the broker is stopping")
        if len(self._listeners) >= limits.listeners_max:
            raise Overloaded(f"{len(self._listeners)} event streams are open already", retry_after_s=5)
        return EventStream(self, self._sources, self._reading, queue, after, rate)

    def close(self) -> None:
        """End every stream: the broker is stopping."""
        self._closed = True
        for listener in list(self._listeners):
            listener.stop()

    def add(self, listener: "EventStream") -> int:
        """The sequence beyond which it is told live; what came before is in the log."""
        self._listeners.append(listener)
        return self._applied or self._sources.journal.durable_sequence

    def remove(self, listener: "EventStream") -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def _notify(self, fact: Fact | BreakerTurned) -> None:
        happened: Happened | None = None
        for listener in self._listeners:
            room = listener.room_for(fact)
            if room:
                # Made for the first that takes it: a listener with a low rate takes little of what happens.
                happened = happened or (
                    Happened(fact, frozenset())
                    if isinstance(fact, BreakerTurned)
                    else Happened(self._bare(fact), self.completed(fact))
                )
                listener.offer(happened, room)

    def _bare(self, fact: Fact) -> Fact:
        """The fact without content and headers: a full buffer must not hold those."""
        if not isinstance(fact, StoredMessage):
            return fact
        self._reading.remember(fact)
        return fact._replace(content=b"", headers=())

    def completed(self, fact: Fact) -> frozenset[int]:
        """The messages that this fact has brought to a good end. Only now can it be told: the scheduler knows how
        things stand, not how they came to."""
        if isinstance(fact, StoredMessage):
            ended: Iterator[int] = iter((fact.sequence,))
        elif isinstance(fact, Outcomes):
            ended = (
                row.message for row in fact.rows if row.outcome in _ENDS and self._counts(row.subscriber, row.message)
            )
        else:
            return frozenset()
        schedule = self._sources.schedule
        return frozenset(m for m in ended if schedule.ended(m) and schedule.message_state(m) == "complete")

    def _counts(self, number: int, message: int) -> bool:
        """Whether the message counted the subscriber: what one that catches up gets completes nothing (RULES 14)."""
        if number == ALL_SUBSCRIBERS:
            return True
        subscriber = self._sources.registry.subscriber_numbered(number)
        return subscriber is not None and subscriber.counted_by(message)


class EventStream:
    """One stream of events. Enter it, then iterate over ``batches``; the stream ends after a ``cut`` event
    and when the broker stops."""

    def __init__(
        self, events: Events, sources: Sources, reading: Reading, queue: int | None, after: int | None, rate: int
    ) -> None:
        self._events = events
        self._sources = sources
        self._rendering = EventRendering(sources, reading, queue)
        self._queue = queue
        self._after = after
        self._facts: deque[Happened] = deque()
        self._waiting_events = 0  # bounded by limits.listener_events_max
        self._waker: asyncio.Future[None] | None = None
        self._through = 0
        self._rate = rate
        self._second_us = 0
        self._this_second = 0
        self._left_out = 0
        self._stopped = False
        self._cut = False

    def __enter__(self) -> Self:
        # Events up to the scheduler's present state come from the log, later ones live: none twice, none left out.
        self._through = self._events.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._events.remove(self)

    @property
    def begins_behind(self) -> int:
        """The sequence after which it is told what happens, once it is entered."""
        return self._through if self._after is None else self._after

    # -- the committer's side -----------------------------------------------------------------------------------------

    def room_for(self, fact: Fact | BreakerTurned) -> int:
        """The number of the fact's events that this listener takes."""
        if self._cut or (fact.sequence <= self._through and not isinstance(fact, BreakerTurned)):
            return 0
        if self._queue is not None and isinstance(fact, StoredMessage) and fact.queue != self._queue:
            return 0
        events = size(fact)
        return self._within_rate(events) if self._rate else events

    def offer(self, happened: Happened, room: int) -> None:
        """Take at most ``room`` events of a fact. Never blocks and never grows beyond the bound."""
        some = first_of(happened, room)
        events = weight(some)
        if self._waiting_events + events > limits.listener_events_max:
            self._cut = True
        else:
            self._waiting_events += events
            self._facts.append(some)
        self._wake()

    def stop(self) -> None:
        self._stopped = True
        self._wake()

    def _within_rate(self, events: int) -> int:
        """The number of these events that fit into this second. The others are counted as left out."""
        now_us = self._sources.clock_us()
        if now_us - self._second_us >= 1_000_000:
            self._second_us, self._this_second = now_us, 0
        room = min(events, self._rate - self._this_second)
        self._this_second += room
        if room < events:
            if not self._left_out:
                self._wake()
            self._left_out += events - room
        return room

    def _wake(self) -> None:
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    # -- the listener's side ------------------------------------------------------------------------------------------

    async def batches(self, idle_s: float | None = None) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield events in the order of the log, all of one record in one batch. After ``idle_s`` without events an
        empty batch comes, so that a stream can show that it is alive."""
        last = self._through
        if self._after is not None:
            async for batch in self._missed(self._after):
                yield batch
        while not self._stopped:
            if not self._facts:
                if self._cut:
                    yield (Event(last, "cut", self._sources.clock_us(), text=_CUT),)
                    return
                if await self._rests(idle_s):
                    yield self._thinned(last)
                continue
            some = self._take()
            last = some[-1].fact.sequence
            if batch := await self._rendering.events(some) + self._thinned(last):
                yield batch
            await asyncio.sleep(0)

    async def _rests(self, idle_s: float | None) -> bool:
        """Sleep until there is something; True where ``idle_s`` went by without, or a second with only what is left
        out."""
        self._waker = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(1.0 if self._left_out else idle_s):
                await self._waker
        except TimeoutError:
            return True
        finally:
            self._waker = None
        return False

    def _take(self) -> list[Happened]:
        some: list[Happened] = []
        count = 0
        while self._facts and count < _BATCH:
            happened = self._facts.popleft()
            count += weight(happened)
            some.append(happened)
        self._waiting_events -= count
        return some

    def _thinned(self, last: int) -> tuple[Event, ...]:
        left_out, self._left_out = self._left_out, 0
        if not left_out:
            return ()
        return (Event(last, "thinned", self._sources.clock_us(), count=left_out),)

    async def _missed(self, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
        missed = await self._sources.run_blocking(_read_missed, self._sources.journal, after, self._through)
        if missed.first > after:
            text = f"what happened after {after} and up to {missed.first} is not told; read it from the log"
            yield (Event(missed.first, "gap", self._sources.clock_us(), text=text),)
        facts = self._completed_once(missed.facts)
        at = 0
        while at < len(facts) and not self._stopped:
            some, count = [], 0
            while at < len(facts) and count < _BATCH:
                some.append(facts[at])
                count += weight(facts[at])
                at += 1
            if batch := await self._rendering.events(some):
                yield batch
            await asyncio.sleep(0)

    def _completed_once(self, facts: Sequence[Fact]) -> list[Happened]:
        """The completion of a message belongs to the last row that ended one of its deliveries, unless it came after
        this listener: then it is told live."""
        live = {message for happened in self._facts for message in happened.completed}
        happened: list[Happened] = []
        for fact in reversed(facts):
            completed = self._events.completed(fact) - live
            live |= completed
            happened.append(Happened(fact, completed))
        happened.reverse()
        return happened


_CUT: Final = (
    "too slow: events were coming faster than they were read. Go on with Last-Event-ID, or ask for a lower rate"
)


def _read_missed(journal: MessageIndex, after: int, through: int) -> Missed:
    """The newest events beyond ``after``, up to ``through``: at most ``limits.events_missed_max`` of them out of at
    most ``limits.event_gap_sequences_max`` records."""
    first = max(after, through - limits.event_gap_sequences_max)
    facts: deque[Fact] = deque()
    count = 0
    for fact in journal.facts(first):
        if fact.sequence > through:
            break
        if not isinstance(fact, REPORTED_FACTS):
            continue
        facts.append(fact)
        count += weight(Happened(fact, frozenset()))
        while count > limits.events_missed_max and len(facts) > 1:
            gone = facts.popleft()
            first = gone.sequence
            count -= weight(Happened(gone, frozenset()))
    return Missed(tuple(facts), first)
