"""Retention waits for a reader of the log that asks for it, over restarts, and not for ever (RULES 38)."""

import logging
from pathlib import Path

import pytest

from syncbrok.model import limits
from syncbrok.model.errors import Conflict, LogFull, UnknownReader
from syncbrok.space.operations.log_reader_places import FILE, LogReaderPlaces, ReadableSpan, ReaderPlace
from syncbrok.space.reader_threads import ReaderThreads
from tests.support.space.spaces import Clock, Running, running_space

DAY_S = 86_400.0
OPTIONS = {"segment_bytes": limits.segment_bytes_min, "retention_s": DAY_S}


async def dropped(running: Running) -> int:
    return await running.space._maintenance.drop_expired()


async def segments(running: Running, clock: Clock, count: int) -> list[int]:
    """Segments with a message each, all of them older than the retention; the last sequence of each."""
    for _ in range(count):
        await running.publish("q", b"old")
        await running.space._committer.keep_snapshot()
    lasts = [one.last for one in running.space._journal.sections()[:-1]]
    clock.forward(1.5 * DAY_S)
    return lasts


async def test_retention_waits_for_a_reader_that_asks_for_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """RULES 38: what a holding reader has not read stays, over a restart too, and goes as soon as the reader has come
    further, was silent for too long, or is deleted. A reader that does not hold is waited for by nobody."""
    clock = Clock()
    async with running_space(tmp_path, clock_us=clock, **OPTIONS) as running:
        await running.queue("q", subscribers=["a"])
        readers = running.space.log_readers
        new = await readers.tell(ReaderPlace("warehouse", hold=True, by="op"))
        assert (new.sequence, new.hold, new.holding) == (0, True, True)
        await readers.tell(ReaderPlace("idle"))
        lasts = await segments(running, clock, 4)
        assert await dropped(running) == 0
        assert running.space._maintenance.held_back[0] == "reader"
        assert any(one.message == "syncbrok.space.retention_waits_for_reader" for one in caplog.records)
        told = await readers.tell(ReaderPlace("warehouse", sequence=lasts[0]))
        assert told.lag == running.space._journal.durable_sequence - lasts[0]
        assert await dropped(running) == 1
    async with running_space(tmp_path, clock_us=clock, **OPTIONS) as running:
        readers = running.space.log_readers
        assert [(one.name, one.sequence, one.holding) for one in readers.reports()] == [
            ("idle", 0, False), ("warehouse", lasts[0], True),
        ]  # fmt: skip
        assert await dropped(running) == 0
        await readers.tell(ReaderPlace("warehouse", sequence=lasts[1] - 1))
        assert await dropped(running) == 0, "the last record of it was not read"
        await readers.tell(ReaderPlace("warehouse", sequence=lasts[1]))
        assert await dropped(running) == 1
        clock.forward(limits.reader_hold_default_s - 1)
        assert readers.reports()[1].holding
        clock.forward(1)
        assert not readers.reports()[1].holding, "silent for as long as it may be"
        assert await dropped(running) > 0
        await segments(running, clock, 1)
        await readers.tell(ReaderPlace("warehouse"))
        assert await dropped(running) == 0, "it has spoken again"
        await readers.forget("warehouse")
        assert await dropped(running) > 0
        with pytest.raises(UnknownReader):
            await readers.forget("warehouse")


async def test_a_place_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """RULES 38: a sequence behind the durable end is of another log. Nothing has changed then."""
    async with running_space(tmp_path) as running:
        durable = running.space._journal.durable_sequence
        with pytest.raises(Conflict, match=rf"durable up to {durable}, and reader 'r' says {durable + 1}"):
            await running.space.log_readers.tell(ReaderPlace("r", durable + 1))
        assert running.space.log_readers.reports() == ()
        assert not (tmp_path / FILE).exists()


async def test_a_disk_that_takes_no_file_keeps_nothing_from_going_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """RULES 38: a new reader, and one that begins to hold, is refused where that cannot be written; one that goes on,
    or lets go, counts all the same: a full disk must not keep the segments that fill it."""
    threads = ReaderThreads()
    directory = tmp_path / "log"
    directory.mkdir()
    places = LogReaderPlaces(directory, DAY_S, lambda: ReadableSpan(1, 100), lambda: 0, threads)
    try:
        await places.tell(ReaderPlace("held", 1, hold=True))
        await places.tell(ReaderPlace("free", 1))
        (directory / f"{FILE}.new").symlink_to("/dev/full")
        for refused in (ReaderPlace("new", 1), ReaderPlace("free", hold=True), ReaderPlace("held", 0)):
            with pytest.raises(LogFull, match="make room there"):
                await places.tell(refused)
        assert [(one.name, one.sequence, one.hold) for one in places.reports()] == [("free", 1, False),
                                                                                     ("held", 1, True)]  # fmt: skip
        with caplog.at_level(logging.WARNING):
            await places.tell(ReaderPlace("held", 9))
            await places.forget("free")
        assert [(one.name, one.sequence) for one in places.reports()] == [("held", 9)]
        assert "syncbrok.space.readers_unwritten" in caplog.text
    finally:
        threads.close()


def test_a_file_that_rotted_is_said_and_begins_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log line names the file; streams make their readers again."""
    (tmp_path / FILE).write_bytes(b'{"version": 1, "readers": []}\n00000000\n')
    places = LogReaderPlaces(tmp_path, DAY_S, lambda: ReadableSpan(1, 100), lambda: 0, ReaderThreads())
    assert places.reports() == ()
    assert "syncbrok.space.readers_unreadable" in caplog.text


async def test_where_nothing_can_be_held_that_is_said(tmp_path: Path) -> None:
    """RULES 38: in a cluster a reader has a place and no hold: the sentence says what to do in place of it."""
    threads = ReaderThreads()
    places = LogReaderPlaces(tmp_path, DAY_S, lambda: ReadableSpan(1, 100), lambda: 0, threads, "not in a cluster")
    try:
        with pytest.raises(Conflict, match="not in a cluster"):
            await places.tell(ReaderPlace("r", 1, hold=True))
        assert (await places.tell(ReaderPlace("r", 1))).lag == 99
        assert places.held_after() is None
    finally:
        threads.close()
