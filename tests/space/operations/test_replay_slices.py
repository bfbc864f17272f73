"""How a replay of more messages than one unit holds gets into the log (RULES 21)."""

from collections.abc import Callable

import pytest

from syncbrok.model.errors import BrokerFault, Draining, LogFull
from syncbrok.model.facts import Rearmed, RearmedEntry
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.operations.replay_writer import write
from syncbrok.space.state.registry import Registry
from tests.support.delivery.factlog import KEY, log_with


class Log:
    """Takes units until ``problem`` happens, with unit number ``room``."""

    def __init__(self, problem: BrokerFault | None = None, room: int = 100) -> None:
        self.units: list[list[RearmedEntry]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self._problem = problem
        self._room = room

    async def append(self, step: Callable[[CommitBatch], None]) -> None:
        if self._problem is not None and len(self.units) == self._room:
            raise self._problem
        batch = CommitBatch(10, 0, KEY, 2)
        step(batch)
        self.units.append([entry for fact in batch.facts if isinstance(fact, Rearmed) for entry in fact.entries])
        self.meanwhile()


def registry_of(*subscribers: int) -> tuple[Registry, Callable[[int], None]]:
    """Queue 1 with these; and what deletes one."""
    told = log_with(*subscribers)
    registry = Registry()
    for fact in told.facts:
        registry.apply(fact)

    def delete(number: int) -> None:
        told.unsubscribe(number)
        registry.apply(told.facts[-1])

    return registry, delete


def line(*subscribers: int) -> list[RearmedEntry]:
    """Five messages, each the parent of the next."""
    tries = tuple(10 * number for number in subscribers)
    return [RearmedEntry(at, 1, subscribers, (at - 1,) if at > 3 else (), tries) for at in range(3, 8)]


@pytest.mark.parametrize("problem", [LogFull("nothing was kept"), Draining("nothing was kept")])
async def test_a_replay_of_which_a_part_was_kept_says_so(problem: BrokerFault) -> None:
    """RULES 21: a unit is whole or undone, and the operator is told how many there are in the log."""
    registry, _ = registry_of(1)
    log = Log(problem, 2)
    with pytest.raises(type(problem), match="4 of 5 messages were kept") as told:
        await write(7, line(1), registry, log.append, together=2)
    assert told.value.members["kept"] == 4
    assert "nothing" not in f"{told.value.detail}{told.value.members['mend']}"
    assert [len(unit) for unit in log.units] == [2, 2]


async def test_a_replay_of_which_nothing_was_kept_says_so() -> None:
    """RULES 21: what the log says is true then."""
    registry, _ = registry_of(1)
    with pytest.raises(LogFull, match="nothing was kept"):
        await write(7, line(1), registry, Log(LogFull("nothing was kept"), 0).append, together=2)


async def test_who_is_deleted_while_a_replay_is_written_is_not_in_it() -> None:
    """RULES 10, 14 and 21: the rest goes to those who are there, as in a plan that is made then."""
    registry, delete = registry_of(1, 2)
    log = Log()
    log.meanwhile = lambda: delete(1) if len(log.units) == 1 else None
    await write(7, line(1, 2), registry, log.append, together=2)
    first, *later = log.units
    assert first == line(1, 2)[:2]
    assert [entry for unit in later for entry in unit] == line(2)[2:]


async def test_a_message_with_nobody_left_holds_no_child_back() -> None:
    """RULES 10, 14 and 21: dropped is acknowledged, whether the subscriber was deleted after the plan or with it."""
    registry, delete = registry_of(1, 2)
    log = Log()
    parent, child = RearmedEntry(3, 1, (1,), (), (4,)), RearmedEntry(4, 1, (2,), (3,), (0,))
    delete(1)
    await write(7, [parent, child], registry, log.append, together=1)
    assert log.units == [[], [child._replace(parents=())]]
