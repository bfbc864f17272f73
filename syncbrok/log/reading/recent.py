"""The bytes of the last batches, so that what was just published is delivered without being read back. Pure."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from threading import Lock
from typing import NamedTuple

from syncbrok.log.format.codec import encode
from syncbrok.log.format.layout import Stretch
from syncbrok.log.format.message_decoder import read_messages
from syncbrok.log.format.records import SegmentOpened
from syncbrok.model.facts import Messages, StoredMessage

BYTES_MAX = 16 * 1024 * 1024
BATCHES_MAX = 65_536
_UNDECODED_BYTES_MAX = 1024 * 1024
_FEW = 8
"""so many neighbours and more are sooner decoded in one pass"""


class Batch(NamedTuple):
    """Encoded records on their way into the log. ``ends[i]`` is where record ``i`` ends in ``data``."""

    number: int
    first: int
    last: int
    time_us: int
    """of the last record"""
    data: bytes
    ends: list[int]
    stretches: tuple[Stretch, ...] = ()
    messages: Sequence[Messages] = ()
    """the part of it that was appended as messages; a reader takes these instead of decoding their records"""
    misread: bool = False
    """an older version would misread one of the records"""
    synced_through: int = 0
    """encoded elsewhere: its records say that all through here is on the disk, so it must be before they are written"""


class OpeningBatch:
    """A snapshot on its way into the log, as the record that the next segment begins with (``PreparedSnapshot``). The
    seal of the segment before it is written with it, in a batch of its own: the one before ``number``."""

    def __init__(self, number: int, opened: SegmentOpened, data: bytes | None = None) -> None:
        """``data``: the record, where it is known already."""
        self.number = number
        self.opened = opened
        self.snapshot = opened.snapshot
        self.first = self.last = opened.sequence
        if data is not None:
            self.data = data

    @cached_property
    def data(self) -> bytes:
        """Made when it is asked for: it may be large, and the event loop has no time for it."""
        return encode(self.opened, batch=self.number, synced_through=self.first - 1)

    def __repr__(self) -> str:
        return f"<OpeningBatch number={self.number} sequence={self.first}>"


class Recent:
    """The newest batches, in order and without a gap, up to ``bytes_max``. One thread adds, any thread asks."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._firsts: list[int] = []
        self._batches: list[Batch] = []
        self._bytes = 0
        self._undecoded: tuple[Sequence[Messages], Sequence[Messages]] = ((), ())
        """of the last batch and of the one before, which may have been written before they are delivered; of no more
        and of no large ones, since a message takes three times the memory of its record"""
        self._lock = Lock()

    def add(self, batch: Batch) -> None:
        messages = batch.messages if len(batch.data) < _UNDECODED_BYTES_MAX else ()
        self._undecoded = (messages, self._undecoded[0])
        with self._lock:
            self._firsts.append(batch.first)
            self._batches.append(batch._replace(messages=()))
            self._bytes += len(batch.data)
            if self._bytes > self._bytes_max or len(self._batches) > BATCHES_MAX:
                self._forget()

    def _forget(self) -> None:
        # An eighth at once, so that the lists are not moved for every batch.
        until_bytes, until_batches = self._bytes_max * 7 // 8, BATCHES_MAX * 7 // 8
        gone = 0
        while self._bytes > until_bytes or len(self._batches) - gone > until_batches:
            self._bytes -= len(self._batches[gone].data)
            gone += 1
        del self._firsts[:gone], self._batches[:gone]

    def message(self, sequence: int) -> StoredMessage | None:
        """A message written lately; None where it is not here (any more), or is none."""
        return self.messages((sequence,))[0]

    def messages(self, sequences: Sequence[int]) -> list[StoredMessage | None]:
        """``message`` for each of these, in ascending order. Consecutive ones are decoded in one pass, and children of
        the same parents then share one tuple of parents."""
        found: list[StoredMessage | None] = []
        while len(found) < len(sequences):
            sequence, count = sequences[len(found)], _together(sequences, len(found))
            message = self._as_handed_over(sequence) if count < _FEW else None
            place = None if message is not None else self.find(sequence)
            if place is None:
                found.append(message)
                continue
            run: list[StoredMessage] = []
            read_messages(*place, sequence, count, run, verify=False)
            found += run or (None,)
        return found

    def _as_handed_over(self, sequence: int) -> StoredMessage | None:
        for batch in self._undecoded:
            for messages in batch:
                position = sequence - messages.sequence
                if 0 <= position < len(messages.contents):
                    return messages.at(position)
        return None

    def find(self, sequence: int) -> tuple[bytes, int] | None:
        """The bytes that hold the record, and where in them it begins; None where it is not here (any more)."""
        with self._lock:
            at = bisect_right(self._firsts, sequence) - 1
            if at < 0:
                return None
            batch = self._batches[at]
        if sequence > batch.last:
            return None
        place = sequence - batch.first
        return batch.data, batch.ends[place - 1] if place else 0


def _together(sequences: Sequence[int], at: int) -> int:
    """The number of consecutive sequences from position ``at`` on."""
    first, last = sequences[at], len(sequences) - 1
    if sequences[last] - first == last - at:
        return last - at + 1
    count = 1
    while sequences[at + count] == first + count:
        count += 1
    return count
