"""Takes in how far the named readers of the log have come, and writes it to a file beside the log.

There is no fact of it: a reader that told its place in the log would have something new to read. The file is whole, or
the one before. Where it cannot be written a place that goes on, and a hold that ends, count all the same, as long as
the broker runs: after a restart more is kept, not less.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from typing import Final, NamedTuple

from syncbrok.model import limits
from syncbrok.model.errors import Conflict, LogFull, LogUnavailable
from syncbrok.space.reader_threads import RunBlocking
from syncbrok.space.reports import LogReaderReport
from syncbrok.space.side_file import replace_whole
from syncbrok.space.state.log_readers import LogReader, LogReaderTable, decode, encode

_log = logging.getLogger(__name__)

FILE: Final = "readers"
_NO_ROOM: Final = (ENOSPC, EFBIG, EDQUOT)


class ReaderPlace(NamedTuple):
    """A reader's word. ``sequence``: through where it has read, ``hold``: whether retention keeps the rest; None: as
    it was. ``by``: whose token it was."""

    name: str
    sequence: int | None = None
    hold: bool | None = None
    by: str = ""


class ReadableSpan(NamedTuple):
    """The log as readers see it: its first sequence, and the last that is durable."""

    first: int
    durable: int


class LogReaderPlaces:
    """``span`` tells of the log; ``cannot_hold``: why no reader can hold retention back, in words."""

    def __init__(
        self,
        directory: Path,
        hold_s: float,
        span: Callable[[], ReadableSpan],
        clock_us: Callable[[], int],
        run_blocking: RunBlocking,
        cannot_hold: str | None = None,
    ) -> None:
        self._path = directory / FILE
        self._span = span
        self._clock_us = clock_us
        self._run_blocking = run_blocking
        self._cannot_hold = cannot_hold
        self._table = LogReaderTable(_read(self._path), int(hold_s * 1e6), clock_us())
        self._writing = asyncio.Lock()

    def reports(self) -> tuple[LogReaderReport, ...]:
        """All readers as they stand now, by name."""
        now_us = self._clock_us()
        return tuple(self._report(one, now_us) for one in self._table.readers)

    def is_held(self, name: str) -> bool:
        """Whether there is a reader of this name that asks to hold retention back."""
        known = self._table.get(name)
        return known is not None and known.hold

    def held_after(self) -> int | None:
        """See ``LogReaderTable``."""
        return None if self._cannot_hold else self._table.held_after(self._clock_us())

    async def tell(self, place: ReaderPlace) -> LogReaderReport:
        """Take in a reader's place; a new one has read nothing, and holds nothing, unless it says so. It is on the disk
        then, but see the module. Raises ``Conflict``, ``LogFull`` and ``LogUnavailable``; nothing has changed then."""
        if place.hold and self._cannot_hold:
            raise Conflict(self._cannot_hold, reader=place.name)
        span = self._span()
        if place.sequence is not None and place.sequence > span.durable:
            what = f"the log is durable up to {span.durable}, and reader {place.name!r} says {place.sequence}"
            raise Conflict(f"{what}: it has read another log, or this one was restored", reader=place.name)
        async with self._writing:
            before = self._table.get(place.name)
            known = before or LogReader(place.name, span.first - 1, hold=False, heard_us=0)
            sequence = known.sequence if place.sequence is None else place.sequence
            hold = known.hold if place.hold is None else place.hold
            reader = LogReader(place.name, sequence, hold, self._clock_us())
            self._table.put(reader)
            keeps_less = before is not None and before.sequence <= sequence and hold <= before.hold
            await self._write(reader.name, None if keeps_less else before, keeps_less=keeps_less)
        if hold != known.hold:
            told = {"reader": place.name, "hold": hold, "through": sequence, "by": place.by}
            _log.info("syncbrok.space.reader_holds" if hold else "syncbrok.space.reader_lets_go", extra=told)
        return self._report(reader, reader.heard_us)

    async def forget(self, name: str) -> None:
        """Forget a reader, and let go what it holds. Raises ``UnknownReader``."""
        async with self._writing:
            self._table.remove(name)
            await self._write(name, None, keeps_less=True)

    async def _write(self, name: str, before: LogReader | None, *, keeps_less: bool) -> None:
        """Write the file. Where that fails and ``keeps_less`` is not so, the reader is again as it was ``before``."""
        try:
            await self._run_blocking(_replace, self._path, encode(self._table.readers))
        except OSError as problem:
            _log.warning("syncbrok.space.readers_unwritten", extra={"path": str(self._path), "detail": str(problem)})
            if keeps_less:
                return
            if before is None:
                self._table.remove(name)
            else:
                self._table.put(before)
            what = f"the place of reader {name!r} cannot be written to {self._path}: {problem.strerror}"
            if problem.errno in _NO_ROOM:
                raise LogFull(f"{what}; make room there") from problem
            raise LogUnavailable(f"{what}; look at the disk") from problem

    def _report(self, one: LogReader, now_us: int) -> LogReaderReport:
        lag = max(0, self._span().durable - one.sequence)
        holding = not self._cannot_hold and self._table.is_holding(one, now_us)
        return LogReaderReport(one.name, one.sequence, lag, one.hold, holding, one.heard_us)


def _replace(path: Path, data: bytes) -> None:
    """The file has these bytes, and is on the disk under its name. Raises ``OSError``."""
    replace_whole(path, [data])
    names = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(names)
    finally:
        os.close(names)


def _read(path: Path) -> list[LogReader]:
    """The readers in the file; none where it cannot be read, which the log says."""
    try:
        return decode(path.read_bytes())[: limits.log_readers_max]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as problem:
        _log.error("syncbrok.space.readers_unreadable", extra={"path": str(path), "detail": str(problem)})
        return []
