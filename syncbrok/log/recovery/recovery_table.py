"""The decision table of recovery: what is made of the place where the whole records of a segment end. Pure.

``SEALED``        The segment ends with its seal. Start-up trusts it after comparing size and footer; the background
                  scrub reads the rest. Zeros behind the seal of the last segment are room that a crash kept from being
                  given back.
``CLEAN``         Whole records of whole units, then nothing: where a broker that was stopped left off.
``HALF_UNIT``     Whole records, then nothing, but the last unit lacks its last record: a write that was cut short on
                  the border of two records. A unit is kept whole or not at all (RULES 5), so its records go too.
``TORN``          Bytes that are no record where the next one should be, and nothing says that it was ever on the disk:
                  a write cut short. A later record says so only by its ``synced_through``, since a disk may write the
                  pages of one moment in any order (etcd #6378).
``LATER``         A whole record of another version: no write was cut short there, and this program cannot read it.
``NEXT_MISSING``  The watermark knows of records behind the seal: the segments with them are gone.
``AFTER_SEAL``    Nothing is ever written behind a seal.
``NO_SEAL``       A segment is sealed before the next one is made, so only the last one may lack its seal.
``LOST_END``      Zeros where the watermark says that records were: acknowledged ones are gone.
``LOST_RECORD``   The watermark vouches for the damaged record: it was whole on the disk once.
``BEFORE_VALID``  A later record was written when the damaged one was already on the disk, so it was whole once.

All but the first four are corruption: cutting there would lose what may be acknowledged and all that follows, so the
broker refuses to start. (Kafka cuts there, relying on replicas; this log has none.) A node of a cluster does have
them: its stream has all that its files ever had, so it cuts at the rows of ``REFETCHED`` too and reads on.
"""

from enum import Enum, auto
from typing import Final, NamedTuple


class Verdict(Enum):
    SEALED = auto()
    CLEAN = auto()
    TORN = auto()
    CORRUPT = auto()


class Signs(NamedTuple):
    """The facts about the place where the whole records of a segment end, from which the table decides."""

    last: bool
    """it is the log's last segment"""
    sealed: bool
    """the last whole record is the seal"""
    blank: bool
    """nothing but zeros from there to the end of the file"""
    half_unit: bool
    """the last whole record does not end a unit"""
    vouched: bool
    """the watermark (or a checkpoint, a sidecar, the segment's creation) says that what would be cut was on the disk"""
    follows: bool
    """a later valid record stands behind the damage"""
    covered: bool
    """... and its ``synced_through`` says so"""
    later: bool
    """a whole record of a later version stands there"""


class VerdictRow(NamedTuple):
    """A line of the table. ``signs`` has a character for each of ``Signs`` in their order: ``+`` it must hold, ``-`` it
    must not, ``.`` either."""

    name: str
    verdict: Verdict
    signs: str
    why: str = ""


NO_SEAL = VerdictRow("NO_SEAL", Verdict.CORRUPT, "--......", "the segment is not the last one and has no seal")
ROWS = (
    #                                      last, sealed, blank, half_unit, vouched, follows, covered, later
    VerdictRow("SEALED", Verdict.SEALED, "+++-----"),
    VerdictRow("SEALED", Verdict.SEALED, "-++-.---"),
    VerdictRow("NEXT_MISSING", Verdict.CORRUPT, "+++-+---", "segments after this one are missing"),
    VerdictRow("AFTER_SEAL", Verdict.CORRUPT, ".+--....", "something stands behind the segment's seal"),
    NO_SEAL,
    VerdictRow("CLEAN", Verdict.CLEAN, "+-+-----"),
    VerdictRow("HALF_UNIT", Verdict.TORN, "+-++----", "the last unit was not written to its end"),
    VerdictRow("LOST_END", Verdict.CORRUPT, "+-+.+---", "the watermark, or a checkpoint, says that records stood here"),
    VerdictRow("TORN", Verdict.TORN, "+--.-.--", "the last write was cut short"),
    VerdictRow("LATER", Verdict.CORRUPT, "+--....+", "records of another version begin here"),
    VerdictRow(
        "LOST_RECORD",
        Verdict.CORRUPT,
        "+--.+..-",
        "a record that the watermark, or a checkpoint, vouches for is damaged",
    ),
    VerdictRow(
        "BEFORE_VALID", Verdict.CORRUPT, "+--.-++-", "a record is damaged that was whole when a later one was written"
    ),
)

REFETCHED: Final = ("LOST_END", "LOST_RECORD", "BEFORE_VALID")
"""damage of the last segment's end that is mended by cutting there, where others have what is cut off"""


def possible(signs: Signs) -> bool:
    """Whether these signs can be seen together: where only zeros follow no record does, only a record that follows can
    cover, a seal ends a unit, and a record is not blank."""
    return not (
        (signs.blank and (signs.follows or signs.later))
        or (signs.covered and not signs.follows)
        or (signs.sealed and signs.half_unit)
    )


def fits(row: VerdictRow, signs: Signs) -> bool:
    return all(wanted in (".", "+" if sign else "-") for wanted, sign in zip(row.signs, signs, strict=True))


def evaluate_signs(signs: Signs) -> VerdictRow:
    """The one row of the table for these signs."""
    for row in ROWS:
        if fits(row, signs):
            return row
    raise AssertionError(f"no row for {signs}")
