"""Answers questions about a Space with frozen reports, from the scheduler's memory and from the log.

Frontends get this and the channels, and of the Space nothing else. Memory answers at once; a question that may need the
disk is ``async`` and runs in a reader's thread. A report shows one moment, which may be over when it is read.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import aclosing
from itertools import accumulate, islice
from typing import TypeVar

from syncbrok.model import limits
from syncbrok.model.errors import ContentErased, Malformed, UnknownMessage
from syncbrok.model.facts import Erased, FactOrRun, StoredMessage
from syncbrok.model.journal import MessageIndex
from syncbrok.model.names import MessageId, QueueName, id_text, issued_by, sequence_of
from syncbrok.space.pause import Pause, pauses
from syncbrok.space.queries.actions import Actions, SoughtActions
from syncbrok.space.queries.critical_path import CriticalPath
from syncbrok.space.queries.deliveries import DeliveryReports, SoughtDeliveries
from syncbrok.space.queries.events import Events, EventStream
from syncbrok.space.queries.filter_trial import FilterTrial
from syncbrok.space.queries.finding import ids_of
from syncbrok.space.queries.job_reports import JobReports
from syncbrok.space.queries.minute_reports import minutes_since
from syncbrok.space.queries.overview import Overview
from syncbrok.space.queries.reading import (
    SLICE,
    MessageWithRows,
    Reading,
    Stored,
    read_in_pieces,
    rows_of_many,
    stored,
)
from syncbrok.space.queries.search import MESSAGE_STATES, Search, Sought
from syncbrok.space.queries.sources import Sources
from syncbrok.space.queries.tree import TreeWalk
from syncbrok.space.queries.wait_explanation import ENDED, WaitExplanation
from syncbrok.space.queries.waiters import RoomWaiters, Waiters
from syncbrok.space.reports import (
    ActionReport,
    Content,
    CriticalPathReport,
    DeadLetter,
    DeliveryReport,
    Event,
    JobReport,
    MessageReport,
    MinuteReport,
    Page,
    QueueReport,
    SpaceReport,
    SubscriberReport,
    SubscribersDelivery,
    TreeReport,
    TriedMessage,
    shown_bytes,
)
from syncbrok.space.state.erasures import ErasedSome
from syncbrok.space.state.history import MINUTE_US

T = TypeVar("T")

_OPEN = frozenset(MESSAGE_STATES) - ENDED
_SCAN = 2_000
"""sequences looked at in one step of a filtered page"""
_ERASED = 10_000
"""messages that a page of what was erased names"""
_DELIVERIES = 32
"""reported between two pauses"""


class View:
    """The reading half of a Space. The Space sets ``state``, calls ``ended`` and ``apply_all``; all else is asked."""

    def __init__(self, sources: Sources) -> None:
        self.state = "starting"
        """``starting``, ``serving``, ``draining`` or ``failed``; set by the Space"""
        self._sources = sources
        self._reading = Reading(sources)
        self._deliveries = DeliveryReports(sources, self._reading)
        self._search = Search(sources, self._reading, self._deliveries)
        self._jobs = JobReports(sources)
        self._actions = Actions(sources, self._reading)
        self._overview = Overview(sources, self._reading)
        self._explanation = WaitExplanation(sources, self._reading)
        self._tree = TreeWalk(sources, self._reading)
        self._critical_path = CriticalPath(sources)
        self._waiters = Waiters(sources.schedule)
        self._rooms = RoomWaiters(sources.registry, sources.schedule)
        self._events = Events(sources, self._reading)
        self._trial = FilterTrial(sources)
        self.clock_us = sources.clock_us

    def __repr__(self) -> str:
        return f"<View {self.state}, {len(self._waiters)} waiting, {len(self._events)} listening>"

    @property
    def ready(self) -> bool:
        return self.state == "serving"

    # -- told by the Space --------------------------------------------------------------------------------------------

    def apply_all(self, facts: Sequence[FactOrRun]) -> None:
        """Facts that are durable and that the scheduler has been told."""
        self._events.apply_all(facts)
        if self._rooms.lines:
            self._rooms.applied()

    def turned(self, subscriber: int, *, opened: bool, origin: str) -> None:
        """A circuit breaker has opened or closed: that of a subscriber (number), or of its ``origin``."""
        self._events.turned(subscriber, opened=opened, origin=origin)

    def ended(self, sequences: Sequence[int]) -> None:
        """Watched messages (``Scheduler.take_watched``) that have ended, durably."""
        self._waiters.ended(sequences)

    def release(self) -> None:
        """The Space begins to drain: answer all who wait for a message's end. A message that has not ended by now may
        not end in this process, and its publisher must get to hear that it was kept."""
        self._waiters.close()
        self._rooms.close()

    def close(self) -> None:
        """End all event streams, so that the frontends' connections can close."""
        self.release()
        self._events.close()

    # -- queues and subscribers ---------------------------------------------------------------------------------------

    def queues(
        self, after: str | None, limit: int, text: str = "", may_see: Callable[[QueueName], bool] | None = None
    ) -> tuple[list[QueueReport], str | None]:
        """Sorted by name, beyond the name ``after``, of those that ``may_see`` and whose name has ``text`` in it, in
        either case; the second is ``after`` for the next page, None on the last."""
        registry = self._sources.registry
        names = registry.names()
        start = 0 if after is None else bisect_right(names, after)
        seen = names[start:] if may_see is None else filter(may_see, names[start:])
        page = list(islice(_having(text, seen, str), limit + 1))
        more = len(page) > limit > 0
        reports = list(self._overview.queues(registry.queues[name] for name in page[:limit]))
        return reports, page[limit - 1] if more else None

    def queue(self, name: str) -> QueueReport:
        """Raises ``UnknownQueue``."""
        return self._overview.queues((self._sources.registry.queue(name),))[0]

    def bounds_backlog(self, queue: str) -> bool:
        """Whether there is a queue of this name that refuses what would be too much for it."""
        known = self._sources.registry.queues.get(QueueName(queue))
        return known is not None and known.settings.max_backlog is not None

    def backlog_room(self, queue: str, size_bytes: int) -> "asyncio.Future[None]":
        """Done once a message of this size may be accepted that a queue has refused with ``BacklogFull``; at once where
        it may be now, or nobody may wait any longer. The first to wait is the first to be told."""
        return self._rooms.wait(QueueName(queue), size_bytes)

    async def oldest_waiting(self, reports: Sequence[QueueReport]) -> dict[QueueName, MessageId]:
        """The id of the message that waits longest, by queue, where one does; of many that only the disk can
        name a few at a time, the others are left out until they are asked for again."""
        return await self._overview.oldest_waiting(reports)

    async def oldest_us(self, reports: Sequence[QueueReport]) -> dict[QueueName, int]:
        """When the message that waits longest was accepted, by queue, where one does: exactly where it came since the
        start or has been read by now, else about."""
        return await self._overview.oldest_us(reports)

    def subscribers(
        self, queue: str, after: str | None, limit: int, text: str = ""
    ) -> tuple[list[SubscriberReport], str | None]:
        """Sorted by id, paged and chosen by ``text`` as ``queues``. Raises ``UnknownQueue``."""
        registry = self._sources.registry
        of_queue = _having(text, registry.subscribers(registry.queue(queue).number), lambda one: one.id)
        beyond = [s for s in of_queue if after is None or s.id > after]
        beyond.sort(key=lambda subscriber: subscriber.id)
        page = beyond[:limit]
        reports = [self._overview.subscriber(subscriber) for subscriber in page]
        return reports, page[-1].id if page and len(beyond) > limit else None

    def subscriber(self, queue: str, id: str) -> SubscriberReport:  # noqa: A002 (the word of the domain)
        """Raises ``UnknownQueue`` and ``UnknownSubscriber``."""
        return self._overview.subscriber(self._sources.registry.subscriber(queue, id))

    def subscriber_number(self, queue: str, id: str) -> int:  # noqa: A002 (the word of the domain)
        """As its handler is told. Raises ``UnknownQueue`` and ``UnknownSubscriber``."""
        return self._sources.registry.subscriber(queue, id).number

    def statistics(self) -> SpaceReport:
        return self._overview.space(self.state, len(self._waiters), len(self._events))

    def statistics_in_steps(self) -> Generator[None, None, SpaceReport]:
        """As ``statistics``, where there may be thousands of subscribers: each is told as it is when its turn comes."""
        return self._overview.space_in_steps(self.state, len(self._waiters), len(self._events))

    async def history(
        self, queue: str | None, hours: int, may_see: Callable[[QueueName], bool] | None = None
    ) -> list[MinuteReport]:
        """The last hours, minute by minute, the oldest first: of a queue, where ``queue`` names one; else of the
        broker, or of the queues that ``may_see``. Raises ``UnknownQueue``."""
        if queue is not None:
            self._sources.registry.queue(queue)
        first = self._sources.clock_us() // MINUTE_US - 60 * hours + 1
        return await minutes_since(self._sources, first, queue, may_see)

    # -- messages -----------------------------------------------------------------------------------------------------

    async def message(self, id: MessageId, pause: Pause | None = None) -> MessageReport:  # noqa: A002
        """A message with its deliveries and their attempts. Raises ``UnknownMessage`` and ``Gone``."""
        pause = pause or pauses()
        found = await self._reading.find(id)
        words = await self._explanation.explain([found.message], pause)
        deliveries = await _collected(self._deliveries.with_attempts(found.message, found.rows), pause)
        return await self._report(stored(found.message), words[found.message.sequence], deliveries)

    def message_state(self, sequence: int) -> str:
        """The state of a message (RULES 9) by its sequence, from memory: what a publisher is answered."""
        return self._sources.schedule.message_state(sequence)

    def message_states(self, first: int, count: int) -> list[str]:
        """The states of ``count`` messages that follow each other."""
        return self._sources.schedule.message_states(first, count)

    async def ids(self, sequences: set[int]) -> dict[int, MessageId]:
        """Ids of messages by their sequence, where the log still tells them. Raises ``BrokerFault``."""
        return {sequence: head.id for sequence, head in (await self._reading.heads(sequences)).items()}

    async def content(self, id: MessageId) -> Content:  # noqa: A002
        """Raises ``UnknownMessage`` and ``Gone``, of which ``ContentErased`` is one."""
        message = (await self._reading.find(id, rows=False)).message
        if message.erased:
            raise ContentErased(f"the content of message {id_text(id)} was erased", id=id_text(id))
        return Content(message.content, message.content_type)

    async def queues_of(self, ids: Sequence[MessageId]) -> list[QueueName | None]:
        """The queue of each of these messages; None for one that the log does not have, or has no more."""
        key = self._sources.journal.id_key
        heads = await self._reading.heads(sequence_of(id_) for id_ in ids if issued_by(id_, key))
        found = [(id_, heads.get(sequence_of(id_))) for id_ in ids]
        return [
            None if head is None or head.id != id_ else self._sources.registry.queue_name(head.queue)
            for id_, head in found
        ]

    async def tree(
        self,
        id: MessageId,  # noqa: A002
        direction: str,
        depth: int,
        pause: Pause | None = None,
    ) -> TreeReport:
        """The ancestors (``direction`` ``up``) or descendants (``down``) of a message, at most ``depth`` edges away.
        Raises ``UnknownMessage``, ``Gone`` and ``Malformed``."""
        if direction not in ("up", "down"):
            raise Malformed(f"direction is up or down, not {direction!r}", direction=direction)
        message = (await self._reading.find(id, rows=False)).message
        return await self._tree.walk(message._replace(content=b""), direction, max(depth, 0), pause or pauses())

    async def critical_path(self, id: MessageId, pause: Pause | None = None) -> CriticalPathReport:  # noqa: A002
        """The chain of waits that made a message late, or makes it late. Raises ``UnknownMessage`` and ``Gone``."""
        message = (await self._reading.find(id, rows=False)).message
        return await self._critical_path.find(message, self.clock_us(), pause or pauses())

    async def messages(
        self, queue: str, after: int, limit: int, state: str | None, pause: Pause | None = None
    ) -> Page[MessageReport]:
        """A queue in the order accepted, beyond the sequence ``after``; deliveries without attempts. A page may end
        early, with ``state`` even empty, to keep each look bounded: go on with ``next``. Raises ``UnknownQueue`` and
        ``Malformed`` for a state that no message can have."""
        if state is not None and state not in MESSAGE_STATES:
            raise Malformed(f"no message can be {state!r}: a state is one of {', '.join(MESSAGE_STATES)}", state=state)
        number = self._sources.registry.queue(queue).number
        sequences, next_ = await self._sequences(number, after, limit, state)
        found = [entry for entry in await self._reading.messages(sequences) if entry is not None]
        reports = await self._reports(found, pause)
        return Page(reports, next_ if len(reports) == len(found) else reports[-1].sequence)

    async def deliveries(
        self, sought: SoughtDeliveries, limit: int, pause: Pause | None = None
    ) -> Page[SubscribersDelivery]:
        """How the messages of its queue stand at one subscriber, in the order accepted. A page looks at no more than
        ``limit`` messages: where a state is sought it may have fewer, or none, though more follow. Raises
        ``UnknownQueue`` and ``UnknownSubscriber``."""
        queue, subscriber, after, through, state = sought
        registry, journal, pause = self._sources.registry, self._sources.journal, pause or pauses()
        one = registry.subscriber(queue, subscriber)
        sequences = await self._sources.run_blocking(journal.queue_sequences, one.queue, after, limit + 1)
        wanted = [sequence for sequence in sequences[:limit] if through is None or sequence <= through]
        past = self._sources.erasures.is_past
        found: list[SubscribersDelivery] = []
        for at in range(0, len(wanted), SLICE):
            some = [sequence for sequence in wanted[at : at + SLICE] if not past(sequence)]
            for message, rows in await self._sources.run_blocking(_with_rows, journal, some):
                report = self._deliveries.at(message, rows, one)
                if report is not None and state in (None, report.state):
                    found.append(SubscribersDelivery(message.id, message.sequence, report))
                await pause()
        more = len(sequences) > limit and (through is None or sequences[limit] <= through)
        return Page(tuple(found), wanted[-1] if more else None)

    async def read(self, queue: str, after: int, limit: int, bytes_max: int | None = None) -> list[StoredMessage]:
        """Messages of a queue with their contents, in the order accepted, beyond the sequence ``after``; what is
        damaged on the disk is left out. With ``bytes_max`` there are fewer: it ends with those by which the contents
        come to so many bytes. Raises ``UnknownQueue``."""
        number = self._sources.registry.queue(queue).number
        if self._sources.schedule.queue_statistics(number).last_sequence <= after:
            return []  # a thousand who read along ask ten times a second each
        erased = self._sources.erasures.holds
        return await self._sources.run_blocking(_read, self._sources.journal, number, after, limit, bytes_max, erased)

    async def sequence_of(self, queue: str, index: int) -> int | None:
        """The sequence of the message number ``index`` (0 is the oldest) that the log still has of a queue; None where
        there are not so many. Raises ``UnknownQueue``."""
        number = self._sources.registry.queue(queue).number
        found = await self._sources.run_blocking(self._sources.journal.queue_sequences, number, 0, index + 1)
        return found[index] if index < len(found) else None

    async def try_filter(self, queue: str, text: str, last: int) -> list[TriedMessage]:
        """See ``FilterTrial.run``."""
        return await self._trial.run(queue, text, last)

    async def stuck(self, limit: int, pause: Pause | None = None) -> tuple[MessageReport, ...]:
        """The message that waits longest in each queue, and why, but where that is delayed on purpose; the oldest
        ``limit`` of them, oldest first, or fewer where they are as large as a page may be."""
        schedule, queues = self._sources.schedule, self._sources.registry.queues.values()
        waiting = filter(None, (schedule.queue_statistics(queue.number).oldest_waiting for queue in queues))
        oldest = sorted(one for one in waiting if schedule.message_state(one) != "scheduled")
        found = [entry for entry in await self._reading.messages(oldest[:limit]) if entry is not None]
        return await self._reports(found, pause)

    async def find(self, key: str | None, idempotency_key: str | None, limit: int) -> tuple[MessageReport, ...]:
        """Messages with this key, this idempotency key, or both; the newest first."""
        return (await self.find_page(key, idempotency_key, None, limit)).items

    async def find_page(
        self,
        key: str | None,
        idempotency_key: str | None,
        before: int | None,
        limit: int,
        pause: Pause | None = None,
    ) -> Page[MessageReport]:
        """``find``, page by page: messages older than the sequence ``before``, which is ``next`` of the page before. A
        page may end early, so that each look is bounded."""
        found, more_before = await self._found(key, idempotency_key, before, limit)
        reports = await self._reports(found[:limit], pause)
        if len(reports) < len(found):
            return Page(reports, reports[-1].sequence)
        return Page(reports, more_before)

    async def search(
        self,
        sought: Sought,
        position: int,
        limit: int,
        may_see: Callable[[QueueName], bool] | None = None,
        pause: Pause | None = None,
    ) -> Page[MessageReport]:
        """Messages of which all of ``sought`` is true, of queues that ``may_see``, beyond ``position``, which is
        ``next`` of the page before. A page may have fewer than ``limit``, or none, though more follow. Raises
        ``UnknownQueue``, ``UnknownSubscriber`` and ``Malformed``."""
        pause = pause or pauses()
        found, next_ = await self._search.page(sought, position, limit, may_see, pause)
        reports = await self._reports(found, pause)
        return Page(reports, next_ if len(reports) == len(found) else reports[-1].sequence)

    async def published_as(self, idempotency_key: str, limit: int) -> tuple[MessageId, ...]:
        """The ids of the messages with this idempotency key, the newest first, at most ``limit``."""
        found, _ = await self._found(None, idempotency_key, None, limit)
        return tuple(entry.message.id for entry in found[:limit])

    async def _found(
        self, key: str | None, idempotency_key: str | None, before: int | None, limit: int
    ) -> tuple[list[Stored], int | None]:
        """The messages that ``find_page`` has to show, perhaps more than ``limit``; and where the next page begins if
        it shows them all."""
        journal, run_blocking = self._sources.journal, self._sources.run_blocking
        sequences: list[int] = []
        looked_at = limits.list_limit_max
        if idempotency_key is not None:
            every = await run_blocking(journal.with_idempotency_key, idempotency_key, None, 0)
            sequences = [sequence for sequence in every if before is None or sequence < before]
        elif key is not None:
            looked_at = limit
            sequences = await run_blocking(journal.with_key, key, None, limit + 1, before)
        more = len(sequences) > looked_at
        found = [
            entry
            for entry in await self._reading.messages(sequences[:looked_at])
            # Sidecars know hashes only: what they found may be another key's.
            if entry is not None
            and key in (None, entry.message.key)
            and idempotency_key in (None, entry.message.idempotency_key)
        ]
        return found, sequences[looked_at - 1] if more else None

    async def actions(
        self,
        sought: SoughtActions,
        position: int,
        limit: int,
        may_see: Callable[[QueueName], bool] | None,
        pause: Pause,
    ) -> Page[ActionReport]:
        """Actions of people, see ``Actions.page``."""
        return await self._actions.page(sought, position, limit, may_see, pause)

    def jobs(self, before: int | None, limit: int) -> Page[JobReport]:
        """Jobs that are not over and those of seven days, the newest first, older than number ``before``."""
        return self._jobs.page(before, limit)

    def job(self, number: int) -> JobReport:
        """Raises ``UnknownJob``."""
        return self._jobs.one(number)

    async def erased(self, after: int, limit: int) -> Page[Erased]:
        """Messages erased by facts behind the sequence ``after``: an archive of the log must remove it. A page may have
        fewer than ``limit``, where they name many messages."""
        known = self._sources.erasures
        facts = list(islice(known.after(after), limit + 1))
        counts = accumulate(fact.size for fact in facts[:limit])
        some = facts[: max(1, sum(count <= _ERASED for count in counts))]
        told = await self._sources.run_blocking(lambda: [_erased(self._sources.journal, fact) for fact in some])
        return Page(tuple(told), some[-1].sequence if len(facts) > len(some) else None)

    async def dead_letters(self, queue: str, after: int, limit: int, *, newest_first: bool = False) -> Page[DeadLetter]:
        """Over all subscribers of the queue, in the order of the log or against it, beyond the sequence ``after``. The
        letters of one message stay together: a page may hold a few more than ``limit``. Raises ``UnknownQueue``."""
        number = self._sources.registry.queue(queue).number
        return await self._deliveries.dead_letters(number, after, limit, newest_first=newest_first)

    async def wait(self, ids: Sequence[MessageId], timeout_s: float) -> bool:
        """Whether every delivery of every one of them ends within ``timeout_s``, at most ``limits.wait_s_max``; False
        as soon as the broker begins to stop. Raises ``UnknownMessage``, and ``Overloaded`` when too many wait."""
        for id_ in ids:
            if not issued_by(id_, self._sources.journal.id_key):
                raise UnknownMessage(f"this broker never issued the id {id_text(id_)}", id=id_text(id_))
        return await self._waiters.wait([sequence_of(id_) for id_ in ids], min(timeout_s, limits.wait_s_max))

    # -- events -------------------------------------------------------------------------------------------------------

    def listen(self, queue: str | None, after: int | None, rate: int = 0) -> EventStream:
        """A stream of what happens, in batches; see ``Events.listen``. Raises ``UnknownQueue`` too."""
        number = None if queue is None else self._sources.registry.queue(queue).number
        return self._events.listen(number, after, rate)

    def events(self, queue: str | None, after: int | None) -> AsyncIterator[Event]:
        """Events, one by one. Raises as ``listen`` does, before the first."""
        return _one_by_one(self.listen(queue, after))

    # -- parts --------------------------------------------------------------------------------------------------------

    async def _sequences(self, queue: int, after: int, limit: int, state: str | None) -> tuple[list[int], int | None]:
        """The sequences of a page, and where the next page begins."""
        schedule, past = self._sources.schedule, self._sources.erasures
        chosen = state is not None or past.any_past
        found: list[int] = []
        for _ in range(limits.scanned_per_page_max // _SCAN):
            if state in _OPEN:
                some = schedule.unended(queue, None, _SCAN, after)
                await asyncio.sleep(0)
            else:
                asked = _SCAN if chosen else limit + 1
                some = await self._sources.run_blocking(self._sources.journal.queue_sequences, queue, after, asked)
            for sequence in some:
                if (state is None or schedule.message_state(sequence) == state) and not past.is_past(sequence):
                    found.append(sequence)
                if len(found) > limit:
                    return found[:limit], found[limit - 1]
            if not some or not chosen:
                return found, None
            after = some[-1]
        return found, after

    async def _reports(self, found: Sequence[Stored], pause: Pause | None = None) -> tuple[MessageReport, ...]:
        """The reports of these, or of the first of them that come to ``limits.page_bytes_max``: a thousand messages
        with a thousand deliveries each would hold up the event loop, and fill the memory, for seconds."""
        pause = pause or pauses()
        reports: list[MessageReport] = []
        left_bytes = limits.page_bytes_max
        for at in range(0, len(found), SLICE):
            some = found[at : at + SLICE]
            words = await self._explanation.explain([entry.message for entry in some], pause)
            for entry in some:
                deliveries = await _collected(self._deliveries.states(entry.message), pause)
                report = await self._report(entry, words[entry.message.sequence], deliveries)
                reports.append(report)
                left_bytes -= shown_bytes(report)
                if left_bytes <= 0:
                    return tuple(reports)
        return tuple(reports)

    async def _report(self, entry: Stored, waits_for: str, deliveries: tuple[DeliveryReport, ...]) -> MessageReport:
        message = entry.message
        return MessageReport(
            id=message.id,
            sequence=message.sequence,
            queue=self._sources.registry.queue_name(message.queue),
            state=self._sources.schedule.message_state(message.sequence),
            time_us=message.time_us,
            parents=message.parents,
            blocked_by=await self._blocked_by(message),
            waits_for=waits_for,
            key="" if message.erased else message.key,
            idempotency_key="" if message.erased else message.idempotency_key,
            scope=message.scope.name.lower(),
            parent_failure=message.parent_failure.name.lower(),
            due_us=message.due_us,
            expires_us=message.expires_us,
            root=message.root,
            depth=message.depth,
            content_type=message.content_type,
            content_bytes=entry.content_bytes,
            headers=message.headers,
            deliveries=deliveries,
            erased=message.erased,
            erase_after_us=message.erase_after_us,
        )

    async def _blocked_by(self, message: StoredMessage) -> tuple[MessageId, ...]:
        blockers = self._explanation.blockers(message)
        if not blockers:
            return ()
        parents = {sequence_of(parent): parent for parent in message.parents}
        others = await self._reading.heads(blocker for blocker in blockers if blocker not in parents)
        named = (parents[at] if at in parents else others[at].id for at in blockers if at in parents or at in others)
        return tuple(named)


async def _collected(reports: Iterator[DeliveryReport], pause: Pause) -> tuple[DeliveryReport, ...]:
    collected: list[DeliveryReport] = []
    while some := tuple(islice(reports, _DELIVERIES)):
        collected += some
        await pause()
    return tuple(collected)


async def _one_by_one(listener: EventStream) -> AsyncIterator[Event]:
    with listener:
        async with aclosing(listener.batches()) as batches:
            async for batch in batches:
                for event in batch:
                    yield event


def _read(
    journal: MessageIndex,
    queue: int,
    after: int,
    limit: int,
    bytes_max: int | None,
    is_erased: Callable[[int], bool],
) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    sequences = journal.queue_sequences(queue, after, limit)
    while sequences and not found:  # millions that stand together may be erased: who reads must get beyond them
        found = _readable(journal, [one for one in sequences if not is_erased(one)][:limit], bytes_max)
        sequences = journal.queue_sequences(queue, sequences[-1], max(limit, _SCAN)) if not found else []
    return found


def _having(text: str, items: Iterable[T], name_of: Callable[[T], str]) -> Iterable[T]:
    """The items whose name has ``text`` in it, in either case; all of them without a text."""
    folded = text.casefold()
    return (one for one in items if folded in name_of(one).casefold()) if folded else items


def _readable(journal: MessageIndex, sequences: Sequence[int], bytes_max: int | None) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    for some in read_in_pieces(journal, sequences):
        found += [message for message in some if message is not None and not message.erased]
        if bytes_max is not None and sum([len(message.content) for message in found]) >= bytes_max:
            break
    return found


def _erased(journal: MessageIndex, some: ErasedSome) -> Erased:
    """The fact, with the ids that the log tells of its messages."""
    ids = tuple(ids_of(journal, some.messages))
    if len(ids) < some.size:  # records that carry a message are asked by another way, and some may be damaged
        fact = next(iter(journal.facts(some.sequence - 1)), None)
        if type(fact) is Erased and fact.sequence == some.sequence:
            return fact
    return Erased(some.sequence, 0, some.clock_us, ids, some.past_retention)


def _with_rows(journal: MessageIndex, sequences: Sequence[int]) -> list[MessageWithRows]:
    """These messages, without their contents, with their rows; what cannot be read is left out."""
    pieces = read_in_pieces(journal, sequences)
    there = [message._replace(content=b"") for some in pieces for message in some if message is not None]
    return list(map(MessageWithRows, there, rows_of_many(journal, [one.sequence for one in there])))
