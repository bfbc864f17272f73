"""A Space in memory, for what a real one cannot be brought to do at will: refuse with each error in turn, break, be
slow, have deliveries in every state. It keeps queues, subscribers and messages; it delivers nothing and logs nothing.
"""

import asyncio
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from syncbrok.model.errors import (
    Conflict,
    Gone,
    IdempotencyConflict,
    SyncbrokError,
    UnknownMessage,
    UnknownParent,
    UnknownQueue,
    UnknownSubscriber,
)
from syncbrok.model.message import Message, QueueSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId, id_text, make_message_id
from syncbrok.space.channels import (
    Accepted,
    Cancel,
    Channels,
    Declared,
    DeclareQueue,
    Publish,
    PublishListener,
    Replay,
    ReplayPlan,
    Subscribe,
)
from syncbrok.space.reports import (
    Content,
    DeadLetter,
    DeliveryReport,
    DeliveryTotals,
    Histogram,
    LogReport,
    MessageReport,
    Page,
    ProcessReport,
    QueueReport,
    SpaceReport,
    StartReport,
    SubscriberReport,
    TreeNode,
    TreeReport,
)

KEY = bytes(range(16))
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
        self.reports: dict[MessageId, MessageReport] = {}
        self.contents: dict[MessageId, Message] = {}
        self.gone: set[MessageId] = set()
        self.ended = asyncio.Event()
        self.waited_s: list[float] = []
        self.dead: list[DeadLetter] = []
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

    def put_shared(self, unit: Publish, whose: Any, listener: PublishListener) -> None:
        """As ``put``; the listener hears of each alone."""
        receipt = self.put(unit)

        def tell(settled: "asyncio.Future[Accepted]") -> None:
            if settled.cancelled():
                listener.refused([whose], asyncio.CancelledError())
            elif (why := settled.exception()) is not None:
                listener.refused([whose], why)
            else:
                listener.accepted([unit], [whose], settled.result())

        receipt.add_done_callback(tell)

    def _work(self, item: Any) -> Any:
        match item:
            case Publish():
                return self._publish(item)
            case DeclareQueue():
                known = self.settings.setdefault(item.name, item.settings)
                if known != item.settings:
                    raise Conflict(f"queue {item.name!r} differs")
                return Declared("created", item.name)
            case Subscribe():
                return Declared("created", "s-1")
            case Cancel():
                return 1
            case Replay():
                return ReplayPlan(0 if item.dry_run else 7, 1, 2, ((item.id or b"", (SubscriberId("billing"),)),))
        raise NotImplementedError(item)

    def _publish(self, unit: Publish) -> Accepted:
        self.queue(unit.queue)
        ids: list[MessageId] = []
        known: dict[int, int] = {}
        parents_of: dict[int, tuple[MessageId, ...]] = {}
        begin = len(self.reports) + 1
        fresh: dict[MessageId, tuple[Message, tuple[MessageId, ...]]] = {}
        for position, message in enumerate(messages_of(unit)):
            parents = tuple(ids[one] if isinstance(one, int) else one for one in message.parents)
            if parents:
                parents_of[position] = parents
            first = self._known(unit.queue, message)
            if first is not None:
                if self.contents[first].content != message.content:
                    raise IdempotencyConflict("used before", line=position)
                known[position] = self.reports[first].sequence
                ids.append(first)
                continue
            for parent in parents:
                if parent not in self.reports and parent not in fresh:
                    raise UnknownParent(f"parent {id_text(parent)} was never accepted", line=position)
            sequence = begin + len(fresh)
            id_ = make_message_id(time.time_ns() // 1_000_000, sequence, KEY)
            fresh[id_] = message, parents
            ids.append(id_)
        for id_, (message, parents) in fresh.items():
            self.contents[id_] = message
            self.reports[id_] = _report(id_, len(self.reports) + 1, unit.queue, message, parents)
        return Accepted(begin, b"".join(ids), self.sync, known, parents_of)

    def _known(self, queue: QueueName, message: Message) -> MessageId | None:
        for id_, report in self.reports.items():
            if message.idempotency_key and (report.queue, report.idempotency_key) == (queue, message.idempotency_key):
                return id_
        return None

    # -- the view -------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> QueueReport:
        self._breaks()
        if name not in self.settings:
            raise UnknownQueue(f"there is no queue {name!r}; declare it first", queue=name)
        return QueueReport(QueueName(name), self.settings[QueueName(name)], 0, 0, 0, None, 0, 0, 0, 0, 0)

    def queues(self, after: str | None, limit: int) -> tuple[list[QueueReport], str | None]:
        names = sorted(name for name in self.settings if after is None or name > after)
        return [self.queue(name) for name in names[:limit]], names[limit - 1] if len(names) > limit else None

    def subscribers(self, queue: str, _after: str | None, _limit: int) -> tuple[list[SubscriberReport], str | None]:
        self.queue(queue)
        return [], None

    def subscriber(self, queue: str, id_: str) -> SubscriberReport:
        self.queue(queue)
        raise UnknownSubscriber(f"queue {queue!r} has no subscriber {id_!r}")

    async def message(self, id_: MessageId) -> MessageReport:
        self._breaks()
        if id_ in self.gone:
            raise Gone("retention has dropped it")
        if id_ not in self.reports:
            raise UnknownMessage(f"there is no message {id_text(id_)}", id=id_text(id_))
        return self.reports[id_]

    def message_state(self, sequence: int) -> str:
        return next(one.state for one in self.reports.values() if one.sequence == sequence)

    def message_states(self, first: int, count: int) -> list[str]:
        return [self.message_state(sequence) for sequence in range(first, first + count)]

    async def content(self, id_: MessageId) -> Content:
        await self.message(id_)
        return Content(self.contents[id_].content, self.contents[id_].content_type)

    async def tree(self, id_: MessageId, direction: str, depth: int) -> TreeReport:
        report = await self.message(id_)
        return TreeReport((TreeNode(id_, report.sequence, report.queue, report.state, 0, report.parents),), False)

    async def messages(self, queue: str, after: int, limit: int, state: str | None) -> Page[MessageReport]:
        self.queue(queue)
        found = [one for one in self.reports.values() if one.sequence > after and state in (None, one.state)]
        return Page(tuple(found[:limit]), found[limit - 1].sequence if len(found) > limit else None)

    async def find(self, key: str | None, idempotency_key: str | None, limit: int) -> tuple[MessageReport, ...]:
        return (await self.find_page(key, idempotency_key, None, limit)).items

    async def find_page(
        self, key: str | None, idempotency_key: str | None, before: int | None, limit: int
    ) -> Page[MessageReport]:
        older = [one for one in self.reports.values() if before is None or one.sequence < before]
        newest_first = reversed(older)
        found = [
            one for one in newest_first if key in (None, one.key) and idempotency_key in (None, one.idempotency_key)
        ]
        return Page(tuple(found[:limit]), found[limit - 1].sequence if len(found) > limit else None)

    async def dead_letters(self, queue: str, after: int, limit: int) -> Page[DeadLetter]:
        self.queue(queue)
        return Page(tuple(self.dead[:limit]), None)

    async def wait(self, ids: Sequence[MessageId], timeout_s: float) -> bool:
        self._breaks()
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

    def deliver(self, id_: MessageId, *deliveries: DeliveryReport, state: str) -> None:
        """Let the message have these deliveries and this state."""
        self.reports[id_] = replace(self.reports[id_], deliveries=deliveries, state=state)

    def _breaks(self) -> None:
        if self.break_with is not None:
            raise self.break_with


def _report(
    id_: MessageId, sequence: int, queue: QueueName, message: Message, parents: tuple[MessageId, ...]
) -> MessageReport:
    state = "waiting" if parents else "scheduled" if message.delay_us or message.due_us else "pending"
    return MessageReport(
        id_, sequence, queue, state, time.time_ns() // 1000, parents, parents, "", message.key, message.idempotency_key,
        "all", "fail", message.due_us, message.expires_us, sequence, 0, message.content_type, len(message.content),
        message.headers,
    )  # fmt: skip
