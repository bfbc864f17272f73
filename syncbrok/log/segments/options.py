"""The settings of a log."""

from pathlib import Path
from typing import Final, Literal, NamedTuple

from syncbrok.model import limits

PIPELINE: Final = "pipeline"
Archive = Path | Literal["pipeline"] | None
"""The condition for retention to drop a segment: copied by the broker to this directory, archived by the pipeline, or
none."""


class JournalOptions(NamedTuple):
    """``sync``: ``always`` (a batch is on the disk when ``append`` returns) or ``interval`` (when ``sync`` does, which
    the Space calls every ``interval_ms``; what was written since may be lost with the machine)."""

    segment_bytes: int = limits.segment_bytes_default
    reserve_bytes: int = limits.reserve_bytes
    sync: Literal["always", "interval"] = "always"
    interval_ms: int = 0
    retention_s: float = limits.retention_default_s
    archive: Archive = None
    indexes_max: int = limits.indexes_kept_max
    """indexes of sealed segments kept, each an open file"""
