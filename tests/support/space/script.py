"""Random work for a Space: publishes, failures and operations."""

import random
from contextlib import suppress

from syncbrok.delivery.handler import Delivery
from syncbrok.model.errors import SyncbrokError
from syncbrok.model.message import Message, ParentFailure, QueueSettings, RetryPolicy, Scope
from syncbrok.model.names import MessageId, QueueName, SubscriberId
from syncbrok.space.channels import Cancel, ChangeSubscriber, Publish, PurgeQueue, Replay, Unsubscribe
from tests.support.space.spaces import ACKNOWLEDGED, REFUSED, Running


class Script:
    """Random publishes, failures and operations, the same for the same seed but for what the loop interleaves."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.drops = seed % 2 == 0
        self.ids: list[MessageId] = []

    def answer(self, _: Delivery):
        return REFUSED if self.random.random() < 0.2 else ACKNOWLEDGED

    async def declare(self, running: Running) -> None:
        retry = RetryPolicy((0.001, 0.002), 0.2)
        for number, (scope, failure) in enumerate(
            [(Scope.ALL, ParentFailure.FAIL), (Scope.SAME, ParentFailure.HOLD), (Scope.ALL, ParentFailure.DELIVER)]
        ):
            settings = QueueSettings(scope=scope, parent_failure=failure, retry=retry, window=4)
            await running.queue(f"q{number}", settings, subscribers=["a", "b", "c"][: number + 1])

    async def publish(self, running: Running) -> None:
        lines = []
        for at in range(self.random.randint(1, 8)):
            count = min(len(self.ids), self.random.choice([0, 1, 1, 2, 3]))
            parents: list[MessageId | int] = list(self.random.sample(self.ids[-60:], min(count, len(self.ids[-60:]))))
            if at and self.random.random() < 0.3:
                parents.append(self.random.randrange(at))
            key = self.random.choice(["", "", "red", "blue"])
            lines.append(Message(self.random.randbytes(8), parents=tuple(parents), key=key))
        queue = QueueName(f"q{self.random.randrange(3)}")
        self.ids += (await running.put(Publish.of(queue, tuple(lines)))).ids

    async def resume(self, running: Running) -> None:
        """Nobody is paused any more."""
        for queue in ("q0", "q1", "q2"):
            await running.put(ChangeSubscriber(QueueName(queue), SubscriberId("a"), {"paused": False}))

    async def operate(self, running: Running) -> None:
        queue = QueueName(f"q{self.random.randrange(3)}")
        one = self.random.choice(self.ids)
        a = SubscriberId("a")
        # Dropping a part of a message and replaying its dead letters alone leaves one that is neither failed nor
        # whole: a run does the one or the other.
        dropping = (
            [Cancel(one), PurgeQueue(queue)] if self.drops else [Replay(queue=queue), Replay(queue=queue, subscriber=a)]
        )
        operation = self.random.choice(
            [
                *dropping,
                Replay(id=one, descendants=self.random.random() < 0.5),
                Replay(id=one, subscriber=a, descendants=self.random.random() < 0.5),
                ChangeSubscriber(queue, a, {"paused": self.random.random() < 0.3}),
                Publish.of(queue, (Message(b"test"),), a),
                PurgeQueue(queue, dry_run=True),
                Unsubscribe(queue, SubscriberId("c")),
            ]
        )
        with suppress(SyncbrokError):  # refused: nothing has changed
            await running.put(operation)


def on_their_way(running: Running) -> dict[int, str]:
    """Messages that have not ended and are neither held nor wait for one that has not ended."""
    scheduler = running.space._state.scheduler
    states = {sequence: scheduler.message_state(sequence) for sequence in scheduler.unended(None, None, 10_000)}
    return {
        sequence: state
        for sequence, state in states.items()
        if state != "held"
        and not (state == "waiting" and any(not scheduler.ended(one) for one in scheduler.blocked_by(sequence)))
    }
