"""Applies a commit to everything that follows from the log, in this order: clock, state, view, then who waits."""

from collections.abc import Callable, Sequence

from syncbrok.delivery.dispatch.dispatcher import Dispatcher
from syncbrok.model.facts import FactOrRun, Row, Snapshot
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.operations.declarations import Declarations
from syncbrok.space.operations.maintenance import Maintenance
from syncbrok.space.queries.view import View
from syncbrok.space.state.state import State


class Applier:
    """The committer's ``StateMachine``: the state that the facts make, and those who are told when it changes."""

    def __init__(
        self,
        state: State,
        view: View,
        dispatcher: Dispatcher,
        declarations: Declarations,
        maintenance: Maintenance,
        clock_us: Callable[[], int],
    ) -> None:
        self._state = state
        self._scheduler = state.scheduler
        self._view = view
        self._dispatcher = dispatcher
        self._declarations = declarations
        self._maintenance = maintenance
        self._clock_us = clock_us

    def apply(self, facts: Sequence[FactOrRun]) -> None:
        """See ``StateMachine``."""
        self._scheduler.set_time(self._clock_us())
        self._state.apply(facts)
        self._view.apply_all(facts)

    def committed(self) -> None:
        """See ``StateMachine``."""
        ended = self._scheduler.take_watched()
        if ended:
            self._view.ended(ended)
        self._dispatcher.wake()

    def snapshot(self, sequence: int, time_us: int) -> Snapshot:
        """See ``StateMachine``."""
        return self._state.snapshot(sequence, time_us, dropped_through=self._maintenance.dropped_through)

    def kept(self, snapshot: Snapshot) -> None:
        """See ``StateMachine``."""
        self._maintenance.snapshot_kept(snapshot)

    def ends(self, row: Row) -> int:
        """See ``StateMachine``."""
        return self._scheduler.subscribers_of(self._scheduler.queue_of(row.message))

    def suspend(self, suspended: bool) -> None:
        """See ``StateMachine``."""
        self._scheduler.suspended = suspended
        self._dispatcher.wake()

    def disable(self, row: Row, batch: CommitBatch) -> None:
        """See ``StateMachine``."""
        self._declarations.disable(row, batch)
