"""Lets one job at a time archive the log of a cluster, whichever node it runs beside: two that write to one archive
would remove each other's unfinished files. Pure.

It is kept by whoever leads, and by nobody else: a new leader knows of none. So for as long as one lasts it lends one
only to a job that says it had it before.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from syncbrok.model.errors import Conflict, Overloaded

LASTS_S: Final = 30.0
RENEWED_EVERY_S: Final = 8.0
"""three may get lost"""


class JobPhase(StrEnum):
    """A phase of a job, as it says it of itself."""

    BEGINS = "begins"
    GOES_ON = "goes_on"
    ENDS = "ends"


class JobLease:
    """The lease of jobs at one leader, from when it is made on. ``clock_s`` never goes back."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._led_s = clock_s()
        self._job = ""
        self._until_s = 0.0

    def take(self, job: str, phase: JobPhase) -> None:
        """``job`` names it: beside the same node there is one at a time, so one that begins anew has the same name.
        Raises ``Conflict`` while another one has the lease, and ``Overloaded`` while it is not known whether one
        has."""
        now_s = self._clock_s()
        if self._job not in ("", job) and now_s < self._until_s:
            heard_s = now_s - (self._until_s - LASTS_S)
            what = f"another job archives this log: {self._job}, heard {heard_s:.0f} s ago"
            raise Conflict(f"{what}; one at a time, or they would take each other's files away")
        if not self._job and phase is JobPhase.BEGINS and now_s < self._led_s + LASTS_S:
            left_s = self._led_s + LASTS_S - now_s
            what = "this node has just begun to lead, and a job that archives may not have told it yet"
            raise Overloaded(what, retry_after_s=max(1, round(left_s)))
        self._job = "" if phase is JobPhase.ENDS else job
        self._until_s = now_s + LASTS_S
        if phase is JobPhase.ENDS:
            self._led_s = now_s - LASTS_S  # it was the only one
