"""Of the messages of one key to one subscriber no attempt of a later one begins before every earlier one has ended
there (RULES 6). Pure.

A message that has ended early (cancelled, expired, dead of a parent) says nothing of those before it. So a message does
not wait for its neighbour: it waits until it is the first of its key that has not ended at the subscriber.

A chain is the messages of one key that have not ended, 8 bytes each, and it is forgotten with the last of them. An edge
of each message (``ledger.KEY_EDGE``) names its chain.
"""

from array import array
from bisect import bisect_left, bisect_right, insort

from syncbrok.delivery.cursor import Cursor
from syncbrok.delivery.ledger import ONLY, Ledger
from syncbrok.delivery.lifecycle import MessageState
from syncbrok.model import limits

_FEW = 64
"""messages of a chain that are not worth tidying up"""


class KeyChain:
    """Messages of one key in the order accepted, from ``head`` on. Some may have ended; ``waiting`` have not."""

    __slots__ = ("head", "key", "messages", "number", "queue", "through", "waiting")

    def __init__(self, number: int, queue: int, key: str, messages: "array[int]") -> None:
        self.number = number
        """the first message it ever had"""
        self.queue = queue
        self.key = key
        self.messages = messages
        self.head = 0
        self.waiting = len(messages)
        self.through: dict[int, int] | None = None
        """by subscriber: up to this message all have ended there. Worked out anew where it is not there"""


class KeyChains:
    """All chains, by their numbers."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.chains: dict[int, KeyChain] = {}
        self._newest: dict[tuple[int, str], KeyChain] = {}

    def add(self, queue: int, key: str, message: int) -> int:
        """A message has been accepted; the number of its chain."""
        chain = self._newest.get((queue, key))
        if chain is None:
            self.load(message, queue, key, (message,))
            return message
        chain.waiting += 1
        if message > chain.messages[-1]:
            chain.messages.append(message)
        else:  # carried, in a log that has lost the message's own record
            insort(chain.messages, message, chain.head)
            chain.through = None
        return chain.number

    def load(self, number: int, queue: int, key: str, messages: "tuple[int, ...] | list[int]") -> None:
        """A chain of its own, or one out of a checkpoint."""
        self.chains[number] = self._newest[queue, key] = KeyChain(number, queue, key, array("Q", messages))

    def of(self, message: int) -> KeyChain | None:
        """The chain that a message belongs to; None for one without a key."""
        return self.chains.get(self._ledger.key_chain(message)) if self.chains else None

    def ended(self, chain: KeyChain) -> None:
        """One of its messages has ended: after it was noted in the ledger."""
        chain.waiting -= 1
        if not chain.waiting:
            del self.chains[chain.number], self._newest[chain.queue, chain.key]
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
        return self._ledger.state(message) >= MessageState.COMPLETE

    def _is_open_at(self, message: int, cursor: Cursor) -> bool:
        """Whether it is for the subscriber and has not ended there, durably."""
        ledger = self._ledger
        if not cursor.counts(message) or ledger.state(message) >= MessageState.COMPLETE:
            return False
        if ledger.flags(message) & ONLY and ledger.only.get(message) != cursor.number:
            return False
        return not cursor.finished(message)
