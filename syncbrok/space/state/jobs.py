"""The jobs of operators as the log tells of them: the newest fact of each (RULES 34)."""

from collections.abc import Iterable, Iterator
from typing import Final

import orjson

from syncbrok.log.format.declaration_bodies import decode_body, encode_body
from syncbrok.model import limits
from syncbrok.model.facts import JobChanged

_KEPT_US: Final = int(limits.jobs_kept_s * 1_000_000)


class JobTable:
    """By number. What is over is kept for seven days, as far as the log or a checkpoint tells of it, and only so many
    of those."""

    def __init__(self) -> None:
        self._jobs: dict[int, JobChanged] = {}  # in the order in which they were created

    def __len__(self) -> int:
        return len(self._jobs)

    def note(self, fact: JobChanged) -> None:
        """The newest fact of a job."""
        self._jobs[fact.number] = _without_names(fact) if fact.state.is_over else fact
        self._forget(fact.changed_us)

    def take_over(self, facts: Iterable[JobChanged]) -> None:
        """Take in what a snapshot tells, of a log that begins with it."""
        for fact in facts:
            self._jobs.setdefault(fact.number, fact)

    def get(self, number: int) -> JobChanged | None:
        return self._jobs.get(number)

    @property
    def unfinished(self) -> tuple[JobChanged, ...]:
        """Jobs that are not over, the oldest first."""
        return tuple(job for job in self._jobs.values() if not job.state.is_over)

    def newest(self, now_us: int, before: int | None) -> Iterator[JobChanged]:
        """Jobs that are not over, and those of the last seven days, from the newest to the oldest; only older ones than
        number ``before``."""
        for number in sorted(self._jobs, reverse=True):
            job = self._jobs[number]
            if (before is None or number < before) and not _is_old(job, now_us):
                yield job

    def _forget(self, now_us: int) -> None:
        over = [job for job in self._jobs.values() if job.state.is_over]
        surplus = len(over) - limits.jobs_kept_max
        for at, job in enumerate(over):
            if at < surplus or _is_old(job, now_us):
                del self._jobs[job.number]

    def save(self) -> bytes:
        """The state for a checkpoint."""
        jobs = [[job.sequence, job.time_us, encode_body(job).body.decode()] for job in self._jobs.values()]
        return orjson.dumps(jobs)

    def load(self, saved: bytes) -> None:
        """Raises ``ValueError``, ``TypeError``, ``KeyError`` or ``IndexError`` for what ``save`` does not write."""
        for sequence, time_us, body in orjson.loads(saved):
            fact = decode_body(JobChanged, int(sequence), int(time_us), body.encode())
            if isinstance(fact, JobChanged):
                self._jobs[fact.number] = fact


def counted(job: JobChanged, progress: tuple[int, int, int] | None) -> JobChanged:
    """The job with its figures of now: those of its replay (see ``SchedulerQueries.progress``), where that goes on."""
    if progress is None:
        return job
    total, done, failed = progress
    return job._replace(total=total, done=done, failed=failed)


def _without_names(job: JobChanged) -> JobChanged:
    """One that is over, without the messages that it was for but one, which says that they were named: a thousand jobs
    with ten thousand each would fill the memory, and each checkpoint."""
    return job._replace(wish=job.wish._replace(messages=job.wish.messages[:1]))


def _is_old(job: JobChanged, now_us: int) -> bool:
    return job.state.is_over and job.changed_us < now_us - _KEPT_US
