"""Messages that ended badly, and how: sequence -> ``Bad``.

There may be millions for ever (RULES 2), and nearly all ended alike: each different ``Bad`` is kept once and has a
number, and a block of 4,096 sequences is a column of such numbers, or a dictionary where it has few. A million that
stand close together take 4 MB, where objects in a dictionary took 150.
"""

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import orjson

from syncbrok.delivery.scheduler.lifecycle import MessageState
from syncbrok.model.facts import Reason

_SHIFT: Final = 12
_SIZE: Final = 1 << _SHIFT
_MASK: Final = _SIZE - 1
_FEW: Final = 128
"""in a block; a column costs as much"""
_NOTHING: Final = array("I", bytes(4 * _SIZE))


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

    __slots__ = ("_blocks", "_count", "_kinds", "_numbers")

    def __init__(self) -> None:
        self._blocks: dict[int, dict[int, int] | array[int]] = {}
        self._kinds: list[Bad | None] = [None]  # bounded by the queues, the reasons, and the subsets of subscribers
        self._numbers: dict[Bad, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, sequence: int) -> bool:
        block = self._blocks.get(sequence >> _SHIFT)
        if block is None:
            return False
        place = sequence & _MASK
        return place in block if isinstance(block, dict) else block[place] != 0

    def get(self, sequence: int) -> Bad | None:
        block = self._blocks.get(sequence >> _SHIFT)
        if block is None:
            return None
        place = sequence & _MASK
        return self._kinds[block.get(place, 0) if isinstance(block, dict) else block[place]]

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
        self._count += sequence not in self
        self._put(sequence >> _SHIFT, sequence & _MASK, number)

    def _put(self, at: int, place: int, number: int) -> None:
        block = self._blocks.setdefault(at, {})
        block[place] = number
        if isinstance(block, dict) and len(block) > _FEW:
            column = _NOTHING[:]
            for one, its in block.items():
                column[one] = its
            self._blocks[at] = column

    def __delitem__(self, sequence: int) -> None:
        if sequence not in self:
            raise KeyError(sequence)
        block = self._blocks[sequence >> _SHIFT]
        self._count -= 1
        if isinstance(block, dict):
            del block[sequence & _MASK]
        else:
            block[sequence & _MASK] = 0
        if isinstance(block, dict) and not block:
            del self._blocks[sequence >> _SHIFT]

    def items(self) -> Iterator[tuple[int, Bad]]:
        """In the order of the log."""
        for at in sorted(self._blocks):
            for place, number in zip(*_columns(self._blocks[at]), strict=True):
                bad = self._kinds[number]
                assert bad is not None
                yield at << _SHIFT | int(place), bad

    def dump(self) -> dict[str, bytes]:
        """Parts of a checkpoint: the kinds as JSON, and two columns, sequences (8 bytes) and numbers of kinds (4)."""
        columns = [(at, *_columns(block)) for at, block in sorted(self._blocks.items())]
        sequences = [(np.uint64(at << _SHIFT) + places.astype(np.uint64)).tobytes() for at, places, _ in columns]
        numbers = [its.astype(np.uint32).tobytes() for _, _, its in columns]
        kinds = [[bad.state, bad.reason, bad.queue, bad.lost] for bad in self._kinds if bad is not None]
        return {"kinds": orjson.dumps(kinds), "sequences": b"".join(sequences), "numbers": b"".join(numbers)}

    def load(self, kinds: bytes, sequences: bytes, numbers: bytes) -> None:
        """Fill an empty one with what ``dump`` made. Raises ``ValueError``, ``TypeError``, ``KeyError`` or
        ``IndexError`` for anything else."""
        for state, reason, queue, lost in orjson.loads(kinds):
            bad = Bad(MessageState(state), Reason(reason), queue, tuple(lost))
            self._numbers[bad] = len(self._kinds)
            self._kinds.append(bad)
        for sequence, number in zip(array("Q", sequences), array("I", numbers), strict=True):
            if not 0 < number < len(self._kinds):
                raise ValueError(f"message {sequence} ended in a way ({number}) that is not there")
            self._put(sequence >> _SHIFT, sequence & _MASK, number)
            self._count += 1


def _columns(block: "dict[int, int] | array[int]") -> "tuple[np.ndarray, np.ndarray]":
    """Places and numbers, in order."""
    if isinstance(block, dict):
        places = np.array(sorted(block), np.int64)
        return places, np.array([block[int(place)] for place in places], np.int64)
    column = np.frombuffer(block, np.uint32)
    places = np.flatnonzero(column)
    return places, column[places].astype(np.int64)
