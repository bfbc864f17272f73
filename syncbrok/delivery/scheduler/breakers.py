"""The breakers there are: one a subscriber that is posted to, one an origin that could not be reached. Each is made by
its first failure, so where all is well there is nothing to ask.

Who is held back stands in ``Breaker.held`` and is asked again when something has changed there. Of those what was tried
already dies when its schedule would have been over (``overdue``); what was not waits.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from syncbrok.delivery.handler import Attempt, AttemptResult
from syncbrok.delivery.scheduler.breaker import Breaker, BreakerState, has_failed, is_unreachable
from syncbrok.delivery.scheduler.cursor import Cursor, TriedState
from syncbrok.delivery.scheduler.state import BREAKER_DUE, SchedulerState
from syncbrok.model import limits
from syncbrok.model.message import BreakerPolicy, RetryPolicy
from syncbrok.model.units import shown_endpoint

_OF_AN_ORIGIN: Final = BreakerPolicy()
_AGAIN_US: Final = 5_000_000
_PORTS: Final = {"http": 80, "https": 443}


class Turned(NamedTuple):
    """A breaker has opened, or closed again. ``origin``: it is that of an origin, and ``subscriber`` (number) is the
    one whose answer did it."""

    subscriber: int
    opened: bool
    origin: str
    failing: int
    since_us: int


class BreakerReport(NamedTuple):
    """How a subscriber's breaker stands, or its origin's where that is not closed and its own is."""

    state: str
    probe_us: int
    """open: when the next probe is due, else 0"""
    failing: int
    origin: str
    since_us: int = 0
    """when it opened first, since it was closed; 0 where it is"""


_CLOSED: Final = BreakerReport("closed", 0, 0, "")


class Breakers:
    """Tells ``DispatchQueue`` how much room a breaker leaves, and is told of every answer that may matter."""

    def __init__(self, state: SchedulerState) -> None:
        self._state = state
        self.origins: dict[str, Breaker] = {}
        """those that remember a failure; bounded by the subscribers"""
        self._given = 0
        self._open: dict[int, Breaker] = {}
        """by its number in the timer wheel: those that wait for their next probe"""
        self.turned: deque[Turned] = deque(maxlen=limits.breakers_turned_max)
        """since they were told last"""
        self.overdue: deque[tuple[Cursor, int]] = deque()
        """held back when their schedule was over: they are to die; bounded by what is in retry"""

    def of(self, cursor: Cursor) -> Iterator[Breaker]:
        """The breakers that have a say about the cursor: its own, that of its origin."""
        if cursor.breaker is not None:
            yield cursor.breaker
        if self.origins and _policy(cursor) is not None:
            origin = self.origins.get(origin_of(cursor.subscriber.settings.endpoint))
            if origin is not None:
                yield origin

    def watch(self, cursor: Cursor) -> bool:
        """Whether each of its answers must be looked at by itself."""
        return any(breaker.state is not BreakerState.CLOSED for breaker in self.of(cursor))

    def report(self, cursor: Cursor) -> BreakerReport:
        for breaker in self.of(cursor):
            if breaker.state is not BreakerState.CLOSED:
                probe_us = breaker.probe_us if breaker.state is BreakerState.OPEN else 0
                state = breaker.state.name.lower()
                return BreakerReport(state, probe_us, breaker.failing, breaker.origin, breaker.since_us)
        return _CLOSED

    def is_open(self, cursor: Cursor) -> bool:
        """Whether nothing goes to the cursor but a probe."""
        return any(breaker.holds for breaker in self.of(cursor))

    # -- attempts -----------------------------------------------------------------------------------------------------

    def room(self, cursor: Cursor, room: int, now_us: int) -> int:
        """How many of ``room`` attempts may begin. Where there is none it is held back, and stands in line again when
        that changes."""
        leaves = room
        for breaker in self.of(cursor):
            some = breaker.room(now_us)
            if some is not None and some < leaves:
                leaves = some
                if some <= 0:
                    breaker.held[cursor.number] = None
        if leaves <= 0 or self.is_open(cursor):
            self._mortal(cursor)
        elif leaves == room:
            cursor.is_mortal = False
        return leaves

    def probed(self, cursor: Cursor) -> int | None:
        """The message that the last probe took, if what goes to the cursor now is a probe."""
        return next((breaker.probed for breaker in self.of(cursor) if breaker.holds), None)

    def begun(self, cursor: Cursor, messages: Iterable[int]) -> None:
        """Attempts of these go out."""
        for breaker in self.of(cursor):
            for message in messages:
                breaker.begun(message, cursor.number)

    def is_back(self, cursor: Cursor, message: int) -> None:
        """An attempt was not begun, or nobody waits for its answer any more."""
        for breaker in self.of(cursor):
            breaker.is_back(message, cursor.number)
            self._look_again(breaker)

    def are_well(self, cursor: Cursor, count: int) -> None:
        """So many first attempts were acknowledged, while no breaker of the cursor watched."""
        for breaker in self.of(cursor):
            breaker.is_well(count)
            self._drop_at_rest(breaker)

    def answered(self, cursor: Cursor, attempt: Attempt, answer: AttemptResult, now_us: int) -> None:
        """An attempt was answered. Of those that one request made together the first alone says how that went."""
        policy = _policy(cursor)
        if policy is None:
            return
        if answer.place:
            self.is_back(cursor, attempt.message)
            return
        has = has_failed(answer.reason, answer.status)
        if cursor.breaker is None and has:
            cursor.breaker = self._new(policy)
        if cursor.breaker is not None:
            self._tell(cursor.breaker, has, cursor, attempt, now_us)
        unreachable = is_unreachable(answer.reason)
        origin = self.origins.get(name := origin_of(cursor.subscriber.settings.endpoint))
        if origin is None and unreachable:
            origin = self.origins[name] = self._new(_OF_AN_ORIGIN, name)
        if origin is not None:
            self._tell(origin, unreachable, cursor, attempt, now_us)

    def _tell(self, breaker: Breaker, failed: bool | None, cursor: Cursor, attempt: Attempt, now_us: int) -> None:
        before, message, number = breaker.state, attempt.message, cursor.number
        if failed is None:
            breaker.is_back(message, number)
        elif failed:
            if breaker.failed(message, number, now_us):
                self._has_turned(breaker, cursor, opened=True)
            if breaker.state is BreakerState.OPEN and before is not BreakerState.OPEN:
                self._open[breaker.number] = breaker
                breaker.held[number] = None
                self._state.timers.add(breaker.probe_us, BREAKER_DUE, breaker.number)
                self._take_back(breaker, cursor)
        else:
            breaker.passed(message, number, limits.window_default if breaker.origin else _window(cursor))
            others_wait = breaker.origin and breaker.held
            if cursor.idle and not others_wait and breaker.has_room_for(len(cursor.retrying)):
                breaker.close()
            if breaker.state is BreakerState.CLOSED and before is not BreakerState.CLOSED:
                self._has_turned(breaker, cursor, opened=False)
        if breaker.state is not BreakerState.OPEN:
            self._look_again(breaker)
        self._drop_at_rest(breaker)

    def _take_back(self, breaker: Breaker, cursor: Cursor) -> None:
        """No attempt begins any more, of those that were taken before it opened either: what waits for a connection
        would spend one for each that cannot be made."""
        for one in self._of_origin(breaker.origin) if breaker.origin else (cursor,):
            if one.in_flight:
                self._state.give_up(one, one.in_flight)

    def _of_origin(self, name: str) -> Iterator[Cursor]:
        """The subscribers that the breaker of an origin has a say about."""
        for one in self._state.cursors.values():
            if _policy(one) is not None and origin_of(one.subscriber.settings.endpoint) == name:
                yield one

    def _has_turned(self, breaker: Breaker, cursor: Cursor, *, opened: bool) -> None:
        self.turned.append(Turned(cursor.number, opened, breaker.origin, breaker.failing, breaker.since_us))

    def _drop_at_rest(self, breaker: Breaker) -> None:
        if breaker.origin and breaker.rests and not breaker.held:
            self.origins.pop(breaker.origin, None)

    # -- what it waits for --------------------------------------------------------------------------------------------

    def probe_due(self, number: int) -> None:
        """The wheel says that a breaker may probe; where it waits for a later one, nobody gets room."""
        breaker = self._open.pop(number, None)
        if breaker is not None:
            self._look_again(breaker)

    def probe_now(self, cursor: Cursor) -> None:
        """An operator thinks that the endpoint is mended: the next probe is due."""
        for breaker in self.of(cursor):
            if breaker.state is BreakerState.OPEN:
                breaker.probe_us = 0
                self._look_again(breaker)

    def _look_again(self, breaker: Breaker) -> None:
        held, breaker.held = breaker.held, {}
        for number in held:
            cursor = self._state.cursors.get(number)
            if cursor is not None:
                self._state.activate(cursor)

    # -- subscribers --------------------------------------------------------------------------------------------------

    def begin_anew(self, cursor: Cursor) -> None:
        """Its endpoint is another one or its breaker is, or it is gone: what it has failed counts no more. Called while
        the old settings stand there."""
        if cursor.breaker is not None:
            self._open.pop(cursor.breaker.number, None)
            if cursor.breaker.state is not BreakerState.CLOSED:
                self._has_turned(cursor.breaker, cursor, opened=False)
            cursor.breaker = None
        cursor.is_mortal = False
        if self.origins and cursor.subscriber.settings.breaker is not None:
            self._leave_origin(cursor, origin_of(cursor.subscriber.settings.endpoint))

    def _leave_origin(self, cursor: Cursor, name: str) -> None:
        origin = self.origins.get(name)
        if origin is None:
            return
        origin.forget(cursor.number)
        if any(one is not cursor for one in self._of_origin(name)):
            self._look_again(origin)
        else:
            self._open.pop(origin.number, None)
            del self.origins[name]

    def _new(self, policy: BreakerPolicy, origin: str = "") -> Breaker:
        self._given += 1
        return Breaker(self._given, policy, origin)

    # -- what dies ----------------------------------------------------------------------------------------------------

    def _mortal(self, cursor: Cursor) -> None:
        """It is held back: what it would try again now is looked at when its schedule is over."""
        if not cursor.is_mortal:
            cursor.is_mortal = True
            for sequence in cursor.due:
                self.look_at_its_end(cursor, sequence)

    def look_at_its_end(self, cursor: Cursor, sequence: int) -> None:
        """A retry that is due is held back: have the wheel tell of it once more (``is_over``)."""
        tried = cursor.retrying.get(sequence)
        if tried is not None:
            self._state.timers.add(self._over_us(cursor, tried), cursor.number, sequence)

    def is_over(self, cursor: Cursor, sequence: int, now_us: int) -> None:
        """Let a retry that is due die, if it is held back and its schedule is over."""
        tried = cursor.retrying.get(sequence)
        if tried is None or sequence not in cursor.due or self._over_us(cursor, tried) > now_us:
            return
        if self.is_open(cursor):
            self.overdue.append((cursor, sequence))
        else:  # few may be out at once, and it has its turn; unless that fails
            self._state.timers.add(now_us + _AGAIN_US, cursor.number, sequence)

    def _over_us(self, cursor: Cursor, tried: TriedState) -> int:
        """When the schedule of a delivery would be over: so long after its first attempt as all its waits are."""
        delays_s = self._retry(cursor).delays_s
        if tried.first_us:
            return tried.first_us + int(sum(delays_s) * 1e6)
        return tried.due_us + int(sum(delays_s[tried.attempts - tried.before :]) * 1e6)  # carried: nobody knows better

    def _retry(self, cursor: Cursor) -> RetryPolicy:
        return cursor.subscriber.settings.retry or self._state.queues[cursor.queue].queue.settings.retry


def _policy(cursor: Cursor) -> BreakerPolicy | None:
    """None for one without a breaker: it has said so, or is not posted to."""
    return None if cursor.subscriber.consumed else cursor.subscriber.settings.breaker


def _window(cursor: Cursor) -> int:
    return cursor.window if cursor.batch is None else cursor.batch.window


@lru_cache(4_096)
def origin_of(endpoint: str) -> str:
    """Scheme, host and port of an endpoint."""
    try:
        parts = urlsplit(endpoint)
        return f"{parts.scheme}://{parts.hostname}:{parts.port or _PORTS.get(parts.scheme, 0)}"
    except ValueError:  # one that an older version took
        return shown_endpoint(endpoint)
