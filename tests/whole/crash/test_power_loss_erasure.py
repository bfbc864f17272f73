"""No power loss while erased messages are taken off the disk loses anything else, and none brings them back.

``tests/support/power/tree.py`` says what is modelled of a disk. Broken by hand to see it fail: the new segment not
fsynced before it takes the name; the tail that was cut off left where it is, or not gone for good before that is noted;
the round noted as over before its files are written.
"""

import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from syncbrok.log.offline.verify import Finding, verify
from syncbrok.model import limits
from syncbrok.model.errors import ContentErased
from syncbrok.model.names import MessageId
from syncbrok.space.channels import EraseMessage
from tests.support.power.directory import Event
from tests.support.power.tree import State, TreeRecording, restore_tree, tree_after_power_loss
from tests.support.space.spaces import ACKNOWLEDGED, REFUSED, Clock, Consumer, Running, running_space

STATES = 40
HALF_S = 43_300.0
SECRET, ANSWER = b"of-ann-alone", b"500-for-ann"
KEYED = {"idempotency_key": "once-of-ann", "key": "key-of-ann", "headers": (("X-Ann", "header-of-ann"),)}
WRITTEN = (SECRET, ANSWER, b"once-of-ann", b"key-of-ann", b"header-of-ann")


class Life(NamedTuple):
    """``begins``: the events before that are what stood there. ``erased``: by id, how many events stood there when it
    was asked, and when it was answered. ``kept``: contents of the others. ``before``, ``after``: the sealed segments
    before it, and after it."""

    events: list[Event]
    begins: int
    erased: dict[MessageId, tuple[int, int]]
    kept: dict[MessageId, bytes]
    before: dict[str, bytes]
    after: dict[str, bytes]


def opened(root: Path, clock: Clock):
    root.mkdir(exist_ok=True)
    consumer = Consumer(
        lambda it: REFUSED._replace(detail=ANSWER) if it.message.content.startswith(SECRET) else ACKNOWLEDGED
    )
    return running_space(
        root / "log", consumer, clock_us=clock, drain_s=0.0, segment_bytes=limits.segment_bytes_min, reserve_bytes=0
    )


def sealed(root: Path) -> dict[str, bytes]:
    paths = sorted((root / "log").glob("[0-9]*.log"))
    return {f"log/{path.name}": path.read_bytes() for path in paths[:-1]}


async def lived(running: Running) -> tuple[list[MessageId], dict[MessageId, bytes]]:
    """Messages in several segments; those to be erased, of which one has keys, and the others."""
    await running.queue("q", subscribers=["a"])
    hers, kept = [], {}
    for number in range(24):
        if number % 5 == 0:
            content, more = SECRET + b" %d" % number, KEYED if number == 5 else {}
            hers.append(await running.publish("q", content, **more))
        content = b"another %d " % number * 1_000
        kept[await running.publish("q", content)] = content
    await running.ended(*hers, *kept)
    return hers, kept


async def record(root: Path) -> Life:
    """A life, and the erasing in it, which alone is recorded: a checkpoint and a tail that was cut off have it too."""
    clock = Clock()
    async with opened(root, clock) as running:
        hers, kept = await lived(running)
        await running.space._maintenance.save()
    (root / "log" / "a.broken").write_bytes(SECRET)
    before = sealed(root)
    recording = TreeRecording(root)
    begins, erased = len(recording.events), {}
    with recording.running():
        async with opened(root, clock) as running:
            for one in hers:
                asked = len(recording.events)
                await running.put(EraseMessage(one, force=True))
                erased[one] = (asked, len(recording.events))
            clock.forward(HALF_S)
            assert await running.space._erasures.erase_due() == len(hers)
    after = sealed(root)
    assert sum(before[name] != after[name] for name in before) >= 2, "segments are written anew"
    return Life(recording.events, begins, erased, kept, before, after)


def torn(state: State, life: Life) -> list[str]:
    """Segments that are neither the old one nor the new one."""
    return [name for name in life.before if state.get(name) not in (life.before[name], life.after[name])]


def left(root: Path) -> list[tuple[str, bytes]]:
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return [(path.name, one) for path in files for one in WRITTEN if one in path.read_bytes()]


async def judged(life: Life, moment: int, root: Path) -> list[str]:
    """Open what is left, look, let the round run; what is wrong."""
    wrong = []
    clock = Clock(int(HALF_S * 2e6))
    async with opened(root, clock) as running:
        for id_, content in life.kept.items():
            if (await running.view.content(id_)).content != content:
                wrong.append(f"{content[:12]!r} is not what was accepted")
        for id_, (asked, answered) in life.erased.items():
            if answered <= moment:
                with pytest.raises(ContentErased):
                    await running.view.content(id_)
            elif asked < moment:
                continue  # under way: it may be either
        await running.space._erasures.erase_due()
        all_of_them = all(answered <= moment for _, answered in life.erased.values())
        if all_of_them and await running.publish("q", SECRET + b" 5", **KEYED) != [*life.erased][1]:
            wrong.append("its idempotency key is not known any more")
    if all_of_them and left(root):
        wrong.append(f"left: {left(root)}")
    return wrong + [str(met) for met in verify(root / "log") if isinstance(met, Finding)]


async def test_no_power_loss_while_erasing_loses_anything_else(tmp_path: Path, seed: int) -> None:
    """RULES 32: after a power loss at any moment of it, and another while that is mended, each segment is the old one
    or the new one, whole; what was erased is told to nobody; the round is ended, and then no file has it, neither a
    checkpoint nor a tail that was cut off; all else is as it was, and the log is whole."""
    dice = random.Random(seed)
    life = await record(tmp_path / "recorded")
    first, second = tmp_path / "first", tmp_path / "second"
    for number in range(STATES):
        moment = dice.randrange(life.begins, len(life.events) + 1)
        in_order = dice.random() < 0.5
        what = f"state {number}, events {moment}, names in order {in_order}"
        state = tree_after_power_loss(life.events[:moment], dice, in_order=in_order)
        assert not torn(state, life), what
        restore_tree(state, first)
        recording = TreeRecording(first)
        untouched = len(recording.events)
        with recording.running():
            assert not await judged(life, moment, first), what
        again = dice.randrange(untouched, len(recording.events) + 1)
        restore_tree(tree_after_power_loss(recording.events[:again], dice, in_order=in_order), second)
        assert not await judged(life, moment, second), f"{what}, after a second loss at {again}"
        shutil.rmtree(first)
        shutil.rmtree(second)
