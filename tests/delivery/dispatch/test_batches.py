"""RULES 36: what the dispatcher does with those that go out together, until they are recorded."""

import asyncio
from collections.abc import Callable

from syncbrok.delivery.dispatch.dispatcher import ANSWERS_PER_TURN
from syncbrok.delivery.handler import NEVER, AttemptResult, Delivery, Destination, members_of
from syncbrok.delivery.scheduler.cursor import Backlog, Cursor
from syncbrok.model.facts import Reason
from syncbrok.model.message import BatchPolicy
from tests.support.delivery.dispatchers import World, running
from tests.support.delivery.endpoint import subscriber
from tests.support.polling import eventually

LOOP = AttemptResult(Reason.STATUS, 409, NEVER)


class Batching(World):
    """Its one subscriber has a batch."""

    def __init__(
        self, policy: BatchPolicy, answer: Callable[[Delivery], AttemptResult | None] = lambda _: None
    ) -> None:
        self.to = Destination(subscriber("http://h/", batch=policy), "orders", 15.0)
        super().__init__(answer)
        cursor = Cursor(self.to.subscriber, Backlog(), 64)
        cursor.set_window(64)
        self.schedule.batches._state.cursors[1] = cursor

    def destination(self, number: int) -> Destination:
        return self.to

    @property
    def waiting(self) -> int:
        return len(self.schedule.batches)


async def test_what_waits_is_withdrawn_alone() -> None:
    """RULES 9 and 36: one that is to end is taken back at once, and the others wait on."""
    async with running(Batching(BatchPolicy(9, 5.0))) as world:
        world.schedule.give(1, 2, 3)
        world.dispatcher.wake()
        await eventually(lambda: world.waiting == 3, "three in line")
        world.schedule.ended = {1: {2}}
        world.dispatcher.wake()
        await eventually(lambda: world.waiting == 2, "one less")
        assert (world.schedule.back, world.dispatcher.in_flight) == ([2], 2)
        world.dispatcher.forget([3])
        assert (world.schedule.back, world.dispatcher.in_flight) == ([2, 3], 1)
        assert not world.post.calls


async def test_a_stop_does_not_wait_for_what_has_not_begun() -> None:
    """DESIGN 1, at least once: what stands in line at the end was never begun, and nothing waits for it."""
    world = Batching(BatchPolicy(9, 5.0))
    run = asyncio.create_task(world.dispatcher.run())
    await asyncio.sleep(0)
    world.schedule.give(1, 2)
    world.dispatcher.wake()
    await eventually(lambda: world.waiting == 2, "two in line")
    await asyncio.wait_for(world.dispatcher.drain(60.0), 5.0)
    await run
    assert (world.dispatcher.in_flight, world.schedule.back, world.rows) == (0, [1, 2], [])


async def test_the_rows_of_a_batch_are_recorded_together() -> None:
    """RULES 36: in one piece, though they are more than a turn settles; each with its place in the request."""
    most = ANSWERS_PER_TURN + 40
    async with running(Batching(BatchPolicy(most, 5.0), lambda _: AttemptResult(Reason.NONE, 200))) as world:
        world.schedule.give(*range(1, most + 1))
        world.dispatcher.wake()
        await eventually(lambda: bool(world.rows), "the rows")
        assert [len(rows) for rows in world.rows] == [most]
        answers = [answer for _, answer, _ in world.schedule.settled]
        assert [one.place for one in answers] == list(range(most))
        assert {one.together for one in answers} == {most}
        assert world.dispatcher.in_flight == 0


async def test_a_loop_ends_only_what_went_alone() -> None:
    """RULES 36: one message that goes round does not end those beside it."""
    sizes: list[int] = []

    def answer(delivery: Delivery) -> AttemptResult:
        sizes.append(len(members_of(delivery)))
        return LOOP

    for count, then in ((2, None), (1, NEVER)):
        async with running(Batching(BatchPolicy(count, 5.0), answer)) as world:
            world.schedule.give(*range(1, count + 1))
            world.dispatcher.wake()
            await eventually(lambda: bool(world.rows), "the rows")
            assert {answer.retry_after_s for _, answer, _ in world.schedule.settled} == {then}
    assert sizes == [2, 1]
