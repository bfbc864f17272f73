"""The greatest sequence below another that had been delivered at one subscriber, without a note of each that ever was.

Asked is only for messages that are out, and those lie above ``through``, up to where everything has ended. So of what
lies at or below it one number is enough; above it stands a bit for each. What has just been delivered is put by and
sorted in by the hundred: most subscribers get all in order, and then nearly nothing is to be sorted.

Only deliveries are noted, and not what has ended in another way: what is left over would be wrong for dead letters that
were dropped, for what died as a whole, and for what a replay delivered after all.
"""

from array import array
from collections.abc import Sequence
from typing import Final

from syncbrok.delivery.handler import NOTHING_CONFIRMED, Confirmed
from syncbrok.model.sequence_set import SequenceSet

UNSORTED_MANY: Final = 64
"""sequences put by, of which most are looked at in vain"""
UNSORTED_MAX: Final = 512
"""4 KiB a subscriber: at a start nobody asks, and nothing is known of where all has ended"""


class DeliveredBelow:
    """Belongs to one cursor. Bounded by what is delivered ahead of the oldest that has not ended, a bit each."""

    __slots__ = ("_above", "_below", "_unsorted", "confirmed", "greatest", "oldest_open", "put_off", "through")

    def __init__(self) -> None:
        self._above = SequenceSet()
        self._below = 0
        self._unsorted: array[int] = array("Q")
        self.greatest = 0
        """of all that were delivered; 0: none that is known"""
        self.through = 0
        """everything up to it has ended, durably"""
        self.oldest_open = 0
        """the message because of which ``through`` is no greater; kept by ``Cursor``"""
        self.put_off = 0
        """for how many turns that is not looked for; kept by ``Cursor``"""
        self.confirmed = NOTHING_CONFIRMED
        """what goes with a message above all that were delivered: the same object until it changes"""

    def __len__(self) -> int:
        self._sort()
        return self._above.count

    def delivered(self, sequences: Sequence[int]) -> None:
        """Note that these, at least one, have ended delivered, durably. In any order; again does no harm."""
        before = self.greatest
        if before <= self.through and len(sequences) == 1 and sequences[0] > before:
            # In order, as nearly all. The greatest is noted by itself: put by it is once there is a greater one.
            self._below, self.greatest = before, sequences[0]
            if self._unsorted or self._above.count:
                self._unsorted, self._above = array("Q"), SequenceSet()
            return
        greatest = sequences[0] if len(sequences) == 1 else max(sequences)
        if greatest > before:
            self.greatest = greatest
        self._unsorted.append(before)
        self._unsorted.extend(sequences)
        if len(self._unsorted) > UNSORTED_MAX:
            self._shorten()

    def advance(self, through: int) -> None:
        """Note that everything up to ``through`` has ended, durably; a lower one than before changes nothing."""
        self.through = max(self.through, through)

    def newest(self) -> Confirmed:
        """The numbers that go with a message above all that were delivered."""
        if len(self._unsorted) > UNSORTED_MANY:
            self._shorten()
        confirmed = self.confirmed
        if confirmed[0] != self.greatest or confirmed[1] != self.through:
            confirmed = self.confirmed = tuple.__new__(Confirmed, (self.greatest, self.through))
        return confirmed

    def alone(self, sequence: int) -> Confirmed:
        """As ``newest``, for a message above all that were delivered that is all that is open: one step instead of a
        look, where each turn takes one message."""
        self.oldest_open, self.put_off = sequence, 0
        if sequence - 1 > self.through:  # noqa: PLR1730 - as in ``delivered``
            self.through = sequence - 1
        confirmed = self.confirmed = tuple.__new__(Confirmed, (self.greatest, self.through))
        return confirmed

    def below(self, sequence: int) -> Confirmed:
        """The numbers that go with this message, which has not ended. One that a replay has mended may lie below
        ``through``: there what was delivered is forgotten, and where only a later one is known none is named."""
        if sequence > self.greatest:
            return self.newest()
        self._sort()
        previous = next(iter(self._above.before(sequence, 1)), self._below)
        return Confirmed(previous if previous < sequence else 0, min(self.through, sequence - 1))

    def _shorten(self) -> None:
        """Keep of what was put by what lies above ``through``; where that is much, a bit each is less."""
        through, unsorted = self.through, self._unsorted
        if self.greatest <= through:  # all came through in order
            self._below, self._unsorted, self._above = self.greatest, array("Q"), SequenceSet()
            return
        ahead = [sequence for sequence in unsorted if sequence > through]
        if len(ahead) < len(unsorted):
            self._below = max(self._below, *[sequence for sequence in unsorted if sequence <= through])
            self._unsorted = array("Q", ahead)
        if len(ahead) > UNSORTED_MANY // 2:
            self._sort()

    def _sort(self) -> None:
        """Take in what was put by, and forget of what was taken in before all that lies below ``through``."""
        through, unsorted = self.through, self._unsorted
        unsorted.append(self.greatest)
        self._above.update(sorted(unsorted))
        self._unsorted = array("Q")
        if self._above.count:
            self._below = max(self._below, self._above.forget_through(through))

    def numbers(self) -> tuple[int, int, int]:
        """For a checkpoint; ``load`` takes them."""
        self._sort()
        return self.greatest, self._below, self.through

    def above(self) -> bytes:
        """The bits of what is delivered above ``through``, for a checkpoint."""
        self._sort()
        return self._above.dump()

    @classmethod
    def load(cls, numbers: Sequence[int], above: bytes) -> "DeliveredBelow":
        """The same from what ``numbers`` and ``above`` gave."""
        loaded = cls()
        loaded.greatest, loaded._below, loaded.through = numbers
        loaded._above = SequenceSet.load(above)
        return loaded
