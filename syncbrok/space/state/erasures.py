"""Which messages are erased, as the log says, and through which of those facts this disk has no more of them.

Kept for as long as the log has the facts: whoever archives the log asks for them (``GET /v1/log/erased``). Where time
erases (RULES 37) they are soon as many as the messages of the log, so each costs a few bytes: no id is kept, which the
log tells, and of sequences the steps from one to the next.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from syncbrok.model.facts import Erased
from syncbrok.model.names import sequence_of
from syncbrok.model.sequence_set import SequenceSet

_NARROW: Final = "<u2"
_WIDE: Final = "<u8"


class ErasedSome(NamedTuple):
    """An ``Erased`` without its ids. ``size``: how many messages it names. ``steps``: see ``_packed``."""

    sequence: int
    clock_us: int
    past_retention: bool
    size: int
    steps: bytes

    @property
    def messages(self) -> list[int]:
        """Own sequences of the messages, in order."""
        return _unpacked(self.steps)


class Erasures:
    """``through``: sequence of the last ``Erased`` whose messages are off this disk."""

    def __init__(self) -> None:
        self.facts: deque[ErasedSome] = deque()  # in the order of the log
        self.through = 0
        self._messages = SequenceSet()
        """own sequences of all that ``facts`` name"""
        self._past = SequenceSet()
        """those of them whose queue's retention is over"""
        self.hide: Callable[[Collection[int]], None] = lambda _: None
        """called with the messages (own sequences) of each fact that is noted"""

    def note(self, fact: Erased) -> None:
        """A fact that is durable, the next of its kind; one that is known already changes nothing."""
        if not self.facts or fact.sequence > self.facts[-1].sequence:
            messages = sorted({sequence_of(one) for one in fact.messages})
            some = ErasedSome(fact.sequence, fact.clock_us, fact.past_retention, len(messages), _packed(messages))
            self._add(some, messages)
            self.hide(messages)

    def _add(self, some: ErasedSome, messages: Collection[int]) -> None:
        self.facts.append(some)
        self._messages.update(messages)
        if some.past_retention:
            self._past.update(messages)

    def holds(self, message: int) -> bool:
        """Whether the message (own sequence) is erased, as far as the log still says so."""
        return message in self._messages

    def is_past(self, message: int) -> bool:
        """Whether the retention of the message's queue is over, so that it is gone for whoever asks (RULES 37)."""
        return message in self._past

    @property
    def any_past(self) -> bool:
        """Whether ``is_past`` says so of any."""
        return bool(self._past)

    @property
    def pending(self) -> list[ErasedSome]:
        """The facts whose messages may still be on this disk, in the order of the log."""
        return [fact for fact in self.facts if fact.sequence > self.through]

    def messages_through(self, sequence: int) -> SequenceSet:
        """The messages (own sequences) that the facts up to this one name."""
        found = SequenceSet()
        for fact in self.facts:
            if fact.sequence <= sequence:
                found.update(fact.messages)
        return found

    def after(self, sequence: int) -> Iterator[ErasedSome]:
        """The facts behind ``sequence``, in the order of the log."""
        return (fact for fact in self.facts if fact.sequence > sequence)

    def forget_before(self, first: int) -> None:
        """The log begins with ``first`` now. What a fact before it names stood before that fact: it is gone too."""
        while self.facts and self.facts[0].sequence < first:
            for message in self.facts.popleft().messages:
                self._messages.discard(message)
                self._past.discard(message)

    def save(self) -> bytes:
        """The state for a checkpoint. Three values: a version that kept the ids reads two, and replays the log."""
        facts = [[one.sequence, one.clock_us, one.past_retention, one.size, one.steps.hex()] for one in self.facts]
        return orjson.dumps([self.through, facts, True])

    def load(self, saved: bytes) -> None:
        """Raises ``ValueError``, ``TypeError`` or ``IndexError`` for what no version's ``save`` writes."""
        through, facts, *newer = orjson.loads(saved)
        self.through = int(through)
        for value in facts:
            some = _some(value) if newer else _of_ids(value)
            self._add(some, some.messages)


def _some(value: list[Any]) -> ErasedSome:
    sequence, clock_us, past_retention, size, steps = value
    return ErasedSome(int(sequence), int(clock_us), bool(past_retention), int(size), bytes.fromhex(steps))


def _of_ids(value: list[Any]) -> ErasedSome:
    """As versions before retention by queue wrote them: [sequence, time, clock, ids]."""
    sequence, _, clock_us, ids = value
    whole = bytes.fromhex(ids)
    messages = sorted({sequence_of(whole[at : at + 16]) for at in range(0, len(whole), 16)})
    return ErasedSome(int(sequence), int(clock_us), past_retention=False, size=len(messages), steps=_packed(messages))


def _packed(ascending: Iterable[int]) -> bytes:
    """The first (8 bytes), the width of a step, and the steps from each to the next."""
    values = np.fromiter(ascending, np.uint64)
    steps = np.diff(values)
    width = _WIDE if len(steps) and int(steps.max()) > np.iinfo(np.uint16).max else _NARROW
    return values[:1].astype(_WIDE).tobytes() + width[-1:].encode() + steps.astype(width).tobytes()


def _unpacked(packed: bytes) -> list[int]:
    if len(packed) < 9:
        return []
    first = int.from_bytes(packed[:8], "little")
    steps = np.frombuffer(packed[9:], f"<u{packed[8:9].decode()}").astype(np.int64)
    return [first, *(np.cumsum(steps) + first).tolist()]
