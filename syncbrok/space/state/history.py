"""The last day of the broker and its queues, minute by minute: as it is kept in memory, and as bytes of a file. Pure.

A minute stands compressed, some hundred bytes of it where there are few queues. Each has a checksum of its own in the
file: where that is torn or damaged, the minutes are lost that do not fit theirs, and no start fails for it.

Minutes are those of the wall clock. Where that is set back, minutes come again: what they count is added up. Those that
lie far ahead of it then are let go of, since nobody can tell when they were.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from struct import Struct
from typing import Any, Final, NamedTuple

import orjson

from syncbrok.model import limits

MINUTE_US: Final = 60_000_000
_MAGIC: Final = b"syncbrok history 1\n"
_HEAD: Final = Struct("<QII")
"""the minute (since 1970), length and CRC-32 of what follows"""
_AHEAD: Final = 60
"""minutes that may lie ahead of the newest: of a clock that was set back"""


class Figures(NamedTuple):
    """The figures of a minute. ``accepted`` counts messages, ``delivered`` and ``failed`` attempts, ``dead`` those that
    died. ``backlog`` and ``oldest_ms`` (0 for none): as it ended. ``latencies``: how many of those delivered, by
    bound."""

    accepted: int = 0
    delivered: int = 0
    failed: int = 0
    dead: int = 0
    backlog: int = 0
    oldest_ms: int = 0
    latencies: tuple[int, ...] = ()

    @property
    def happened(self) -> int:
        return self.accepted + self.delivered + self.failed + self.dead

    def then(self, later: "Figures") -> "Figures":
        """The figures of this time and a ``later`` one of the same minute."""
        return self._counted_with(later, later.backlog, later.oldest_ms)

    def beside(self, other: "Figures") -> "Figures":
        """The figures of two queues together."""
        return self._counted_with(other, self.backlog + other.backlog, max(self.oldest_ms, other.oldest_ms))

    def _counted_with(self, other: "Figures", backlog: int, oldest_ms: int) -> "Figures":
        return Figures(
            self.accepted + other.accepted,
            self.delivered + other.delivered,
            self.failed + other.failed,
            self.dead + other.dead,
            backlog,
            oldest_ms,
            tuple([one + more for one, more in zip_longest(self.latencies, other.latencies, fillvalue=0)]),
        )


NOTHING: Final = Figures()


class Minute(NamedTuple):
    """``number``: minutes since 1970. ``queues``: those with the most to tell, by name."""

    number: int
    whole: Figures
    queues: Mapping[str, Figures]

    def of(self, queue: str | None, may_see: Callable[[str], bool] | None) -> Figures | None:
        """The figures of a queue, None where they are not kept; without ``queue`` of the broker, or of those queues
        that ``may_see``."""
        if queue is not None:
            return self.queues.get(queue)
        if may_see is None:
            return self.whole
        seen = NOTHING
        for name, figures in self.queues.items():
            if may_see(name):
                seen = seen.beside(figures)
        return seen


class History:
    """The minutes of a day, at most."""

    def __init__(self) -> None:
        self._packed: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._packed)

    def put(self, minute: Minute) -> None:
        """Keep it; if it is there already, both are one."""
        there = self._packed.get(minute.number)
        before = None if there is None else _unpacked(minute.number, there)
        if before is not None:
            names = {*before.queues, *minute.queues}
            queues = {name: before.queues.get(name, NOTHING).then(minute.queues.get(name, NOTHING)) for name in names}
            minute = Minute(minute.number, before.whole.then(minute.whole), queues)
        self._packed[minute.number] = _packed(minute)
        if before is None:
            oldest, newest = minute.number - limits.history_minutes_max, minute.number + _AHEAD
            kept = {at: packed for at, packed in self._packed.items() if oldest < at <= newest}
            self._packed = dict(sorted(kept.items()))

    def since(self, number: int) -> list[tuple[int, bytes]]:
        """The minutes from that one on, in order, each with its bytes for ``unpacked``."""
        return [(at, packed) for at, packed in self._packed.items() if at >= number]

    def encode(self) -> Sequence[bytes]:
        """The file, in pieces."""
        pieces = [_MAGIC]
        for at, packed in self._packed.items():
            pieces += (_HEAD.pack(at, len(packed), zlib.crc32(packed)), packed)
        return pieces

    @classmethod
    def decode(cls, data: bytes) -> "History":
        """All that can be read of the bytes of a file."""
        history, at = cls(), len(_MAGIC)
        while data.startswith(_MAGIC) and at + _HEAD.size <= len(data):
            number, length, checksum = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            packed = data[at : at + length]
            at += length
            if zlib.crc32(packed) == checksum and _unpacked(number, packed) is not None:
                history._packed[number] = packed
        newest = list(history._packed.items())[-limits.history_minutes_max :]
        history._packed = dict(sorted(newest))
        return history


def unpacked(minutes: Sequence[tuple[int, bytes]]) -> Iterator[Minute]:
    """These minutes, as ``History.since`` gave them."""
    for number, packed in minutes:
        minute = _unpacked(number, packed)
        if minute is not None:
            yield minute


def _packed(minute: Minute) -> bytes:
    queues = {name: tuple(figures) for name, figures in minute.queues.items()}
    return zlib.compress(orjson.dumps([tuple(minute.whole), queues]), 1)


def _unpacked(number: int, packed: bytes) -> Minute | None:
    try:
        whole, queues = orjson.loads(zlib.decompress(packed))
        return Minute(number, _figures(whole), {name: _figures(one) for name, one in queues.items()})
    except (zlib.error, ValueError, TypeError, AttributeError):
        return None


def _figures(said: Sequence[Any]) -> Figures:
    accepted, delivered, failed, dead, backlog, oldest_ms, latencies = said
    return Figures(accepted, delivered, failed, dead, backlog, oldest_ms, tuple(latencies))


def percentile_ms(latencies: Sequence[int], bounds_s: Sequence[float], share: float) -> float | None:
    """Up to how long that share of these took, as far as the bounds tell; None where there are none."""
    wanted = sum(latencies) * share
    if not wanted:
        return None
    lower_s, below = 0.0, 0
    for count, bound_s in zip(latencies, bounds_s, strict=False):
        if count and below + count >= wanted:
            return round((lower_s + (bound_s - lower_s) * (wanted - below) / count) * 1_000, 3)
        below += count
        lower_s = bound_s
    return round(lower_s * 1_000, 3)
