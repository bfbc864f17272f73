"""The end of the dispatcher: what is out is waited for, what was never begun stays pending, nothing is recorded
twice."""

import asyncio

import pytest

from syncbrok.delivery.dispatch.message_loader import READ_RUN_MAX
from syncbrok.delivery.handler import AttemptResult
from syncbrok.model.errors import LogFailed
from syncbrok.model.facts import Outcome, Reason
from tests.support.delivery.dispatchers import OK, World
from tests.support.polling import eventually


async def test_drain_waits_for_what_is_out_and_takes_nothing_new() -> None:
    """DESIGN, shutdown: no new attempts; those in flight are recorded; ``run`` returns."""
    world = World(lambda _: None)
    run = asyncio.create_task(world.dispatcher.run())
    world.schedule.give(1, 2)
    await eventually(lambda: len(world.post.waiting) == 2, "both are out")
    drain = asyncio.create_task(world.dispatcher.drain(10.0))
    await asyncio.sleep(0)
    world.schedule.give(3)
    world.dispatcher.wake()
    for delivery, done in world.post.waiting:
        done(delivery, OK)
    await drain
    await run
    assert world.recorded == [(1, Outcome.DELIVERED), (2, Outcome.DELIVERED)]
    assert list(world.schedule.ready) == [(3, 1)]


async def test_drain_gives_up_in_time_and_what_is_out_stays_pending() -> None:
    """Shutdown: what has not come back within the bound is not recorded; also not later."""
    world = World(lambda _: None)
    world.reading.clear()
    run = asyncio.create_task(world.dispatcher.run())
    world.schedule.give(1, 2, 300, 301)
    await eventually(lambda: len(world.post.waiting) == 2 and world.reads, "two are out, two are being read")
    delivery, done = world.post.waiting.pop()
    done(delivery, OK)
    await world.dispatcher.drain(0.05)
    await run
    assert world.recorded == [(2, Outcome.DELIVERED)]
    for late, done in world.post.waiting:
        done(late, AttemptResult(Reason.CONNECT, detail=b"the broker is stopping"))
    world.dispatcher.wake()
    await asyncio.sleep(0)
    assert world.recorded == [(2, Outcome.DELIVERED)]


async def test_drain_before_run_ends_it() -> None:
    """A Space that is stopped while it starts stops."""
    world = World()
    await world.dispatcher.drain(1.0)
    await world.dispatcher.run()
    assert world.schedule.takes == []


async def test_drain_does_not_wait_for_what_was_never_begun() -> None:
    """Attempts that were taken and not yet read are not in flight for the world: they stay pending."""
    world = World()
    world.reading.clear()
    run = asyncio.create_task(world.dispatcher.run())
    world.schedule.give(*range(200, 200 + 3 * READ_RUN_MAX))
    await eventually(lambda: len(world.reads) == 2 and world.dispatcher.in_flight > 2 * READ_RUN_MAX, "some are unread")
    drain = asyncio.create_task(world.dispatcher.drain(60.0))
    await asyncio.sleep(0)
    world.reading.set()
    await eventually(drain.done, "the end of the drain")
    await run
    assert (world.recorded, world.post.calls, world.dispatcher.in_flight) == ([], [], 0)


@pytest.mark.parametrize("before", range(5))
@pytest.mark.parametrize("after", range(5))
async def test_cancelled_at_any_moment_each_outcome_is_recorded_once(before: int, after: int) -> None:
    """What was answered before ``run`` ended is recorded, once; what comes later is not."""
    world = World(lambda _: None)
    run = asyncio.create_task(world.dispatcher.run())
    world.schedule.give(1, 2, 150)
    await eventually(lambda: len(world.post.waiting) == 3, "all are out")
    answered = []
    delivery, done = world.post.waiting.pop()
    done(delivery, OK)
    for _ in range(before):
        await asyncio.sleep(0)
    run.cancel()
    for turn in range(10):
        if turn == after and not run.done():
            answered = [delivery.attempt.message for delivery, _ in world.post.waiting]
            for delivery, done in world.post.waiting:
                done(delivery, OK)
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await run
    assert [sequence for sequence, _ in world.recorded] == [150, *answered]


@pytest.mark.parametrize("where", ["take", "settle", "take_pending_ends", "next_due_us", "read", "recorded"])
async def test_a_failure_inside_ends_run_with_its_cause(where: str) -> None:
    """Exceptions always propagate: a broken log or scheduler stops the Space, it is not only logged."""
    world = World()

    def broken(*_: object) -> None:
        raise LogFailed("the disk is gone")

    owner = {"read": world.dispatcher._loader, "recorded": world.dispatcher}.get(where, world.schedule)
    name = where if owner is world.schedule else f"_{where}"
    assert hasattr(owner, name), "or nothing breaks, and run goes on for ever"
    setattr(owner, name, broken)
    world.schedule.give(1, 150)
    with pytest.raises(LogFailed, match="the disk is gone"):
        await world.dispatcher.run()
