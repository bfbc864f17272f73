"""The channels as the Space has them: bounded, closable, and read from this side only.

A frontend sees ``channels.Channel``: an object with ``put``. The committer takes from the other end. Items that cannot
be worked on yet (their queue is being changed by the same batch, or the disk must be asked first) go back to the front.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from syncbrok.model import limits
from syncbrok.model.errors import (
    BrokerFault,
    Draining,
    LogFull,
    LogUnavailable,
    NoDescriptors,
    Overloaded,
    SyncbrokError,
)
from syncbrok.space.channels import Publish, PublishListener

_log = logging.getLogger(__name__)

_command_bytes: Final = 1_000
"""what a command is taken to weigh: it holds names and settings"""
_shared_records_max: Final = 1_024
_shared_bytes_max: Final = limits.MIB
"""of units that are worked on together, so that a commit stays within its own bounds"""


class ChannelItem:
    """An item with its receipt. ``found`` is what was looked up for it on the disk (see ``acceptance``)."""

    __slots__ = ("found", "item", "receipt", "records", "size_bytes")

    def __init__(self, item: Any, receipt: "asyncio.Future[Any]", records: int, size_bytes: int) -> None:
        self.item = item
        self.receipt = receipt
        self.records = records
        self.size_bytes = size_bytes
        self.found: Any = None

    @property
    def units(self) -> Sequence[Publish]:
        """The units to accept, for an item that publishes."""
        return (self.item,)

    def resolve(self, result: object) -> None:
        if not self.receipt.done():  # whoever waited may have gone
            self.receipt.set_result(result)

    def refuse(self, why: BaseException) -> None:
        if not self.receipt.done():
            self.receipt.set_exception(why)


class SharedItem(ChannelItem):
    """Units of one message that came one after the other, with one ``listener`` for all of them: 0.5 us each, where an
    item and a future each take 3. Only bare messages come together; ``item`` is the first."""

    __slots__ = ("listener", "publishers", "units")

    def __init__(self, first: Publish, listener: PublishListener) -> None:
        self.item = first
        self.units: list[Publish] = []
        self.publishers: list[Any] = []
        self.listener = listener
        self.records = 0
        self.size_bytes = 0
        self.found = None

    def resolve(self, result: Any) -> None:
        # Here and now: whoever is answered before the next commit begins may have a part in it (see the committer).
        publishers, self.publishers = self.publishers, []  # each is told once
        if not publishers:
            return
        try:
            self.listener.accepted(self.units, publishers, result)
        except Exception:  # noqa: BLE001 (a frontend's mistakes are not the committer's)
            _log.exception("syncbrok.space.listener_failed", extra={"messages": len(publishers)})

    def refuse(self, why: BaseException) -> None:
        publishers, self.publishers = self.publishers, []
        if publishers:  # on the next turn: who is refused may put again, and must not be met here once more
            asyncio.get_running_loop().call_soon(self.listener.refused, publishers, why)

    def refuse_some(self, refused: Mapping[int, BaseException]) -> None:
        """Refuse the units at these places, as ``refuse`` does, and remove them."""
        loop = asyncio.get_running_loop()
        for one, why in zip(self.split_off(refused).publishers, refused.values(), strict=True):
            loop.call_soon(self.listener.refused, [one], why)

    def split_off(self, places: Mapping[int, object]) -> "SharedItem":
        """Move the units at these places (ascending, at least one) into an item of their own."""
        units = [self.units[place] for place in places]
        other = SharedItem(units[0], self.listener)
        other.units = units
        other.publishers = [self.publishers[place] for place in places]
        other.records = len(units)
        other.size_bytes = sum([unit.size_bytes for unit in units])
        self.units = [one for place, one in enumerate(self.units) if place not in places]
        self.publishers = [one for place, one in enumerate(self.publishers) if place not in places]
        return other


class ChannelStatistics(NamedTuple):
    records: int
    size_bytes: int
    records_max: int
    size_bytes_max: int
    refused: int
    """puts refused with ``Overloaded`` since the start"""


class BoundedChannel:
    """First in, first out; bounded in records (a unit of 500 messages is 500) and in bytes of content."""

    def __init__(
        self,
        wake: Callable[[], None],
        records_max: int = limits.channel_items_max,
        size_bytes_max: int = limits.channel_bytes_max,
    ) -> None:
        self._wake = wake
        self._records_max = records_max
        self._size_bytes_max = size_bytes_max
        self._line: deque[ChannelItem] = deque()
        self._joinable: SharedItem | None = None
        """the last in the line, where neighbours may still come into it"""
        self.records = 0
        """that wait"""
        self._size_bytes = 0
        self._refused = 0
        self._closed: Callable[[], BrokerFault] | None = None

    def put(self, item: Any) -> "asyncio.Future[Any]":
        """See ``channels.Channel``."""
        if self._closed is not None:
            raise self._closed()
        if type(item) is Publish:
            records, size_bytes = len(item.contents), item.size_bytes
        else:
            records, size_bytes = 1, _command_bytes
        self._check_room(records, size_bytes)
        receipt: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._line.append(ChannelItem(item, receipt, records, size_bytes))
        self._joinable = None
        self.records += records
        self._size_bytes += size_bytes
        self._wake()
        return receipt

    def put_shared(self, unit: Publish, publisher: Any, listener: PublishListener) -> None:
        """See ``channels.MessageChannel``. Bare neighbours with one listener become one item while they wait."""
        if self._closed is not None:
            raise self._closed()
        _, _, _, size_bytes, extras, keys, only = unit
        self._check_room(1, size_bytes)
        last = self._joinable
        if (
            last is None
            or last.listener is not listener
            or extras
            or keys
            or only
            or last.records >= _shared_records_max
            or last.size_bytes + size_bytes > _shared_bytes_max
        ):
            last = SharedItem(unit, listener)
            self._line.append(last)
            self._joinable = None if extras or keys or only else last
            self._wake()  # for whoever joins it too
        last.units.append(unit)
        last.publishers.append(publisher)
        last.records += 1
        last.size_bytes += size_bytes
        self.records += 1
        self._size_bytes += size_bytes

    def _check_room(self, records: int, size_bytes: int) -> None:
        """Raises ``Overloaded`` where the channel is too full. An item for an empty channel is always let in."""
        if (
            self.records + records > self._records_max or self._size_bytes + size_bytes > self._size_bytes_max
        ) and self._line:
            self._refused += 1
            raise Overloaded("too much is waiting to be written; try again in a second", retry_after_s=1)

    def take(self) -> ChannelItem | None:
        """The oldest; None where nothing waits."""
        if not self._line:
            return None
        waiting = self._line.popleft()
        if waiting is self._joinable:
            self._joinable = None
        self.records -= waiting.records
        self._size_bytes -= waiting.size_bytes
        return waiting

    def put_back(self, waiting: Iterable[ChannelItem]) -> None:
        """Put items back to the front, in this order. Items once let in pass the bounds, and ``close`` too."""
        for one in reversed(list(waiting)):
            self._line.appendleft(one)
            self.records += one.records
            self._size_bytes += one.size_bytes
            self._wake()

    def close(self, why: Callable[[], BrokerFault]) -> None:
        """Let ``put`` raise ``why()`` from now on. Waiting items are worked off."""
        self._closed = why

    def refuse_all(self, why: Callable[[], SyncbrokError]) -> None:
        while (waiting := self.take()) is not None:
            waiting.refuse(why())

    def __len__(self) -> int:
        return len(self._line)

    def statistics(self) -> ChannelStatistics:
        return ChannelStatistics(self.records, self._size_bytes, self._records_max, self._size_bytes_max, self._refused)

    def __repr__(self) -> str:
        return f"<BoundedChannel records={self.records}/{self._records_max} bytes={self._size_bytes}>"


class CommitterStatistics(NamedTuple):
    messages: ChannelStatistics
    queues: ChannelStatistics
    subscribers: ChannelStatistics
    rows_waiting: int
    jobs_waiting: int
    """steps of jobs that wait for the next batch"""
    writing: bool
    full: bool
    """no room on the disk"""
    suspended: bool
    """no attempts are made, since their outcomes could not be kept"""
    commits: int
    """since the start"""


def no_room(error: LogFull | None = None) -> LogFull:
    """The refusal that publishers get on a full disk. ``error`` is the log's own."""
    if isinstance(error, NoDescriptors):
        return NoDescriptors(error.detail)
    return LogFull("no room on the disk for the log; nothing was kept")


def unavailable() -> LogUnavailable:
    return LogUnavailable("the log has failed and the broker is stopping; whether it was kept is not known")


def stopping() -> Draining:
    return Draining("the broker is stopping; try again when it has started")


def stopped() -> Draining:
    return Draining("the broker has stopped; nothing was kept")


def mark_retrieved(receipt: "asyncio.Future[Any]") -> None:
    """For the receipt of a step that nobody awaits: mark its error as seen. It is only refused when the log is, which
    is reported elsewhere."""
    if not receipt.cancelled():
        receipt.exception()


def resolve_all(waiting: Iterable["asyncio.Future[None]"], error: BaseException | None) -> None:
    for one in waiting:
        if not one.done():
            one.set_exception(error) if error is not None else one.set_result(None)
