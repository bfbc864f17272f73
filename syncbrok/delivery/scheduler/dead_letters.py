"""The dead letters of one subscriber: sequences, each with why it died.

There may be millions, and nobody looks at most of them for days: two columns keep one in nine bytes, wherever it
stands, where a dictionary takes some hundred.
"""

from collections.abc import Collection, Iterable, Iterator

from syncbrok.delivery.scheduler.sequence_map import SequenceMap
from syncbrok.model.facts import Reason
from syncbrok.model.sequence_set import SequenceSet

_AT_ONCE = 4_096
"""sequences that are read together"""


class DeadLetters:
    """Sequence -> reason. ``len`` costs nothing, iteration is in rising order and may be broken off."""

    __slots__ = ("_counts", "_letters")

    def __init__(self, letters: Iterable[tuple[int, Reason]] = ()) -> None:
        self._letters = SequenceMap("B")
        """sequence -> reason + 1"""
        self._counts: dict[Reason, int] = {}
        for sequence, reason in letters:
            self[sequence] = reason

    def __len__(self) -> int:
        return len(self._letters)

    def __contains__(self, sequence: int) -> bool:
        return self._letters.get(sequence) != 0

    def __setitem__(self, sequence: int, reason: Reason) -> None:
        self.pop(sequence)
        self._letters.put(sequence, reason + 1)
        self._counts[reason] = self._counts.get(reason, 0) + 1

    def __repr__(self) -> str:
        return f"<DeadLetters {self._counts}>"

    def get(self, sequence: int) -> Reason | None:
        """Why it died; None where it is no dead letter."""
        number = self._letters.get(sequence)
        return Reason(number - 1) if number else None

    def pop(self, sequence: int) -> Reason | None:
        """Take it out; why it died, None where it is not here."""
        number = self._letters.pop(sequence)
        if not number:
            return None
        reason = Reason(number - 1)
        self._counts[reason] -= 1
        if not self._counts[reason]:
            del self._counts[reason]
        return reason

    def reasons(self) -> Iterator[tuple[Reason, int]]:
        """How many there are of each reason that any has."""
        return iter(self._counts.items())

    def count_between(self, first: int, end: int, reasons: Collection[Reason] = ()) -> int:
        """How many there are from ``first`` to before ``end``, of these reasons or, where none is named, of any."""
        return self._letters.count_between(first, end, [reason + 1 for reason in reasons])

    def after(self, sequence: int, most: int) -> list[int]:
        """The lowest behind ``sequence``, at most ``most``, in order."""
        return self._letters.after(sequence, most)

    def before(self, sequence: int, most: int) -> list[int]:
        """The highest below ``sequence``, at most ``most``, from the highest down."""
        return self._letters.before(sequence, most)

    def __iter__(self) -> Iterator[int]:
        """In rising order. What comes or goes meanwhile behind the place may be seen or not."""
        last = 0
        while some := self.after(last, _AT_ONCE):
            yield from some
            last = some[-1]

    def items(self) -> Iterator[tuple[int, Reason]]:
        """As iteration, with the reasons."""
        for sequence in self:
            reason = self.get(sequence)
            if reason is not None:
                yield sequence, reason

    def dump(self) -> tuple[bytes, bytes]:
        """For a checkpoint: all sequences (8 bytes each, little-endian), and all reasons and 1 (a byte each)."""
        return self._letters.columns()

    def load(self, sequences: bytes, reasons: bytes) -> None:
        """Fill an empty one with what ``dump`` made. Raises ``ValueError`` for anything else."""
        self._letters.load(sequences, reasons)
        self._counts = {Reason(number - 1): count for number, count in self._letters.numbers().items()}

    def load_bitmaps(self, reason: Reason, data: bytes) -> None:
        """Take in those of a reason as versions before this one wrote them: see ``SequenceSet.dump``."""
        for sequence in SequenceSet.load(data):
            self[sequence] = reason
