"""A dispatcher with a small scheduler and a handler around it, which do what a test says."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager

from syncbrok.delivery.attempt_guard import AttemptGuard
from syncbrok.delivery.dispatch.dispatcher import Dispatcher
from syncbrok.delivery.handler import Attempt, AttemptResult, Delivery, Destination, Done
from syncbrok.delivery.scheduler.batches import Batches
from syncbrok.delivery.scheduler.shares import own_shares
from syncbrok.delivery.scheduler.state import SchedulerState
from syncbrok.model.errors import UnknownSubscriber
from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Reason, Row, StoredMessage
from tests.support.delivery.endpoint import TIME_US, message, subscriber
from tests.support.delivery.leader import HeldLease

OK = AttemptResult(Reason.NONE, 200)


class Schedule:
    """A small scheduler: hands out what it was given, a failed attempt again after a second."""

    def __init__(self) -> None:
        self.batches = Batches(SchedulerState())
        self.ready: deque[tuple[int, int]] = deque()
        self.later: list[tuple[int, int, int]] = []
        self.dying: deque[int] = deque()
        self.ended: dict[int, set[int]] = {}
        """what ``given_up`` will tell"""
        self.over: set[int] = set()
        """messages of which no attempt stands"""
        self.back: list[int] = []
        self.families: dict[int, list[int]] = {}
        self.out: set[tuple[int, int]] = set()
        self.takes: list[int] = []
        self.settled: list[tuple[Attempt, AttemptResult, float]] = []

    def give(self, *messages: int, to: int = 1) -> None:
        self.ready.extend((sequence, to) for sequence in messages)

    def take(self, now_us: int, durable: int, limit: int) -> list[Attempt]:
        self.takes.append(limit)
        due = [entry for entry in self.later if entry[0] <= now_us]
        self.later = [entry for entry in self.later if entry[0] > now_us]
        self.ready.extend((sequence, number) for _, sequence, number in due)
        taken = [self.ready.popleft() for _ in range(min(limit, len(self.ready)))]
        self.out |= set(taken)
        return [Attempt(sequence, number, 1, durable, now_us, 0) for sequence, number in taken]

    def settle(
        self, answers: Sequence[tuple[Attempt, AttemptResult]], now_us: int, jitter: Callable[[], float]
    ) -> tuple[list[Row], bool]:
        return [self.settle_one(attempt, answer, now_us, jitter) for attempt, answer in answers], False

    def settle_one(self, attempt: Attempt, answer: AttemptResult, now_us: int, jitter: Callable[[], float]) -> Row:
        self.out.remove((attempt.message, attempt.subscriber))
        self.settled.append((attempt, answer, 0.0 if answer.reason is Reason.NONE else jitter()))
        outcome, due_us = Outcome.DELIVERED, 0
        if answer.reason is Reason.UNSUBSCRIBED:
            outcome = Outcome.LATE
        elif answer.reason is Reason.CONTENT_LOST:
            outcome = Outcome.DEAD
        elif answer.reason is not Reason.NONE:
            outcome, due_us = Outcome.FAILED, now_us + 1_000_000
            self.later.append((due_us, attempt.message, attempt.subscriber))
        return Row(attempt.message, attempt.subscriber, 1, outcome, answer.reason, 0, 0, due_us, attempt.after, 0)

    def upcoming(self, subscriber: int, limit: int) -> Sequence[int]:
        return [sequence for sequence, number in self.ready if number == subscriber][:limit]

    def children(self, message: int, limit: int) -> Sequence[int]:
        return self.families.get(message, [])[:limit]

    def take_pending_ends(self, now_us: int, limit: int) -> list[Row]:
        dead = [self.dying.popleft() for _ in range(min(limit, len(self.dying)))]
        return [Row(m, ALL_SUBSCRIBERS, 0, Outcome.DEAD, Reason.PARENT_FAILED, 0, now_us, 0, 0, 0) for m in dead]

    @property
    def owes_ends(self) -> bool:
        return bool(self.dying)

    def given_up(self) -> dict[int, set[int]]:
        given_up, self.ended = self.ended, {}
        return given_up

    def stands(self, attempt: Attempt) -> bool:
        return attempt.message not in self.over

    def give_back(self, attempts: Sequence[Attempt]) -> None:
        self.back += [attempt.message for attempt in attempts]

    def next_due_us(self) -> int | None:
        return min((due for due, _, _ in self.later), default=None)


class Post:
    """A handler that keeps what it gets; ``answer`` answers at once (in the next turn), None lets it wait."""

    def __init__(self, answer: Callable[[Delivery], AttemptResult | None]) -> None:
        self.answer = answer
        self.calls: list[list[int]] = []
        self.withdrawn: list[tuple[int, set[int]]] = []
        self.waiting: list[tuple[Delivery, Done]] = []

    def deliver(self, deliveries: Sequence[Delivery], done: Done) -> None:
        self.calls.append([delivery.attempt.message for delivery in deliveries])
        for delivery in deliveries:
            assert delivery.attempt.subscriber == delivery.to.subscriber.number
            answer = self.answer(delivery)
            if answer is None:
                self.waiting.append((delivery, done))
            else:
                asyncio.get_running_loop().call_soon(done, delivery, answer)

    def make_ready(self, delivery: Delivery) -> None:
        """Nothing is made ahead."""

    def withdraw(self, subscriber: int, messages: Collection[int]) -> None:
        self.withdrawn.append((subscriber, set(messages)))

    def forget(self, subscriber: int) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is open."""


class World:
    """A dispatcher with everything around it. Messages 1..99 are in memory, others are read."""

    def __init__(self, answer: Callable[[Delivery], AttemptResult | None] = lambda _: OK) -> None:
        self.schedule = Schedule()
        self.post = Post(answer)
        self.rows: list[list[Row]] = []
        self.reads: list[list[int]] = []
        self.lost: set[int] = set()
        self.unknown: set[int] = set()
        self.content = b"hello"
        self.read_most = 1 << 20
        """messages that one read answers with"""
        self.now_us = TIME_US
        self.endpoint = "http://h/"
        self.held: set[int] | None = None
        """whose reads wait for ``reading``; None: all"""
        self.reading = asyncio.Event()
        self.reading.set()
        self.shares = own_shares()
        self.lease = HeldLease()
        self.attempt_guard = AttemptGuard(self.lease)
        self.dispatcher = Dispatcher(
            self.schedule,
            lambda _: self.post,
            self.read,
            lambda sequences: [message(one, self.content) if one < 100 else None for one in sequences],
            lambda one: one < 100,
            lambda rows, _: self.rows.append(rows),
            self.destination,
            lambda: 7,
            lambda: self.now_us,
            lambda: 0.5,
            self.shares,
            self.attempt_guard,
        )

    async def read(self, sequences: Sequence[int]) -> list[StoredMessage | None]:
        self.reads.append(list(sequences))
        if self.held is None or self.held & set(sequences):
            await self.reading.wait()
        some = sequences[: self.read_most]
        return [None if sequence in self.lost else message(sequence, self.content) for sequence in some]

    def destination(self, number: int) -> Destination:
        if number in self.unknown:
            raise UnknownSubscriber("it is gone")
        return Destination(subscriber(self.endpoint, number=number), "orders", 15.0)

    @property
    def recorded(self) -> list[tuple[int, Outcome]]:
        return [(row.message, row.outcome) for rows in self.rows for row in rows]


@asynccontextmanager
async def running(world: World) -> AsyncIterator[World]:
    run = asyncio.create_task(world.dispatcher.run())
    await asyncio.sleep(0)
    yield world
    await world.dispatcher.drain(10.0)
    await run
