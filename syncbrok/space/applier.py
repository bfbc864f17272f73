"""Applies a commit to everything that follows from the log, in this order: clock, state, view, then who waits."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

from syncbrok.delivery.dispatch.dispatcher import Dispatcher
from syncbrok.delivery.scheduler.breakers import Turned
from syncbrok.model.event_types import EVENTS_QUEUE
from syncbrok.model.facts import FactOrRun, Outcomes, Reason, Row, Snapshot
from syncbrok.model.message import DisabledBy
from syncbrok.space.commit.channel import mark_retrieved
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.meters import Meters
from syncbrok.space.operations.declarations import Declarations
from syncbrok.space.operations.jobs import JobRunner
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
        meters: Meters,
        append: Callable[[Callable[[CommitBatch], Any]], "asyncio.Future[Any]"],
        jobs: JobRunner,
    ) -> None:
        """``append``: the committer's."""
        self.observe: Callable[[Sequence[FactOrRun]], None] | None = None
        """told of what has been applied, where somebody makes traces of it; and so is"""
        self.observe_turned: Callable[[Turned], None] | None = None
        """of breakers"""
        self._state = state
        self._meters = meters
        self._events = declarations.events
        self._append = append
        self._scheduler = state.scheduler
        self._view = view
        self._dispatcher = dispatcher
        self._declarations = declarations
        self._maintenance = maintenance
        self._jobs = jobs

    def apply(self, facts: Sequence[FactOrRun]) -> None:
        """See ``StateMachine``."""
        self._scheduler.set_time(self._view.clock_us())
        self._meters.latencies.accepted_at.note(facts[0].sequence, facts[0].time_us)
        for fact in facts:
            if type(fact) is Outcomes:  # before it is applied, which ends replays
                self._meters.latencies.observe(fact.rows, self._timed_in)
        self._state.apply(facts)
        self._view.apply_all(facts)
        if self.observe is not None:
            self.observe(facts)

    def _timed_in(self, row: Row) -> int:
        """The queue (number) in which the time of a delivery counts: 0 where the message is sent again or was there
        before the subscriber, since that says nothing of how long messages take."""
        known = self._state.registry.subscriber_numbered(row.subscriber)
        if known is None or row.message <= known.since or self._scheduler.is_replayed(row.message):
            return 0
        return known.queue

    def committed(self) -> None:
        """See ``StateMachine``."""
        if self._scheduler.state.watched_ended:
            self._view.ended(self._scheduler.take_watched())
        if self._scheduler.turned:  # by another endpoint, or other settings
            turned = self._scheduler.take_turned()
            self._tell_all(turned)
            self._append(partial(self._events.turned, turned)).add_done_callback(mark_retrieved)
        if self._jobs.tasks:
            self._jobs.progressed()
        self._dispatcher.wake()

    def _tell_all(self, turned: Sequence[Turned]) -> None:
        for one in turned:
            self._tell(one)

    def _tell(self, turned: Turned) -> None:
        """Count, log and tell listeners that a breaker has opened or closed."""
        if self.observe_turned is not None:
            self.observe_turned(turned)
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

    def unerased(self, rows: Sequence[Row]) -> Sequence[Row]:
        """See ``StateMachine``: nothing would take it out of the log again."""
        erasures = self._state.erasures
        if not erasures.facts:
            return rows
        return [row._replace(detail=b"") if row.detail and erasures.holds(row.message) else row for row in rows]

    def _turned(self, turned: Sequence[Turned], batch: CommitBatch) -> None:
        """Breakers have turned by the rows in the batch. Where there is no room for it they are told of again."""
        self._events.turned(turned, batch, of_fact=True)
        batch.after.append(partial(self._tell_all, turned))
        batch.undo.append(partial(self._scheduler.give_back_turned, turned))

    def suspend(self, suspended: bool) -> None:
        """See ``StateMachine``."""
        self._scheduler.suspended = suspended
        self._dispatcher.wake()

    def follow(self, rows: Sequence[Row]) -> Sequence[Callable[[CommitBatch], None]]:
        """See ``StateMachine``: breakers have turned and messages died, of which events tell, and subscribers are
        disabled (RULES 14)."""
        steps: list[Callable[[CommitBatch], None]] = []
        if EVENTS_QUEUE in self._state.registry.queues:
            steps.append(partial(self._events.outcomes, rows))
        if self._scheduler.turned:
            steps.append(partial(self._turned, self._scheduler.take_turned()))
        if Reason.GONE in map(_REASON, rows):
            gone = [row.subscriber for row in rows if row.reason is Reason.GONE]
            steps += [partial(self._declarations.disable, number, DisabledBy.GONE) for number in gone]
        if self._scheduler.state.failed_too_long:
            failed = self._scheduler.take_failed_too_long()
            steps += [partial(self._declarations.disable, number, DisabledBy.FAILING) for number in failed]
        return steps
