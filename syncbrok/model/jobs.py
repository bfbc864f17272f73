"""Jobs: what operators ask for that goes on after the answer, over restarts and failovers too (RULES 34)."""

from enum import StrEnum
from typing import Final, NamedTuple

JOB_ID_PREFIX: Final = "job-"


class JobKind(StrEnum):
    """The kinds of jobs."""

    REPLAY = "replay"
    """sends messages again, to all who have not got them or to one subscriber"""
    RECOVER = "recover"
    """sends a part of a queue's past again to one subscriber"""
    SEEK = "seek"
    """passes over what waits at one subscriber"""
    DROP = "drop_dead_letters"
    ERASE = "erase"


class JobState(StrEnum):
    """How far a job is. The last three end it."""

    PLANNED = "planned"
    """another one is being worked on first"""
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self in (JobState.DONE, JobState.CANCELLED, JobState.FAILED)


class Choice(StrEnum):
    """Which deliveries of a subscriber are recovered."""

    DEAD = "dead"
    SKIPPED = "skipped"
    ALL = "all"


class JobWish(NamedTuple):
    """The wish that a job fulfils. ``queue`` is its number; ``subscriber`` the number of the only one it is about, 0
    for all. ``since`` and ``until`` are sequences, the second beyond the last, 0 for no bound; ``reasons`` in lower
    case, none for any. ``messages``: sequences of those it begins with, where they were named."""

    queue: int
    subscriber: int = 0
    since: int = 0
    until: int = 0
    choice: Choice = Choice.DEAD
    reasons: tuple[str, ...] = ()
    messages: tuple[int, ...] = ()
    descendants: bool = False
    force: bool = False

    def covers(self, sequence: int) -> bool:
        """Whether the message lies between the bounds."""
        return self.since <= sequence and (not self.until or sequence < self.until)


def job_id(number: int) -> str:
    """The id by which people know a job."""
    return f"{JOB_ID_PREFIX}{number}"


def job_number(text: str) -> int:
    """The number in an id; 0 for what is none."""
    digits = text.removeprefix(JOB_ID_PREFIX)
    return int(digits) if digits != text and digits.isascii() and digits.isdigit() and len(digits) < 20 else 0
