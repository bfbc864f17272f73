"""Names and ids: parsed once at the border, trusted inside.

A message id is a UUID of version 8 (RFC 9562) that names its own place in the log::

    bits 127..80  unix time in milliseconds      48   of the wall clock at acceptance, so ids sort by time
    bits  79..76  version, 8                      4
    bits  75..64  sequence, high 12 bits         12
    bits  63..62  variant, binary 10              2
    bits  61..32  sequence, low 30 bits          30
    bits  31..0   tag                            32   keyed mix of time and sequence

Sequence and place need no entry in memory: the sequence is read out of the id. The tag is keyed with 16 random bytes of
the log, so that an id that this log never issued is told from one whose record retention has dropped (RULES 2).
The tag is not a secret and protects nothing: every reader of the log can compute it.
"""

import base64
import hashlib
import re
import unicodedata
from functools import lru_cache
from typing import NewType

from syncbrok.model import limits
from syncbrok.model.errors import BadName, Malformed

QueueName = NewType("QueueName", str)
SubscriberId = NewType("SubscriberId", str)
MessageId = NewType("MessageId", bytes)

SEQUENCE_MAX = (1 << 42) - 1
NO_ID = MessageId(bytes(16))

RESERVED_PREFIX = "syncbrok."
"""prefix of the broker's own queues and subscribers; others are refused"""

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}")
_ID_TEXT_LENGTH = 36
_ID_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_MASK64 = (1 << 64) - 1
_UNNAMEABLE = {
    "Cc": "a control character",
    "Cf": "a character that is not seen",
    "Cs": "bytes that are not UTF-8",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}
"""Unicode categories that a queue name must not contain: such characters cannot be typed, or told from others"""


def parse_queue_name(text: str) -> QueueName:
    """``text`` as a queue name: 1 to 128 characters, compared by code point. Raises ``BadName`` with the rule that it
    breaks. A surrogate stands for a byte that was not UTF-8, and is refused like one."""
    if not _NAME.fullmatch(text):  # nearly every name fits the old rule, and needs no closer look
        wrong = _wrong_in_queue_name(text)
        if wrong:
            raise BadName(f"{text[:140]!r} is not a queue name: {wrong}", queue=text[:140])
    return QueueName(text)


def _wrong_in_queue_name(text: str) -> str:
    """In words what keeps ``text`` from being a queue name; empty where nothing does."""
    if not text:
        return "it is empty"
    if len(text) > limits.queue_name_chars_max:
        return f"it has {len(text)} characters, at most {limits.queue_name_chars_max} are taken"
    if text in (".", ".."):
        return "paths use it for another thing"
    if "/" in text:
        return "it holds a slash"
    for at, character in enumerate(text, 1):
        found = _UNNAMEABLE.get(unicodedata.category(character))
        if found:
            return f"it holds {found}, at character {at}"
    if text[0].isspace() or text[-1].isspace():
        return "it begins or ends with a blank"
    return ""


def parse_subscriber_id(text: str) -> SubscriberId:
    """``text`` as a subscriber's id or name, or the name of a group; raises ``BadName``."""
    if not _NAME.fullmatch(text):
        raise BadName(
            f"{text[:140]!r} is not a subscriber name: 1 to {limits.subscriber_name_chars_max} letters, digits, "
            "'_', '.' or '-', the first a letter or digit",
            subscriber=text[:140],
        )
    return SubscriberId(text)


def refuse_reserved(name: str, what: str) -> None:
    """Called where a queue or subscriber (``what``) is made: one that is there already keeps its name. Raises
    ``BadName``."""
    if name.startswith(RESERVED_PREFIX):
        raise BadName(f"{name!r} begins with {RESERVED_PREFIX!r}, which the broker keeps for itself; choose another "
                      f"name for the {what}", **{what: name})  # fmt: skip


def parse_message_id(text: str) -> MessageId:
    """The 16 bytes of an id in its text form, any UUID: whether this log issued it, ``issued_by`` says. Raises
    ``Malformed``."""
    lowered = text.strip().lower()
    found = _read_id(lowered) if len(lowered) == _ID_TEXT_LENGTH else None
    if found is None:
        raise Malformed(f"{text[:80]!r} is not a message id: a UUID as a publish answers it", id=text[:80])
    return found


@lru_cache(4_096)
def _read_id(text: str) -> MessageId | None:
    """Children name the same parents over and over, in a batch of many lines each."""
    return MessageId(bytes.fromhex(text.replace("-", ""))) if _ID_TEXT.fullmatch(text) else None


def id_text(message_id: bytes) -> str:
    """The id as people and headers carry it: 36 characters, lower case."""
    digits = message_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def make_message_id(time_ms: int, sequence: int, key: bytes) -> MessageId:
    """The id of the message at ``sequence`` (0 to 2**42-1), accepted at ``time_ms`` (Unix), in the log of ``key``."""
    high = (time_ms & 0xFFFF_FFFF_FFFF) << 16 | 0x8000 | sequence >> 30
    low = 1 << 63 | (sequence & 0x3FFF_FFFF) << 32 | _tag(time_ms, sequence, key)
    return MessageId((high << 64 | low).to_bytes(16, "big"))


def sequence_of(message_id: bytes) -> int:
    """The sequence an id names. Any 16 bytes have one: check ``issued_by`` before trusting it."""
    number = int.from_bytes(message_id, "big")
    return (number >> 64 & 0xFFF) << 30 | number >> 32 & 0x3FFF_FFFF


def time_ms_of(message_id: bytes) -> int:
    """When the message was accepted by the wall clock, Unix milliseconds. (An older version took its record's time,
    which may be ahead of the clock.)"""
    return int.from_bytes(message_id[:6], "big")


def issued_by(message_id: bytes, key: bytes) -> bool:
    """Whether the tag fits: false for an id that the log with ``key`` never issued (but for one in 2**32)."""
    return make_message_id(time_ms_of(message_id), sequence_of(message_id), key) == message_id


def key_digest(text: str, key: bytes) -> str:
    """The text that stands for a message's key once the message is erased: 22 characters, of a hash keyed with the
    log's ``key``. So the same key is known again, and nobody reads it; who has the log can try out guesses."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, key=key)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def _tag(time_ms: int, sequence: int, key: bytes) -> int:
    # Three rounds of the 64-bit multiply-and-fold of splitmix64 (Steele, Lea, Flood 2014), keyed before the first two.
    # A cryptographic hash was rejected: it costs 0.8 us a message and the tag guards against mistakes, not attackers.
    mixed = (sequence ^ int.from_bytes(key[:8], "little")) & _MASK64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
    mixed ^= time_ms ^ int.from_bytes(key[8:16], "little")
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK64
    mixed = (mixed ^ mixed >> 31) * 0xBF58476D1CE4E5B9 & _MASK64
    return mixed >> 32
