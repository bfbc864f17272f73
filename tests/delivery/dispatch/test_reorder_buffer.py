"""The order in which consumers get what was read: that in which it was taken, whichever reader is first.

Broken by hand to see these fail: what is in memory overtakes what is being read; a message that is lost holds up those
behind it; attempts that were waiting when the dispatcher stops still counted.
"""

import random

from syncbrok.delivery.dispatch.reorder_buffer import ReorderBuffer
from syncbrok.delivery.handler import Attempt, Destination
from syncbrok.model.errors import UnknownSubscriber
from syncbrok.model.facts import StoredMessage
from tests.support.delivery.endpoint import TIME_US, message, subscriber

CONSUMED, CALLED, GONE = 1, 2, 3


def destination(number: int) -> Destination:
    if number == GONE:
        raise UnknownSubscriber("deleted")
    endpoint = "consumer:test" if number == CONSUMED else "http://127.0.0.1:1/"
    return Destination(subscriber(endpoint=endpoint), "queue", 1.0)


def attempt(sequence: int, number: int = CONSUMED) -> Attempt:
    return Attempt(sequence, number, 1, 0, TIME_US, 0)


def published(sequence: int) -> StoredMessage:
    return message(sequence)


def test_what_was_taken_first_goes_first(seed: int) -> None:
    """docs/frontends.md, order: in whatever order the readers are done, and whatever was in memory meanwhile."""
    chance = random.Random(seed)
    for _ in range(50):
        order = ReorderBuffer(destination)
        reading: list[Attempt] = []
        out: list[int] = []
        sequence = 0
        while sequence < 60 or reading:
            if sequence < 60 and chance.random() < 0.6:
                sequence += 1
                one = attempt(sequence)
                if chance.random() < 0.5:
                    order.read(one)
                    reading.append(one)
                elif CONSUMED in order.lines:
                    order.follow(one, published(sequence))
                else:
                    out.append(sequence)
            elif reading:
                one = reading.pop(chance.randrange(len(reading)))
                out += [pair[0].message for pair in order.arrived(one, published(one.message))]
        assert out == list(range(1, 61))
        assert not order.lines


def test_what_is_lost_holds_up_nothing() -> None:
    """DESIGN 1: a record that cannot be read ends as a dead letter, and those behind it go out."""
    order = ReorderBuffer(destination)
    for sequence in (1, 2):
        order.read(attempt(sequence))
    order.follow(attempt(3), published(3))
    assert order.arrived(attempt(2), published(2)) == []
    assert [pair[0].message for pair in order.arrived(attempt(1), None)] == [2, 3]
    assert not order.lines


def test_what_is_behind_one_that_came_back_comes_back() -> None:
    """docs/frontends.md, order: what was taken after a message that was not begun is not to go out before it, and what
    is taken from then on may; one that is lost meanwhile is remembered no longer."""
    order = ReorderBuffer(destination)
    for sequence in (2, 3, 4):
        order.read(attempt(sequence))
    order.came_back(attempt(1))
    order.read(attempt(5))
    assert order.arrived(attempt(3), None) == []
    pairs = [pair for one in (5, 4, 2) for pair in order.arrived(attempt(one), published(one))]
    assert [pair[0].message for pair in pairs] == [2, 4, 5]
    assert [pair[0].message for pair in order.early(pairs)] == [2, 4]
    assert order.early(pairs) == []
    assert not order._early


def test_endpoints_that_are_called_do_not_wait() -> None:
    """DESIGN 1: order beyond parents and keys is for consumers; an endpoint takes many at once, and whoever is deleted
    waits for nothing."""
    order = ReorderBuffer(destination)
    for number in (CALLED, GONE):
        order.read(attempt(1, number))
        order.read(attempt(2, number))
        assert not order.lines
        assert order.arrived(attempt(2, number), published(2)) == [(attempt(2, number), published(2))]
        assert order.arrived(attempt(1, number), None) == []


def test_what_waits_is_counted_when_nothing_goes_out_any_more() -> None:
    """RULES 9: what was never begun stays pending; the dispatcher must know how many those are."""
    order = ReorderBuffer(destination)
    order.read(attempt(1))
    order.follow(attempt(2), published(2))
    order.follow(attempt(3), published(3))
    assert order.clear() == 2
    assert order.arrived(attempt(1), published(1)) == [(attempt(1), published(1))]
