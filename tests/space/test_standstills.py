"""INTERFACES 1, ``traces``: in which times nothing went to a subscriber, for who tells what a message waited for."""

from syncbrok.delivery.scheduler.breakers import Turned
from syncbrok.model.facts import SubscriberDeleted, SubscriberSet
from syncbrok.model.message import Subscriber, SubscriberSettings
from syncbrok.model.names import SubscriberId
from syncbrok.space.standstills import Standstills

URL = "http://till.example/in"


def till(number: int = 1, *, paused: bool = False) -> Subscriber:
    return Subscriber(number, 1, SubscriberId("till"), 0, SubscriberSettings(URL, paused=paused))


def declared(now_us: int, *, paused: bool = False, disabled_us: int = 0) -> SubscriberSet:
    settings = SubscriberSettings(URL, paused=paused, disabled_us=disabled_us)
    return SubscriberSet(1, now_us, 1, 1, SubscriberId("till"), 0, settings)


def turned(since_us: int, *, opened: bool, origin: str = "") -> Turned:
    return Turned(1, opened, origin, 10, since_us)


def test_pauses_and_open_breakers_are_told_one_after_the_other() -> None:
    """INTERFACES 1: a pause (a disabled subscriber stands still as well), its breaker, that of its origin; cut to the
    time that is asked for, of two at once the one that began first. What goes on lasts until then."""
    known = Standstills()
    known.apply(declared(10, paused=True))
    known.apply(declared(12, paused=True))
    known.apply(declared(20))
    known.turned(turned(15, opened=True), 16)
    known.turned(turned(15, opened=False), 30)
    known.turned(turned(40, opened=True, origin="http://till.example:80"), 41)
    known.turned(turned(40, opened=False, origin="http://till.example:80"), 50)
    known.apply(declared(60, disabled_us=60))
    assert list(known.between(till(), 0, 5)) == []
    assert list(known.between(till(), 12, 70)) == [
        (12, 20, "pause"), (20, 30, "breaker"), (40, 50, "breaker"), (60, 70, "pause"),
    ]  # fmt: skip
    assert list(known.between(till(2), 0, 70)) == [(40, 50, "breaker")]


def test_one_that_is_paused_as_the_broker_starts_is_known() -> None:
    """A message published before the start waited for its end too."""
    known = Standstills()
    known.at_start(till(paused=True))
    known.apply(declared(20))
    assert list(known.between(till(), 5, 30)) == [(5, 20, "pause")]


def test_what_is_remembered_is_bounded() -> None:
    """The newest eight of each, and nothing of one that is deleted."""
    known = Standstills()
    for at in range(0, 1_000, 10):
        known.apply(declared(at, paused=True))
        known.apply(declared(at + 5))
    assert [since for since, _, _ in known.between(till(), 0, 2_000)] == list(range(920, 1_000, 10))
    known.apply(SubscriberDeleted(2, 2_000, 1))
    assert list(known.between(till(), 0, 3_000)) == []
