"""A journal as tests write to it, and what stands in its directory."""

import itertools
import os
import signal
import warnings
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from syncbrok.log.format.records import Record
from syncbrok.log.journal import FileJournal, FileOptions
from syncbrok.model.facts import Outcome, Outcomes, Reason, Row, Snapshot, StoredMessage
from syncbrok.model.journal import JournalOptions, Log, LogIdentity
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.model.names import make_message_id

START_US = 1_700_000_000_000_000


class Clock:
    """Unix microseconds; a millisecond passes with every look."""

    def __init__(self, now_us: int = START_US) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        self.now_us += 1_000
        return self.now_us


def open_journal(directory: Path, clock: Callable[[], int] | None = None, **options: Any) -> FileJournal:
    """A journal with small segments, rolled where that is needed."""
    journal = opened(FileJournal, directory, clock, **options)
    if journal.wants_snapshot:
        roll(journal)
    return journal


def split(**options: Any) -> tuple[JournalOptions, dict[str, Any]]:
    """Options of any journal, and what is left: those of one in files."""
    general = {name: options.pop(name) for name in JournalOptions._fields if name in options}
    return JournalOptions(**general), options


def opened(
    kind: type[FileJournal],
    directory: Path,
    clock: Callable[[], int] | None = None,
    identity: LogIdentity | None = None,
    **options: Any,
) -> Any:
    """A journal of this kind with small segments and no reserve, as it is found."""
    general, in_files = split(**options)
    chosen = FileOptions(**{"segment_bytes": 64 * 1024, "reserve_bytes": 0, **in_files})
    return kind.open(directory, general, clock or Clock(), in_files=chosen, identity=identity)


def roll(journal: FileJournal) -> None:
    append_snapshot(journal)


def append_snapshot(journal: Log, **fields: Any) -> Snapshot:
    """A snapshot of nothing but ``fields``; its time tells its sequence."""

    def take(sequence: int, _: int) -> Snapshot:
        return Snapshot(sequence, START_US + sequence, (), (), (), ())._replace(**fields)

    prepared = journal.prepare_snapshot(take, START_US)
    journal.append(prepared)
    return prepared.snapshot


def message(journal_key: bytes, sequence: int, **changes: Any) -> StoredMessage:
    """The message of a sequence; its content names it."""
    bare = StoredMessage(
        sequence,
        START_US + sequence,
        make_message_id(START_US // 1_000, sequence, journal_key),
        1,
        sequence,
        0,
        Scope.ALL,
        ParentFailure.FAIL,
        (),
        "",
        "",
        b"",
        0,
        0,
        "text/plain",
        (),
        b"message %d" % sequence,
    )
    return bare._replace(**changes)


def publish(
    journal: FileJournal, count: int = 1, unit_ends: Collection[int] | None = None, **changes: Any
) -> list[StoredMessage]:
    """One batch of ``count`` messages, written."""
    first = journal.next_sequence
    messages = [message(journal.id_key, sequence, **changes) for sequence in range(first, first + count)]
    journal.append(journal.prepare(messages, unit_ends))
    return messages


def ended(journal: FileJournal, messages: Iterable[int], *, essential: bool = False) -> Outcomes:
    """One batch that says that these messages were delivered to subscriber 1."""
    rows = tuple(
        Row(one, 1, 1, Outcome.DELIVERED, Reason.NONE, 200, START_US, 0, journal.durable_sequence, 1_000)
        for one in messages
    )
    fact = Outcomes(journal.next_sequence, START_US + journal.next_sequence, rows)
    journal.append(journal.prepare([fact]), essential=essential)
    return fact


def records(journal: FileJournal, after: int = 0) -> list[Record]:
    """Those with sequences above ``after``, the log's own too, so that none is missing."""
    return list(journal._reader.replay(after))


def everything(directory: Path, **options: Any) -> list[Record]:
    """All records of the log in ``directory``, which is opened (and so mended) for it."""
    journal = opened(FileJournal, directory, **options)
    try:
        return records(journal)
    finally:
        journal.close()


# -- crashes ----------------------------------------------------------------------------------------------------------

CALLS = ("pwrite", "fsync", "fdatasync", "ftruncate", "posix_fallocate", "rename", "unlink", "open", "close")
"""What changes the disk, or makes a change durable (``open`` may create a file)."""


def fork() -> int:
    """``os.fork``; Python 3.12 warns of threads, and there are none here that hold what the child needs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def killed_before(call: int, work: Callable[[], None]) -> bool:
    """Do ``work`` in a forked process that is killed (SIGKILL) before its system call number ``call`` of ``CALLS``,
    counted from 1; whether it was. What the killed process had written is in the page cache, as after ``kill -9``."""
    child = fork()
    if child == 0:
        count = itertools.count(1)

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def instead(*arguments: Any, **named: Any) -> Any:
                if next(count) == call:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **named)

            return instead

        try:
            for name in CALLS:
                setattr(os, name, counted(getattr(os, name)))
            work()
        except BaseException:  # noqa: BLE001
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), f"the work failed by itself: {status}"
    return status != 0
