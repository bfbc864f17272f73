"""Applies a commit to everything that follows from the log, in this order: clock, state, view, then who waits."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Final

from syncbrok.delivery.dispatch.dispatcher import Dispatcher
from syncbrok.delivery.scheduler.breakers import Turned
from syncbrok.model.facts import FactOrRun, Reason, Row, Snapshot
from syncbrok.model.message import DisabledBy
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.meters import Meters
from syncbrok.space.operations.declarations import Declarations
from syncbrok.space.operations.maintenance import Maintenance
from syncbrok.space.queries.view import View
from syncbrok.space.state.state import State

_REASON: Final = itemgetter(Row._fields.index("reason"))
_log = logging.getLogger(__name__)


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
        meters: Meters,
    ) -> None:
        self._state = state
        self._meters = meters
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
        for turned in self._scheduler.take_turned():
            self._tell(turned)
        self._dispatcher.wake()

    def _tell(self, turned: Turned) -> None:
        """Count, log and tell listeners that a breaker has opened or closed."""
        known = self._state.registry.subscriber_numbered(turned.subscriber)
        if known is None:
            return
        about = {"queue": self._state.registry.queue_name(known.queue), "subscriber": known.id}
        if turned.origin:
            about["origin"] = turned.origin
        if turned.opened:
            self._meters.breakers_opened += 1
            _log.warning("syncbrok.delivery.breaker_opened", extra={**about, "failing": turned.failing})
        else:
            _log.info("syncbrok.delivery.breaker_closed", extra={**about, "opened_us": turned.since_us})
        self._view.turned(turned.subscriber, opened=turned.opened, origin=turned.origin)

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

    def follow(self, rows: Sequence[Row]) -> Sequence[Callable[[CommitBatch], None]]:
        """See ``StateMachine``: subscribers are disabled (RULES 14)."""
        any_gone = Reason.GONE in map(_REASON, rows)
        gone = [row.subscriber for row in rows if row.reason is Reason.GONE] if any_gone else ()
        steps = [partial(self._declarations.disable, number, DisabledBy.GONE) for number in gone]
        failed = self._scheduler.take_failed_too_long()
        return steps + [partial(self._declarations.disable, number, DisabledBy.FAILING) for number in failed]
