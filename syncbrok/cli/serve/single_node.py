"""Opens the Space of a broker whose log one machine alone writes; and what any way to open one has to offer."""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from syncbrok.cli.serve.follower_front import RelayingNode
from syncbrok.cli.serve.log_files import LogFiles
from syncbrok.config import Config
from syncbrok.frontends.over_http.resources.log_segments import SegmentHolder
from syncbrok.log.journal import FileJournal, FileOptions
from syncbrok.model.journal import JournalOptions
from syncbrok.space.budgets import Budgets
from syncbrok.space.space import Space, SpaceOptions

_log: Final = logging.getLogger("syncbrok.broker")
_LOG_EVERY_S: Final = 2.0

Progress = Callable[[int, int], None]
"""told (segments looked at, segments in all)"""


class SpaceOpener(Protocol):
    """In this order: ``open``, ``hold`` beside the Space while it runs, ``stopping`` when it is asked to end, ``end``
    once its log is closed."""

    @property
    def stop(self) -> Callable[[], None] | None:
        """Called when the process is asked to end before there is a Space; None: it ends at once."""
        ...

    @property
    def member(self) -> RelayingNode | None:
        """The node of a cluster that this process is; None where there is no cluster."""
        ...

    @property
    def files(self) -> SegmentHolder:
        """The files of the log, for those who read it over the network."""
        ...

    async def open(self) -> Space | None:
        """The Space; None after ``stop``."""
        ...

    async def hold(self) -> None:
        """Until cancelled. Raises what ends the broker besides its Space."""
        ...

    def stopping(self) -> None: ...

    async def end(self, *, in_good_order: bool) -> None: ...


class SingleNode:
    """See the module."""

    stop = None
    member = None

    def __init__(self, config: Config, budgets: Budgets) -> None:
        self._config = config
        self._budgets = budgets
        self._opened: FileJournal | None = None
        self.files = LogFiles(config.storage.path, lambda: self._opened)

    async def open(self) -> Space:
        """See ``SpaceOpener``. Raises as ``Space.open``."""
        config = self._config
        journal, in_files = log_options(config, self._budgets)
        options = SpaceOptions(
            journal,
            budgets=self._budgets,
            idle_after_s=config.groups.idle_after_s,
            erase_within_s=config.storage.erase_within_s,
            reader_hold_s=config.storage.reader_hold_s,
        )

        def open_journal(
            directory: Path, options: JournalOptions, clock_us: Callable[[], int], progress: Progress | None
        ) -> FileJournal:
            self._opened = FileJournal.open(directory, options, clock_us, progress, in_files=in_files)
            return self._opened

        opened = partial(Space.open, progress=RecoveryProgress(), open_journal=open_journal)
        return await asyncio.to_thread(opened, config.storage.path, options)

    async def hold(self) -> None:
        """See ``SpaceOpener``: nothing else ends it."""
        await asyncio.get_running_loop().create_future()

    def stopping(self) -> None:
        """See ``SpaceOpener``."""

    async def end(self, *, in_good_order: bool) -> None:
        """See ``SpaceOpener``."""


def log_options(config: Config, budgets: Budgets) -> tuple[JournalOptions, FileOptions]:
    """The options of the journal, and of its files, that the configuration asks for."""
    storage = config.storage
    journal = JournalOptions(
        sync="interval" if storage.sync_interval_ms else "always",
        interval_ms=storage.sync_interval_ms,
        retention_s=storage.retention_s,
    )
    in_files = FileOptions(
        segment_bytes=storage.segment_bytes,
        reserve_bytes=storage.reserve_bytes,
        archive=storage.archive,
        archive_writer="" if config.cluster is None else config.cluster.node,
        indexes_max=budgets.indexes_max,
        syncs_each=config.cluster is None or config.cluster.syncs_each,
    )
    return journal, in_files


class RecoveryProgress:
    """Says how far reading the log has come, now and then."""

    def __init__(self) -> None:
        self._due_s = time.monotonic() + _LOG_EVERY_S

    def __call__(self, segments: int, segments_in_all: int) -> None:
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + _LOG_EVERY_S
            _log.info("syncbrok.broker.reading", extra={"segments": segments, "segments_in_all": segments_in_all})
