"""A Space of real parts in a temporary directory, and a consumer that tests hold in their hand."""

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from syncbrok.delivery.consumers import Consumers
from syncbrok.delivery.handler import AttemptResult, Delivery, Done
from syncbrok.log.journal import FileJournal, FileOptions
from syncbrok.log.reading.recent import OpeningBatch
from syncbrok.model.errors import LogFailed, LogFull
from syncbrok.model.facts import Reason
from syncbrok.model.message import Message, QueueSettings, RetryPolicy, SubscriberSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId
from syncbrok.space.channels import Accepted, Declared, DeclareQueue, Publish, Subscribe
from syncbrok.space.space import OpenJournal, Space, SpaceOptions
from tests.support.log.journals import split

ACKNOWLEDGED = AttemptResult(Reason.NONE, 200)
REFUSED = AttemptResult(Reason.STATUS, 500)
GONE = AttemptResult(Reason.GONE, 410)
NEVER_AGAIN = QueueSettings(retry=RetryPolicy((), 0.0))
"""one attempt, then a dead letter"""


class Consumer:
    """A handler in the test's own process. ``answer`` decides at once; None: the test does later, by ``release``."""

    def __init__(self, answer: Callable[[Delivery], AttemptResult | None] = lambda _: ACKNOWLEDGED) -> None:
        self.answer = answer
        self.seen: list[tuple[bytes, str]] = []
        """(content, subscriber id) of every attempt, in the order begun"""
        self.deliveries: list[Delivery] = []
        self.held: list[tuple[Delivery, Done]] = []
        self.forgotten: list[int] = []
        self.made_ready: list[tuple[bytes, str]] = []
        self.closed = False

    @property
    def contents(self) -> list[bytes]:
        return [content for content, _ in self.seen]

    def deliver(self, deliveries: Sequence[Delivery], done: Done) -> None:
        for delivery in deliveries:
            self.seen.append((delivery.message.content, delivery.to.subscriber.id))
            self.deliveries.append(delivery)
            answer = self.answer(delivery)
            if answer is None:
                self.held.append((delivery, done))
            else:
                asyncio.get_running_loop().call_soon(done, delivery, answer)

    def release(self, answer: AttemptResult = ACKNOWLEDGED) -> None:
        """Answer everything that is held."""
        held, self.held = self.held, []
        for delivery, done in held:
            done(delivery, answer)

    def make_ready(self, delivery: Delivery) -> None:
        self.made_ready.append((delivery.message.content, delivery.to.subscriber.id))

    def withdraw(self, subscriber: int, messages: Collection[int]) -> None:
        """What is held has begun."""

    def forget(self, subscriber: int) -> None:
        self.forgotten.append(subscriber)

    async def close(self) -> None:
        self.closed = True
        self.release(AttemptResult(Reason.CONNECT))


class FaultyJournal(FileJournal):
    """The real one, whose disk is full or breaks when the test says so."""

    room = True
    """False: nothing fits; essential batches neither once ``reserve`` is 0"""
    reserve = 0
    broken = False
    copy_to: Path | None = None
    """after the next write: what a crash at that moment leaves on the disk"""
    batches: list[int]

    def append(self, batch: Any, *, essential: bool = False) -> None:
        if not hasattr(self, "batches"):
            self.batches = []
        if isinstance(batch, OpeningBatch):
            super().append(batch, essential=essential)
            return
        if self.broken:
            raise LogFailed("the disk is broken, says the test")
        if not self.room:
            if not (essential and self.reserve > 0):
                raise LogFull("the disk is full, says the test")
            self.reserve -= 1
        before = self.next_sequence
        super().append(batch, essential=essential)
        self.batches.append(self.next_sequence - before)
        if self.copy_to is not None:
            shutil.copytree(self._directory, self.copy_to)
            self.copy_to = None

    def has_room(self) -> bool:
        return self.room and super().has_room()


class Clock:
    """Unix time in microseconds that passes by itself, and jumps when the test says so."""

    def __init__(self, now_us: int = 1_700_000_000_000_000) -> None:
        self.offset_us = now_us
        self._ticks = itertools.count()

    def __call__(self) -> int:
        return self.offset_us + next(self._ticks)

    def forward(self, seconds: float) -> None:
        self.offset_us += int(seconds * 1e6)


def forget_checkpoints(directory: Path) -> None:
    for file in directory.glob("checkpoint*"):
        file.unlink()


class Running:
    """A Space that runs, with the words a test speaks to it in."""

    def __init__(self, space: Space, consumer: Consumer) -> None:
        self.space = space
        self.view = space.view
        self.consumer = consumer

    async def put(self, item: Any) -> Any:
        """To the channel it belongs to; its receipt's result."""
        kind = type(item).__name__
        channels = self.space.channels
        if "Queue" in kind:
            return await channels.queues.put(item)
        if "ubscri" in kind or kind == "RotateSecret":
            return await channels.subscribers.put(item)
        return await channels.messages.put(item)

    async def queue(self, name: str, settings: QueueSettings = NEVER_AGAIN, subscribers: Sequence[str] = ()) -> None:
        await self.put(DeclareQueue(QueueName(name), settings))
        for subscriber in subscribers:
            await self.subscribe(name, subscriber)

    async def subscribe(self, queue: str, name: str, **settings: Any) -> Declared:
        asked = {key: settings.pop(key) for key in ("secret", "start", "applied", "credentials") if key in settings}
        declared = SubscriberSettings(f"test:{name}", name=SubscriberId(name), **settings)
        return await self.put(Subscribe(QueueName(queue), declared, **asked))

    async def publish(self, queue: str, content: bytes, *parents: MessageId, **fields: Any) -> MessageId:
        return (await self.publish_all(queue, Message(content, parents=parents, **fields))).ids[0]

    async def publish_all(self, queue: str, *messages: Message) -> Accepted:
        return await self.put(Publish.of(QueueName(queue), messages))

    async def states(self, *ids: MessageId) -> list[str]:
        return [(await self.view.message(id_)).state for id_ in ids]

    async def ended(self, *ids: MessageId) -> None:
        assert await self.view.wait(ids, 10.0), [await self.states(*ids)]


def consumers_of(space: Space) -> Consumers:
    """The handler of those who come for their messages, as the broker makes it."""
    dispatcher, budgets = space.dispatcher, space.budgets
    charge = budgets.shares.content.charge
    return Consumers(dispatcher.offer, dispatcher.awaited, budgets.leases, dispatcher.written, charge=charge)


@asynccontextmanager
async def running_space(
    directory: Path,
    consumer: Consumer | None = None,
    *,
    clock_us: Callable[[], int] | None = None,
    open_journal: OpenJournal = FaultyJournal.open,
    drain_s: float = 1.0,
    **journal: Any,
) -> AsyncIterator[Running]:
    """Opened, serving; drained at the end. What ``run`` raises is raised."""
    general, in_files = split(**journal)
    if in_files:
        open_journal = partial(open_journal, in_files=FileOptions(**in_files))
    options = SpaceOptions(general, drain_s)
    more: dict[str, Any] = {} if clock_us is None else {"clock_us": clock_us}
    space = Space.open(directory, options, open_journal=open_journal, **more)
    running = Running(space, consumer or Consumer())
    space.handle("test", running.consumer)
    serving = asyncio.create_task(space.run())
    try:
        yield running
    finally:
        await space.drain()
        await serving


def journal_of(running: Running) -> FaultyJournal:
    journal = running.space._journal
    assert isinstance(journal, FaultyJournal)
    return journal
