"""The dead letters of one subscriber: sequences, each with why it died.

There may be millions, and nobody looks at most of them for days: a bitmap for each reason keeps one in a few bytes,
where a dictionary takes some hundred. There are few reasons, and to ask of one sequence is to look into a few bitmaps.
"""

from collections.abc import Collection, Iterable, Iterator

from syncbrok.delivery.scheduler.sequence_set import SequenceSet
from syncbrok.model.facts import Reason

_AT_ONCE = 4_096
"""sequences of each reason that are put in order together"""


class DeadLetters:
    """Sequence -> reason. ``len`` costs nothing, iteration is in rising order and may be broken off."""

    __slots__ = ("_by_reason", "_count")

    def __init__(self, letters: Iterable[tuple[int, Reason]] = ()) -> None:
        self._by_reason: dict[Reason, SequenceSet] = {}
        self._count = 0
        for sequence, reason in letters:
            self[sequence] = reason

    def __len__(self) -> int:
        return self._count

    def __contains__(self, sequence: int) -> bool:
        return self.get(sequence) is not None

    def __setitem__(self, sequence: int, reason: Reason) -> None:
        known = self.get(sequence)
        if known is reason:
            return
        if known is not None:
            self.pop(sequence)
        self._by_reason.setdefault(reason, SequenceSet()).add(sequence)
        self._count += 1

    def __repr__(self) -> str:
        return f"<DeadLetters {dict(self.reasons())}>"

    def get(self, sequence: int) -> Reason | None:
        """Why it died; None where it is no dead letter."""
        for reason, sequences in self._by_reason.items():
            if sequence in sequences:
                return reason
        return None

    def pop(self, sequence: int) -> Reason | None:
        """Take it out; why it died, None where it is not here."""
        for reason, sequences in self._by_reason.items():
            if sequences.discard(sequence):
                self._count -= 1
                if not sequences:
                    del self._by_reason[reason]
                return reason
        return None

    def reasons(self) -> Iterator[tuple[Reason, int]]:
        """How many there are of each reason that any has."""
        return ((reason, len(sequences)) for reason, sequences in self._by_reason.items())

    def count_between(self, first: int, end: int, reasons: Collection[Reason] = ()) -> int:
        """How many there are from ``first`` to before ``end``, of these reasons or, where none is named, of any."""
        chosen = [sequences for reason, sequences in self._by_reason.items() if not reasons or reason in reasons]
        return sum(sequences.count_between(first, end) for sequences in chosen)

    def after(self, sequence: int, most: int) -> list[int]:
        """The lowest behind ``sequence``, at most ``most``, in order."""
        found = [one for sequences in self._by_reason.values() for one in sequences.after(sequence, most)]
        if len(self._by_reason) > 1:
            found.sort()
        return found[:most]

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

    def dump(self) -> dict[Reason, bytes]:
        """For a checkpoint: see ``SequenceSet.dump``."""
        return {reason: sequences.dump() for reason, sequences in self._by_reason.items()}

    def load(self, reason: Reason, data: bytes) -> None:
        """Take in what ``dump`` made for a reason."""
        self._by_reason[reason] = SequenceSet.load(data)
        self._count += len(self._by_reason[reason])
