"""The rules of the audit, and the form of a finding. Pure: no Spark is needed here.

The rules are those of ``OrderChecker``, which proves them record by record in plain Python, and four that only make
sense over a whole log at rest: checksums, and that nothing waits without a reason. Assumptions of ``OrderChecker`` hold
here as well.
"""

from typing import Final, NamedTuple

RULES: Final = {
    "checksum": "every segment's header, every record and every seal has the checksum that its bytes say",
    "sequence": "sequences go up by one; what is missing is named by a gap record",
    "snapshot": "each segment's snapshot names the queues and subscribers that the facts before it declare (RULES 3)",
    "parents": "a message's parents were accepted before it, and its id names its own sequence (RULES 2)",
    "gate": "no attempt began before the record that completed each parent was on the disk (RULES 11, 12, 13)",
    "inversion": "no attempt of a parent began after one of its child; replays apart (RULES 13)",
    "end": "at most one end for each message and subscriber, and no attempt of an ended delivery that is not late",
    "attempts": "the attempt numbers of a delivery go up, over restarts and replays (RULES 21)",
    "addressee": "rows name known messages, and subscribers that message and replay are for (RULES 3, 14, 21)",
    "key": "of one key none goes to a subscriber before all before it have ended there (RULES 6)",
    "carried": "a message carried out of an old segment has ended nowhere that the facts say it has not",
    "waiting": "what was acknowledged and has not ended has a reason to wait",
}
"""rule -> what it says"""

REASONS: Final = {
    "parents": "a parent has not ended",
    "held": "a parent ended badly, and the message is held until a replay mends it",
    "paused": "the subscriber is paused or disabled",
    "key": "a message before it of the same key has not ended there",
    "retrying": "the next attempt is due later",
    "delayed": "it is not due yet",
    "ready": "nothing keeps it back: it is in line, or on its way",
    "owed": "a parent ended badly, and the end that follows from it is not written yet",
    "overdue": "its next attempt was due, or it should have expired, before the end of the log",
}
"""why a delivery that has not ended waits -> what that means"""

NO_REASONS: Final = ("ready", "owed", "overdue")
"""those that are none once they are old, or where the log is at rest"""

VIOLATION: Final = "rule string, sequence bigint, message bigint, subscriber bigint, what string"
"""the columns of a finding. ``sequence`` is the record that breaks the rule; ``message`` and ``subscriber`` are 0 where
none is concerned, and ``subscriber`` 4294967295 for a row that ends all"""

BAD_OUTCOMES: Final = ("dead", "expired")
"""ends that leave a message incomplete (RULES 10)"""
BY_OPERATOR: Final = ("cancelled", "purged", "queue_deleted", "erased")
"""reasons of dropped deliveries that make a failed parent (RULES 12)"""
ALL: Final = 0xFFFF_FFFF
"""the subscriber of a row that ends every delivery that has not ended"""


class AuditFinding(NamedTuple):
    """A finding, as a row of the table that ``VIOLATION`` describes."""

    rule: str
    sequence: int
    message: int
    subscriber: int
    what: str


def sentence(found: AuditFinding) -> str:
    """A finding as one line for people."""
    about = [f"message {found.message}"] if found.message else []
    if found.subscriber:
        about.append("all subscribers" if found.subscriber == ALL else f"subscriber {found.subscriber}")
    where = f" ({', '.join(about)})" if about else ""
    return f"{found.rule}: record {found.sequence}{where}: {found.what}"
