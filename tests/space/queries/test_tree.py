"""The causal tree of a message, up and down."""

import asyncio
import time

import pytest

from syncbrok.model import limits
from syncbrok.model.errors import Malformed
from syncbrok.space.queries import tree
from tests.support.delivery.factlog import BROKEN
from tests.support.space.viewed_log import ViewedLog


@pytest.fixture
def log() -> ViewedLog:
    """Two queues with one subscriber each."""
    log = ViewedLog()
    for number in (1, 2):
        log.queue(number)
        log.subscriber(number, number)
    return log


async def test_up_is_what_it_waits_for(log: ViewedLog) -> None:
    """Parents, nearest first, each once however many ways lead to it."""
    top = log.publish(1)
    left, right = log.publish(1, top), log.publish(2, top)
    bottom = log.publish(2, left, right, top)
    log.publish(1, bottom)
    log.pump(lambda _: BROKEN)

    report = await log.view.tree(log.id(bottom), "up", 10)

    assert [(n.sequence, n.distance, n.queue, n.state) for n in report.nodes] == [
        (bottom, 0, "q2", "waiting"),
        (left, 1, "q1", "waiting"),
        (right, 1, "q2", "waiting"),
        (top, 1, "q1", "pending"),
    ]
    assert report.nodes[0].parents == (log.id(left), log.id(right), log.id(top))
    assert not report.truncated


async def test_down_is_what_waits_for_it(log: ViewedLog) -> None:
    """Children of children, as deep as asked; deeper ones only make it ``truncated``."""
    top = log.publish(1)
    children = [log.publish(2, top) for _ in range(3)]
    grandchild = log.publish(1, children[0], children[2])
    log.publish(1, grandchild)

    report = await log.view.tree(log.id(top), "down", 2)

    assert [(n.sequence, n.distance) for n in report.nodes] == [(top, 0), *((c, 1) for c in children), (grandchild, 2)]
    assert report.truncated
    assert not (await log.view.tree(log.id(top), "down", 3)).truncated


async def test_a_dropped_parent_is_a_node_without_a_story(log: ViewedLog) -> None:
    """A parent that retention has dropped still has its id in its children: it is shown as gone (RULES 2)."""
    parent = log.publish(1)
    child = log.publish(1, parent)
    log.pump()
    log.journal.trim_through(parent)
    nodes = (await log.view.tree(log.id(child), "up", 5)).nodes
    assert [(n.id, n.state, n.queue) for n in nodes] == [
        (log.id(child), "complete", "q1"),
        (log.id(parent), "gone", ""),
    ]


async def test_a_tree_is_bounded_and_leaves_the_loop_free(log: ViewedLog) -> None:
    """At most ``limits.tree_nodes_max`` nodes, read in slices: the event loop turns all the while."""
    top = log.publish(1)
    family = [log.publish(1, top) for _ in range(limits.tree_nodes_max + 50)]
    gaps_s: list[float] = []

    async def ticking() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            gaps_s.append(now - last)
            last = now

    beside = asyncio.ensure_future(ticking())
    report = await log.view.tree(log.id(top), "down", 3)
    beside.cancel()

    assert len(report.nodes) == limits.tree_nodes_max
    assert report.truncated
    assert report.nodes[1].sequence == family[0]
    assert len(gaps_s) > limits.tree_nodes_max // tree.SLICE, f"{len(gaps_s)} turns: not one between slices"


async def test_a_direction_is_up_or_down(log: ViewedLog) -> None:
    """Anything else is a mistake of the asker."""
    message = log.publish(1)
    with pytest.raises(Malformed, match="sideways"):
        await log.view.tree(log.id(message), "sideways", 1)
