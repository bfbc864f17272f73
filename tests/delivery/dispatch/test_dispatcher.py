"""The dispatcher: takes what the scheduler gives, hands it to handlers, records each outcome once."""

import asyncio
from collections import deque

import pytest

from syncbrok.delivery.dispatch.dispatcher import ATTEMPTS_PER_TURN
from syncbrok.delivery.dispatch.message_loader import READ_RUN_MAX
from syncbrok.delivery.handler import AttemptResult
from syncbrok.model import limits
from syncbrok.model.facts import Outcome, Reason
from tests.support.delivery.dispatchers import OK, Post, World, running
from tests.support.polling import eventually


async def test_attempts_go_out_and_outcomes_are_recorded() -> None:
    """DESIGN 3: attempts -> dispatcher -> handler -> outcome. One call of a handler and one list of rows a turn."""
    async with running(World()) as world:
        world.schedule.give(1, 2, 3)
        world.schedule.give(4, 5, to=2)
        for _ in range(5):
            world.dispatcher.wake()
        await eventually(lambda: len(world.recorded) == 5, "five rows")
        assert world.post.calls == [[1, 2, 3, 4, 5]]
        assert len(world.rows) == 1
        assert {outcome for _, outcome in world.recorded} == {Outcome.DELIVERED}
        assert {row.after for row in world.rows[0]} == {7}
        assert (world.dispatcher.in_flight, world.dispatcher.bytes_in_flight) == (0, 0)


async def test_nothing_to_do_is_no_work() -> None:
    """An idle broker is idle: without a wake or a due time the scheduler is not asked."""
    async with running(World()) as world:
        await eventually(lambda: world.schedule.takes, "the first turn")
        before = len(world.schedule.takes)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(world.schedule.takes) == before


async def test_nothing_is_taken_while_the_lease_does_not_hold() -> None:
    """CLUSTER, R5: a node that leads no more takes no attempt; one that leads again goes on by itself."""
    async with running(World()) as world:
        world.lease.held = False
        world.schedule.give(1, 2)
        world.dispatcher.wake()
        await eventually(lambda: world.attempt_guard.withheld > 2, "it looks again and again")
        assert not world.schedule.takes
        assert not world.post.calls
        world.lease.held = True
        await eventually(lambda: len(world.recorded) == 2, "both rows")


async def test_a_turn_is_bounded_and_the_next_follows() -> None:
    """A slice of work yields to the loop: publishers are answered while a backlog goes out."""
    async with running(World()) as world:
        world.schedule.give(*([50] * 1_000))
        world.schedule.ready = deque((50, number) for number in range(1_000))
        world.dispatcher.wake()
        await eventually(lambda: len(world.recorded) == 1_000, "all of them")
        assert max(world.schedule.takes) <= ATTEMPTS_PER_TURN
        assert len(world.rows) >= 1_000 // ATTEMPTS_PER_TURN


async def test_retries_are_taken_when_they_are_due() -> None:
    """The dispatcher's one timer rings at the scheduler's next due time; failures get the jitter."""
    async with running(World(lambda d: AttemptResult(Reason.STATUS, 500) if d.attempt.message == 2 else OK)) as world:
        world.schedule.give(1, 2)
        world.dispatcher.wake()
        await eventually(lambda: len(world.recorded) == 2, "both rows")
        assert [jitter for _, _, jitter in world.schedule.settled] == [0.0, 0.5]
        world.post.answer = lambda _: OK
        world.now_us += 1_000_000
        await eventually(lambda: len(world.recorded) == 3, "the retry, by the timer alone")
        assert world.recorded == [(1, Outcome.DELIVERED), (2, Outcome.FAILED), (2, Outcome.DELIVERED)]


async def test_what_the_rules_owe_is_recorded_in_slices() -> None:
    """RULES 20: large cascades are worked in slices; each row is recorded once."""
    async with running(World()) as world:
        count = limits.cascade_slice * 2 + 10
        world.schedule.dying.extend(range(count))
        world.dispatcher.wake()
        await eventually(lambda: len(world.recorded) >= count, "all of them")
        assert [len(rows) for rows in world.rows] == [limits.cascade_slice, limits.cascade_slice, 10]
        assert [sequence for sequence, _ in world.recorded] == list(range(count))


async def test_what_is_not_in_memory_is_read_in_runs() -> None:
    """DESIGN 5: a backlog is read in runs, each message once for all its subscribers, and in order."""
    async with running(World()) as world:
        for number in (1, 2):
            world.schedule.give(*range(200, 170, -1), to=number)
        world.schedule.give(1)
        world.dispatcher.wake()
        await eventually(lambda: len(world.recorded) == 61, "all of them")
        assert world.post.calls[0] == [1], "what is in memory does not wait for what is not"
        for run in world.reads:
            assert len(run) <= READ_RUN_MAX
            assert run == sorted(set(run))
        assert sum(len(run) for run in world.reads) == 30
        assert world.dispatcher.bytes_in_flight == 0


async def test_what_ends_while_it_is_read_does_not_go_out() -> None:
    """RULES 13, 22: of what was taken and is still being read, that which should not begin any more is given back; what
    is with a handler is withdrawn there. The rest goes out, and what is taken later."""
    async with running(World(lambda one: None if one.attempt.message == 7 else OK)) as world:
        world.reading.clear()
        world.schedule.give(7, 200, 201, 202)
        world.dispatcher.wake()
        await eventually(lambda: world.reads and world.post.calls, "one is out, the others are being read")
        world.schedule.ended, world.schedule.over = {1: {7, 201}}, {7, 201}
        world.dispatcher.wake()
        await eventually(lambda: world.post.withdrawn == [(1, {7, 201})], "the handler is told")
        world.reading.set()
        await eventually(lambda: len(world.recorded) == 2, "the others are delivered")
        assert (world.schedule.back, world.dispatcher.in_flight) == ([201], 1)
        world.schedule.over.clear()
        world.schedule.give(201, 203)
        world.dispatcher.wake()
        await eventually(lambda: len(world.recorded) == 4, "it may be taken again")
        assert [one for call in world.post.calls for one in call] == [7, 200, 202, 201, 203]
        for given, done in world.post.waiting:
            done(given, OK)


async def test_what_several_subscribers_get_is_looked_up_once() -> None:
    """A message on its way to three subscribers is decoded once, and each has it."""
    async with running(World()) as world:
        looked: list[int] = []
        known = world.dispatcher.cached
        world.dispatcher.cached = lambda sequences: (looked.extend(sequences), known(sequences))[1]
        for number in (1, 2, 3):
            world.schedule.give(7, 8, to=number)
        world.dispatcher.wake()
        await eventually(lambda: len(world.recorded) == 6, "all delivered")
        assert looked == [7, 8]
        assert sorted(world.recorded) == [(7, Outcome.DELIVERED)] * 3 + [(8, Outcome.DELIVERED)] * 3


async def test_what_waits_for_the_few_that_are_out_is_read_while_they_are_out() -> None:
    """DESIGN 5, a wide tree: when its parent ends, the first of its children are in memory; each is read once."""
    children = list(range(200, 200 + 3 * READ_RUN_MAX))
    async with running(World(lambda one: None if one.attempt.message == 7 else OK)) as world:
        world.schedule.families = {7: children}
        world.schedule.give(7)
        world.dispatcher.wake()
        await eventually(lambda: len(world.reads) == 1, "the first of them are read")
        assert world.reads == [children[:ATTEMPTS_PER_TURN]]
        assert world.post.calls == [[7]]
        world.schedule.give(*children)
        ((parent, done),) = world.post.waiting
        done(parent, OK)
        await eventually(lambda: len(world.recorded) == 1 + len(children), "all delivered")
        assert sorted(one for run in world.reads for one in run) == children


async def test_what_is_being_read_is_not_read_again() -> None:
    """DESIGN 5: attempts that come for messages which are on their way from the disk wait for that read, whoever has
    asked for it: of a backlog each message is read once, however late the read ahead of it is."""
    children = list(range(200, 200 + ATTEMPTS_PER_TURN))
    async with running(World(lambda one: None if one.attempt.message == 7 else OK)) as world:
        world.schedule.families = {7: children}
        world.reading.clear()
        world.schedule.give(7)
        world.dispatcher.wake()
        await eventually(lambda: len(world.reads) == 1, "they are read ahead")
        world.schedule.give(*children)
        world.schedule.give(*children, to=2)
        ((parent, done),) = world.post.waiting
        done(parent, OK)
        await eventually(lambda: world.dispatcher.in_flight == 2 * len(children), "all are taken")
        assert world.reads == [children]
        world.reading.set()
        await eventually(lambda: len(world.recorded) == 1 + 2 * len(children), "all delivered")
        assert world.reads == [children]


async def test_a_handler_that_changes_is_used_from_then_on() -> None:
    """Who delivers to a subscriber is remembered only until it may be another, or the subscriber's settings change."""
    async with running(World()) as world:
        entry = world.destination(1)
        world.dispatcher._destination = lambda _: entry
        before, after = world.post, Post(lambda _: OK)
        for sequence, post, changed in ((7, before, False), (8, before, False), (9, after, True), (10, after, False)):
            world.post = post
            if changed:
                world.dispatcher.handlers_changed()
            world.schedule.give(sequence)
            world.dispatcher.wake()
            await eventually(lambda many=sequence - 6: len(world.recorded) == many, "delivered")
        assert (before.calls, after.calls) == ([[7], [8]], [[9], [10]])


@pytest.mark.parametrize(
    ("endpoint", "first", "calls"), [("consumer:test", [], [[100, 101, 1]]), ("http://h/", [[101], [1]], [[100]])]
)
async def test_consumers_get_what_is_read_in_the_order_taken(
    endpoint: str, first: list[list[int]], calls: list[list[int]]
) -> None:
    """docs/frontends.md, order: what the second reader has first, or what is in memory, waits for what was taken before
    it. Endpoints that are called do not wait for that."""
    async with running(World()) as world:
        world.endpoint, world.held = endpoint, {100}
        world.reading.clear()
        for sequence in (100, 101, 1):
            await taken(world, sequence)
        await eventually(lambda: len(world.reads) == 2 and len(world.post.calls) == len(first), "both are read")
        assert world.post.calls == first
        world.reading.set()
        await eventually(lambda: len(world.recorded) == 3, "all of them")
        assert world.post.calls == first + calls


async def test_nothing_goes_out_before_what_came_back() -> None:
    """docs/frontends.md, order: a consumer had no room any more for a message that it was given, and has again by the
    time at which a later one has been read. That is put back too, and comes after it."""
    async with running(World(lambda _: None)) as world:
        world.endpoint = "consumer:test"
        await taken(world, 1)
        world.reading.clear()
        for sequence in (100, 2):  # the second is in memory, and waits for the first
            await taken(world, sequence)
        (delivery, done) = world.post.waiting.pop()
        done(delivery, None)
        assert world.schedule.back == [1]
        world.reading.set()
        await eventually(lambda: world.dispatcher.in_flight == 0, "all are back")
        assert (world.schedule.back, world.post.calls) == ([1, 100, 2], [[1]])
        assert world.dispatcher.bytes_in_flight == 0
        world.post.answer = lambda _: OK
        world.schedule.give(1, 2, 100)
        world.dispatcher.wake()
        await eventually(lambda: len(world.recorded) == 3, "all of them")
        assert world.post.calls[1:] == [[1, 2, 100]]


async def test_what_waits_for_its_turn_at_the_end_was_never_begun() -> None:
    """RULES 9: it stays pending, and the dispatcher does not wait for it."""
    async with running(World()) as world:
        world.endpoint = "consumer:test"
        world.reading.clear()
        for sequence in (100, 1):
            await taken(world, sequence)
        assert world.dispatcher.in_flight == 2
        drained = asyncio.create_task(world.dispatcher.drain(10.0))
        await asyncio.sleep(0)
        world.reading.set()
        await drained
        assert (world.dispatcher.in_flight, world.post.calls, world.recorded) == (0, [], [])


async def taken(world: World, sequence: int) -> None:
    """The scheduler has handed it out in a turn of its own, and a reader has begun to read it where it must."""
    reads = len(world.reads) + (sequence > 99)
    world.schedule.give(sequence)
    world.dispatcher.wake()
    await eventually(lambda: not world.schedule.ready and len(world.reads) == reads, "it is taken")


async def test_a_read_that_is_cut_short_is_taken_up_again() -> None:
    """DESIGN 1, bounded: a run whose contents are larger than was expected comes in parts, and nothing is left out."""
    world = World()
    world.read_most = 7
    async with running(world):
        world.schedule.give(*range(200, 300))
        world.dispatcher.wake()
        await eventually(lambda: len(world.recorded) >= 100, "all of them")
        assert sorted(world.recorded) == [(sequence, Outcome.DELIVERED) for sequence in range(200, 300)]
        assert world.dispatcher.in_flight == world.dispatcher.bytes_in_flight == 0


async def test_who_wants_the_same_gets_it_from_one_read() -> None:
    """DESIGN 1, bounded: a large content that many are to get is in memory once, not once for each read of a few. (With
    400 readers of one queue copies took 90 MiB, where 53 are enough.)"""
    async with running(World()) as world:
        world.content = bytes(300_000)
        for sequence in (200, 201):
            for subscriber in range(1, 101):
                world.schedule.give(sequence, to=subscriber)
            world.dispatcher.wake()
            await eventually(lambda many=100 * (sequence - 199): len(world.recorded) == many, "all have it")
        assert sum(201 in read for read in world.reads) <= 2 + 100 // 64, "a turn takes 64 attempts"


@pytest.mark.parametrize("sequence", [50, 200], ids=["in memory", "to be read"])
async def test_content_that_one_hangs_on_to_stops_it_alone(sequence: int) -> None:
    """DESIGN 1, bounded; RULES 15: large contents that a subscriber does not answer for are held up to its share, less
    than half of the bound. What else is for it waits, and its neighbours get theirs; then all of it goes out."""
    async with running(World(lambda _: None)) as world:
        world.content = bytes(limits.content_bytes_max)
        world.schedule.give(*range(sequence, sequence + 49), *range(300, 551))
        world.dispatcher.wake()
        share = (limits.bytes_in_flight_max - limits.bytes_in_flight_max // 8) // 2
        await eventually(lambda: world.dispatcher.bytes_in_flight >= share, "the share is taken")
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(world.post.waiting) == share // limits.content_bytes_max
        world.schedule.give(sequence, to=2)
        world.dispatcher.wake()
        await eventually(lambda: world.post.waiting[-1][0].attempt.subscriber == 2, "a neighbour gets its own")
        world.post.answer = lambda _: OK
        while world.post.waiting:
            delivery, done = world.post.waiting.pop()
            done(delivery, OK)
        await eventually(lambda: len(world.recorded) == 301, "everything goes on")
        assert world.dispatcher.bytes_in_flight == 0


async def test_bytes_in_flight_are_bounded() -> None:
    """DESIGN 1, bounded: however many subscribers do not answer for large contents, memory is bounded, and one that
    holds nothing still gets its message from what is kept for newcomers."""
    async with running(World(lambda _: None)) as world:
        world.content = bytes(limits.content_bytes_max)
        world.schedule.ready = deque((200, number) for number in range(2_000))
        world.dispatcher.wake()
        most = limits.bytes_in_flight_max // limits.content_bytes_max
        await eventually(lambda: world.dispatcher.bytes_in_flight >= limits.bytes_in_flight_max, "the bound is reached")
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(world.post.waiting) == most
        world.content = b""
        world.post.answer = lambda _: OK
        while world.post.waiting:
            delivery, done = world.post.waiting.pop()
            done(delivery, OK)
        await eventually(lambda: len(world.recorded) == 2_000, "everything goes on")
        assert world.dispatcher.bytes_in_flight == 0


async def test_a_message_whose_record_is_gone_is_dead() -> None:
    """Nothing is lost silently: no later attempt would find it either, so the row is an end with its reason."""
    async with running(World()) as world:
        world.lost = {150}
        world.schedule.give(150, 151)
        world.dispatcher.wake()
        await eventually(lambda: len(world.recorded) == 2, "both rows")
        rows = {row.message: row for rows in world.rows for row in rows}
        assert (rows[150].outcome, rows[150].reason, rows[150].due_us) == (Outcome.DEAD, Reason.CONTENT_LOST, 0)
        assert rows[151].outcome is Outcome.DELIVERED


async def test_a_subscriber_deleted_while_its_messages_are_read() -> None:
    """Its attempts come back to the scheduler, which knows that they are late; nobody is called."""
    async with running(World()) as world:
        world.reading.clear()
        world.schedule.give(150)
        world.dispatcher.wake()
        await eventually(lambda: world.reads, "the read has begun")
        world.unknown = {1}
        world.reading.set()
        await eventually(lambda: world.recorded == [(150, Outcome.LATE)], "it is settled")
        assert world.post.calls == []
