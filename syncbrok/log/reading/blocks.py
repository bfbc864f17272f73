"""Records in a block: the up to 256 that stand between two places of the sparse index.

A block of up to 1 MiB is read whole, with its neighbours; in a larger one only the headers on the way are read.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from syncbrok.log.format.codec import Decoded, Header, decode, read_header
from syncbrok.log.format.layout import HEADER_BYTES, MAGIC, WALK_STRUCT
from syncbrok.log.format.message_decoder import read_messages
from syncbrok.log.format.records import Record
from syncbrok.log.index.segment_list import Part
from syncbrok.log.segments import files
from syncbrok.log.segments.segment import corrupt_error
from syncbrok.model.facts import StoredMessage
from syncbrok.model.limits import MIB

BLOCK_BYTES_MAX = 1 * MIB
READ_BYTES_MAX = 4 * MIB


class Block(NamedTuple):
    """Up to 256 records that begin at ``start``; ``wanted`` are (how many to walk from there, sequence, how many
    neighbours from that one on)."""

    start: int
    end: int
    wanted: list[tuple[int, int, int]]


def together(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Neighbouring blocks that are read with one call; a large block is alone."""
    run: list[Block] = []
    for block in blocks:
        if run and (block.start != run[-1].end or block.end - run[0].start > READ_BYTES_MAX):
            yield run
            run = []
        if block.end - block.start > BLOCK_BYTES_MAX:
            if run:
                yield run
            run = []
            yield [block]
            continue
        run.append(block)
    if run:
        yield run


def walk_block(data: bytes, shift: int, part: Part, block: Block, facts: list[Record]) -> None:
    """Append the wanted records of ``block`` to ``facts``. ``data`` holds the bytes of the block and begins at offset
    ``shift`` of the file."""
    at, walked = block.start - shift, 0
    for steps, first, count in block.wanted:
        at = _skip(data, at, steps - walked, shift, part, first)
        walked = steps + count
        sequence, end = first, first + count
        while sequence < end:
            messages: list[StoredMessage] = []
            at = read_messages(data, at, sequence, end - sequence, messages)
            facts += messages
            sequence += len(messages)
            if sequence < end:
                fact, at = _decoded(data, at, shift, part, sequence)
                facts.append(fact)
                sequence += 1


def _skip(data: bytes, at: int, steps: int, shift: int, part: Part, sequence: int) -> int:
    """The offset of the record so many after the one at ``at``; ``sequence`` is the one that is looked for."""
    unpack, last_at = WALK_STRUCT.unpack_from, len(data) - HEADER_BYTES
    for _ in range(steps):
        magic, body_bytes = unpack(data, at) if at <= last_at else (0, 0)
        if magic != MAGIC:
            raise corrupt_error(part.info.path, at + shift, part.info.base, sequence, "no record begins here")
        at += HEADER_BYTES + body_bytes
    return at


def _decoded(data: bytes, at: int, shift: int, part: Part, sequence: int) -> tuple[Record, int]:
    """The fact of any record, and where the next one begins."""
    found = decode(data, at)
    if not isinstance(found, Decoded):
        why = getattr(found, "why", "the record is cut short")
        raise corrupt_error(part.info.path, at + shift, sequence, sequence, why)
    if found.header.sequence != sequence:
        why = f"a record of sequence {found.header.sequence} stands here"
        raise corrupt_error(part.info.path, at + shift, sequence, sequence, why)
    return found.fact, found.end


def hop_block(descriptor: int, part: Part, block: Block, facts: list[Record]) -> None:
    """As ``walk_block``, for a large block: reads headers one after the other, and only the wanted bodies."""
    at, walked = block.start, 0
    for first_steps, first, count in block.wanted:
        for steps, sequence in zip(range(first_steps, first_steps + count), range(first, first + count), strict=True):
            header, at = hop_header(descriptor, part, at, steps - walked, sequence)
            walked = steps
            data = files.read_around(descriptor, header.record_bytes, at)
            facts.append(_decoded(data, 0, at, part, sequence)[0])


def hop_header(descriptor: int, part: Part, at: int, steps: int, sequence: int) -> tuple[Header, int]:
    """The header ``steps`` records after the one at ``at``, and its offset."""
    while True:
        header = read_header(files.read_around(descriptor, HEADER_BYTES, at))
        if not isinstance(header, Header):
            why = getattr(header, "why", "the file ends")
            raise corrupt_error(part.info.path, at, part.info.base, sequence, why)
        if steps == 0:
            return header, at
        at += header.record_bytes
        steps -= 1
