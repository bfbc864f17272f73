"""Jobs as people read them (RULES 34)."""

from syncbrok.model.errors import UnknownJob
from syncbrok.model.facts import JobChanged
from syncbrok.model.jobs import job_id
from syncbrok.space.queries.sources import Sources
from syncbrok.space.reports import JobReport, Page
from syncbrok.space.state.jobs import counted


class JobReports:
    """Makes the reports. Keeps nothing between two of them."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def page(self, before: int | None, limit: int) -> Page[JobReport]:
        """The newest of the last seven days, and all that are not over, older than number ``before``."""
        found: list[JobReport] = []
        for job in self._sources.jobs.newest(self._sources.clock_us(), before):
            if len(found) == limit:
                return Page(tuple(found), found[-1].number)
            found.append(self._report(job))
        return Page(tuple(found), None)

    def one(self, number: int) -> JobReport:
        """Raises ``UnknownJob``."""
        job = self._sources.jobs.get(number)
        if job is None:
            raise UnknownJob(f"there is no job {job_id(number)}", job=job_id(number))
        return self._report(job)

    def _report(self, job: JobChanged) -> JobReport:
        registry, wish = self._sources.registry, job.wish
        job = counted(job, self._sources.schedule.progress(job.replay))
        return JobReport(
            number=job.number,
            kind=job.kind,
            state=job.state,
            by=job.by,
            queue=registry.queue_name(wish.queue),
            subscriber=registry.subscriber_id(wish.subscriber) if wish.subscriber else None,
            wish=wish,
            created_us=job.created_us,
            changed_us=job.changed_us,
            replay=job.replay,
            total=job.total,
            done=job.done,
            failed=job.failed,
            why=job.why,
        )
