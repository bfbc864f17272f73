"""The states of many messages in one look are those of each."""

from pathlib import Path
from typing import Any

from syncbrok.model.message import Message, QueueSettings, Scope
from syncbrok.model.names import sequence_of
from syncbrok.space.channels import Replay
from syncbrok.space.space import Space
from tests.support.polling import eventually
from tests.support.space.spaces import REFUSED, Consumer, running_space


def same(space: Space) -> set[str]:
    """Compares them for every stretch of the log and a little beyond; the states that occurred."""
    state: Any = space.view._sources.schedule
    last = state.state.table.newest + 2
    for first in range(last):
        each = [state.message_state(sequence) for sequence in range(first, last + 1)]
        for count in range(1, len(each) + 1):
            assert space.view.message_states(first, count) == each[:count], (first, count)
    return {state.message_state(sequence) for sequence in range(last)}


async def test_the_states_of_neighbours_are_those_of_each(tmp_path: Path):
    """Whatever stands next to each other: messages with and without rows, parents, keys, replays, dead ones."""
    consumer = Consumer(lambda attempt: REFUSED if attempt.message.content == b"no" else None)
    async with running_space(tmp_path, consumer) as running:
        same(running.space)
        await running.queue("nobody")
        await running.queue("q", subscribers=["a"])
        await running.queue("each", QueueSettings(scope=Scope.SAME), subscribers=["b"])
        for queue in ("nobody", "q", "nobody"):
            await running.publish_all(queue, *(Message(b"m") for _ in range(5)))
        first = await running.publish("q", b"first")
        for queue in ("q", "each"):
            await running.publish_all(queue, Message(b"child", parents=(first,)), Message(b"k", key="k"), Message(b"k"))
            await running.publish_all(queue, Message(b"later", delay_us=10**9), Message(b"m"), Message(b"m"))
        parent = await running.publish("each", b"parent")
        child = await running.publish("each", b"child", parent)
        sequence = sequence_of(child)
        await eventually(lambda: running.view.message_state(sequence) == "waiting", "parked behind its parent")
        assert running.view.message_states(sequence, 1) == ["waiting"]
        assert {"pending", "complete", "waiting", "scheduled"} <= same(running.space)
        bad = await running.publish("q", b"no")
        await eventually(lambda: consumer.held, "attempts")
        consumer.release()
        await running.ended(first, bad)
        consumer.answer = lambda _: None
        assert "dead" in same(running.space)
        await running.put(Replay(id=first))
        same(running.space)
        for queue in ("nobody", "q"):
            await running.publish_all(queue, *(Message(b"m") for _ in range(5)))
        same(running.space)
    async with running_space(tmp_path, Consumer(lambda _: None)) as again:  # what has ended has no row any more
        assert "dead" in same(again.space)
