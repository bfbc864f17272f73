"""A Space in memory, for what a real one cannot be brought to do at will: refuse with each error in turn, break, be
slow. It keeps queues, subscribers and messages; it delivers nothing and logs nothing, as if every subscriber were
paused, or there were one. ``tests/space/test_what_frontends_rely_on.py`` asks it what it asks the real one. Of the
commands it takes those that are asked there, and raises ``NotImplementedError`` for each other one: a test of what
becomes of those stands on a real Space.
"""

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

from syncbrok.model.errors import (
    Conflict,
    IdempotencyConflict,
    Malformed,
    SyncbrokError,
    UnknownMessage,
    UnknownParent,
    UnknownQueue,
    UnknownSubscriber,
)
from syncbrok.model.facts import FileApplied
from syncbrok.model.file_entry import SECRET
from syncbrok.model.message import Message, QueueSettings, SubscriberSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId, id_text, make_message_id
from syncbrok.model.settings import QUEUE_SETTINGS, SUBSCRIBER_SETTINGS
from syncbrok.space.channels import (
    Accepted,
    Cancel,
    Channels,
    Declared,
    DeclareQueue,
    FromFile,
    Publish,
    PublishListener,
    Replay,
    ReplayPlan,
    Subscribe,
)
from syncbrok.space.pause import Pause
from syncbrok.space.queries.deliveries import SoughtDeliveries
from syncbrok.space.queries.search import MESSAGE_STATES, Sought
from syncbrok.space.reports import (
    Content,
    CriticalPathReport,
    DeadLetter,
    DeliveryTotals,
    Histogram,
    LogReport,
    MessageReport,
    MinuteReport,
    Page,
    PathStep,
    ProcessReport,
    QueueReport,
    SpaceReport,
    StartReport,
    SubscriberReport,
    SubscribersDelivery,
    TreeNode,
    TreeReport,
)
from syncbrok.space.state.file_changes import changed_keys, with_settings
from syncbrok.space.state.idempotency import fingerprint
from syncbrok.space.state.registry import subscriber_id

KEY = bytes(range(16))
OPEN = ("scheduled", "waiting", "held", "pending")
COMMITS = Histogram(((0.001, 3), (0.01, 5)), 6, 0.5, 0.3)


def messages_of(unit: Publish) -> list[Message]:
    """The messages of a unit, one by one."""
    pairs = zip(unit.contents, unit.keys or [""] * len(unit.contents), strict=True)
    single = [Message(content, unit.content_type, idempotency_key=key) for content, key in pairs]
    return [unit.extras.get(at, message) for at, message in enumerate(single)]


class FakeSpace:
    """Its own view, and all three channels. ``refuse`` is raised by each ``put`` while it is set; ``break_with`` by
    each read."""

    def __init__(self, sync: str = "always") -> None:
        self.sync = sync
        self.refuse: Exception | None = None
        self.refuse_later: Exception | None = None
        """as ``refuse``, but by the receipt"""
        self.break_with: Exception | None = None
        self.ready = True
        self.state = "serving"
        self.put_items: list[Any] = []
        self.settings: dict[QueueName, QueueSettings] = {}
        self.declared: dict[QueueName, dict[SubscriberId, SubscriberSettings]] = {}
        self.applied: dict[str, FileApplied] = {}
        self.reports: dict[MessageId, MessageReport] = {}
        self.contents: dict[MessageId, Message] = {}
        self.ended = asyncio.Event()
        self.waited_s: list[float] = []
        self.replays = 0
        self.channels = Channels(self, self, self)

    # -- the channels ---------------------------------------------------------------------------------------------

    def put(self, item: Any) -> "asyncio.Future[Any]":
        if self.refuse is not None:
            raise self.refuse
        self.put_items.append(item)
        receipt: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.refuse_later is not None:
            receipt.set_exception(self.refuse_later)
            return receipt
        try:
            receipt.set_result(self._work(item))
        except SyncbrokError as error:
            receipt.set_exception(error)
        return receipt

    def put_shared(self, unit: Publish, publisher: Any, listener: PublishListener) -> None:
        """As ``put``; the listener hears of each alone."""
        receipt = self.put(unit)

        def tell(settled: "asyncio.Future[Accepted]") -> None:
            if settled.cancelled():
                listener.refused([publisher], asyncio.CancelledError())
            elif (why := settled.exception()) is not None:
                listener.refused([publisher], why)
            else:
                listener.accepted([unit], [publisher], settled.result())

        receipt.add_done_callback(tell)

    def _work(self, item: Any) -> Any:
        match item:
            case Publish():
                return self._publish(item)
            case DeclareQueue():
                return self._declare_queue(item)
            case Subscribe():
                return self._subscribe(item)
            case Cancel():
                return self._cancel(item.id)
            case Replay():
                return self._replay(item)
        raise NotImplementedError(item)

    def _declare_queue(self, item: DeclareQueue) -> Declared:
        if self._is_applied(item.name, item.applied):
            return Declared("unchanged", item.name)
        before = self.settings.get(item.name)
        settings = before or item.settings
        if before is not None and item.applied is not None:
            names = changed_keys(self.applied.get(item.name), item.applied.keys, QUEUE_SETTINGS)
            settings = with_settings(before, item.settings, names, QUEUE_SETTINGS)
        elif settings != item.settings:
            raise Conflict(f"queue {item.name!r} differs", queue=item.name)
        self.settings[item.name] = settings
        self._apply(item.name, item.applied)
        return Declared("created" if before is None else "unchanged" if before == settings else "changed", item.name)

    def _subscribe(self, item: Subscribe) -> Declared:
        id_ = subscriber_id(item.settings)
        entry = f"{item.queue}/{id_}"
        if self._is_applied(entry, item.applied):
            return Declared("unchanged", id_)
        self._has_queue(item.queue)
        there = self.declared.setdefault(item.queue, {})
        before = there.get(id_)
        settings, secret = before or item.settings, False
        if before is not None and item.applied is not None:
            names = changed_keys(self.applied.get(entry), item.applied.keys, SUBSCRIBER_SETTINGS)
            settings = with_settings(before, item.settings, names, SUBSCRIBER_SETTINGS)
            secret = SECRET in names and item.secret is not None
        elif settings != item.settings:
            raise Conflict(f"subscriber {id_!r} differs", queue=item.queue, subscriber=id_)
        there[id_] = settings
        self._apply(entry, item.applied)
        is_changed = before != settings or secret
        return Declared("created" if before is None else "changed" if is_changed else "unchanged", id_)

    def _is_applied(self, entry: str, applied: FromFile | None) -> bool:
        before = self.applied.get(entry)
        return applied is not None and before is not None and before.hash == applied.hash

    def _apply(self, entry: str, applied: FromFile | None) -> None:
        if applied is not None:
            self.applied[entry] = FileApplied(0, 0, entry, applied.hash, tuple(sorted(applied.keys.items())))

    def _cancel(self, id_: MessageId) -> int:
        report = self._report_of(id_)
        if report.state not in OPEN:
            return 0
        self.reports[id_] = replace(report, state="dropped")
        return len(self.declared.get(report.queue, ()))

    def _replay(self, item: Replay) -> ReplayPlan:
        ids = () if item.id is None else (item.id,)
        order = tuple((id_, tuple(self.declared.get(self._report_of(id_).queue, ()))) for id_ in ids)
        self.replays += not item.dry_run
        number = 0 if item.dry_run else self.replays
        return ReplayPlan(number, len(order), sum(len(subscribers) for _, subscribers in order), order)

    def _publish(self, unit: Publish) -> Accepted:
        self._has_queue(unit.queue)
        if not unit.contents:
            raise Malformed("a batch without a message")
        if unit.only is not None:
            self.subscriber(unit.queue, unit.only)
        known: dict[int, int] = {}
        parents_of: dict[int, tuple[MessageId, ...]] = {}
        ids: list[MessageId] = []
        fresh: dict[MessageId, tuple[Message, tuple[MessageId, ...]]] = {}
        begin = len(self.reports) + 1
        for position, message in enumerate(messages_of(unit)):
            parents = tuple(ids[one] if isinstance(one, int) else one for one in message.parents)
            if parents:
                parents_of[position] = parents
            first = self._known(unit.queue, message, parents, fresh, position)
            if first is not None:
                known[position] = (
                    self.reports[first].sequence if first in self.reports else begin + [*fresh].index(first)
                )
                ids.append(first)
                continue
            for parent in parents:
                if parent not in self.reports and parent not in fresh:
                    raise UnknownParent(f"parent {id_text(parent)} was never accepted", line=position)
            id_ = make_message_id(time.time_ns() // 1_000_000, begin + len(fresh), KEY)
            fresh[id_] = message, parents
            ids.append(id_)
        for id_, (message, parents) in fresh.items():
            self.contents[id_] = message
            waits_for = tuple(one for one in parents if one not in self.reports or self.reports[one].state in OPEN)
            self.reports[id_] = _report(id_, len(self.reports) + 1, unit.queue, message, parents, waits_for)
        return Accepted(begin, b"".join(ids), self.sync, known, parents_of)

    def _known(
        self,
        queue: QueueName,
        message: Message,
        parents: tuple[MessageId, ...],
        fresh: dict[MessageId, tuple[Message, tuple[MessageId, ...]]],
        position: int,
    ) -> MessageId | None:
        """The first message with its idempotency key; raises ``IdempotencyConflict`` where that one is another."""
        if not message.idempotency_key:
            return None
        kept = {id_: (self.contents[id_], one.parents) for id_, one in self.reports.items() if one.queue == queue}
        for id_, (first, its) in {**kept, **fresh}.items():
            if first.idempotency_key == message.idempotency_key:
                if fingerprint(first, its) != fingerprint(message, parents):
                    raise IdempotencyConflict("used before", line=position)
                return id_
        return None

    def _has_queue(self, name: str) -> None:
        if name not in self.settings:
            raise UnknownQueue(f"there is no queue {name!r}; declare it first", queue=name)

    def _report_of(self, id_: MessageId) -> MessageReport:
        if id_ not in self.reports:
            raise UnknownMessage(f"there is no message {id_text(id_)}", id=id_text(id_))
        return self.reports[id_]

    # -- the view -------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueReport:
        self._breaks()
        self._has_queue(name)
        queue = QueueName(name)
        its = [one for one in self.reports.values() if one.queue == queue]
        waiting = [one for one in its if one.state in OPEN]
        return QueueReport(
            queue, self.settings[queue], len(self.declared.get(queue, ())), its[-1].sequence if its else 0,
            len(waiting), waiting[0].sequence if waiting else 0, 0, len(its), 0, 0, 0,
        )  # fmt: skip

    def queues(
        self, after: str | None, limit: int, text: str = "", may_see: Callable[[QueueName], bool] | None = None
    ) -> tuple[list[QueueReport], str | None]:
        names = sorted(name for name in self.settings if after is None or name > after)
        names = [one for one in names if text.lower() in one.lower() and (may_see is None or may_see(one))]
        return [self.queue(name) for name in names[:limit]], names[limit - 1] if len(names) > limit else None

    async def oldest_us(self, _reports: Sequence[QueueReport]) -> dict[QueueName, int]:
        return {}

    async def oldest_waiting(self, reports: Sequence[QueueReport]) -> dict[QueueName, MessageId]:
        sequences = {one.name: one.oldest_waiting for one in reports}
        return {one.queue: one.id for one in self.reports.values() if one.sequence == sequences.get(one.queue)}

    def subscribers(
        self, queue: str, after: str | None, limit: int, text: str = ""
    ) -> tuple[list[SubscriberReport], str | None]:
        self._breaks()
        self._has_queue(queue)
        names = sorted(id_ for id_ in self.declared.get(QueueName(queue), ()) if after is None or id_ > after)
        names = [one for one in names if text.lower() in one.lower()]
        found = [self.subscriber(queue, id_) for id_ in names[:limit]]
        return found, names[limit - 1] if len(names) > limit else None

    def subscriber(self, queue: str, id: str) -> SubscriberReport:  # noqa: A002 (the view's word)
        self._breaks()
        self._has_queue(queue)
        settings = self.declared.get(QueueName(queue), {}).get(SubscriberId(id))
        if settings is None:
            raise UnknownSubscriber(f"queue {queue!r} has no subscriber {id!r}", queue=queue, subscriber=id)
        state = "paused" if settings.paused else "active"
        nothing = (0,) * 7
        return SubscriberReport(
            QueueName(queue), SubscriberId(id), settings, 0, state, *nothing, 0, "", 0, 0
        )  # fmt: skip

    def exists(self) -> list[tuple[str, list[str]]]:
        """Each queue with its subscribers, as ``from_yaml`` is told."""
        return [(queue, [*self.declared.get(queue, ())]) for queue in self.settings]

    async def message(self, id: MessageId, pause: Pause | None = None) -> MessageReport:  # noqa: A002
        self._breaks()
        return self._report_of(id)

    def message_state(self, sequence: int) -> str:
        return next(one.state for one in self.reports.values() if one.sequence == sequence)

    def message_states(self, first: int, count: int) -> list[str]:
        return [self.message_state(sequence) for sequence in range(first, first + count)]

    async def content(self, id: MessageId) -> Content:  # noqa: A002
        await self.message(id)
        return Content(self.contents[id].content, self.contents[id].content_type)

    async def queues_of(self, ids: Sequence[MessageId]) -> list[QueueName | None]:
        self._breaks()
        return [self.reports[id_].queue if id_ in self.reports else None for id_ in ids]

    async def tree(
        self,
        id: MessageId,  # noqa: A002
        direction: str,
        depth: int,
        pause: Pause | None = None,
    ) -> TreeReport:
        nodes = {id: _node(await self.message(id), 0)}
        level = [id]
        for distance in range(1, depth + 2):
            level = [one for one in self._beyond(level, direction) if one not in nodes]
            if level and distance > depth:
                return TreeReport(tuple(nodes.values()), True)
            nodes |= {one: _node(self.reports[one], distance) for one in level}
        return TreeReport(tuple(nodes.values()), False)

    async def deliveries(
        self, sought: SoughtDeliveries, limit: int, pause: Pause | None = None
    ) -> Page[SubscribersDelivery]:
        queue, subscriber, after, through, _ = sought
        self.subscriber(queue, subscriber)
        found = [
            SubscribersDelivery(one.id, one.sequence, delivery)
            for one in self.reports.values()
            for delivery in one.deliveries
            if one.queue == queue and after < one.sequence <= (through or one.sequence)
        ]
        return Page(tuple(found[:limit]), None)

    async def critical_path(self, id: MessageId, pause: Pause | None = None) -> CriticalPathReport:  # noqa: A002
        one = await self.message(id)
        step = PathStep(
            one.id, one.sequence, one.queue, one.state, None, "", 1, one.time_us, one.time_us + 5, 0, 0, 0, 2, 3
        )
        return CriticalPathReport((step,), one.time_us, one.time_us + 5, 5, False)

    def _beyond(self, level: Sequence[MessageId], direction: str) -> list[MessageId]:
        if direction == "up":
            return [parent for one in level for parent in self.reports[one].parents]
        return [one.id for one in self.reports.values() if not set(level).isdisjoint(one.parents)]

    async def messages(
        self, queue: str, after: int, limit: int, state: str | None, pause: Pause | None = None
    ) -> Page[MessageReport]:
        self._breaks()
        if state is not None and state not in MESSAGE_STATES:
            raise Malformed(f"no message can be {state!r}", state=state)
        self._has_queue(queue)
        its = [one for one in self.reports.values() if one.queue == queue and one.sequence > after]
        found = [one for one in its if state in (None, one.state)]
        return Page(tuple(found[:limit]), found[limit - 1].sequence if len(found) > limit else None)

    async def find(self, key: str | None, idempotency_key: str | None, limit: int) -> tuple[MessageReport, ...]:
        return (await self.find_page(key, idempotency_key, None, limit)).items

    async def published_as(self, idempotency_key: str, limit: int) -> tuple[MessageId, ...]:
        return tuple(one.id for one in await self.find(None, idempotency_key, limit))

    async def find_page(
        self,
        key: str | None,
        idempotency_key: str | None,
        before: int | None,
        limit: int,
        pause: Pause | None = None,
    ) -> Page[MessageReport]:
        older = [one for one in self.reports.values() if before is None or one.sequence < before]
        newest_first = reversed(older)
        found = [
            one for one in newest_first if key in (None, one.key) and idempotency_key in (None, one.idempotency_key)
        ]
        return Page(tuple(found[:limit]), found[limit - 1].sequence if len(found) > limit else None)

    async def search(
        self,
        sought: Sought,
        position: int,
        limit: int,
        may_see: Callable[[QueueName], bool] | None = None,
        pause: Pause | None = None,
    ) -> Page[MessageReport]:
        """By queue and key alone."""
        if sought.queue is not None:
            self._has_queue(sought.queue)
        every = (await self.find_page(sought.key, sought.idempotency_key, position or None, limit)).items
        return Page(tuple(one for one in every if sought.queue in (None, one.queue)), None)

    async def history(
        self, queue: str | None, hours: int, may_see: Callable[[QueueName], bool] | None = None
    ) -> list[MinuteReport]:
        if queue is not None:
            self._has_queue(queue)
        return [MinuteReport(60_000_000, 1, 1, 0, 0, 0, 0, 1.5, None)]

    async def dead_letters(self, queue: str, after: int, limit: int, *, newest_first: bool = False) -> Page[DeadLetter]:
        """None has died: nothing was delivered."""
        self._breaks()
        self._has_queue(queue)
        return Page((), None)

    async def wait(self, ids: Sequence[MessageId], timeout_s: float) -> bool:
        self._breaks()
        for id_ in ids:
            self._report_of(id_)
        self.waited_s.append(timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                await self.ended.wait()
        except TimeoutError:
            return False
        return True

    def statistics_in_steps(self) -> Generator[None, None, SpaceReport]:
        yield
        return self.statistics()

    def statistics(self) -> SpaceReport:
        self._breaks()
        return SpaceReport(
            self.state,
            2_000_000,
            LogReport(self.sync, 9, 9, 1, 4096, 1, COMMITS, 9, 4096, False, False),
            DeliveryTotals(1, 2, 3, 4, 5, 6, 7),
            StartReport(1_000_000, True, 9, 0, 0.25),
            ProcessReport("0", "3.11", 1, 1.5, 1024, 8),
            tuple(self.queue(name) for name in self.settings),
            (),
            0,
            0,
        )  # fmt: skip

    def _breaks(self) -> None:
        if self.break_with is not None:
            raise self.break_with


def _node(report: MessageReport, distance: int) -> TreeNode:
    return TreeNode(report.id, report.sequence, report.queue, report.state, distance, report.parents)


def _report(
    id_: MessageId,
    sequence: int,
    queue: QueueName,
    message: Message,
    parents: tuple[MessageId, ...],
    waits_for: tuple[MessageId, ...],
) -> MessageReport:
    state = "waiting" if waits_for else "scheduled" if message.delay_us or message.due_us else "pending"
    policy = "fail" if message.parent_failure is None else message.parent_failure.name.lower()
    return MessageReport(
        id_, sequence, queue, state, time.time_ns() // 1000, parents, waits_for, "", message.key,
        message.idempotency_key, "all", policy, message.due_us, message.expires_us, sequence, 0,
        message.content_type, len(message.content), message.headers,
    )  # fmt: skip
