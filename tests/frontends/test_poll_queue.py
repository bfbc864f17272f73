"""Those who wait for messages of one subscriber: their order, the room they make, and what becomes of both as they go.

Broken by hand to see these fail: the newest poll served first; a poll that is cancelled and keeps its place, its room
or what came for it; one whose time is over and that keeps its room; a message for one who was told that nothing comes;
more asked for at once than the answers may hold; a message that nobody asked for kept.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from syncbrok.delivery.consumers import Consumers, Member
from syncbrok.delivery.handler import Delivery
from syncbrok.frontends.poll_queue import Poll, PollQueue
from syncbrok.model import limits
from syncbrok.model.budget import Budget
from tests.support.delivery.endpoint import Answers, delivery, message
from tests.support.polling import eventually

LONG_S = 60.0
"""longer than any test: what ends such a wait is not the clock"""


class Asked(PollQueue[Poll]):
    """That says what it handed out, as (poll, sequence)."""

    def __init__(self, answer_bytes_max: int | None) -> None:
        super().__init__(answer_bytes_max)
        self.said: list[tuple[Poll, int]] = []

    def handed_out(self, member: Member, poll: Poll, delivery: Delivery) -> None:
        assert member is self.member
        self.said.append((poll, delivery.attempt.message))


class Place:
    """A poll queue of subscriber 1, and the scheduler's side of it in the test's hand."""

    def __init__(self, answer_bytes_max: int | None = None) -> None:
        self.rooms: list[int] = []
        self.answers = Answers()
        offer_room: Callable[[int, int], None] = lambda _, room: self.rooms.append(room)  # noqa: E731
        self.consumers = Consumers(offer_room, lambda _: False, Budget("leases", 100_000), lambda _: None)
        self.queue = Asked(answer_bytes_max)
        self.queue.join(self.consumers, 1)

    @property
    def room(self) -> int:
        """What the scheduler was offered last, without what is out."""
        assert self.queue.member is not None
        return self.rooms[-1] - len(self.queue.member.leases)

    def ask(self, most: int, wait_s: float = LONG_S) -> tuple[Poll, "asyncio.Task[None]"]:
        poll = Poll(most)
        waiting: Coroutine[Any, Any, None] = self.queue.wait(poll, wait_s)
        return poll, asyncio.get_running_loop().create_task(waiting)

    def deliver(self, *sequences: int, content: bytes = b"x") -> None:
        some: Sequence[Delivery] = [delivery(of=message(one, content)) for one in sequences]
        self.consumers.deliver(some, self.answers.done)


def sequences(poll: Poll) -> list[int]:
    return [one.attempt.message for one in poll.deliveries]


async def a_turn() -> None:
    """What was begun has begun, and what was given back in this turn is told."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_messages_go_to_the_poll_that_has_waited_longest() -> None:
    """INTERFACES 3 and 4: in the order handed out, to the first poll until it has all it asks for, then to the next."""
    place = Place()
    polls = [place.ask(most) for most in (2, 1, 3)]
    await a_turn()
    assert place.rooms[-3:] == [2, 3, 6]
    place.deliver(1, 2, 3, 4)
    await asyncio.gather(*[waiting for _, waiting in polls])
    assert [sequences(poll) for poll, _ in polls] == [[1, 2], [3], [4]]
    assert place.queue.said == [(polls[0][0], 1), (polls[0][0], 2), (polls[1][0], 3), (polls[2][0], 4)]
    assert place.rooms[-1] == 4, "those that are out, and nobody waits"
    assert place.answers.given_back == []


async def test_a_poll_waits_on_while_more_comes() -> None:
    """What comes in several pieces is one answer, which is not kept back for what does not come."""
    place = Place()
    poll, waiting = place.ask(5)
    await a_turn()
    place.deliver(1)
    await a_turn()
    place.deliver(2, 3)
    await waiting
    assert sequences(poll) == [1, 2, 3]
    assert place.room == 0


async def test_a_poll_whose_time_is_over_takes_its_room_along() -> None:
    """DESIGN 1, bounded: nobody asks any more, so nothing is handed out."""
    place = Place()
    poll, waiting = place.ask(7, wait_s=0.0)
    await a_turn()
    assert place.room == 7
    await waiting
    assert (poll.deliveries, place.room) == ([], 0)
    assert place.rooms == [0, 7, 0]


async def test_one_whose_client_goes_takes_neither_room_nor_messages_along() -> None:
    """DESIGN 1, nothing lost: the next who waits gets what comes, and room is left for that one alone."""
    place = Place()
    _, gone = place.ask(1)
    next_, waits = place.ask(1)
    await a_turn()
    gone.cancel()
    place.deliver(1)  # in the same turn: nobody has heard yet that it has gone
    await waits
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert sequences(next_) == [1]
    assert (place.room, place.answers.given_back) == (0, [])


async def test_what_came_for_one_who_goes_is_given_back() -> None:
    """DESIGN 1, nothing lost: no attempt was made, and the next who waits gets it when it comes again."""
    place = Place()
    gone, going = place.ask(3)
    next_, waits = place.ask(3)
    await a_turn()
    place.deliver(1, 2)
    assert sequences(gone) == [1, 2]
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    await a_turn()
    assert (place.answers.given_back, place.answers.all) == ([1, 2], [])
    assert place.rooms[-1] == 3, "of the one that waits; nothing is out"
    place.deliver(1, 2, 3)
    await waits
    assert sequences(next_) == [1, 2, 3]


async def test_what_comes_when_the_time_is_over_is_given_back() -> None:
    """DESIGN 1, nothing lost: in the very moment, before whoever waited has heard of it, and later."""
    place = Place()
    loop = asyncio.get_running_loop()
    poll, waiting = place.ask(1, wait_s=0.0)
    await a_turn()
    loop.call_at(loop.time() + 0.01, place.deliver, 1)
    both_due_s = loop.time() + 0.02
    while loop.time() < both_due_s:  # so that one turn of the loop ends the wait, then delivers
        pass
    await waiting
    place.deliver(2)
    await a_turn()
    assert (poll.deliveries, place.room) == ([], 0)
    assert place.answers.given_back == [1, 2]


async def test_those_who_wait_are_told_that_nothing_comes() -> None:
    """The subscriber was deleted: waits end, and what another subscriber of this queue is given is not for them."""
    place = Place()
    polls = [place.ask(2) for _ in range(3)]
    await a_turn()
    place.consumers.forget(1)
    place.queue.join(place.consumers, 1)
    place.queue.offer()
    place.deliver(1)  # in the same turn: they have not gone on yet
    next_, waits = place.ask(1)
    await a_turn()
    assert (place.room, place.answers.given_back) == (1, [1])
    place.deliver(1)
    await asyncio.gather(waits, *[waiting for _, waiting in polls])
    assert [sequences(poll) for poll, _ in polls] == [[], [], []]
    assert sequences(next_) == [1]


async def test_no_more_is_asked_for_than_the_answers_may_hold() -> None:
    """DESIGN 1, bounded: by the size of what came last; a message larger than an answer is an answer of its own."""
    place = Place(answer_bytes_max=1_000)
    assert place.queue.member is not None
    large, waits = place.ask(10)
    await a_turn()
    assert place.room == 1, "of contents of a size that nobody knows yet"
    place.deliver(1, content=bytes(100))
    assert place.room == 9, "its content leaves room for nine like it"
    place.deliver(2, 3, content=bytes(300))
    assert place.room == 1, "300 bytes are left of its answer, one like these"
    place.deliver(4, content=bytes(5_000))
    await waits
    assert (sequences(large), place.room) == ([1, 2, 3, 4], 0)
    place.queue.member.acknowledge((1, 2, 3, 4))
    many = [place.ask(10) for _ in range(40)]
    await a_turn()
    assert place.room == 1
    place.deliver(5, content=bytes(10))
    assert place.room == 200, "two answers of a hundred such, though 399 are asked for"
    for _, waiting in many:
        waiting.cancel()
    await asyncio.gather(*[waiting for _, waiting in many], return_exceptions=True)
    assert place.room == 0


async def test_a_subscriber_is_given_no_more_than_its_window() -> None:
    """RULES 15: however many ask, and however much."""
    place = Place()
    polls = [place.ask(1_000) for _ in range(11)]
    await a_turn()
    assert place.rooms[-1] == limits.window_max
    polls.pop()[1].cancel()
    polls.pop()[1].cancel()
    await a_turn()
    assert place.rooms[-1] == 9_000
    for _, waiting in polls:
        waiting.cancel()
    await asyncio.gather(*[waiting for _, waiting in polls], return_exceptions=True)


@pytest.mark.parametrize("answer_bytes_max", [None, 1_000_000])
async def test_whatever_happens_nothing_is_lost_and_room_is_what_is_asked_for(
    answer_bytes_max: int | None, seed: int
) -> None:
    """DESIGN 1: each message is with a poll that lives, or was given back; once nobody waits there is no room."""
    rng = random.Random(seed)
    place = Place(answer_bytes_max)
    member = place.queue.member
    assert member is not None
    polls: list[tuple[Poll, asyncio.Task[None]]] = []
    handed_out = 0
    for _ in range(400):
        step = rng.random()
        if step < 0.3:
            polls.append(place.ask(rng.randint(1, 4), rng.choice((0.0, LONG_S))))
        elif step < 0.5 and polls:
            rng.choice(polls)[1].cancel()
        elif step < 0.8 and (most := min(member.room, 5)) > 0:
            some = range(handed_out + 1, handed_out + 1 + rng.randint(1, most))
            handed_out = some[-1]
            place.deliver(*some)
        elif step < 0.9 or not polls:
            await a_turn()
        else:
            await asyncio.wait([rng.choice(polls)[1]], timeout=0.005)  # some end by the clock meanwhile
    for _, waiting in polls:
        waiting.cancel()
    await asyncio.gather(*[waiting for _, waiting in polls], return_exceptions=True)
    await eventually(lambda: not place.consumers._answers, "what was given back is told")
    kept = [one for poll, waiting in polls if not waiting.cancelled() for one in sequences(poll)]
    assert sorted(kept + place.answers.given_back) == list(range(1, handed_out + 1))
    assert sorted(member.leases) == sorted(kept)
    assert place.room == 0
