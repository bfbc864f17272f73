"""One job at a time archives the log of a cluster."""

import pytest

from syncbrok.cluster.job_lease import LASTS_S, JobLease, JobPhase
from syncbrok.model.errors import Conflict, Overloaded

BEGINS, GOES_ON, ENDS = JobPhase


@pytest.fixture
def now_s() -> list[float]:
    return [100.0]


@pytest.fixture
def lease(now_s: list[float]) -> JobLease:
    """Of a node that has led for long."""
    made = JobLease(lambda: now_s[0])
    now_s[0] += LASTS_S
    return made


def test_a_second_job_is_refused_until_the_first_has_ended_or_is_gone(lease: JobLease, now_s: list[float]) -> None:
    """Two timers on two hosts with one archive: the second run ends and says whose turn it is; one that was killed
    keeps nobody for longer than a lease, and its own next run not at all."""
    lease.take("a:/log", BEGINS)
    now_s[0] += LASTS_S - 1
    lease.take("a:/log", GOES_ON)
    now_s[0] += 5
    for phase in (BEGINS, GOES_ON, ENDS):
        with pytest.raises(Conflict, match="another job archives this log: a:/log, heard 5 s ago"):
            lease.take("b:/log", phase)
    lease.take("a:/log", BEGINS)
    lease.take("a:/log", ENDS)
    lease.take("b:/log", BEGINS)
    now_s[0] += LASTS_S
    lease.take("a:/log", BEGINS)


def test_a_new_leader_waits_for_a_job_of_before(now_s: list[float]) -> None:
    """After a failover the job that was at work goes on; one that begins then does not get in before it."""
    lease = JobLease(lambda: now_s[0])
    with pytest.raises(Overloaded, match="has just begun to lead"):
        lease.take("b:/log", BEGINS)
    lease.take("a:/log", GOES_ON)
    with pytest.raises(Conflict):
        lease.take("b:/log", BEGINS)
    lease.take("a:/log", ENDS)
    lease.take("b:/log", BEGINS)
