"""Which messages are erased, as the log says, and through which of those facts this disk has no more of them.

Kept for as long as the log has the facts: whoever archives the log asks for them (``GET /v1/log/erased``).
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any

import orjson

from syncbrok.model.facts import Erased
from syncbrok.model.names import MessageId, sequence_of


class Erasures:
    """``through``: sequence of the last ``Erased`` whose messages are off this disk."""

    def __init__(self) -> None:
        self.facts: deque[Erased] = deque()  # in the order of the log
        self.through = 0
        self._messages: set[int] = set()
        """own sequences of all that ``facts`` name"""
        self.hide: Callable[[Collection[int]], None] = lambda _: None
        """called with the messages (own sequences) of each fact that is noted"""

    def note(self, fact: Erased) -> None:
        """A fact that is durable, the next of its kind; one that is known already changes nothing."""
        if not self.facts or fact.sequence > self.facts[-1].sequence:
            self.facts.append(fact)
            messages = [sequence_of(one) for one in fact.messages]
            self._messages.update(messages)
            self.hide(messages)

    def holds(self, message: int) -> bool:
        """Whether the message (own sequence) is erased, as far as the log still says so."""
        return message in self._messages

    @property
    def pending(self) -> list[Erased]:
        """The facts whose messages may still be on this disk, in the order of the log."""
        return [fact for fact in self.facts if fact.sequence > self.through]

    def messages_through(self, sequence: int) -> list[int]:
        """The messages (own sequences) that the facts up to this one name."""
        return [sequence_of(one) for fact in self.facts if fact.sequence <= sequence for one in fact.messages]

    def after(self, sequence: int) -> Iterator[Erased]:
        """The facts behind ``sequence``, in the order of the log."""
        return (fact for fact in self.facts if fact.sequence > sequence)

    def forget_before(self, first: int) -> None:
        """The log begins with ``first`` now."""
        while self.facts and self.facts[0].sequence < first:
            self._messages.difference_update(map(sequence_of, self.facts.popleft().messages))

    def save(self) -> bytes:
        """The state for a checkpoint."""
        facts = [[fact.sequence, fact.time_us, fact.clock_us, b"".join(fact.messages).hex()] for fact in self.facts]
        return orjson.dumps([self.through, facts])

    def load(self, saved: bytes) -> None:
        """Raises ``ValueError``, ``TypeError`` or ``IndexError`` for what ``save`` does not write."""
        through, facts = orjson.loads(saved)
        self.through, self.facts = int(through), deque(map(_fact, facts))
        self._messages = {sequence_of(one) for fact in self.facts for one in fact.messages}


def _fact(value: list[Any]) -> Erased:
    sequence, time_us, clock_us, ids = value
    whole = bytes.fromhex(ids)
    messages = tuple([MessageId(whole[at : at + 16]) for at in range(0, len(whole), 16)])
    return Erased(int(sequence), int(time_us), int(clock_us), messages)
