"""Evidence from the files beside the segments of how far a log reached on the disk.

Checkpoints and sidecars describe durable records, so they still tell of a segment that was lost together with the
watermark. They are a reason to refuse a log with a missing piece, never a reason to believe a record.
"""

from pathlib import Path
from typing import NamedTuple

from syncbrok.log.index import sidecar
from syncbrok.log.segments import checkpoint

UNKNOWN_BEGINNING = (
    "the watermark is gone, which alone says where the log begins: segments before this one may be missing"
)
"""said of a log without a watermark whose first segment does not begin with sequence 1"""
UNKNOWN_END = "the watermark is gone, and the last segment left is sealed: segments after this one may be missing"
"""said of a log without a watermark whose last segment is sealed: there is one before any segment is sealed"""


class Evidence(NamedTuple):
    """The log ``uuid`` was on the disk through the sequence ``through``, says ``file``."""

    uuid: bytes
    through: int
    file: str


def gather_evidence(directory: Path, last_base: int) -> list[Evidence]:
    """Evidence from the checkpoints, and from sidecars of segments behind ``last_base`` (the base of the last segment
    that is there; 0 for none). The log before that base is known to be whole without them. A file that cannot be read
    is no evidence."""
    names = (checkpoint.NAME, checkpoint.NAME_BEFORE)
    found = [(name, checkpoint.read_head(directory / name)) for name in names]
    evidence = [Evidence(head.uuid, head.through, name) for name, head in found if head is not None]
    for path in directory.glob("*.idx"):
        if path.stem.isdecimal() and int(path.stem) > last_base:
            described = sidecar.read_head(path)
            if described is not None:
                evidence.append(Evidence(*described, path.name))
    return evidence


def known_through(evidence: list[Evidence], uuid: bytes) -> int:
    """The last sequence of the log ``uuid`` that is known to have been on the disk; 0 where nothing is known."""
    return max((one.through for one in evidence if one.uuid == uuid), default=0)
