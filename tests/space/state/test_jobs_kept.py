"""The jobs that are kept: bounded, and the same after a checkpoint (RULES 34)."""

from syncbrok.model import limits
from syncbrok.model.facts import JobChanged
from syncbrok.model.jobs import JobKind, JobState, JobWish
from syncbrok.space.state.jobs import JobTable

DAY_US = 86_400_000_000


def job(number: int, state: JobState, at_us: int = 0, messages: tuple[int, ...] = ()) -> JobChanged:
    wish = JobWish(1, messages=messages)
    return JobChanged(number, at_us, number, JobKind.REPLAY, state, "", at_us, at_us, 1, True, 1, 1, 0, wish)


def test_what_is_over_is_kept_for_seven_days_and_in_a_bounded_number() -> None:
    """Those that are not over are kept however old they are."""
    table = JobTable()
    table.note(job(1, JobState.RUNNING))
    for number in range(2, limits.jobs_kept_max + 10):
        table.note(job(number, JobState.DONE, DAY_US))
    assert len(table) == limits.jobs_kept_max + 1
    assert [one.number for one in table.unfinished] == [1]
    newest = [one.number for one in table.newest(DAY_US, None)]
    assert (newest[0], newest[-1], len(newest)) == (limits.jobs_kept_max + 9, 1, limits.jobs_kept_max + 1)
    assert [one.number for one in table.newest(9 * DAY_US, None)] == [1]


def test_a_job_that_is_over_does_not_keep_its_messages() -> None:
    """Nor does a checkpoint; that they were named is still told."""
    table, again = JobTable(), JobTable()
    table.note(job(1, JobState.RUNNING, messages=tuple(range(1, 10_001))))
    table.note(job(2, JobState.DONE, messages=tuple(range(1, 10_001))))
    again.load(table.save())
    for kept in (table, again):
        running, done = kept.get(1), kept.get(2)
        assert running is not None
        assert done is not None
        assert (len(running.wish.messages), done.wish.messages) == (10_000, (1,))
