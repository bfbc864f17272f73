"""Lets one writer through at a time, and none once the log has failed or is closed."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from types import TracebackType

from syncbrok.model.errors import LogFailed

log = logging.getLogger(__name__)


class SingleWriter:
    """A context: inside it one writes. A second one meanwhile is a mistake of the program and raises at once, it is not
    made to wait. A class and not a generator's context, which would take 2 us of every commit."""

    __slots__ = ("_writing", "closed", "failed")

    def __init__(self) -> None:
        self._writing = Lock()
        self.failed: LogFailed | None = None
        """the first ``LogFailed`` that was raised inside; later callers get the same"""
        self.closed = False

    def __enter__(self) -> None:
        self._enter()
        if self.failed is not None or self.closed:
            self._writing.release()
            self.check()
            raise RuntimeError("the journal is closed")

    def _enter(self) -> None:
        if not self._writing.acquire(blocking=False):
            raise RuntimeError("two threads write to the journal; it has one writer")

    @contextmanager
    def last(self) -> Iterator[bool]:
        """The context of the last writer, after which nobody writes. Tells whether it may write itself: the log has not
        failed. Raises, and has changed nothing, if somebody else writes now."""
        self._enter()
        try:
            yield self.failed is None
        except LogFailed as problem:
            self.fail(problem)
            raise
        finally:
            self.closed = True
            self._writing.release()

    def check(self) -> None:
        """Raises what failed, for those beside the writer who would change the log."""
        if self.failed is not None:
            raise LogFailed(self.failed.detail) from self.failed

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(problem, LogFailed):
            self.fail(problem)
        self._writing.release()

    def fail(self, problem: LogFailed) -> None:
        """From now on nobody writes. The first failure stays the one that is told."""
        if self.failed is None:
            self.failed = problem
            log.critical("syncbrok.log.failed", extra={"detail": problem.detail})
