"""A Space whose machine loses its power: a life that is recorded, what it promised, and the judge of what is left."""

import base64
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from syncbrok.delivery.handler import Answer, Delivery
from syncbrok.log.segments import retention
from syncbrok.model import limits
from syncbrok.model.errors import Gone, SyncbrokError
from syncbrok.model.message import Message, ParentFailure, QueueSettings, RetryPolicy
from syncbrok.model.names import MessageId, QueueName, SubscriberId
from syncbrok.space.channels import Cancel, Publish, Replay, RotateSecret
from syncbrok.space.queries.finding import find_message
from syncbrok.space.state.secret_store import make_secret
from tests.support.power import Event
from tests.support.power_tree import TreeRecording, restore_tree, tree_after_power_loss
from tests.support.spaces import ACKNOWLEDGED, REFUSED, Clock, Consumer, Running, running_space

DAY_S = 86_400.0
QUEUE, A = QueueName("q"), SubscriberId("a")
_FILLER = b"." * 3_000
_SETTINGS = QueueSettings(parent_failure=ParentFailure.DELIVER, retry=RetryPolicy((), 0.0))
"""one attempt; a child goes however its parents ended"""


class Sent:
    """A message and when (number of events recorded) it was accepted, was asked to be cancelled or replayed, and had
    its end answered; None: never."""

    def __init__(self, id_: MessageId, sequence: int, message: Message, parents: Sequence["Sent"], at: int) -> None:
        self.id, self.sequence, self.message, self.parents, self.accepted = id_, sequence, message, parents, at
        self.cancelling: int | None = None
        self.ended: tuple[int, str] | None = None
        self.replaying: int | None = None


@dataclass
class Life:
    """What was recorded. ``answers`` are (events, content) of each answer of the consumer, ``secrets`` (asked,
    answered, key), ``clock`` (events, Unix microseconds) of each jump."""

    events: list[Event]
    sent: dict[bytes, Sent] = field(default_factory=dict)
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    secrets: list[tuple[int, int, bytes]] = field(default_factory=list)
    clock: list[tuple[int, int]] = field(default_factory=list)


def opened(root: Path, consumer: Consumer, clock: Clock):
    return running_space(
        root / "log", consumer, clock_us=clock, drain_s=0.0, segment_bytes=limits.segment_bytes_min,
        reserve_bytes=0, retention_s=DAY_S, archive=root / "cold" / "archive",
    )  # fmt: skip


def answer(delivery: Delivery) -> Answer | None:
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

    def _answer(self, delivery: Delivery) -> Answer | None:
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
        message = Message(content, parents=tuple(one.id for one in parents), idempotency_key=key)
        accepted = await running.put(Publish(QUEUE, (message,)))
        sent = Sent(accepted.ids[0], accepted.sequences[0], message, parents, self.now)
        self.life.sent[content] = sent
        return sent

    async def ended(self, running: Running, *several: Sent) -> None:
        await running.ended(*(one.id for one in several))
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
                await running.put(Replay(id=bad.id))
            else:
                waits.cancelling = at
                await running.put(Cancel(waits.id))
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
                await running.space._upkeep.drop_expired()
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

    def attempted(delivery: Delivery) -> Answer | None:
        content = delivery.message.content
        sent = life.sent.get(content)
        if sent is not None:
            wrong.extend(_judge_attempt(sent, moment, answered))
        given = answer(delivery)
        if given is not None:
            answered.add(content)
            losses.append(content)
        return given

    try:
        async with opened(root, Consumer(attempted), clock) as running:
            for sent in life.sent.values():
                if sent.accepted <= moment:
                    wrong += await _judge_message(running, sent, moment, answered, root, young)
            wrong += _judge_secret(running, life, moment)
            # Its retention, which begins with the start, is cut short by the drain in half of the states.
            for _ in range(random.Random(moment).choice((1, 16)) if life.secrets[0][1] <= moment else 0):
                await running.ended(await running.publish(QUEUE, b"good, after the loss"))
    except SyncbrokError as refused:
        wrong.append(f"the start is refused: {refused!r} {refused.detail}")
    return wrong


def _kept_end(sent: Sent, moment: int) -> bool:
    """Its end was answered, and nobody had asked for a replay."""
    replayed = sent.replaying is not None and sent.replaying <= moment
    return sent.ended is not None and sent.ended[0] <= moment and not replayed


def _judge_attempt(sent: Sent, moment: int, answered: set[bytes]) -> Iterator[str]:
    content = sent.message.content
    if _kept_end(sent, moment):
        yield f"attempted again after its end was answered: {content[:12]!r} {sent.ended}"
    for parent in sent.parents:
        cancelled = parent.cancelling is not None and parent.cancelling <= moment
        if parent.message.content not in answered and not cancelled:
            yield f"{content[:12]!r} went before {parent.message.content[:12]!r}"


async def _judge_message(
    running: Running, sent: Sent, moment: int, answered: set[bytes], root: Path, young: int
) -> list[str]:
    """``young``: what was accepted since (in events) has an idempotency key that retention has not forgotten."""
    content = sent.message.content
    what = f"{content[:12]!r} (sequence {sent.sequence})"
    try:
        found = find_message(running.space._journal, sent.id)
    except Gone:
        cancelled = sent.cancelling is not None and sent.cancelling <= moment
        if content not in answered and not cancelled:
            return [f"{what} is gone and had not ended"]
        return [] if _archived(root, content) else [f"{what} is gone and not in the archive"]
    except SyncbrokError as problem:
        return [f"{what} was accepted, and is lost: {problem!r}"]
    if found.content != content or found.parents != tuple(one.id for one in sent.parents):
        return [f"{what} is not what was accepted"]
    state = running.view.message_state(sent.sequence)
    if _kept_end(sent, moment) and sent.ended is not None and state != sent.ended[1]:
        return [f"{what} had ended as {sent.ended[1]} and is {state}"]
    if sent.message.idempotency_key and sent.accepted >= young:
        again = await running.put(Publish(QUEUE, (sent.message,)))
        if again.new != (False,) or again.ids != (sent.id,):
            return [f"{what}: its idempotency key is not known any more"]
    return []


def _archived(root: Path, content: bytes) -> bool:
    """In a copy that is what the marker file says of it."""
    noted = set(retention.copies(root / "log"))
    for copy in sorted((root / "cold" / "archive").glob("*.log")):
        if content in copy.read_bytes():
            size, crc = copy.stat().st_size, retention.file_crc(copy)
            return retention.Copy(copy.name, size, crc) in noted
    return False


def _judge_secret(running: Running, life: Life, moment: int) -> list[str]:
    """The newest that was answered, or one that was asked for later."""
    answered = max((number for number, one in enumerate(life.secrets) if one[1] <= moment), default=None)
    if answered is None:
        return []
    keys = running.space.signing_keys(running.space.consumed_by(QUEUE, A))
    allowed = [key for asked, _, key in life.secrets[answered:] if asked <= moment]
    return [] if keys and keys[0] in allowed else [f"rotation {answered} was answered, and another secret signs"]


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
