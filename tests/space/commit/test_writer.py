"""Where the log is written: by the loop while the disk is prompt, else in the one thread; in order either way."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from syncbrok.space.commit.writer import PAGE_BYTES, PROMPT_S, Pace, Writer


class Diary:
    """What was done, by which thread, and what came back."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.done: list[tuple[str, int]] = []
        self.heard: asyncio.Queue[tuple[Any, BaseException | None]] = asyncio.Queue()

    def work(self, name: str, takes_s: float = 0.0) -> Callable[[], str]:
        def work() -> str:
            threading.Event().wait(takes_s)  # a disk that takes its time
            self.done.append((name, threading.get_ident()))
            return name

        return work

    async def write(self, name: str, size_bytes: int = 100, takes_s: float = 0.0) -> bool:
        """Whether the loop wrote it itself."""
        self.writer.write(self.work(name, takes_s), lambda *said: self.heard.put_nowait(said), size_bytes)
        assert await self.heard.get() == (name, None)
        assert self.done[-1][0] == name
        return self.done[-1][1] == threading.get_ident()

    async def until_prompt(self) -> None:
        for number in range(1_000):
            if await self.write(f"warm {number}"):
                return
        raise AssertionError("a disk that answers at once was never taken for prompt")


@pytest.fixture
async def diary() -> AsyncIterator[Diary]:
    writer = Writer(asyncio.get_running_loop())
    yield Diary(writer)
    writer.stop()


async def test_a_small_write_to_a_prompt_disk_spares_the_thread(diary: Diary) -> None:
    """A hop of a chain does not pay for waking a thread and being woken by it; a large write is no matter of a hop."""
    await diary.until_prompt()
    assert await diary.write("small", PAGE_BYTES)
    assert not await diary.write("large", PAGE_BYTES + 1)


async def test_a_disk_that_stalls_holds_the_loop_up_once(diary: Diary) -> None:
    """One stall may hit the loop; the next writes are the thread's, until the disk has been prompt for a while."""
    await diary.until_prompt()
    assert await diary.write("stalls", takes_s=50 * PROMPT_S)
    assert not await diary.write("after", takes_s=50 * PROMPT_S)
    await diary.until_prompt()


async def test_nothing_is_written_before_what_the_thread_still_has(diary: Diary) -> None:
    """One writer: while the thread is at work or its end is not known, the loop writes nothing."""
    await diary.until_prompt()
    gate = threading.Event()
    opened = asyncio.get_running_loop().create_future()
    diary.writer.submit(gate.wait, lambda result, _: opened.set_result(result))
    diary.writer.write(diary.work("second"), lambda *said: diary.heard.put_nowait(said), 10)
    assert diary.heard.empty()
    assert diary.done[-1][0] != "second"
    gate.set()
    assert await opened
    assert await diary.heard.get() == ("second", None)


async def test_what_the_work_raises_is_told_and_ends_nothing(diary: Diary) -> None:
    """A full disk is told to whoever asked, by loop and thread alike."""
    for prompt in (False, True):
        if prompt:
            await diary.until_prompt()
        problem = OSError("no room")

        def fails(problem: OSError = problem) -> None:
            raise problem

        diary.writer.write(fails, lambda *said: diary.heard.put_nowait(said), 10)
        assert diary.heard.empty() != prompt, "the loop's own write is told at once"
        assert await diary.heard.get() == (None, problem)


def test_the_pace_follows_the_disk() -> None:
    """Unknown is not prompt; a stall counts for more than one write and not for ever; a slow disk is never prompt."""
    pace = Pace()
    assert not pace.prompt
    for _ in range(100):
        pace.took(PROMPT_S / 2)
    assert pace.prompt
    pace.took(3.0)
    assert not pace.prompt
    for _ in range(40):
        pace.took(PROMPT_S / 2)
    assert pace.prompt
    for _ in range(40):
        pace.took(PROMPT_S * 2)
    assert not pace.prompt
