"""Finds messages by what they are, how they stand and what is in them, a bounded stretch of the log at a time.

    range     the sequences between which one may be: by ``since``, ``until`` and the page before
    index     those of the queues, or of the key, in that range, some thousands at once
    memory    how they stand, asked on the event loop: most that stand otherwise are passed over unread
    read      the others with their contents and rows, a slice at a time in a reader's thread, and looked into there
    report    how a delivery stands is judged as it is told

A page ends after ``limits.search_s`` of that, wherever it has come to: ``next`` is the last message looked at.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from time import perf_counter
from typing import Final, NamedTuple

from syncbrok.model import limits
from syncbrok.model.errors import Malformed
from syncbrok.model.facts import Reason, StoredMessage
from syncbrok.model.journal import MessageIndex
from syncbrok.model.message import Subscriber
from syncbrok.model.names import QueueName, id_text
from syncbrok.space.channels import BEGINNING, Bound
from syncbrok.space.pause import Pause
from syncbrok.space.queries.deliveries import DeliveryReports, reason_text
from syncbrok.space.queries.message_rows import MessageRows
from syncbrok.space.queries.reading import SLICE, Reading, Stored, read_in_pieces, rows_of_many, stored
from syncbrok.space.queries.sources import Sources
from syncbrok.space.queries.wait_explanation import ENDED_DELIVERIES

MESSAGE_STATES: Final = ("scheduled", "waiting", "held", "pending", "complete", "dead", "expired", "dropped")
DELIVERY_STATES: Final = (
    "blocked",
    "pending",
    "in_flight",
    "retrying",
    "paused",
    "delivered",
    "skipped",
    "dead",
    "expired",
    "dropped",
)
REASONS: Final = tuple(sorted(reason_text(one) for one in Reason if one))

_TOGETHER: Final = 2_000
"""candidates asked of the index at once"""
_KEYED_MOST: Final = 20_000
"""of a key, looked up to find its oldest; where there are more, all of the range are candidates"""
_PIECE_BYTES: Final = 256 * limits.KIB
"""of a content, looked at before others have the interpreter"""
_NO_ROWS: Final = MessageRows(())
_UNROWED: Final = reason_text(Reason.UNSUBSCRIBED)
"""no row needs to say it: a deleted subscriber's deliveries have it"""


class Sought(NamedTuple):
    """The messages that are sought: those of which all of it is true. ``state`` and ``reason``: of the delivery to
    ``subscriber`` (its queue is named too), where there is one; else the state of the message, and the reason of any of
    its deliveries. ``text``: see ``docs/interfaces.md``. ``since``: inclusive, ``until``: exclusive."""

    queue: str | None = None
    subscriber: str | None = None
    state: str | None = None
    reason: str | None = None
    text: str | None = None
    key: str | None = None
    idempotency_key: str | None = None
    since: Bound = BEGINNING
    until: Bound = BEGINNING
    newest_first: bool = True


class _Range(NamedTuple):
    """A range of sequences, both ends excluded."""

    after: int
    before: int

    def beyond(self, sequence: int, *, newest_first: bool) -> "_Range":
        """The rest of it behind that message."""
        return self._replace(before=sequence) if newest_first else self._replace(after=sequence)


class _Looked(NamedTuple):
    """The messages of a slice that fit so far, with their rows where these are wanted; and how many were looked at."""

    fitting: list[tuple[Stored, MessageRows]]
    looked_at: int


class Search:
    """Keeps nothing between two pages."""

    def __init__(self, sources: Sources, reading: Reading, deliveries: DeliveryReports) -> None:
        self._sources = sources
        self._reading = reading
        self._deliveries = deliveries

    async def page(
        self, sought: Sought, position: int, limit: int, may_see: Callable[[QueueName], bool] | None, pause: Pause
    ) -> tuple[list[Stored], int | None]:
        """At most ``limit`` messages beyond the sequence ``position`` (0: from the first on), of queues that
        ``may_see``; and the position of the next page, None where there is nothing more to look at. Raises
        ``UnknownQueue``, ``UnknownSubscriber`` and ``Malformed``."""
        until_s = perf_counter() + limits.search_s
        queues, one = self._where(sought, may_see)
        range_ = await self._range(sought, position)
        found: list[Stored] = []
        while True:
            some = await self._candidates(sought, queues, range_)
            for at in range(0, len(some), SLICE):
                piece = some[at : at + SLICE]
                asked = [sequence for sequence in piece if self._may_stand(sought, one, sequence)]
                looked = await self._look(asked, _Fits(sought, queues, one), until_s)
                for entry, rows in looked.fitting:
                    if self._stands(sought, one, entry.message, rows):
                        self._reading.remember(entry.message)
                        found.append(entry)
                    await pause()
                if len(found) > limit:
                    return found[:limit], found[limit - 1].message.sequence
                if perf_counter() >= until_s:
                    return found, piece[-1] if looked.looked_at == len(asked) else asked[looked.looked_at - 1]
                await pause()
            if len(some) < _TOGETHER:
                return found, None
            range_ = range_.beyond(some[-1], newest_first=sought.newest_first)

    async def _look(self, sequences: Sequence[int], fits: "_Fits", until_s: float) -> _Looked:
        if not sequences:
            return _Looked([], 0)
        return await self._sources.run_blocking(_look, self._sources.journal, sequences, fits, until_s)

    # -- where to look ------------------------------------------------------------------------------------------------

    def _where(
        self, sought: Sought, may_see: Callable[[QueueName], bool] | None
    ) -> tuple[Collection[int] | None, Subscriber | None]:
        """The queues to look in, None for all that there have been; and the subscriber."""
        states = MESSAGE_STATES if sought.subscriber is None else DELIVERY_STATES
        if sought.state is not None and sought.state not in states:
            of = "message" if sought.subscriber is None else "delivery"
            raise Malformed(
                f"state: no {of} can be {sought.state!r}, only {', '.join(states)} (of a message without subscriber=, "
                "of its delivery with it)",
                state=sought.state,
            )
        registry = self._sources.registry
        if sought.subscriber is not None:
            if sought.queue is None:
                raise Malformed("subscriber: name its queue too, ?queue=...&subscriber=...", parameter="subscriber")
            one = registry.subscriber(sought.queue, sought.subscriber)
            return {one.queue}, one
        if sought.queue is not None:
            return {registry.queue(sought.queue).number}, None
        if may_see is None:
            return None, None
        return {queue.number for name, queue in registry.queues.items() if may_see(name)}, None

    async def _range(self, sought: Sought, position: int) -> _Range:
        journal, run_blocking = self._sources.journal, self._sources.run_blocking
        after, before = max(sought.since.sequence - 1, 0), sought.until.sequence or journal.next_sequence
        if sought.since.time_us:
            first = await run_blocking(journal.first_at, sought.since.time_us)
            # A carried message is older than the log's first fact, and tells its time itself.
            after = max(after, first - 1 if first > journal.first_sequence else 0)
        if sought.until.time_us:
            before = min(before, await run_blocking(journal.first_at, sought.until.time_us))
        range_ = _Range(after, before)
        if not position:
            return range_
        if sought.newest_first:
            return range_._replace(before=min(before, position))
        return range_._replace(after=max(after, position))

    async def _candidates(self, sought: Sought, queues: Collection[int] | None, range_: _Range) -> list[int]:
        """The next ``_TOGETHER`` in the order wanted, fewer at the end."""
        journal, run_blocking = self._sources.journal, self._sources.run_blocking
        if sought.idempotency_key is not None:
            every = await run_blocking(journal.with_idempotency_key, sought.idempotency_key, None, 0)
            inside = [one for one in every if range_.after < one < range_.before]
            return (inside if sought.newest_first else inside[::-1])[:_TOGETHER]
        if sought.key is not None and sought.newest_first:
            keyed = await run_blocking(journal.with_key, sought.key, None, _TOGETHER, range_.before)
            if keyed and keyed[-1] <= range_.after:
                return [one for one in keyed if one > range_.after][: _TOGETHER - 1]
            return keyed
        if sought.key is not None:  # the index answers newest first: the oldest are known once all of them are
            keyed = await run_blocking(journal.with_key, sought.key, None, _KEYED_MOST, range_.before)
            if len(keyed) < _KEYED_MOST or keyed[-1] <= range_.after:
                return [one for one in reversed(keyed) if one > range_.after][:_TOGETHER]
        return await run_blocking(
            journal.sequences_between, queues, *range_, _TOGETHER, newest_first=sought.newest_first
        )

    # -- from memory --------------------------------------------------------------------------------------------------

    def _may_stand(self, sought: Sought, one: Subscriber | None, sequence: int) -> bool:
        """False where memory alone says that it does not stand so, or is gone."""
        if self._sources.erasures.is_past(sequence):
            return False
        schedule = self._sources.schedule
        if sought.state is None:
            return True
        if one is None:
            return schedule.message_state(sequence) == sought.state
        state = schedule.delivery_state(sequence, one.number)
        if sought.state not in ENDED_DELIVERIES:
            return state == sought.state
        if state == "delivered" and sought.state != "delivered":
            # It may have been skipped, which the log alone knows; what counts there has not ended badly.
            return sought.state == "skipped" or not one.counted_by(sequence)
        return state in ENDED_DELIVERIES

    def _stands(self, sought: Sought, one: Subscriber | None, message: StoredMessage, rows: MessageRows) -> bool:
        """Whether its delivery, or one of its deliveries, stands as is wanted."""
        if one is not None:
            report = self._deliveries.at(message, rows, one)
            wanted = None if report is None else (sought.state or report.state, sought.reason or report.reason)
            return report is not None and wanted == (report.state, report.reason)
        if sought.reason is None:
            return True
        return any(report.reason == sought.reason for report in self._deliveries.with_attempts(message, rows))


# -- in a reader's thread ---------------------------------------------------------------------------------------------


def _look(journal: MessageIndex, sequences: Sequence[int], fits: "_Fits", until_s: float) -> _Looked:
    """One of them at least, and no more than there is time for."""
    fitting: list[tuple[Stored, MessageRows]] = []
    count = 0
    for some in read_in_pieces(journal, sequences):
        count += len(some)
        chosen = [stored(message) for message in some if message is not None and fits.message(message)]
        rows = [_NO_ROWS] * len(chosen)
        if fits.wants_rows:
            rows = rows_of_many(journal, [one.message.sequence for one in chosen])
        fitting += [one for one in zip(chosen, rows, strict=True) if fits.rows(one[1])]
        if perf_counter() >= until_s:
            break
    return _Looked(fitting, count)


class _Fits:
    """Says whether a message has what is sought in it."""

    def __init__(self, sought: Sought, queues: Collection[int] | None, one: Subscriber | None) -> None:
        self.wants_rows = one is not None or sought.reason is not None
        self._sought = sought
        self._queues = queues
        self._text = (sought.text or "").encode("utf-8", "surrogatepass").lower()

    def message(self, message: StoredMessage) -> bool:
        sought = self._sought
        if self._queues is not None and message.queue not in self._queues:  # whoever comes by a key may
            return False
        if sought.key is not None and (message.erased or message.key != sought.key):
            return False
        if sought.idempotency_key is not None and (message.erased or message.idempotency_key != sought.idempotency_key):
            return False
        if message.time_us < sought.since.time_us or message.time_us >= (sought.until.time_us or message.time_us + 1):
            return False
        return not self._text or self._has_text(message)

    def _has_text(self, message: StoredMessage) -> bool:
        wanted = self._text
        if wanted in message.content[:_PIECE_BYTES].lower():
            return True
        if any(wanted in words.encode("utf-8", "surrogatepass").lower() for words in _words(message)):
            return True
        content, more = message.content, _PIECE_BYTES + len(wanted) - 1
        return any(
            wanted in content[at : at + more].lower() for at in range(0, len(content) - len(wanted) + 1, _PIECE_BYTES)
        )

    def rows(self, rows: MessageRows) -> bool:
        """Whether one of them may give the reason."""
        reason = self._sought.reason
        return not self.wants_rows or reason in (None, _UNROWED) or rows.any_of(reason_of(reason))


def _words(message: StoredMessage) -> Iterator[str]:
    yield id_text(message.id)
    yield message.content_type
    if not message.erased:
        yield message.key
        for header in message.headers:
            yield from header


def reason_of(text: str | None) -> Reason:
    """The reason with that name in answers."""
    return Reason[(text or "none").upper()]
