"""Reads on behind damage: every record of a segment's bytes that is still whole, and the places where there is none.

``verify`` and ``salvage`` must go on behind a record that cannot be read; recovery must not, and refuses. If the bad
record's header is whole, its length tells where the next record begins. Otherwise the bytes are searched for a record
with the right checksums and a possible sequence that is itself followed by such a record or by nothing: a message may
carry bytes of another log as its content, and those must not be taken for records of this one.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from syncbrok.log.format.codec import Corrupt, Decoded, Header, Incomplete, decode, read_header
from syncbrok.log.format.layout import MAGIC
from syncbrok.log.format.records import Gap, Record

_MAGIC = re.compile(re.escape(MAGIC.to_bytes(4, "little")))


class FoundRecord(NamedTuple):
    """A whole record at ``offset``."""

    offset: int
    record: Decoded


class UnreadableBytes(NamedTuple):
    """There is no record from ``offset`` to ``end``. ``header``: the header of the record that should be there, if that
    is whole."""

    offset: int
    end: int
    why: str
    header: Header | None


def span_of(fact: Record) -> tuple[int, int]:
    """The first and the last sequence that a record accounts for: its own, or for a gap those that were lost."""
    if isinstance(fact, Gap):
        return min(fact.sequence, fact.first), max(fact.sequence, fact.last)
    return fact.sequence, fact.sequence


def scan(
    view: memoryview, start: int, *, last: int, below: int, content: bool = False
) -> Iterator[FoundRecord | UnreadableBytes]:
    """Yield the records and the unreadable stretches from ``start`` to the end of ``view``, in order and without a gap
    of bytes; zeros that reach to the end are left out. Sequences rise, above ``last`` and below ``below``.

    Pass bytes that were read, not a mapped file that a broker may cut meanwhile (the active segment is cut when it is
    sealed): touching a page that is gone kills the process.
    """
    at = start
    while at < len(view):
        found = decode(view, at, content=content)
        if isinstance(found, Decoded) and last < found.fact.sequence < below:
            yield FoundRecord(at, found)
            last, at = span_of(found.fact)[1], found.end
            continue
        if _is_blank(view, at):
            return
        header = read_header(view, at)
        damaged = header if isinstance(header, Header) and not isinstance(found, Decoded) else None
        resumed = resume(view, at, damaged, last, below)
        yield UnreadableBytes(at, resumed, _why(found, last), damaged)
        at = resumed


def _why(found: Decoded | Incomplete | Corrupt, last: int) -> str:
    if isinstance(found, Corrupt):
        return found.why
    if isinstance(found, Incomplete):
        return "the record is cut short"
    return f"a record of sequence {found.fact.sequence} stands behind that of {last}"


def resume(view: memoryview, at: int, header: Header | None, last: int, below: int) -> int:
    """The offset of the next record behind the damage at ``at``, with a sequence above ``last`` and below ``below``;
    the end of ``view`` where there is none. ``header`` is the damaged record's, None if that is not whole."""
    if header is not None:
        following = at + header.record_bytes
        if following == len(view) or (following < len(view) and _can_follow(view, following, last, below)):
            return following
    for found in _MAGIC.finditer(view, at + 1):
        if _can_follow(view, found.start(), last, below):
            return found.start()
    return len(view)


def _can_follow(view: memoryview, at: int, last: int, below: int) -> bool:
    found = decode(view, at, content=False)
    if not isinstance(found, Decoded) or not last < found.fact.sequence < below:
        return False
    if found.end == len(view) or _is_blank(view, found.end):
        return True
    after = read_header(view, found.end)
    return isinstance(after, Header) and after.sequence > span_of(found.fact)[1]


def _is_blank(view: memoryview, at: int) -> bool:
    return not np.frombuffer(view[at:], np.uint8).any()
