"""Takes durable facts to a collector of traces, beside all other work: whatever becomes of it, nothing waits for it.

What is to become spans stands in a line of bounded length. One task makes spans of it (in a reader's thread, since that
reads the log) and sends them in batches. A collector that is down or hangs fills the line; then what is new is lost,
and counted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Final, Protocol

from syncbrok.delivery.scheduler.breakers import Turned
from syncbrok.model.errors import SyncbrokError
from syncbrok.model.facts import FactOrRun, Messages, Outcomes
from syncbrok.space.meters import Meters
from syncbrok.space.reader_threads import RunBlocking
from syncbrok.space.standstills import Standstills
from syncbrok.space.trace_spans import Seen, SpanBuilder, TraceSpan, size_of

_log: Final = logging.getLogger(__name__)

WAITING_MAX: Final = 65_536
"""messages and rows in the line"""
_TOGETHER: Final = 256
"""of them are made spans at once"""
_GATHER_S: Final = 0.5
_PAUSES_S: Final = (1.0, 30.0)
"""between two tries to send, the first and the longest"""
FINISH_S: Final = 3.0
"""at the end of the broker, for what still waits"""


class Sent(Enum):
    """The fate of a batch."""

    YES = 0
    AGAIN = 1
    """nobody took it; later somebody may"""
    REFUSED = 2
    """nobody ever will"""


class SpanExporter(Protocol):
    """The way to a collector."""

    def encode(self, spans: Sequence[TraceSpan]) -> bytes:
        """Called in a thread."""
        ...

    async def send(self, batch: bytes) -> tuple[Sent, str]:
        """Send what ``encode`` gave; what became of it, and why. Never raises, and ends in bounded time."""
        ...

    async def close(self) -> None: ...


class Tracer:
    """``observe`` is told of facts on the event loop; ``run`` is the task."""

    def __init__(
        self,
        builder: SpanBuilder,
        exporter: SpanExporter,
        run_blocking: RunBlocking,
        clock_us: Callable[[], int],
        meters: Meters,
        standstills: Standstills,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self._builder = builder
        self._exporter = exporter
        self._run_blocking = run_blocking
        self._clock_us = clock_us
        self._meters = meters
        self._standstills = standstills
        self._waiting_max = waiting_max
        self._line: deque[Seen] = deque()
        self._waiting = 0
        self._some = asyncio.Event()
        self._hurry = asyncio.Event()
        self._ending = False
        self._ended = asyncio.Event()
        self._troubled = False
        self._under_way = 0
        """spans of the batch that is being sent"""

    def observe(self, facts: Sequence[FactOrRun]) -> None:
        """These are durable."""
        for fact in facts:
            if type(fact) is Messages:
                self._put(Seen(self._clock_us(), fact._replace(contents=())))
            elif type(fact) is Outcomes:
                self._put(Seen(self._clock_us(), None, fact.rows))
            else:
                self._standstills.apply(fact)

    def turned(self, breaker: Turned) -> None:
        """It has opened or closed."""
        self._standstills.turned(breaker, self._clock_us())

    def _put(self, seen: Seen) -> None:
        size = size_of((seen,))
        if self._waiting and self._waiting + size > self._waiting_max:
            self._meters.spans_lost += size
            return
        self._line.append(seen)
        self._waiting += size
        self._some.set()
        if self._waiting >= _TOGETHER:
            self._hurry.set()

    async def run(self) -> None:
        """Until ``finish``, or cancelled."""
        try:
            while await self._wait():
                seen = self._take()
                try:
                    made, batch = await self._run_blocking(self._make, seen)
                except SyncbrokError as problem:  # the disk reads nothing for now, or the broker ends
                    self._lost(size_of(seen), problem.detail)
                    continue
                except Exception:  # noqa: BLE001 - a mistake here must not end the broker
                    _log.exception("syncbrok.space.spans_unmade")
                    self._meters.spans_lost += size_of(seen)
                    continue
                if made:
                    self._under_way = made
                    await self._send(made, batch)
                    self._under_way = 0
        finally:
            self._ended.set()

    async def finish(self) -> None:
        """Send what waits, within ``FINISH_S``; then ``run`` has ended or may be cancelled."""
        self._ending = True
        self._some.set()
        self._hurry.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                await self._ended.wait()
        self._meters.spans_lost += self._waiting + self._under_way

    async def close(self) -> None:
        """Let go of the connection."""
        await self._exporter.close()

    async def _wait(self) -> bool:
        """For something to do, and then a moment for more of it. False at the end."""
        if not self._line:
            self._hurry.clear()
            if self._ending:
                return False
            self._some.clear()
            await self._some.wait()
        if not self._ending and self._waiting < _TOGETHER:
            await self._pause(_GATHER_S)
        return bool(self._line) or not self._ending

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()

    def _take(self) -> list[Seen]:
        taken: list[Seen] = []
        count = 0
        while self._line and count < _TOGETHER:
            seen = self._line.popleft()
            if seen.messages is not None and count + seen.messages.size > _TOGETHER and seen.messages.keyed is None:
                first, *others = (Seen(seen.now_us, part) for part in seen.messages.parts(_TOGETHER))
                self._line.extendleft(reversed(others))
                seen = first
            taken.append(seen)
            count += size_of((seen,))
        self._waiting -= count
        return taken

    def _make(self, seen: Sequence[Seen]) -> tuple[int, bytes]:
        spans = self._builder.build(seen)
        return len(spans), self._exporter.encode(spans) if spans else b""

    async def _send(self, made: int, batch: bytes) -> None:
        pause_s, longest_s = _PAUSES_S
        while True:
            sent, why = await self._exporter.send(batch)
            if sent is Sent.YES:
                self._meters.spans_sent += made
                if self._troubled:
                    self._troubled = False
                    _log.info("syncbrok.space.traces_taken", extra={"lost": self._meters.spans_lost})
                return
            if sent is Sent.REFUSED or self._ending:
                self._lost(made, why)
                return
            self._warn(why)
            await self._until_ending(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def _until_ending(self, seconds: float) -> None:
        self._hurry.clear()
        left_s = seconds
        clock = asyncio.get_running_loop().time
        until_s = clock() + seconds
        while left_s > 0 and not self._ending:
            await self._pause(left_s)
            self._hurry.clear()  # it is full: no reason to ask a collector that is down more often
            left_s = until_s - clock()

    def _lost(self, count: int, why: str) -> None:
        self._meters.spans_lost += count
        self._warn(why)

    def _warn(self, why: str) -> None:
        """Once, until a batch is taken again."""
        if not self._troubled:
            self._troubled = True
            _log.warning("syncbrok.space.traces_not_taken", extra={"why": why})
