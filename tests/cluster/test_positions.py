"""How far other brokers have the log: what a leader believes of what it is told."""

from collections.abc import Callable

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cluster.positions import Positions, tell_position


class Wire:
    """What is told is heard by all."""

    def __init__(self) -> None:
        self.all: list[Callable[[bytes], None]] = []

    def announce(self, told: bytes, subject: str) -> None:
        assert subject == "positions"
        for one in self.all:
            one(told)

    def hear(self, heard: Callable[[bytes], None], subject: str) -> None:
        assert subject == "positions"
        self.all.append(heard)


def test_of_the_others_the_one_that_has_most_counts() -> None:
    """Not this node itself, no stream of before, and no more than each said last: it may have lost its disk."""
    wire, now_s, heard = Wire(), [10.0], []
    positions = Positions(wire, "a", lambda: 2, 6.0, lambda: now_s[0])
    positions.begin()
    positions.listen(lambda: heard.append(positions.confirmed_through()[0]))
    now_s[0] = 11.0
    tell_position(wire, "a", 2, 100)
    tell_position(wire, "b", 1, 100)
    wire.announce(b"of another version", "positions")
    assert positions.confirmed_through() == (0, 10.0)
    tell_position(wire, "b", 2, 7)
    tell_position(wire, "c", 2, 5)
    assert positions.confirmed_through() == (7, 11.0)
    tell_position(wire, "b", 2, 1)
    assert positions.confirmed_through() == (5, 11.0)
    assert heard == [7, 7, 5]
