"""Up to where the log is known to be on the disk. It narrows what recovery may call a torn tail.

Two slots, written in turns, so that a write cut short leaves the other. It is saved about once a second, at each roll
and when the log is closed: a second's worth of the newest records is what it does not vouch for. It is there before any
segment is sealed. So where it is gone and the log ends with a seal, what followed may be gone as well.
"""

import os
import struct
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from syncbrok.log.segments import files
from syncbrok.log.segments.descriptors import open_file, reading
from syncbrok.model.errors import LogCorrupt

NAME = "watermark"
SLOT_BYTES = 512
SLOT_STRIDE = 4096
"""one slot never shares a sector with the other, whatever a sector is there"""
_MAGIC = b"SYBRMARK"
_MARK = struct.Struct("<8sQ16sQQQqQB")
_CRC = struct.Struct("<I")


class Mark(NamedTuple):
    """The contents of a slot. The record after ``durable`` goes to ``offset`` in segment ``base``; ``oldest`` is the
    base of the first segment that retention has left; ``clean``: the log was closed in good order."""

    uuid: bytes
    durable: int
    base: int
    offset: int
    time_us: int
    oldest: int
    clean: bool


def pack(mark: Mark, turn: int) -> bytes:
    """The bytes of a slot."""
    body = _MARK.pack(
        _MAGIC, turn, mark.uuid, mark.durable, mark.base, mark.offset, mark.time_us, mark.oldest, mark.clean
    ).ljust(SLOT_BYTES - _CRC.size, b"\0")
    return body + _CRC.pack(crc32c(body))


def unpack(slot: bytes) -> tuple[int, Mark] | None:
    """Turn and mark of a slot; None where it is damaged or was never written."""
    if len(slot) != SLOT_BYTES or crc32c(slot[: -_CRC.size]) != _CRC.unpack_from(slot, SLOT_BYTES - _CRC.size)[0]:
        return None
    magic, turn, uuid, durable, base, offset, time_us, oldest, clean = _MARK.unpack_from(slot)
    if magic != _MAGIC:
        return None
    return turn, Mark(uuid, durable, base, offset, time_us, oldest, bool(clean))


def read(directory: Path) -> Mark | None:
    """The newest mark; None where there is no file. Raises ``LogCorrupt`` where no slot can be read: they are written
    in turns, so a crash spoils one at most."""
    newest = _newest(directory / NAME)
    return newest[1] if newest else None


def _newest(path: Path) -> tuple[int, Mark] | None:
    try:
        with reading(path) as file:
            data = file.read()
    except FileNotFoundError:
        return None
    slots = [unpack(data[at : at + SLOT_BYTES]) for at in (0, SLOT_STRIDE)]
    valid = [slot for slot in slots if slot is not None]
    if not valid:
        raise LogCorrupt(
            f"{path} is damaged in both slots. Restore it, or keep what can be read with: syncbrok log salvage. Only "
            "where the segments are known to be whole, the first and the last too, remove it and start again",
            file=path.name,
        )
    return max(valid)


class Watermark:
    """Saves marks. ``saved`` is the last one, None before the first."""

    def __init__(self, directory: Path) -> None:
        """Opens the file, or makes one with no valid slot when the first mark is saved. Raises ``LogCorrupt``."""
        self._path = directory / NAME
        newest = _newest(self._path)
        self._turn = newest[0] if newest else 0
        self.saved: Mark | None = newest[1] if newest else None
        self._descriptor = open_file(self._path, os.O_RDWR | os.O_DSYNC) if newest else -1

    def save(self, mark: Mark) -> None:
        """Returns when ``mark`` is on the disk. Raises ``LogFull``, with the mark before it still there (a file system
        that copies on write wants room for a slot too), or ``LogFailed``."""
        slot = pack(mark, self._turn + 1)
        if self._descriptor >= 0:
            files.write_at(self._descriptor, slot, (self._turn + 1) % 2 * SLOT_STRIDE, self._path)
        else:
            # Both slots at once and under another name: a file with no valid slot is never seen under its own.
            files.replace_file(self._path, slot.ljust(SLOT_STRIDE, b"\0") + slot)
            try:
                self._descriptor = open_file(self._path, os.O_RDWR | os.O_DSYNC)
            except OSError as problem:
                raise files.write_problem(problem, self._path) from problem
        self._turn += 1
        self.saved = mark

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
