"""Drives the scheduler and the handlers: attempts out, answers back, rows to record.

One pump per turn of the event loop, and only when there is something to do. It settles the answers of the turn before,
asks for the ends the rules demand, hands over every row as one list, takes new attempts and gives those of one
subscriber to its handler in one call. Messages that are not in memory are read first, in runs, by two readers, and with
them those that come next; the readers and ``run`` are the only tasks.

An attempt is recorded once, when its answer is settled. One that was taken and not answered when the dispatcher ends is
not recorded at all: it stays pending and is made again after the restart, with the same number.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final

from syncbrok.delivery.attempt_guard import AttemptGuard
from syncbrok.delivery.dispatch.content_room import ContentRoom
from syncbrok.delivery.dispatch.message_loader import READERS, MessageLoader
from syncbrok.delivery.dispatch.reorder_buffer import Pair
from syncbrok.delivery.dispatch.schedule import SchedulerLike
from syncbrok.delivery.filtering.filter_contexts import FilterContexts, FilterVerdict
from syncbrok.delivery.filtering.message_filter import MessageFilter, compile_filter
from syncbrok.delivery.handler import (
    NEVER,
    Attempt,
    AttemptResult,
    Delivery,
    DeliveryBatch,
    Destination,
    Handler,
    members_of,
)
from syncbrok.delivery.scheduler.shares import Shares, own_shares
from syncbrok.model import limits
from syncbrok.model.errors import SyncbrokError
from syncbrok.model.event_types import EVENTS_QUEUE
from syncbrok.model.facts import Reason, Row, StoredMessage
from syncbrok.model.message import Subscriber

ATTEMPTS_PER_TURN = 64
"""taken in one turn of the loop, so that it goes on to other work: with 128 a neighbour of a thousand subscribers that
are served at once waited for 5 ms more, and delivering was no quicker"""
ANSWERS_PER_TURN = 256
FEW = 4
"""while no more attempts than this are out, what waits for them is made ready"""
POLL_S = 0.002
"""when work is due that could not be done in this turn (a window is full, the log is behind)"""
WITHHELD_POLL_S = 0.02
"""while the lease does not hold"""
_WAYS_MAX = 16_384
"""subscribers whose handlers are remembered"""

_UNCHARGED_BYTES: Final = limits.content_uncharged_bytes
_PASSES: Final = Reason.NONE

_Route = tuple[Destination, Handler, MessageFilter | None, bool]
"""with whether its messages go out several in one request"""
_Keep = Callable[[Delivery], None]


class Dispatcher:
    """Takes attempts from the scheduler to handlers, and answers back.

    ``handlers`` gives the handler of a subscriber; ``destination`` gives, for its number, where its messages go
    (``LookupError`` or a ``SyncbrokError`` once it is deleted). ``read`` and ``in_memory``: see ``MessageLoader``.
    ``cached`` makes messages that are in memory; they are asked for in ascending order. ``recorded`` takes the rows to
    log, and whether somebody waits for one of them. ``jitter`` is in -1..1. ``shares`` are the scheduler's, which hands
    out by them. Attempts are taken while ``attempt_guard`` lets them. ``filter_failed`` is told of a message of which
    the filter of its subscriber says neither yes nor no, and what went wrong. ``erased`` says of a message that cannot
    be read whether an operator has erased it.
    """

    def __init__(
        self,
        scheduler: SchedulerLike,
        handlers: Callable[[Subscriber], Handler],
        read: Callable[[Sequence[int]], Awaitable[list[StoredMessage | None]]],
        cached: Callable[[Sequence[int]], list[StoredMessage | None]],
        in_memory: Callable[[int], bool],
        recorded: Callable[[list[Row], bool], None],
        destination: Callable[[int], Destination],
        durable: Callable[[], int],
        clock_us: Callable[[], int],
        jitter: Callable[[], float],
        shares: Shares | None = None,
        attempt_guard: AttemptGuard | None = None,
        filter_failed: Callable[[Attempt, bytes], None] | None = None,
        erased: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self._scheduler = scheduler
        self._batches = scheduler.batches
        self._attempt_guard = attempt_guard or AttemptGuard()
        self._erased = erased
        self._handlers = handlers
        self.cached = cached
        self._recorded = recorded
        self._destination = destination
        self._durable = durable
        self._clock_us = clock_us
        self._jitter = jitter
        self._routes: dict[int, _Route] = {}
        """by subscriber, as long as ``destination`` gives the same answer"""
        self._met: set[Handler] = set()
        """all that were given something"""
        self.in_flight = 0
        """attempts taken and not settled"""
        self._shares = shares = shares or own_shares()
        self._room = ContentRoom(shares.content, shares.short)
        self._answers: deque[tuple[Attempt, AttemptResult]] = deque()
        self._contexts = FilterContexts()
        self._filter_us = 0
        """about how long filters took in this turn"""
        self._filter_failed = filter_failed
        self._loader = MessageLoader(self, self._room, read, in_memory, scheduler.upcoming, destination)
        self.keep = self._loader.ahead.keep
        """puts by messages that others have read, for those who will ask for them"""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pumping = False
        self._draining = False
        self._over = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_us = 0
        self._ended: asyncio.Future[None] | None = None
        self._idle: asyncio.Future[None] | None = None

    @property
    def bytes_in_flight(self) -> int:
        """Content of attempts that are out and of leases not written yet, without the small ones."""
        return self._room.used_bytes

    def __repr__(self) -> str:
        return (
            f"<Dispatcher: {self.in_flight} in flight, {self._room.used_bytes} bytes, {len(self._loader)} to read"
            f"{', draining' if self._draining else ''}>"
        )

    # -- its life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Deliver until ``drain`` is over or this is cancelled. Raises whatever the scheduler, ``read`` or ``recorded``
        raises: then the Space must stop."""
        if self._over:
            return
        self._loop = asyncio.get_running_loop()
        self._ended = ended = self._loop.create_future()
        try:
            async with asyncio.TaskGroup() as group:
                readers = [group.create_task(self._loader.run(), name="syncbrok reader") for _ in range(READERS)]
                self.wake()
                await ended
                for reader in readers:
                    reader.cancel()
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the others are its consequences
        except asyncio.CancelledError:
            self._settle_all()
            raise
        finally:
            self._loop = None
            self._stop_timer()

    def handlers_changed(self) -> None:
        """``handlers`` may answer otherwise than before."""
        self._routes.clear()

    def wake(self) -> None:
        """Something may be deliverable: pump on the next turn of the loop, once however often this is called."""
        if self._loop is not None and not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._turn)

    def offer(self, subscriber: int, room: int) -> None:
        """Set how many deliveries the consumers of a subscriber (number) have room for."""
        self._scheduler.offer(subscriber, room)
        if not room and subscriber in self._room.waiting:  # they would be read for nobody
            self._loader.withdraw(subscriber, self._room.messages_waiting(subscriber))
        self.wake()

    def awaited(self, message: int) -> bool:
        """Whether somebody waits for the message (a sequence) to end: a child, a publisher."""
        return self._scheduler.awaited(message)

    def clock_stepped(self) -> None:
        """The wall clock was set: what was to wake the pump was set for a time by the old one."""
        self._stop_timer()
        self.wake()

    async def drain(self, timeout_s: float) -> None:
        """Start no new attempts, wait at most ``timeout_s`` for those in flight, then let ``run`` return. Attempts
        without an answer by then stay pending and are not recorded."""
        self._draining = True
        self.in_flight -= self._loader.clear()  # never begun
        self.put_back(_pairs(self._batches.clear()))
        if self._loop is not None and self.in_flight:
            self._idle = self._loop.create_future()
            await asyncio.wait((self._idle,), timeout=timeout_s)
        self._settle_all()
        self._over = True
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    # -- the pump -----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._loop is None:
            self._pumping = False
            return
        try:
            self._pump()
        except BaseException as error:
            # A callback's exception would only be logged; this one must stop the Space.
            if self._ended is not None and not self._ended.done():
                self._ended.set_exception(error)
            if not isinstance(error, Exception):
                raise

    def _pump(self) -> None:
        now_us = self._clock_us()
        # Before taking: of what is durable on the spot the children are taken in this turn.
        settled = self._settle(now_us, ANSWERS_PER_TURN)
        self._pumping = False
        self._withdraw()  # before taking: a child may go once its parent has ended, and then no attempt of that begins
        taken = 0
        if not self._draining:
            taken = self._take(now_us)
            if self._batches.lines:
                self._send_batches(now_us)
            self._loader.wake()
        elif not self.in_flight and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        # After ``take``, which is told the time: what expired just now is owed now, and nothing else may ever wake us.
        owed = self._scheduler.take_pending_ends(now_us, limits.cascade_slice)
        self._withdraw()
        if owed:
            self._recorded(owed, True)
        if self._answers or taken == ATTEMPTS_PER_TURN or self._scheduler.owes_ends:
            self.wake()
        elif not self._draining:
            self._set_timer(now_us, progress=bool(taken or settled or owed))

    def _withdraw(self) -> None:
        """Take attempts that should not begin any more back from the loader and the handlers."""
        for subscriber, messages in self._scheduler.given_up().items():
            self._loader.withdraw(subscriber, messages)
            self.put_back(_pairs(self._batches.withdraw(subscriber, messages)))
            for handler in self._met:
                handler.withdraw(subscriber, messages)

    def _take(self, now_us: int) -> int:
        """Take what there is room for, of each subscriber, and hand it out; how many that were."""
        if self._attempt_guard.looks and not self._attempt_guard.lets_take():
            return 0
        out, leases = self._shares.attempts, self._shares.leases
        out.used = self.in_flight - leases.used
        room = min(ATTEMPTS_PER_TURN, max(out.free, leases.free))
        if room <= 0:
            return 0
        attempts = self._scheduler.take(now_us, self._durable(), room)
        if attempts:
            self._hand_out(attempts)
            if self.in_flight <= FEW and self._loop is not None:
                self._loop.call_soon(self._make_ready, attempts)
        return len(attempts)

    def _set_timer(self, now_us: int, *, progress: bool) -> None:
        due_us = self._scheduler.next_due_us()
        if self._batches.lines and (batch_us := self._batches.next_due_us()) is not None:
            due_us = batch_us if due_us is None else min(due_us, batch_us)
        if self._attempt_guard.looks and not self._attempt_guard.lease.holds():
            due_us = now_us + int(WITHHELD_POLL_S * 1e6)  # nobody says when it holds again
        if due_us is None:
            self._stop_timer()
            return
        if due_us <= now_us:
            if progress:
                self.wake()
                return
            due_us = now_us + int(POLL_S * 1e6)
        if self._timer is not None:
            if self._timer_due_us <= due_us and self._timer_due_us > now_us:
                return  # it wakes the pump early enough, which then sets the next
            self._timer.cancel()
        assert self._loop is not None
        self._timer_due_us = due_us
        self._timer = self._loop.call_later((due_us - now_us) / 1e6, self._timer_rang)

    def _timer_rang(self) -> None:
        self._timer = None
        self.wake()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget(self, messages: Iterable[int]) -> None:
        """These are erased: what was read of them ahead of need is not delivered, and nothing of it is kept."""
        messages = list(messages)
        if self._batches.lines:
            self.put_back(_pairs(self._batches.forget(messages)))
        self._loader.forget(messages)
        self._contexts.forget(messages)

    # -- answers ------------------------------------------------------------------------------------------------------

    def _done(self, delivery: Delivery, answer: AttemptResult | None) -> None:
        """Called by the handlers; the settling waits for the turn, so that rows are recorded together. When nothing
        else is out there is no company to wait for, and a chain need not wait for the turn."""
        if len(delivery.message.content) > _UNCHARGED_BYTES:
            self._room.release(delivery.attempt.subscriber, delivery.message)
        if answer is None:
            self.in_flight -= 1
            self._scheduler.give_back((delivery.attempt,))
            self._loader.order.came_back(delivery.attempt)
            self.wake()
            return
        self._answers.append((delivery.attempt, answer))
        if self._pumping:
            return
        if self.in_flight == 1:
            self._pumping = True
            self._turn()
        else:
            self.wake()

    def _batch_done(self, delivery: Delivery, answer: AttemptResult | None) -> None:
        """As ``_done``: the one answer is that of each message."""
        members = members_of(delivery)
        if answer is not None and len(members) > 1:
            # A message that goes round must not end the others with it: they are tried by fewer.
            retry_after_s = None if answer.reason is Reason.STATUS and answer.retry_after_s == NEVER else answer[2]
            answer = answer._replace(retry_after_s=retry_after_s, together=len(members))
        for place, member in enumerate(members):
            self._done(member, answer if answer is None or not place else answer._replace(place=place))

    def written(self, delivery: Delivery) -> None:
        """The message of a lease was written to its peer: its content is dropped from memory."""
        if len(delivery.message.content) > _UNCHARGED_BYTES:
            self._room.release(delivery.attempt.subscriber, delivery.message)
            self.wake()

    def _settle(self, now_us: int, answers_max: int) -> int:
        """Record what has come back, at most so many; how many that were."""
        answers = self._answers
        count = min(len(answers), answers_max)
        if count:
            came = [answers.popleft() for _ in range(count)]
            while answers and answers[0][1].place:  # the rows of a batch are recorded together
                came.append(answers.popleft())
            count = len(came)
            self.in_flight -= count
            self._recorded(*self._scheduler.settle(came, now_us, self._jitter))
        return count

    def _settle_all(self) -> None:
        """Nothing that was answered is left behind."""
        self._settle(self._clock_us(), len(self._answers))

    # -- attempts -----------------------------------------------------------------------------------------------------

    def _hand_out(self, attempts: list[Attempt]) -> None:
        """To the handlers what is in memory, to the readers the rest."""
        loader = self._loader
        ahead, order = loader.ahead.messages, loader.order
        self.in_flight += len(attempts)
        # A message for several subscribers is looked up once, and neighbours together.
        others = sorted({attempt[0] for attempt in attempts if attempt[0] not in ahead})
        recent = dict(zip(others, self.cached(others), strict=True)) if others else {}
        pairs: list[Pair] = []
        for attempt in attempts:
            message = ahead.get(attempt[0]) or recent.get(attempt[0])
            if message is None:
                loader.fetch(attempt)
                continue
            if len(message.content) > _UNCHARGED_BYTES and not self._room.admit(attempt[1], message):
                loader.put_off(attempt)
                continue
            if order.lines and attempt[1] in order.lines:
                order.follow(attempt, message)
                continue
            pairs.append((attempt, message))
        if pairs:
            self.fetched(pairs)

    def fetched(self, pairs: list[Pair]) -> None:
        """See ``message_loader.Receiver``. To the handlers, each gets all of its own in one call."""
        handler: Handler | None = None
        filter_: MessageFilter | None = None
        later: list[Pair] = []
        self._filter_us = 0
        number = -1
        deliveries: list[Delivery] = []
        keep: _Keep = deliveries.append
        new = tuple.__new__  # past the Python-level __new__ of a NamedTuple, which takes three times as long
        for attempt, message in pairs:
            if attempt[1] != number:  # those of one subscriber stand together
                number = attempt[1]
                way = self._way(number)
                filter_ = way and way[2]
                if way is not None and way[1] is not handler:
                    if handler is not None:
                        handler.deliver(deliveries, self._done)
                    handler, deliveries = way[1], []
                if way is not None:
                    keep = self._keeper(number) if way[3] else deliveries.append
            if way is None:
                self._room.release(number, message)
                self._answers.append((attempt, AttemptResult(Reason.UNSUBSCRIBED)))
                self.wake()
                continue
            if message.expires_us and self._is_too_late(attempt, message):
                continue
            if filter_ is not None and not self._lets_through(filter_, attempt, message, way[0].queue, later):
                continue
            keep(new(Delivery, (attempt, message, way[0])))
        if handler is not None and deliveries:
            handler.deliver(deliveries, self._done)
        self.put_back(later)
        self._read_on(pairs)

    def _keeper(self, number: int) -> _Keep:
        """Where deliveries wait that go out with others."""
        line, now_us = self._batches.line(number), self._clock_us()
        self.wake()
        if line is None:  # deleted or declared otherwise, as what was read of it will hear
            return lambda delivery: self.put_back([delivery[:2]])
        return lambda delivery: self._batches.put(line, delivery, now_us)

    def _send_batches(self, now_us: int) -> None:
        """Hand out what waits long enough to go out together, or is enough."""
        batches, gone = self._batches.take(now_us)
        self.put_back(_pairs(gone))
        for number, line, members in batches:
            way = self._way(number)
            going = [] if way is None else [one for one in members if not self._is_too_late(one.attempt, one.message)]
            if way is None:
                self.put_back(_pairs(members))
            line.dropped(len(members) - len(going))
            over = partial(self._batches.over, number, line, len(going))
            if way is None or not going:
                over()
                continue
            started = [one._replace(attempt=one.attempt._replace(started_us=now_us)) for one in going]
            way[1].deliver([DeliveryBatch(started, way[0])], partial(self._batch_over, over))

    def _batch_over(self, over: Callable[[], None], delivery: Delivery, answer: AttemptResult | None) -> None:
        over()
        self._batch_done(delivery, answer)

    def _is_too_late(self, attempt: Attempt, message: StoredMessage) -> bool:
        """Whether the message's time is over, and it ends without this attempt."""
        expires_us = message.expires_us
        if not expires_us or expires_us > self._clock_us() or not self._scheduler.expire(attempt):
            return False
        self._room.release(attempt.subscriber, message)
        self.too_late(1)
        return True

    def _read_on(self, pairs: list[Pair]) -> None:
        """See to it that what comes after these is read in time."""
        ahead = self._loader.ahead
        if ahead.marks:
            last_of = {attempt[1]: attempt[0] for attempt, _ in pairs}
            if any(ahead.passed(subscriber, sequence) for subscriber, sequence in last_of.items()):
                self._loader.wake()

    def _lets_through(
        self, wanted: MessageFilter, attempt: Attempt, message: StoredMessage, queue: str, later: list[Pair]
    ) -> bool:
        """True if the subscriber's filter lets the message through. Else it is skipped; or, where filters have taken
        enough of this turn of the loop, put to ``later``."""
        if message.only and queue != EVENTS_QUEUE:
            return True  # a test
        if self._filter_us > limits.filter_work_us_max:
            later.append((attempt, message))
            return False
        verdict = self._contexts.verdict(wanted, message, queue)
        self._filter_us += verdict.work_us
        if verdict.reason is not _PASSES:
            self._skip(attempt, message, verdict)
        return verdict.reason is _PASSES

    def _skip(self, attempt: Attempt, message: StoredMessage, verdict: FilterVerdict) -> None:
        """Note that the message is not for this subscriber."""
        self._room.release(attempt.subscriber, message)
        self._answers.append((attempt, AttemptResult(verdict.reason, detail=verdict.detail)))
        if verdict.reason is Reason.FILTER_ERROR and self._filter_failed is not None:
            self._filter_failed(attempt, verdict.detail)
        self.wake()

    def _way(self, number: int) -> _Route | None:
        """Destination and handler of a subscriber; None once it is deleted."""
        try:
            to = self._destination(number)
            way = self._routes.get(number)
            if way is None or way[0] is not to:
                if len(self._routes) >= _WAYS_MAX:
                    self._routes.clear()
                together = to.subscriber.settings.batch is not None
                way = self._routes[number] = (to, self._handlers(to.subscriber), _filter_of(to.subscriber), together)
                self._met.add(way[1])
        except (LookupError, SyncbrokError):  # deleted while its messages were read; the scheduler knows
            return None
        return way

    def lost(self, attempt: Attempt) -> None:
        """See ``message_loader.Receiver``."""
        lost = AttemptResult(Reason.CONTENT_LOST, detail=b"its record is gone from the log")
        erased = self._erased(attempt.message)
        self._answers.append((attempt, AttemptResult(Reason.ERASED) if erased else lost))
        self.wake()

    def may_begin(self, pairs: list[Pair]) -> list[Pair]:
        """See ``message_loader.Receiver``."""
        gone = [pair for pair in pairs if not self._scheduler.stands(pair[0])]
        self.put_back(gone)
        back = {attempt for attempt, _ in gone}
        return [pair for pair in pairs if pair[0] not in back]

    def put_back(self, pairs: list[Pair]) -> None:
        """See ``message_loader.Receiver``."""
        if pairs:
            for attempt, message in pairs:
                self._room.release(attempt.subscriber, message)
            self.not_begun([attempt for attempt, _ in pairs])

    def not_begun(self, attempts: list[Attempt]) -> None:
        """See ``message_loader.Receiver``."""
        if attempts:
            self._scheduler.give_back(attempts)
            self.too_late(len(attempts))

    def too_late(self, count: int) -> None:
        """See ``message_loader.Receiver``."""
        self.in_flight -= count
        self.wake()

    def _make_ready(self, attempts: list[Attempt]) -> None:
        """While these attempts are out and there is little else to do: find the first message that waits for each and
        prepare its request. Prepared requests save a chain of messages time at every hop. Content that is not in memory
        is read."""
        for attempt in attempts:
            children = self._scheduler.children(attempt.message, 1)
            if not children:
                continue
            message = self.cached(children)[0]
            if message is None:
                # A wide tree would wait for its first read. No more than a turn of it: there is little time.
                first = self._scheduler.children(attempt.message, ATTEMPTS_PER_TURN)
                self._loader.expect(attempt.subscriber, first)
                continue
            way = self._way(attempt.subscriber)
            if way is not None and not way[3] and message.queue == way[0].subscriber.queue:
                self.keep({message.sequence: message})
                following = Attempt(message.sequence, attempt.subscriber, 1, 0, 0, 0)
                way[1].make_ready(Delivery(following, message, way[0]))


def _pairs(deliveries: Iterable[Delivery]) -> list[Pair]:
    return [(one.attempt, one.message) for one in deliveries]


def _filter_of(subscriber: Subscriber) -> MessageFilter | None:
    text = subscriber.settings.filter
    return None if text is None else compile_filter(text)
