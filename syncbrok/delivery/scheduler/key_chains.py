"""Chains of messages of one key, which keep their order: to one subscriber no attempt of a later one begins before
every earlier one has ended there (RULES 6). Pure.

A message that has ended early (cancelled, expired, dead of a parent) says nothing of those before it. So a message does
not wait for its neighbour: it waits until it is the first of its key that has not ended at the subscriber.

A chain is the messages of one key that have not ended, 8 bytes each, and it is forgotten with the last of them. Its
number is the first message it ever had, and an edge of each other one (``message_table.KEY_EDGE``) says it. The first
waits for nobody, and who hands out messages sees nothing special in it; where none has come behind it, its key is all
there is.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice

import orjson

from syncbrok.delivery.scheduler.cursor import Cursor
from syncbrok.delivery.scheduler.lifecycle import MessageState
from syncbrok.delivery.scheduler.message_table import ONLY, PER_SUBSCRIBER, MessageTable
from syncbrok.model import limits

_FEW = 64
"""messages of a chain that are not worth tidying up"""
_NAMES_AT_ONCE = 4_096
"""that are made bytes in one call: no other thread has its turn meanwhile"""

Key = tuple[int, str]
"""of a queue, by its number"""


class KeyChain:
    """Messages of one key in the order accepted, from ``head`` on. Some may have ended; ``waiting`` have not."""

    __slots__ = ("head", "key", "messages", "number", "through", "waiting")

    def __init__(self, number: int, key: Key, messages: "array[int]") -> None:
        self.number = number
        self.key = key
        self.messages = messages
        self.head = 0
        self.waiting = len(messages)
        self.through: dict[int, int] | None = None
        """by subscriber: up to this message all have ended there. Worked out anew where it is not there"""


class KeyChains:
    """All chains of a message table."""

    def __init__(self, table: MessageTable) -> None:
        self._table = table
        self.numbered: dict[int, KeyChain | Key] = {}
        """by number; the key alone where the chain is one message and never was more"""
        self._newest: dict[Key, KeyChain | int] = {}
        """the chain of a key, or its only message"""
        self.several = 0
        """chains that are, or were, more than one message"""

    def add(self, queue: int, key: str, message: int) -> int:
        """A message has been accepted; the number of the chain that it stands in behind others, 0 for none."""
        name = (queue, key)
        found = self._newest.get(name)
        if found is None:
            self._newest[name] = message
            self.numbered[message] = name
            return 0
        chain = self._begin(found, name, [found]) if isinstance(found, int) else found
        chain.waiting += 1
        if message > chain.messages[-1]:
            chain.messages.append(message)
        else:  # carried, in a log that has lost the message's own record
            insort(chain.messages, message, chain.head)
            chain.through = None
            if not self._has_ended(chain.number):
                self._table.mark(chain.number, PER_SUBSCRIBER)  # it may wait for this one now
        return chain.number

    def _begin(self, number: int, key: Key, messages: list[int]) -> KeyChain:
        chain = KeyChain(number, key, array("Q", messages))
        self.numbered[number] = self._newest[key] = chain
        self.several += 1
        return chain

    def dump(self) -> Callable[[], bytes]:
        """The names of all chains. The edges of the table say who stands in them, and are in a checkpoint anyway. What
        is copied here is a pointer for each; the bytes are made by who calls the result, in any thread."""
        return partial(_names_of, self.numbered.copy())

    def load(self, names: bytes) -> None:
        """Fill empty chains with what ``dump`` gave, of a table that is filled already."""
        count = int.from_bytes(names[:8], "little")
        numbers = array("Q", names[8 : 8 + 24 * count])
        keys: list[str] = []
        for piece in names[8 + 24 * count :].split(b"\n")[:-1]:
            keys += orjson.loads(piece)
        waiting: dict[int, list[int]] = {}
        of_each = list(zip(numbers[::3], numbers[1::3], numbers[2::3], keys, strict=True))
        for number, queue, is_chain, key in of_each:
            if is_chain:
                waiting[number] = [] if self._has_ended(number) else [number]
            else:
                self.add(queue, key, number)
        for message, number in self._table.behind_others() if waiting else ():
            waiting[number].append(message)
        for number, queue, is_chain, key in of_each:
            if is_chain:
                # One that was carried, and whose own record is lost, may come before the chain's first.
                self._begin(number, (queue, key), sorted(waiting[number]))

    def load_chain(self, number: int, queue: int, key: str, messages: list[int]) -> None:
        """One chain, as versions before this one wrote it."""
        if messages:
            self._begin(number, (queue, key), messages)
        else:
            self.add(queue, key, number)

    def of(self, message: int) -> KeyChain | None:
        """The chain that a message belongs to; None where there is or was no other of its key."""
        if not self.several:
            return None
        found = self.numbered.get(message) or self.numbered.get(self._table.key_chain(message))
        return found if isinstance(found, KeyChain) else None

    def key_of(self, message: int) -> str:
        """The key of a message that has not ended; "" where it has none."""
        found = self.numbered.get(message) or self.numbered.get(self._table.key_chain(message))
        name = found.key if isinstance(found, KeyChain) else found
        return name[1] if name is not None else ""

    def ended(self, message: int, chain: KeyChain | None) -> None:
        """A message has ended, which is noted in the table; ``chain`` is its chain."""
        if chain is None:
            key = self.numbered.pop(message, None)
            if isinstance(key, tuple):
                del self._newest[key]
            return
        chain.waiting -= 1
        if not chain.waiting:
            del self.numbered[chain.number], self._newest[chain.key]
            self.several -= 1
            return
        messages = chain.messages
        while self._has_ended(messages[chain.head]):
            chain.head += 1
        if len(messages) > _FEW and chain.waiting * 2 < len(messages):
            chain.messages, chain.head = array("Q", self.waiting(chain)), 0

    def waiting(self, chain: KeyChain) -> list[int]:
        """Its messages that have not ended, in order."""
        return [message for message in chain.messages[chain.head :] if not self._has_ended(message)]

    def first_at(self, chain: KeyChain, cursor: Cursor, before: int = 0) -> int:
        """The first of the chain, or of those ``before`` a message of it, that has not ended at the subscriber; 0 for
        none. Over the life of a chain each of its messages is passed by once for each subscriber."""
        messages, number, through = chain.messages, cursor.number, chain.through
        began = at = chain.head
        if messages[at] == before:
            return 0
        if through is not None and number in through:
            began = at = bisect_right(messages, through[number], at)
        # Not further: where one stands that is being handed out right now, the cursor cannot say.
        end = bisect_left(messages, before, at) if before else len(messages)
        while at < end and not self._is_open_at(messages[at], cursor):
            at += 1
        if at > began:
            if through is None or len(through) >= limits.key_places_max:
                through = chain.through = {}
            through[number] = messages[at - 1]
        return messages[at] if at < end else 0

    def live_before(self, queue: int, key: str, message: int, cursor: Cursor) -> int:
        """A message of the key before this one, which has ended and goes again, that has not ended at the subscriber; 0
        for none."""
        found = self._newest.get((queue, key))
        if found is None:
            return 0
        if isinstance(found, KeyChain):
            return self.first_at(found, cursor, message)
        return found if found < message and self._is_open_at(found, cursor) else 0

    def before(self, chain: KeyChain, message: int) -> int:
        """The message of the chain before this one that has not ended; 0 for none."""
        messages = chain.messages
        for at in range(bisect_left(messages, message, chain.head) - 1, chain.head - 1, -1):
            if not self._has_ended(messages[at]):
                return messages[at]
        return 0

    def after(self, chain: KeyChain, message: int) -> int:
        """The message of the chain after this one that has not ended; 0 for none."""
        messages = chain.messages
        for at in range(bisect_right(messages, message, chain.head), len(messages)):
            if not self._has_ended(messages[at]):
                return messages[at]
        return 0

    def _has_ended(self, message: int) -> bool:
        return self._table.state(message) >= MessageState.COMPLETE

    def _is_open_at(self, message: int, cursor: Cursor) -> bool:
        """Whether it is for the subscriber and has not ended there, durably."""
        table = self._table
        if not cursor.counts(message) or table.state(message) >= MessageState.COMPLETE:
            return False
        if table.flags(message) & ONLY and table.only.get(message) != cursor.number:
            return False
        return not cursor.finished(message)


def _names_of(numbered: Mapping[int, KeyChain | Key]) -> bytes:
    """How many; number, queue and whether it is a chain of each; then the keys, some in each line of JSON. Reads of a
    chain only what never changes."""
    numbers, lines = array("Q", (len(numbered),)), []
    rest = iter(numbered.items())
    while some := list(islice(rest, _NAMES_AT_ONCE)):
        keys = []
        for number, found in some:
            is_chain = isinstance(found, KeyChain)
            queue, key = found.key if isinstance(found, KeyChain) else found
            numbers.extend((number, queue, is_chain))
            keys.append(key)
        lines.append(orjson.dumps(keys) + b"\n")
    return b"".join((numbers.tobytes(), *lines))
