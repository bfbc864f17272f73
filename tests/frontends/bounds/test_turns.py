"""Work of clients on the event loop, shared out among its turns.

Broken by hand to see these fail: ``now`` that always says yes; one line for all owners; ``goes_on`` left out.
"""

import asyncio
from time import perf_counter
from typing import Self

from syncbrok.frontends.bounds.turns import TURN_S, Turns

WORK_S = 0.0005


def work() -> None:
    until_s = perf_counter() + WORK_S
    while perf_counter() < until_s:
        pass


class Loop:
    """Counts the turns of the loop while it is open."""

    def __init__(self) -> None:
        self.count = 0
        self._over = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        await self._task

    async def _run(self) -> None:
        while not self._over:
            self.count += 1
            await asyncio.sleep(0)


async def piece(turns: Turns, owner: str, done: list[str], name: str = "") -> None:
    if not turns.now():
        await turns.wait(owner)
    work()
    done.append(name or owner)


async def test_a_thousand_requests_are_not_done_in_one_turn() -> None:
    """INTERFACES 5: what one client asks for at once is done over many turns of the loop, each as long as a few pieces
    of work, and all of it is done."""
    turns, done = Turns(), list[str]()
    async with Loop() as loop:
        await asyncio.gather(*[piece(turns, "greedy", done) for _ in range(200)])
    assert len(done) == 200
    assert loop.count >= 200 / (2 * TURN_S / WORK_S)


async def test_another_is_not_behind_all_of_it() -> None:
    """INTERFACES 5: who comes last, and asks once, has its turn after one of each who waits."""
    turns, done = Turns(), list[str]()
    greedy = [asyncio.create_task(piece(turns, "greedy", done)) for _ in range(200)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    before = len(done)
    await piece(turns, "neighbour", done)
    assert done.index("neighbour") - before <= 2 * TURN_S / WORK_S
    await asyncio.gather(*greedy)


async def test_what_is_half_done_is_ended_before_the_next_is_begun() -> None:
    """INTERFACES 5: of one client's answers few are being made at a time, and large ones one by one, so memory holds
    few that are half done."""
    turns, done = Turns(), list[str]()

    async def answer(name: str) -> None:
        await piece(turns, "greedy", done, name)
        for _ in range(3):
            await turns.wait("greedy", goes_on=True)
            work()
            done.append(name)

    await asyncio.gather(*[answer(str(number)) for number in range(40)])
    half_done = [sum(0 < done[:place].count(name) < 4 for name in set(done)) for place in range(len(done))]
    assert max(half_done) <= 3 * TURN_S / WORK_S


async def test_who_goes_takes_nobodys_turn() -> None:
    """A client that has gone while it waited keeps nobody waiting."""
    turns, done = Turns(), list[str]()
    tasks = [asyncio.create_task(piece(turns, "greedy", done, str(number))) for number in range(50)]
    await asyncio.sleep(0)
    for task in tasks[10:40]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert {str(number) for number in (*range(10), *range(40, 50))} <= set(done)
    assert turns.now(), "nothing is left in the line"


async def test_who_is_alone_does_not_wait() -> None:
    """A look at the clock is all it costs while there is little to do."""
    turns = Turns()
    for _ in range(3):
        assert turns.now()
        await asyncio.sleep(0)
