"""What a replay reads of the log to plan itself (RULES 21)."""

from collections.abc import Mapping

import pytest

from syncbrok.model.facts import Reason, StoredMessage
from syncbrok.space.operations.replay import MessageHistory, Planner, Wish
from syncbrok.space.operations.replay_sources import Named
from syncbrok.space.state.registry import Registry
from tests.support.delivery.factlog import log_with

ROOT = 3


class Ended:
    """The scheduler's knowledge: all has ended, well where ``dead`` does not say otherwise."""

    def __init__(self, dead: Mapping[int, Reason]) -> None:
        self.dead = dead

    def ended(self, sequence: int) -> bool:
        return True

    def delivery_state(self, sequence: int, subscriber: int) -> str:
        return "dead" if sequence in self.dead else "delivered"

    def dead_letter(self, sequence: int, subscriber: int) -> Reason | None:
        return self.dead.get(sequence)


@pytest.mark.parametrize(("descendants", "again"), [(False, [3, 50, 150]), (True, list(range(3, 203)))])
async def test_only_what_goes_again_has_its_history_read(descendants: bool, again: list[int]) -> None:
    """RULES 21: a root with thousands of children that were delivered is replayed at the cost of those that failed
    through it. (Reading all of them took four seconds for 5,000.)"""
    told = log_with(1)
    registry = Registry()
    for fact in told.facts:
        registry.apply(fact)
    for at in range(200):
        told.publish(1, *((ROOT,) if at else ()))
    published = {fact.sequence: fact for fact in told.facts if isinstance(fact, StoredMessage)}
    read: list[int] = []

    async def messages(sequences: list[int]) -> list[StoredMessage | None]:
        return [published[sequence] for sequence in sequences]

    async def histories(sequences: list[int]) -> list[MessageHistory]:
        read.extend(sequences)
        return [MessageHistory((), (), tuple(range(4, 203)) if one == ROOT else ()) for one in sequences]

    state = Ended({50: Reason.PARENT_FAILED, 99: Reason.CONNECT, 150: Reason.PARENT_FAILED})
    planner = Planner(state, registry, messages, histories)
    steps = [step.entry.message async for step in planner.steps(Wish(Named({ROOT: None}), descendants))]
    assert steps == again
    assert sorted(read) == again
