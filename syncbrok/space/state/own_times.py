"""Messages that say themselves how long after their end their content is kept (RULES 37), by that time.

A bit for each, until it is erased or gone. Times are put together where they differ by less than a hundredth, so that
a publisher who names another one each time makes no more than some thousand sets.
"""

from collections.abc import Collection, Mapping
from typing import Final

import orjson

from syncbrok.model.facts import Extras
from syncbrok.model.sequence_set import SequenceSet

_DIGITS: Final = 1_000


class OwnTimes:
    """Sequences are the messages' own."""

    def __init__(self) -> None:
        self._sets: dict[int, SequenceSet] = {}
        self._all = SequenceSet()
        """of all times: whether a message is here must not cost a look into some thousand sets"""

    def note(self, first: int, extras: Mapping[int, Extras]) -> bool:
        """Messages whose first has this sequence, with their extras by position; whether a time is new."""
        own = [(first + at, more.erase_after_us) for at, more in extras.items() if more.erase_after_us]
        before = len(self._sets)
        for sequence, time_us in own:
            self._sets.setdefault(_rounded(time_us), SequenceSet()).add(sequence)
            self._all.add(sequence)
        return len(self._sets) > before

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._all

    @property
    def times_us(self) -> tuple[int, ...]:
        return tuple(self._sets)

    def after(self, time_us: int, sequence: int, most: int) -> list[int]:
        """The lowest messages of this time behind ``sequence``, in order."""
        some = self._sets.get(time_us)
        return [] if some is None else some.after(sequence, most)

    def forget(self, messages: Collection[int]) -> None:
        """These are erased, or gone."""
        gone = SequenceSet()
        if not self._all.move(messages, gone):
            return
        for time_us, some in tuple(self._sets.items()):
            some.subtract(gone)
            if not some:
                del self._sets[time_us]

    def __bool__(self) -> bool:
        return bool(self._sets)

    def save(self) -> bytes:
        """The state for a checkpoint."""
        dumps = {str(time_us): some.dump() for time_us, some in self._sets.items()}
        lengths = orjson.dumps({time_us: len(one) for time_us, one in dumps.items()})
        return b"".join((len(lengths).to_bytes(8, "little"), lengths, *dumps.values()))

    def load(self, saved: bytes) -> None:
        """Raises ``ValueError`` or ``TypeError`` for what ``save`` does not write."""
        at = 8 + int.from_bytes(saved[:8], "little")
        for time_us, length in orjson.loads(saved[8:at]).items():
            self._sets[int(time_us)] = some = SequenceSet.load(saved[at : at + length])
            self._all.add_all(some)
            at += length


def _rounded(time_us: int) -> int:
    """Up to three digits."""
    unit = 1
    while time_us > _DIGITS * unit:
        unit *= 10
    return -(-time_us // unit) * unit
