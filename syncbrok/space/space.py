"""The Space: the container of all queues. It owns the journal, the dispatcher and every lifetime.

    open    lock and recover the log, load the checkpoint or replay, check the secrets       (blocks; no event loop)
    run     writer, dispatcher, maintenance; ``view.state`` is ``serving`` from then on
    drain   the channels close, attempts end or are left, everything is written; ``run`` returns
    close   checkpoint, clean marker, unlock

It knows no frontend: each is handed ``channels`` to write into and ``view`` to ask, and may bring a handler for its
own kind of subscriber (``handle``).
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from syncbrok.delivery.attempt_guard import AttemptGuard
from syncbrok.delivery.dispatch.dispatcher import Dispatcher
from syncbrok.delivery.dispatch.message_loader import READ_RUN_BYTES
from syncbrok.delivery.handler import Handler
from syncbrok.delivery.leader_lease import SINGLE_NODE, LeaderLease
from syncbrok.delivery.trace_context import TraceContexts
from syncbrok.log.journal import FileJournal
from syncbrok.model import limits
from syncbrok.model.errors import Fatal, LogFailed
from syncbrok.model.facts import StoredMessage
from syncbrok.model.journal import JournalOptions, Log
from syncbrok.space.applier import Applier
from syncbrok.space.budgets import Budgets
from syncbrok.space.channels import Channels
from syncbrok.space.clock import wall_us, watch_clock
from syncbrok.space.commit.acceptance import Acceptor
from syncbrok.space.commit.channel import CommitterStatistics
from syncbrok.space.commit.committer import Committer
from syncbrok.space.commit.confirmation import ConfirmationStatistics, Copies
from syncbrok.space.commit.lookups import Lookups
from syncbrok.space.filter_alarms import FilterAlarms
from syncbrok.space.handler_table import HandlerTable
from syncbrok.space.history_keeper import HistoryKeeper, read_history
from syncbrok.space.intake import Intake
from syncbrok.space.loop_lag import watch_loop
from syncbrok.space.operations.backlog_sizes import BacklogSizes
from syncbrok.space.operations.broker_events import BrokerEvents
from syncbrok.space.operations.declarations import Declarations
from syncbrok.space.operations.erasing import ErasureRounds
from syncbrok.space.operations.log_reader_places import LogReaderPlaces, ReadableSpan
from syncbrok.space.operations.maintenance import Maintenance
from syncbrok.space.operations.operations import Operations
from syncbrok.space.operations.queue_retention import QueueRetention
from syncbrok.space.operations.scrub import scrub
from syncbrok.space.operations.token_changes import StoredTokens, TokenChanges
from syncbrok.space.patience import Patience
from syncbrok.space.queries.sources import Sources
from syncbrok.space.queries.view import View
from syncbrok.space.reader_threads import ReaderThreads
from syncbrok.space.standby import OpenJournal, Standby
from syncbrok.space.standstills import Standstills
from syncbrok.space.state.registry import RegistryStatistics
from syncbrok.space.trace_spans import SpanBuilder
from syncbrok.space.tracer import SpanExporter, Tracer

_log = logging.getLogger(__name__)


class SpaceOptions(NamedTuple):
    """Options of a Space. ``drain_s``: how long attempts in flight may take at the end. ``budgets``: the process's;
    without them the Space has its own. ``idle_after_s``: when unused groups stop counting, or go; 0: never.
    ``acknowledge``: what answers name, of a journal that others keep too; empty: the journal's policy.
    ``erase_within_s``: after so long what was erased is off the disk; ``erases``: why nothing can be erased, in words.
    ``local_sync_s``: how often its own files are fsynced where appending does not; 0: it does. ``copies``: publishers
    wait until one of them has what they published. ``reader_hold_s``: so long a reader of the log that is silent holds
    retention back; ``cannot_hold``: why none can, in words."""

    journal: JournalOptions = JournalOptions()
    drain_s: float = limits.drain_timeout_s
    budgets: Budgets | None = None
    idle_after_s: float = limits.idle_after_default_s
    acknowledge: str = ""
    local_sync_s: float = 0.0
    copies: Copies | None = None
    reader_hold_s: float = limits.reader_hold_default_s
    cannot_hold: str | None = None
    erase_within_s: float = limits.erase_within_default_s
    erases: str | None = None


class SpaceStatistics(NamedTuple):
    state: str
    registry: RegistryStatistics
    committer: CommitterStatistics
    sequence: int
    durable_sequence: int
    in_flight: int
    jobs: int
    """of operators, at work"""


class Space:
    """A running broker without its frontends; made by ``open``. Frontends get ``channels`` and ``view``."""

    def __init__(self, standby: Standby, options: SpaceOptions, lease: LeaderLease = SINGLE_NODE) -> None:
        """``standby`` must be ready."""
        journal, state, secret_store = standby.journal, standby.state, standby.secret_store
        self._journal, self._state, self._secret_store, self._options = journal, state, secret_store, options
        self._clock_us, self._meters = clock_us, meters = standby.clock_us, standby.meters
        self.budgets = standby.budgets
        """the resources that the clients of this Space share"""
        self.lease = lease
        self.attempt_guard = AttemptGuard(lease)
        """for handlers"""
        self.signing_keys = secret_store.keys
        """for the webhook, and so are"""
        self.credentials = secret_store.credentials
        self._handlers = HandlerTable()
        self._drained, self._closed = asyncio.Event(), False
        self._readers = readers = ReaderThreads()
        self._patience = Patience(readers)
        self._read_to_deliver = _read_to_deliver
        self._tracer: Tracer | None = None
        scheduler, registry = state.scheduler, state.registry
        sync, every_s, lazy = _sync_policy(options)
        self.log_readers = self._log_readers(standby.directory)
        sources = (registry, journal, scheduler, readers, clock_us, meters, state.jobs, state.erasures, sync)
        self.view = View(Sources(*sources, self.log_readers.reports))
        meters.history = read_history(standby.directory)
        self._history = HistoryKeeper(self.view, meters.history, standby.directory, clock_us, readers)
        self._committer = Committer(journal, meters, clock_us, state.time_us, every_s, lazy=lazy, copies=options.copies)
        self.channels = Channels(self._committer.messages, self._committer.queues, self._committer.subscribers)
        self.dispatcher = Dispatcher(
            scheduler,
            self._handlers.of,
            lambda sequences: self._patience(self._read_to_deliver, journal, sequences),
            journal.cached_many,
            journal.in_memory,
            self._committer.record,
            registry.destination,
            lambda: journal.durable_sequence,
            clock_us,
            lambda: random.uniform(-1.0, 1.0),  # noqa: S311 (it spreads retries; nobody is kept from guessing it)
            self.budgets.shares,
            self.attempt_guard,
            filter_failed=FilterAlarms(registry, clock_us).failed,
            erased=state.erasures.holds,
        )
        closing: set[int] = set()
        append, wake = self._committer.append, self.dispatcher.wake
        events = BrokerEvents(registry, scheduler.queue_of, self.view.ids)
        declarations = self._declarations(events)
        self._lookups = Lookups(journal, readers, self._committer.messages)
        more = (declarations.forget, closing, wake, state.jobs, events, state.erasures, options.erases)
        operations = Operations(journal, registry, scheduler, append, readers, *more)
        self._jobs = operations.jobs
        changes = TokenChanges(secret_store, events)
        steps = (declarations, operations, operations.jobs, changes)
        self._intake = Intake(self._acceptor(closing, sync), self._lookups, *steps, lease)
        self._committer.steps.update(self._intake.steps)
        self._maintenance = self._maintain(declarations)
        state.backfill_needed = self._maintenance.history_wanted.set
        self._backlog_sizes = BacklogSizes(journal, scheduler, self._patience)
        state.sizes_wanted = self._backlog_sizes.wanted.set
        self._erasures = self._erasure_rounds()
        self._queue_retention = self._keep_queues(operations.one_at_a_time)
        parts = (state, self.view, self.dispatcher, declarations, self._maintenance, meters, append, self._jobs)
        self._applier = Applier(*parts)

    def _log_readers(self, directory: Path) -> LogReaderPlaces:
        journal, options = self._journal, self._options
        return LogReaderPlaces(
            directory,
            options.reader_hold_s,
            lambda: ReadableSpan(journal.first_sequence, journal.durable_sequence),
            self._clock_us,
            self._readers,
            options.cannot_hold,
        )

    def _declarations(self, events: BrokerEvents) -> Declarations:
        journal, state, handlers = self._journal, self._state, self._handlers
        return Declarations(
            state.registry,
            self._secret_store,
            handlers.schemes,
            state.scheduler.subscriber_statistics,
            handlers.forget,
            events,
            lambda: journal.first_sequence,
        )

    @property
    def tokens(self) -> StoredTokens:
        """The tokens that were created, for whoever asks for some."""
        return self._secret_store

    # -- opening and closing --------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        directory: Path,
        options: SpaceOptions = SpaceOptions(),  # noqa: B008 (frozen)
        *,
        clock_us: Callable[[], int] = wall_us,
        progress: Callable[[int, int], None] | None = None,
        open_journal: OpenJournal = FileJournal.open,
    ) -> "Space":
        """Recover the log in ``directory``, or begin one there. Blocks, for seconds where there is much to recover:
        ``progress`` is told (sections looked at, sections in all). Raises ``LogLocked``, ``LogCorrupt``, ``LogFailed``,
        ``LogFull`` and ``BadConfig``."""
        began_s = time.perf_counter()
        budgets = options.budgets or Budgets.of()
        standby = Standby.open(directory, options.journal, budgets, clock_us, progress, open_journal)
        standby.ready(began_s)
        return cls(standby, options)

    def _maintain(self, declarations: Declarations) -> Maintenance:
        return Maintenance(
            self._journal,
            self._state,
            self._secret_store,
            declarations,
            self._committer.append,
            self._committer.keep_snapshot,
            self._readers,
            self._patience,
            self._committer.sync,
            self._clock_us,
            self._options.journal.retention_s,
            self._options.idle_after_s,
            self._meters,
            self.dispatcher.wake,
            self.dispatcher.keep,
            self.log_readers.held_after,
        )

    def _acceptor(self, closing: set[int], sync: str) -> Acceptor:
        journal, state = self._journal, self._state
        erased = lambda: bool(state.erasures.facts)  # noqa: E731
        known = (state.registry, state.lineage, state.keys)
        standing = state.scheduler.standing
        return Acceptor(*known, journal.id_key, journal.cached, closing, sync, erased, standing)

    def _erasure_rounds(self) -> ErasureRounds:
        erasures = self._state.erasures
        erasures.hide = self._hide
        for fact in erasures.pending:
            self._hide(fact.messages)
        return ErasureRounds(
            self._journal,
            self._state.erasures,
            self._committer.keep_snapshot,
            self._maintenance.save,
            self._readers,
            self._maintenance.dropping,
            self._clock_us,
            self._options.erase_within_s,
        )

    def _keep_queues(self, one_at_a_time: asyncio.Lock) -> QueueRetention:
        state, append = self._state, self._committer.append
        parts = (
            self._journal,
            state.registry,
            state.scheduler,
            state.erasures,
            state.own_times,
            append,
            self._patience,
        )
        kept = QueueRetention(*parts, one_at_a_time, self._clock_us, self._options.erases)
        state.keeping_wanted = kept.wanted.set
        return kept

    def _hide(self, messages: Collection[int]) -> None:
        """These (own sequences) are erased: nobody is told what they say from now on."""
        self._journal.hide(messages)
        self.dispatcher.forget(messages)

    def handle(self, scheme: str, handler: Handler) -> None:
        """Deliver to endpoints that begin with ``scheme:`` by ``handler``, which the Space closes at its end."""
        self._handlers.put(scheme, handler)
        self.dispatcher.handlers_changed()

    def trace(self, share: float, exporter: SpanExporter) -> TraceContexts:
        """From the start on tell the exporter of this share of the trees. Gives what deliveries name their spans by."""
        lineage, journal = self._state.lineage, self._journal
        contexts, standstills, registry = TraceContexts(share, lineage.id_at), Standstills(), self._state.registry
        for queue in registry.queues.values():
            for subscriber in registry.subscribers(queue.number):
                standstills.at_start(subscriber)
        builder = SpanBuilder(contexts, journal, registry, lineage, standstills)
        self._tracer = Tracer(builder, exporter, self._readers, self._clock_us, self._meters, standstills)
        self._applier.observe, self._applier.observe_turned = self._tracer.observe, self._tracer.turned
        self._read_to_deliver = partial(_read_traced, contexts)
        self.dispatcher.cached = partial(_cached_traced, contexts, journal)
        return contexts

    async def run(self) -> None:
        """Serve until ``drain``; the log is closed when this returns. Raises what stopped it, ``LogFailed`` above
        all."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._intake.start(tasks.create_task)
                await self._serve(tasks)
        except BaseExceptionGroup as failed:
            self.view.state = "failed"
            raise _cause(failed) from failed
        finally:
            self.view.close()
            await self._handlers.close()
            if self._tracer is not None:
                await self._tracer.close()
            self.close()

    async def _serve(self, tasks: asyncio.TaskGroup) -> None:
        started = asyncio.get_running_loop().create_future()
        committing = self._committer.run(self._applier, lambda: started.set_result(None))
        committer = tasks.create_task(committing, name="syncbrok committer")
        await started
        tasks.create_task(self.dispatcher.run(), name="syncbrok dispatcher")
        maintenance = [
            tasks.create_task(work, name="syncbrok maintenance")
            for work in (
                self._maintenance.retain(),
                self._maintenance.checkpoint(),
                self._maintenance.keep(),
                self._maintenance.feed(),
                self._maintenance.retire_secrets(),
                self._maintenance.retire_groups(),
                self._erasures.run(),
                self._queue_retention.run(),
                self._backlog_sizes.run(),
                scrub(self._journal, self._patience),
                watch_loop(self._meters.loop_lag),
                self._history.run(),
                watch_clock(self._clock_us, self._meters, self.dispatcher.clock_stepped),
            )
        ]
        lookups = tasks.create_task(self._lookups.run(), name="syncbrok lookups")
        tracing = None if self._tracer is None else tasks.create_task(self._tracer.run(), name="syncbrok traces")
        self._jobs.start(partial(tasks.create_task, name="syncbrok job"))
        await asyncio.sleep(0)  # each has begun: a dispatcher that has not would not hear of the end
        self.view.state = "serving"
        await self._drained.wait()
        # Shutdown, in this order.
        _log.info("syncbrok.space.draining", extra={"in_flight": self.dispatcher.in_flight})
        self.view.state = "draining"  # 1. readiness fails,
        self.view.release()  # who waits for deliveries is answered
        self._committer.close()  # 2. nothing more comes in
        self._intake.stop()  # 3. what can be done again another time ends
        self._jobs.stop()
        for task in maintenance:
            task.cancel()
        await self.dispatcher.drain(self._options.drain_s)  # 4. attempts end, or stay pending
        await self._lookups.finish()  # 5. what was let in is decided,
        lookups.cancel()
        self._committer.stop()  # 6. written,
        await committer  # and fsynced; its writer thread is gone
        if self._tracer is not None and tracing is not None:
            await self._tracer.finish()  # told of, as far as that is quick,
            tracing.cancel()
        if self._state.through:
            await self._history.keep()
            await self._maintenance.save()  # 7. checkpoint; ``run`` closes handlers and log

    async def drain(self) -> None:
        """End ``run`` in good order; returns at once."""
        self._drained.set()

    def close(self) -> None:
        """Let go of the log: clean marker, unlock. ``run`` does it; needed where ``run`` was never called."""
        if not self._closed:
            self._closed = True
            self._readers.close()
            self._secret_store.close()
            self._journal.close()

    @property
    def confirmations(self) -> ConfirmationStatistics:
        """Figures of publishers that wait for another broker."""
        return ConfirmationStatistics(self._meters.confirmations_waiting, self._meters.unconfirmed)

    def statistics(self) -> SpaceStatistics:
        return SpaceStatistics(
            self.view.state,
            self._state.registry.statistics(),
            self._committer.statistics(),
            self._journal.next_sequence - 1,
            self._journal.durable_sequence,
            self.dispatcher.in_flight,
            self._intake.jobs,
        )

    def __repr__(self) -> str:
        now = self.statistics()
        return (
            f"<Space {now.state} queues={now.registry.queues} subscribers={now.registry.subscribers} "
            f"sequence={now.sequence} durable={now.durable_sequence} in_flight={now.in_flight}>"
        )


def _read_to_deliver(journal: Log, sequences: Sequence[int]) -> list[StoredMessage | None]:
    """These messages, the first of them where all would be too many bytes; None for what nobody gets any more."""
    found = journal.read_many(sequences, READ_RUN_BYTES)
    return [None if one is None or one.erased else one for one in found]


def _read_traced(contexts: TraceContexts, journal: Log, sequences: Sequence[int]) -> list[StoredMessage | None]:
    """As ``_read_to_deliver``; the roots of their trees are known then."""
    found = _read_to_deliver(journal, sequences)
    for message in found:
        if message is not None and contexts.root_of(message) is None:
            place = journal.place_of(message.root)
            if place is not None:
                contexts.note_root(message.root, place[0])
    return found


def _cached_traced(contexts: TraceContexts, journal: Log, sequences: Sequence[int]) -> list[StoredMessage | None]:
    """These messages where they are in memory and the roots of their trees are known; None for each that is to be
    read."""
    found = journal.cached_many(sequences)
    return [None if one is None or contexts.root_of(one) is None else one for one in found]


def _sync_policy(options: SpaceOptions) -> tuple[str, float | None, bool]:
    """The policy as answers name it, how many seconds lie between two syncs where not each append is one, and whether
    what is appended may be lost until then."""
    journal = options.journal
    if journal.sync == "interval":
        return f"interval:{journal.interval_ms}", journal.interval_ms / 1_000, True
    return options.acknowledge or journal.sync, options.local_sync_s or None, False


def _cause(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one that stopped the others: a fatal one where there is one, else the first. An error of the system is one
    of the log's: nothing else here has files."""
    flat: list[BaseException] = []
    waiting: list[BaseException] = [failed]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(one.exceptions)
        else:
            flat.append(one)
    cause = next((one for one in flat if isinstance(one, Fatal)), flat[0])
    return LogFailed(f"the log cannot be read or written: {cause}") if isinstance(cause, OSError) else cause
