"""What all subscribers share, and how much of it one of them may take (delivery/scheduler/shares.py, RULES 15).

Broken by hand to see these fail: ``Shares.room`` that never refuses; a cursor that is held back and never let in again;
leases counted as attempts; ``Member.written`` that keeps the content.
"""

import random

from syncbrok.delivery.handler import Attempt
from syncbrok.delivery.scheduler.content_budget import ContentBudget
from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.delivery.scheduler.shares import Shares
from syncbrok.model.budget import Budget
from tests.support.delivery.factlog import OK, FactLog

TURN = 16


class Town:
    """Queues 1, 2, ... of a log, each with a subscriber of its number, who share little."""

    def __init__(self, attempts: int = 160, leases: int = 160, content: int = 1 << 20) -> None:
        self.log = FactLog()
        bytes_ = ContentBudget(Budget("content", content))
        self.shares = Shares(Budget("attempts", attempts), Budget("leases", leases), bytes_, set())
        self.log.scheduler = Scheduler(shares=self.shares)
        self.out: dict[int, list[Attempt]] = {}

    def settle_in(self, number: int, messages: int, window: int = 1_000, *, consumed: bool = False) -> None:
        """A queue, its subscriber, and so many messages for it."""
        self.log.queue(number, window=window)
        self.log.subscriber(number, number, endpoint="consumer:test" if consumed else f"http://s{number}/")
        if consumed:
            self.log.scheduler.offer(number, window)
        for _ in range(messages):
            self.log.publish(number)

    def take(self) -> int:
        """What there is to take, as the dispatcher takes it; how much that was."""
        count = 0
        while True:
            consumed = sum(len(self.out.get(number, ())) for number in self.consumers)
            everything = sum(map(len, self.out.values()))
            self.shares.leases.used, self.shares.attempts.used = consumed, everything - consumed
            taken = self.log.scheduler.take(self.log.now_us, self.log.durable, TURN)
            for attempt in taken:
                self.out.setdefault(attempt.subscriber, []).append(attempt)
            count += len(taken)
            if not taken:
                return count

    @property
    def consumers(self) -> list[int]:
        cursors = self.log.scheduler.state.cursors
        return [number for number in self.out if number in cursors and cursors[number].subscriber.consumed]

    def answer(self, number: int, count: int) -> None:
        """So many of what is out at a subscriber are acknowledged."""
        answered, self.out[number] = self.out[number][:count], self.out[number][count:]
        rows, _ = self.log.scheduler.settle([(one, OK) for one in answered], self.log.now_us, lambda: 0.0)
        self.log.rows += rows
        self.log.commit()

    def held(self, number: int) -> int:
        return len(self.out.get(number, ()))


def test_one_that_hangs_leaves_half() -> None:
    """RULES 15: a subscriber with the largest window, that answers nothing, takes half of what is no reserve; the next
    ones get all that they ask for, and one that hangs as well takes half of what is left then."""
    town = Town()
    town.settle_in(1, 500)
    town.take()
    assert town.held(1) == 70
    town.settle_in(2, 10)
    town.settle_in(3, 500)
    town.take()
    assert (town.held(1), town.held(2), town.held(3)) == (70, 10, 30)


def test_a_newcomer_always_gets_one() -> None:
    """RULES 15: after twenty that hang, each subscriber that has nothing out still gets a message, and the next one
    when that is answered."""
    town = Town()
    for number in range(1, 21):
        town.settle_in(number, 500)
        town.take()
    for number in range(21, 31):
        town.settle_in(number, 3)
        town.take()
        for _ in range(3):
            assert town.held(number) == 1
            town.answer(number, 1)
            town.take()
    assert town.shares.attempts.free > 0


def test_what_was_held_back_goes_on(seed: int) -> None:
    """RULES 15: held back is not forgotten. In whatever order answers come, every message goes out once, and nobody
    passes its share."""
    chance = random.Random(seed)
    town = Town(attempts=64, leases=64)
    messages = {number: chance.randrange(1, 200) for number in range(1, 9)}
    for number, count in messages.items():
        town.settle_in(number, count, consumed=number % 3 == 0)
    seen = dict.fromkeys(messages, 0)
    while True:
        town.take()
        kinds = [number for number in messages if town.held(number)]
        if not kinds:
            break
        attempts = sum(town.held(number) for number in messages if number % 3)
        leases = sum(town.held(number) for number in messages if not number % 3)
        assert attempts <= 64
        assert leases <= 64
        number = chance.choice(kinds)
        count = chance.randrange(town.held(number)) + 1
        seen[number] += count
        town.answer(number, count)
    assert seen == messages
    assert set(town.log.states().values()) == {"complete"}
    assert not town.log.scheduler.state.held_back


def test_leases_are_no_attempts() -> None:
    """RULES 15: what is lent to those who come for their messages, maybe for hours, takes nothing from what is sent to
    endpoints; groups share what may be lent as endpoints share attempts."""
    town = Town(attempts=160, leases=320)
    for number in (1, 2, 3):
        town.settle_in(number, 500, consumed=True)
        town.take()
    assert [town.held(number) for number in (1, 2, 3)] == [140, 70, 35]
    town.settle_in(4, 500)
    town.take()
    assert town.held(4) == 70


def test_content_holds_back_too() -> None:
    """RULES 15: a subscriber whose share of the bytes is taken, or for which some that were taken wait for room, takes
    no more, however many attempts are free; its neighbours do; and it goes on when there is room."""
    town = Town(content=1_000)
    town.settle_in(1, 500)
    assert town.shares.content.try_take(1, 450)
    town.settle_in(2, 5)
    town.settle_in(3, 5)
    town.shares.short.add(3)
    assert town.take() == 5
    assert (town.held(1), town.held(2), town.held(3)) == (0, 5, 0)
    town.shares.content.give_back(1, 450)
    town.shares.short.clear()
    town.take()
    assert (town.held(1), town.held(3)) == (65, 5)


def test_what_consumers_of_one_client_hold_is_one_share() -> None:
    """RULES 15: two hundred sockets of a client are two hundred subscribers, and no newcomers: together they hold what
    one may, and whoever holds nothing finds room. Each knows what it holds itself; what it gives back, or takes along
    when another pays, is right in the sum."""
    content = ContentBudget(Budget("content", 1_000))
    for number in range(1, 201):
        content.charge(number, "10.0.0.1")
    taken = [number for number in range(1, 201) if content.try_take(number, 40)]
    assert len(taken) == 11  # as one: 40 more while less is held than is free beside the reserve of 125
    assert content.room(300) > 200
    assert content.is_short(200)
    assert not content.held(200)
    assert not content.is_short(300)
    first, second, *_ = taken
    assert (content.held(first), content.budget.held("10.0.0.1")) == (40, 440)
    content.charge(first, "10.0.0.2")
    content.charge(second, None)
    assert [content.budget.held(one) for one in ("10.0.0.1", "10.0.0.2", second)] == [360, 40, 40]
    for number in taken:
        content.give_back(number, 40)
    assert not content.budget.used
    assert not content.budget.owners


def test_one_that_is_deleted_while_it_is_held_back() -> None:
    """RULES 14: it is forgotten, and the others go on."""
    town = Town()
    town.settle_in(1, 500)
    town.take()
    assert list(town.log.scheduler.state.held_back)
    town.log.unsubscribe(1)
    assert not town.log.scheduler.state.held_back
    town.settle_in(2, 5)
    town.take()
    assert town.held(2) == 5
