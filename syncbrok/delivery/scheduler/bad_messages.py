"""Messages that ended badly, and how: sequence -> ``Bad``.

There may be millions for ever (RULES 2), and nearly all ended alike: each different ``Bad`` is kept once and has a
number, and a message costs the dozen bytes of ``SequenceMap``, where an object in a dictionary took 150.
"""

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

import orjson

from syncbrok.delivery.scheduler.lifecycle import MessageState
from syncbrok.delivery.scheduler.sequence_map import SequenceMap
from syncbrok.model.facts import Reason

_END: Final = 1 << 63


class Bad(NamedTuple):
    """A message that ended dead, expired or dropped."""

    state: MessageState
    reason: Reason
    queue: int
    lost: tuple[int, ...] = ()
    """subscribers at whom it expired or was dropped, and whom no replay has brought it since. (Where it died there is
    a dead letter that says so.)"""

    @property
    def is_gone(self) -> bool:
        """Its record is gone with its segment, and where it failed is no longer known: a replay cannot send it."""
        return not self.queue


class BadMessages:
    """Not bounded: an entry outlives the retention, and only a replay that goes well takes it out."""

    __slots__ = ("_kinds", "_messages", "_numbers")

    def __init__(self) -> None:
        self._messages = SequenceMap("I")
        """sequence -> number of its kind"""
        self._kinds: list[Bad | None] = [None]  # bounded by the queues, the reasons, and the subsets of subscribers
        self._numbers: dict[Bad, int] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, sequence: int) -> bool:
        return self._messages.get(sequence) != 0

    def get(self, sequence: int) -> Bad | None:
        return self._kinds[self._messages.get(sequence)]

    def __getitem__(self, sequence: int) -> Bad:
        bad = self.get(sequence)
        if bad is None:
            raise KeyError(sequence)
        return bad

    def __setitem__(self, sequence: int, bad: Bad) -> None:
        number = self._numbers.get(bad)
        if number is None:
            number = self._numbers[bad] = len(self._kinds)
            self._kinds.append(bad)
        self._messages.put(sequence, number)

    def __delitem__(self, sequence: int) -> None:
        if not self._messages.pop(sequence):
            raise KeyError(sequence)

    def items(self) -> Iterator[tuple[int, Bad]]:
        """In the order of the log."""
        for sequence, number in self._messages.between(0, _END):
            bad = self._kinds[number]
            assert bad is not None
            yield sequence, bad

    def dump(self) -> dict[str, bytes]:
        """Parts of a checkpoint: the kinds as JSON, and two columns, sequences (8 bytes) and numbers of kinds (4)."""
        sequences, numbers = self._messages.columns()
        kinds = [[bad.state, bad.reason, bad.queue, bad.lost] for bad in self._kinds if bad is not None]
        return {"kinds": orjson.dumps(kinds), "sequences": sequences, "numbers": numbers}

    def load(self, kinds: bytes, sequences: bytes, numbers: bytes) -> None:
        """Fill an empty one with what ``dump`` made. Raises ``ValueError``, ``TypeError``, ``KeyError`` or
        ``IndexError`` for anything else."""
        for state, reason, queue, lost in orjson.loads(kinds):
            bad = Bad(MessageState(state), Reason(reason), queue, tuple(lost))
            self._numbers[bad] = len(self._kinds)
            self._kinds.append(bad)
        if not {*array("I", numbers)} <= {*range(1, len(self._kinds))}:
            raise ValueError("a message ended in a way that is not there")
        self._messages.load(sequences, numbers)
