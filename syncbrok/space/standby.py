"""A log and the state that it tells of, before anybody serves them: what every start reads, and what a node of a
cluster that follows keeps up to date until it leads.

    open    lock and recover the log, load the checkpoint or replay it       (blocks; no event loop)
    apply   facts that another node has written and that stand in this log now
    save    a checkpoint; ``save_both``: the one before it too
    ready   check the secrets, begin a section where the log wants one: then a ``Space`` can be made of it

All of it is called by one thread at a time.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from syncbrok.delivery.scheduler.scheduler import Scheduler
from syncbrok.log.segments import files
from syncbrok.model.errors import LogFailed, LogUnreadable
from syncbrok.model.facts import FactOrRun
from syncbrok.model.journal import JournalOptions, Log
from syncbrok.space.budgets import Budgets
from syncbrok.space.clock import check_start
from syncbrok.space.meters import Meters
from syncbrok.space.reports import StartReport
from syncbrok.space.state.recovery import recover, save_checkpoint, size_up, snapshot_at_start
from syncbrok.space.state.secret_store import SecretStore
from syncbrok.space.state.state import State

OpenJournal = Callable[[Path, JournalOptions, Callable[[], int], Callable[[int, int], None] | None], Log]
"""(directory, options, clock in Unix microseconds, progress): take the log that belongs to the directory and recover
what is there; ``progress`` as in ``Standby.open``"""
_log = logging.getLogger(__name__)


class Standby:
    """See the module; made by ``open``. ``secret_store`` is there once it is ``ready``."""

    secret_store: SecretStore

    def __init__(
        self, directory: Path, journal: Log, state: State, replayed: int, budgets: Budgets, clock_us: Callable[[], int]
    ) -> None:
        self.directory = directory
        self.journal = journal
        self.state = state
        self.budgets = budgets
        self.clock_us = clock_us
        self.meters = Meters()
        self.meters.budgets = budgets.all
        self._replayed = replayed
        self._saved_through = state.through

    @classmethod
    def open(
        cls,
        directory: Path,
        options: JournalOptions,
        budgets: Budgets,
        clock_us: Callable[[], int],
        progress: Callable[[int, int], None] | None,
        open_journal: OpenJournal,
    ) -> Self:
        """Recover the log in ``directory``, or begin one there. Blocks, for seconds where there is much to recover:
        ``progress`` is told (sections looked at, sections in all). Raises ``LogLocked``, ``LogCorrupt``, ``LogFailed``
        and ``LogFull``."""
        journal = open_journal(directory, options, clock_us, progress)
        with _closing(journal, directory):
            hold_max_us = int(options.retention_s * 1e6)
            state, replayed = recover(journal, lambda: Scheduler(hold_max_us, clock_us(), budgets.shares))
            return cls(directory, journal, state, replayed, budgets, clock_us)

    def ready(self, began_s: float) -> None:
        """Make what a Space needs besides. ``began_s``: when the start began, by ``time.perf_counter``. Raises as
        ``open``, and ``BadConfig``; the log is closed then."""
        now_us = self.clock_us()
        with _closing(self.journal, self.directory):
            self.secret_store = SecretStore.open(self.directory, self.clock_us)
            self.secret_store.check(self.state.registry.all_subscribers())
            if self.journal.wants_snapshot:
                snapshot_at_start(self.journal, self.state, now_us)
            size_up(self.journal, self.state.scheduler)
        check_start(self.state.time_us, now_us, self.meters)
        self.meters.latencies.accepted_at.begin(self.journal.sections())
        report = self.journal.recovery
        seconds = time.perf_counter() - began_s
        self.meters.start = StartReport(self.clock_us(), report.clean, self._replayed, report.cut_bytes, seconds)
        told = {"clean": report.clean, "facts": self._replayed, "seconds": seconds}
        _log.info("syncbrok.space.opened", extra=told)

    def apply(self, facts: Sequence[FactOrRun]) -> None:
        """Take in facts that stand in the log, the next ones, in log order."""
        self.state.scheduler.set_time(self.clock_us())
        self.state.apply(facts)

    def save(self) -> None:
        """A checkpoint, if there is anything new; as ``save_checkpoint``."""
        through = self.state.through
        if through == self._saved_through:
            return
        self.journal.sync()  # one of more than is fsynced is not kept
        if save_checkpoint(self.journal, through, self.state.save()):
            self._saved_through = through

    def save_both(self) -> bool:
        """Both checkpoints anew, of now; whether they could be written."""
        self.journal.sync()
        through, parts = self.state.through, self.state.save()
        saved = all(save_checkpoint(self.journal, through, parts) for _ in range(2))
        if saved:
            self._saved_through = through
        return saved

    def close(self) -> None:
        """Let go of the log; of one that a Space was made of that takes care."""
        self.journal.close()


@contextmanager
def _closing(journal: Log, directory: Path) -> Iterator[None]:
    """Close the log where the block fails. An ``OSError`` or ``LogUnreadable`` of it becomes an error of opening a log
    (``LogFailed`` or another), which says what to do."""
    try:
        yield
    except OSError as problem:
        journal.close()
        raise files.opening_problem(problem, directory) from problem
    except LogUnreadable as problem:
        journal.close()
        raise LogFailed(f"{problem.detail}, then start again") from problem
    except BaseException:
        journal.close()
        raise
