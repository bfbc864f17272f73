"""Where a message and its attempts stand in traces (W3C Trace Context). Nothing of it is kept: all follows from ids.

A tree of messages is one trace, whose id is the 16 bytes of the root's message id. The id of a span is a digest of what
it is about. So a delivery can name its span before there is one, after a restart too, and whatever tells of a span
twice tells of the same one. Whether a trace is recorded follows from the root's id as well: a tree is whole, or not
there at all.
"""

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

from syncbrok.delivery.handler import Delivery
from syncbrok.model.facts import StoredMessage
from syncbrok.model.names import MessageId, sequence_of

TRACEPARENT: Final = "traceparent"
_ROOTS_MAX: Final = 65_536
"""older roots whose ids are remembered"""
_TAG_BITS: Final = 32
"""the last bits of an id are a keyed mix, spread evenly"""
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?", re.ASCII)


class SpanPlace(NamedTuple):
    """A span, wherever it was made."""

    trace: bytes
    """16 bytes"""
    span: bytes
    """8 bytes"""


def publish_span(message: MessageId) -> bytes:
    """The id of the span in which a message was accepted; all others of the message stand below it."""
    return blake2b(message, digest_size=8, person=b"publish").digest()


def attempt_span(message: MessageId, subscriber: int, number: int) -> bytes:
    """The id of the span of an attempt at a subscriber (number)."""
    return blake2b(b"%b%d/%d" % (message, subscriber, number), digest_size=8, person=b"attempt").digest()


def wait_span(message: MessageId, subscriber: int, number: int, why: str) -> bytes:
    """The id of the span of a wait before an attempt."""
    return blake2b(b"%b%d/%d/%b" % (message, subscriber, number, why.encode()), digest_size=8, person=b"wait").digest()


def read_traceparent(text: str) -> SpanPlace | None:
    """The span that a header ``traceparent`` names; None where it names none."""
    found = _TRACEPARENT.fullmatch(text.strip())
    if found is None or not found[1].strip("0") or not found[2].strip("0"):
        return None
    return SpanPlace(bytes.fromhex(found[1]), bytes.fromhex(found[2]))


class TraceContexts:
    """``share``: of the trees so many are recorded, 0 to 1. ``recent``: gives the id of a message by its sequence, from
    memory alone; None where it is not among the recent ones."""

    def __init__(self, share: float, recent: Callable[[int], MessageId | None]) -> None:
        self._below = round(share * (1 << _TAG_BITS))
        self._recent = recent
        self._roots: dict[int, MessageId] = {}

    def recorded(self, root: MessageId) -> bool:
        """Whether the tree below this message is recorded."""
        return int.from_bytes(root[12:], "big") < self._below

    def root_of(self, message: StoredMessage) -> MessageId | None:
        """The id of the root of its tree, from memory alone; None where that is not known any more, see
        ``note_root``."""
        root = message.root
        if root == message.sequence:
            return message.id
        if message.parents and sequence_of(message.parents[0]) == root:
            return message.parents[0]
        return self._roots.get(root) or self._recent(root)

    def note_root(self, sequence: int, root: MessageId) -> None:
        """Remember the id of a root that was read from the log. Any thread may."""
        if len(self._roots) >= _ROOTS_MAX:
            self._roots = {}
        self._roots[sequence] = root

    def traceparent(self, delivery: Delivery) -> str:
        """The header that names the span of an attempt; ``""`` where its tree is not recorded."""
        attempt, message, _ = delivery
        root = self.root_of(message)
        if root is None or not self.recorded(root):
            return ""
        return f"00-{root.hex()}-{attempt_span(message.id, attempt.subscriber, attempt.number).hex()}-01"

    def named(self, delivery: Delivery) -> Delivery:
        """The same, where its tree is recorded with that header in the place of the publisher's."""
        parent = self.traceparent(delivery)
        if not parent:
            return delivery
        message = delivery.message
        kept = [pair for pair in message.headers if pair[0] != TRACEPARENT]
        return delivery._replace(message=message._replace(headers=(*kept, (TRACEPARENT, parent))))
