"""The times in which nothing went to a subscriber: it was paused, or its circuit breaker (its origin's) was open.

Of each the newest few are remembered, for who tells afterwards what a message waited for. Written by the event loop;
any thread may ask.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from syncbrok.delivery.scheduler.breakers import Turned, origin_of
from syncbrok.model.facts import FactOrRun, SubscriberDeleted, SubscriberSet
from syncbrok.model.message import Subscriber

PAUSE: Final = "pause"
BREAKER: Final = "breaker"
_EACH_MAX: Final = 8
_ALL_MAX: Final = 16_384
"""subscribers and origins; who began to stand still first is forgotten first"""


class Standstill(NamedTuple):
    """``until_us`` is None while it goes on."""

    since_us: int
    until_us: int | None
    why: str


class Standstills:
    """By subscriber (number) and by origin."""

    def __init__(self) -> None:
        self._known: dict[int | str, tuple[Standstill, ...]] = {}

    def at_start(self, subscriber: Subscriber) -> None:
        """It is declared as the broker starts, when every breaker is closed."""
        if subscriber.stopped:
            self._begin(subscriber.number, subscriber.settings.disabled_us, PAUSE)

    def apply(self, fact: FactOrRun) -> None:
        """It is durable."""
        if type(fact) is SubscriberSet:
            stopped = fact.settings.paused or fact.settings.disabled_us > 0
            (self._begin if stopped else self._end)(fact.number, fact.time_us, PAUSE)
        elif type(fact) is SubscriberDeleted:
            self._known.pop(fact.number, None)

    def turned(self, breaker: Turned, now_us: int) -> None:
        """It has opened or closed."""
        of = breaker.origin or breaker.subscriber
        if breaker.opened:
            self._begin(of, breaker.since_us, BREAKER)
        else:
            self._end(of, now_us, BREAKER)

    def between(self, subscriber: Subscriber, from_us: int, until_us: int) -> Iterator[tuple[int, int, str]]:
        """(since, until, why) of those of a subscriber, one after the other and cut to that time."""
        origin = origin_of(subscriber.settings.endpoint)
        for since_us, end_us, why in sorted(self._of(subscriber.number) + self._of(origin), key=_since):
            end_us = until_us if end_us is None else min(end_us, until_us)
            if max(since_us, from_us) < end_us:
                yield max(since_us, from_us), end_us, why
                from_us = end_us

    def _of(self, of: int | str) -> tuple[Standstill, ...]:
        return self._known.get(of, ())

    def _begin(self, of: int | str, since_us: int, why: str) -> None:
        known = self._of(of)
        if any(one.why == why and one.until_us is None for one in known):
            return
        if of not in self._known and len(self._known) >= _ALL_MAX:
            del self._known[next(iter(self._known))]
        self._known[of] = (*known[1 - _EACH_MAX :], Standstill(since_us, None, why))

    def _end(self, of: int | str, now_us: int, why: str) -> None:
        known = self._of(of)
        if known:
            self._known[of] = tuple(
                one._replace(until_us=now_us) if one.why == why and one.until_us is None else one for one in known
            )


def _since(one: Standstill) -> int:
    return one.since_us
