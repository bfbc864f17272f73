"""Options of a log in files; those of every journal stand in ``model.journal``."""

from pathlib import Path
from typing import Final, Literal, NamedTuple

from syncbrok.model import limits

PIPELINE: Final = "pipeline"
Archive = Path | Literal["pipeline"] | None
"""The condition for retention to drop a segment: copied by the broker to this directory, archived by the pipeline, or
none."""


class FileOptions(NamedTuple):
    """``segment_bytes``: a segment is begun when the one before has so many. ``reserve_bytes``: room that is kept for
    outcomes, see ``reserve``. ``syncs_each`` False: under ``always`` too a write is fsynced only by ``sync``, since the
    log survives without this file."""

    segment_bytes: int = limits.segment_bytes_default
    reserve_bytes: int = limits.reserve_bytes
    archive: Archive = None
    archive_writer: str = ""
    """the name of this broker, where others write to the same archive"""
    indexes_max: int = limits.indexes_kept_max
    """indexes of sealed segments kept, each an open file"""
    syncs_each: bool = True
