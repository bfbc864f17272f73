"""A Space whose machine loses its power: a life that is recorded, and what is left of it looked at.

``tests.support.power.judge`` says what is wrong with that. It knows nothing of the broker; what stands here runs it.
"""

import base64
import random
import shutil
from pathlib import Path

from syncbrok.delivery.handler import AttemptResult, Delivery
from syncbrok.model import limits
from syncbrok.model.errors import Gone, SyncbrokError
from syncbrok.model.message import Message, ParentFailure, QueueSettings, RetryPolicy
from syncbrok.model.names import MessageId, QueueName, SubscriberId
from syncbrok.space.channels import Cancel, Publish, Replay, RotateSecret
from syncbrok.space.queries.finding import find_message
from syncbrok.space.state.secret_store import make_secret
from tests.support.power.judge import Life, Sent, Told, archived, wrong_attempt, wrong_message, wrong_secret
from tests.support.power.tree import TreeRecording, restore_tree, tree_after_power_loss
from tests.support.space.spaces import ACKNOWLEDGED, REFUSED, Clock, Consumer, Running, running_space

DAY_S = 86_400.0
QUEUE, A = QueueName("q"), SubscriberId("a")
_FILLER = b"." * 3_000
_SETTINGS = QueueSettings(parent_failure=ParentFailure.DELIVER, retry=RetryPolicy((), 0.0))
"""one attempt; a child goes however its parents ended"""


def opened(root: Path, consumer: Consumer, clock: Clock):
    return running_space(
        root / "log", consumer, clock_us=clock, drain_s=0.0, segment_bytes=limits.segment_bytes_min,
        reserve_bytes=0, retention_s=DAY_S, archive=root / "cold" / "archive",
    )  # fmt: skip


def answer(delivery: Delivery) -> AttemptResult | None:
    """By the first word of the content."""
    content = delivery.message.content
    return None if content.startswith(b"held") else REFUSED if content.startswith(b"bad") else ACKNOWLEDGED


class _Driver:
    def __init__(self, recording: TreeRecording, dice: random.Random) -> None:
        self.life = Life(recording.events)
        self.clock = Clock()
        self.dice = dice
        self.consumer = Consumer(self._answer)
        self.jump(0)

    @property
    def now(self) -> int:
        return len(self.life.events)

    def _answer(self, delivery: Delivery) -> AttemptResult | None:
        given = answer(delivery)
        if given is not None:
            self.life.answers.append((self.now, delivery.message.content))
        return given

    def jump(self, seconds: float) -> None:
        self.life.clock.append((self.now, self.clock.offset_us + int(seconds * 1e6)))
        self.clock.forward(seconds)

    async def publish(self, running: Running, word: str, *parents: Sent) -> Sent:
        number = len(self.life.sent)
        content = f"{word} {number} ".encode() + _FILLER[: self.dice.choice((0, 600, 3_000))]
        key = f"key {number}" if number % 3 == 0 else ""
        message = Message(content, parents=tuple(MessageId(one.id) for one in parents), idempotency_key=key)
        accepted = await running.put(Publish.of(QUEUE, (message,)))
        sent = Sent(accepted.ids[0], accepted.sequences[0], content, key, parents, self.now)
        self.life.sent[content] = sent
        return sent

    async def ended(self, running: Running, *several: Sent) -> None:
        await running.ended(*(MessageId(one.id) for one in several))
        for one in several:
            one.ended = (self.now, running.view.message_state(one.sequence))

    async def family(self, running: Running) -> Sent:
        """Ends well, ends badly and is replayed, is cancelled, waits for ever, and children of each. The one that is
        held."""
        good, bad = await self.publish(running, "good"), await self.publish(running, "bad")
        child = await self.publish(running, "child", good, bad)
        held = await self.publish(running, "held")
        waits = await self.publish(running, "child", good, held)
        await self.ended(running, good, bad, child)
        for one in (waits, bad):
            at = self.now
            if one is bad:
                bad.replaying = at
                await running.put(Replay(id=MessageId(bad.id)))
            else:
                waits.cancelling = at
                await running.put(Cancel(MessageId(waits.id)))
                waits.ended = (self.now, running.view.message_state(waits.sequence))
        await self.publish(running, "child", held)
        return held

    async def rotate(self, running: Running) -> None:
        secret, asked = make_secret(), self.now
        await running.put(RotateSecret(QUEUE, A, secret))
        self.life.secrets.append((asked, self.now, _key(secret)))


def _key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix("whsec_"))


async def record(root: Path, dice: random.Random) -> Life:
    """Three lives, each ended in good order: between the first two a checkpoint, in each a retention that archives."""
    recording = TreeRecording(root)
    with recording.running():
        driver = _Driver(recording, dice)
        for life in range(3):
            async with opened(root, driver.consumer, driver.clock) as running:
                if life == 0:
                    await running.queue(QUEUE, _SETTINGS)
                    secret, asked = make_secret(), driver.now
                    await running.subscribe(QUEUE, A, secret=secret)
                    driver.life.secrets.append((asked, driver.now, _key(secret)))
                for _ in range(4):
                    held = await driver.family(running)
                    await driver.rotate(running)
                    several = [await driver.publish(running, "good") for _ in range(6)]
                    await driver.ended(running, *several)
                driver.jump(1.5 * DAY_S)
                await running.space._maintenance.drop_expired()
                await driver.publish(running, "child", held)
                await driver.rotate(running)
    return driver.life


async def judged(life: Life, moment: int, root: Path, *, losses: list[bytes]) -> list[str]:
    """Open what is left, look, go on a little; what is wrong. ``losses``: contents answered in earlier recoveries, and
    those of this one."""
    wrong: list[str] = []
    young, now_us = max(jump for jump in life.clock if jump[0] <= moment)
    clock = Clock(now_us + 1_000_000)
    answered = {content for at, content in life.answers if at <= moment} | set(losses)

    def attempted(delivery: Delivery) -> AttemptResult | None:
        content = delivery.message.content
        sent = life.sent.get(content)
        if sent is not None:
            wrong.extend(wrong_attempt(sent, moment, answered))
        given = answer(delivery)
        if given is not None:
            answered.add(content)
            losses.append(content)
        return given

    try:
        async with opened(root, Consumer(attempted), clock) as running:
            for sent in life.sent.values():
                if sent.accepted <= moment:
                    # What is younger has an idempotency key that retention has not forgotten.
                    told = await _told(running, sent, again=sent.accepted >= young)
                    copied = told.gone and archived(root / "log", root / "cold" / "archive", sent.content)
                    wrong += wrong_message(sent, moment, answered, told, copied=copied)
            keys = (
                running.space.signing_keys(running.view.subscriber_number(QUEUE, A))
                if life.secrets[0][1] <= moment
                else ()
            )
            wrong += wrong_secret(life, moment, keys)
            # Its retention, which begins with the start, is cut short by the drain in half of the states.
            for _ in range(random.Random(moment).choice((1, 16)) if life.secrets[0][1] <= moment else 0):
                await running.ended(await running.publish(QUEUE, b"good, after the loss"))
    except SyncbrokError as refused:
        wrong.append(f"the start is refused: {refused!r} {refused.detail}")
    return wrong


async def _told(running: Running, sent: Sent, *, again: bool) -> Told:
    """What the Space says of a message, and, where it is published ``again``, of its idempotency key."""
    try:
        found = find_message(running.space._journal, MessageId(sent.id))
    except Gone:
        return Told(gone=True)
    except SyncbrokError as problem:
        return Told(problem=repr(problem))
    state = running.view.message_state(sent.sequence)
    told = Told(content=found.content, parents=found.parents, state=state, first=sent.id)
    if again and sent.key:
        parents = tuple(MessageId(one.id) for one in sent.parents)
        answered = await running.put(
            Publish.of(QUEUE, (Message(sent.content, parents=parents, idempotency_key=sent.key),))
        )
        told = told._replace(first=b"" if answered.new != (False,) else answered.ids[0])
    return told


async def loses_power_twice(life: Life, root: Path, dice: random.Random) -> list[str]:
    """One moment, one state of the disk, and another while the Space recovers from it; what is wrong."""
    moment = dice.randrange(life.clock[0][0], len(life.events) + 1)
    in_order = dice.random() < 0.5
    first, second = root / "first", root / "second"
    restore_tree(tree_after_power_loss(life.events[:moment], dice, in_order=in_order), first)
    recording = TreeRecording(first)
    untouched = len(recording.events)
    losses: list[bytes] = []
    with recording.running():
        wrong = await judged(life, moment, first, losses=losses)
    if not wrong:
        again = dice.randrange(untouched, len(recording.events) + 1)
        restore_tree(tree_after_power_loss(recording.events[:again], dice, in_order=in_order), second)
        wrong = [f"after a second loss: {one}" for one in await judged(life, moment, second, losses=losses)]
        shutil.rmtree(second)
    shutil.rmtree(first)
    return [f"events {moment}, names in order {in_order}: {one}" for one in wrong]
