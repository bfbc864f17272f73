"""A real broker on a log that rots on the disk: in every kind of record and every part of it, in the segment's ends, in
sidecars and checkpoints; while it runs, and across starts with and without them (RULES 28).

What is judged, and by whom: ``tests/support/disk/rotting.py``, which imports nothing of the broker. ``make soak
ARGS="--what rot"`` does the same with new bits for as long as asked.

Broken by hand to see these fail: a message that cannot be read left out by retention; a key whose first is damaged
taken for new; neighbours walked to over a damaged header; a sidecar believed over its segment, against its checksums,
though it is another log's, or for ever once it was opened; the start that refuses every damage, or none.
"""

import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.broker.process import ROOT
from tests.support.disk import rot, rotting
from tests.support.disk.rotting import Hit, Judge, Story
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking

Copy = Callable[[], Path]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with Recorder() as subscriber:
        yield rotting.make_story(tmp_path_factory.mktemp("story"), subscriber)


@pytest.fixture(scope="module")
def carried(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return rotting.carried(story, tmp_path_factory.mktemp("carried"))


def copied(story: Story, directory: Path, turned: list[Hit], *gone: str) -> Path:
    """The story's log with these bits turned and these files gone."""
    storage = directory / "log"
    shutil.copytree(story.storage, storage)
    for hit in turned:
        hit.turn(storage)
    rotting.forget(storage, *gone)
    return storage


def some_messages(story: Story, seed: int) -> list[Hit]:
    """A bit in a header, a meta or a content of most messages of the story, and one in a segment's own header."""
    chance = random.Random(seed)
    told = {one.sequence for one in story.messages}
    hits: dict[int, list[Hit]] = {}
    for hit in rotting.hits(story.storage, chance):
        record = hit.record
        if record is not None and record.own in told:
            read = hits.setdefault(record.own, [])
            # Of one that was carried twice the newer record is read; its own, while that is there.
            if read and read[0].record is not None and record.sequence > read[0].record.sequence != record.own:
                read.clear()
            read.append(hit)
    chosen = [chance.choice(hits[own]) for own in sorted(hits) if chance.random() < 0.6]
    chosen.append(next(hit for hit in rotting.hits(story.storage, chance) if hit.record is None))
    print(*(hit.where for hit in chosen), sep="\n")
    return chosen


def judged(judge: Judge) -> None:
    assert not judge.wrong, "\n".join(judge.wrong[:20])


def test_messages_rot_beside_a_running_broker(story: Story, tmp_path: Path, seed: int) -> None:
    """RULES 28: while it runs and across a kill the same is answered, nobody's publish ends the broker, and what is
    lost ends as a dead letter with its children by policy."""
    turned = some_messages(story, seed)
    storage = copied(story, tmp_path, [])
    judge = Judge(story, turned)
    with story.broker(storage) as broker:
        for hit in turned:
            hit.turn(storage)
        judge.adopts(broker)
        judge.repeats(broker)
        answers = judge.answers(broker)
        broker.kill()
        broker.start()
        judge.named(broker, len(turned))
        if judge.answers(broker) != answers:
            judge.wrong.append("other answers after the start")
        judge.repeats(broker)
        judge.released(broker)
    judged(judge)


@pytest.mark.parametrize("gone", [("*.idx",), ("checkpoint*",), ("checkpoint*", "*.idx")])
def test_a_start_on_messages_that_have_rotted(story: Story, tmp_path: Path, seed: int, gone: tuple[str, ...]) -> None:
    """RULES 28: with and without checkpoint and sidecars the same is kept, released and answered."""
    turned = some_messages(story, seed)
    judge = Judge(story, turned)
    with story.broker(copied(story, tmp_path, turned, *gone)) as broker:
        judge.repeats(broker)
        judge.answers(broker)
        judge.adopts(broker)
        judge.released(broker)
        judge.named(broker, len(turned))
    judged(judge)


@pytest.mark.parametrize("gone", [(), ("checkpoint*", "*.idx")])
def test_retention_ends_what_it_cannot_carry(story: Story, tmp_path: Path, seed: int, gone: tuple[str, ...]) -> None:
    """RULES 28: a message that has not ended and cannot be read ends by a row before its segment goes."""
    turned = some_messages(story, seed)
    judge = Judge(story, turned, dropped=True)
    storage = copied(story, tmp_path, turned, *gone)
    open_ = {told.sequence for told in story.messages if told.open}
    with story.broker(storage, rotting.SHORT) as broker:
        eventually_blocking(lambda: not (storage / f"{1:020d}.log").exists(), "the first segment gone")
        assert _lost_rows(storage) == judge.lost & open_
        judge.released(broker)
    judged(judge)


def _lost_rows(storage: Path) -> set[int]:
    """The messages that a row ends as lost, in segments that are not dropped, also while this looks at them."""
    rows: set[int] = set()
    for path in rot.segments(storage):
        with suppress(FileNotFoundError):
            rows |= rot.lost_rows(path)
    return rows


@pytest.mark.parametrize("gone", [(), ("checkpoint*", "*.idx")])
def test_what_was_carried_along_rots(carried: Story, tmp_path: Path, seed: int, gone: tuple[str, ...]) -> None:
    """RULES 28: the record that carries a message is a message's too."""
    turned = some_messages(carried, seed)
    judge = Judge(carried, turned)
    with carried.broker(copied(carried, tmp_path, turned, *gone)) as broker:
        judge.answers(broker)
        judge.released(broker)
    judged(judge)


def others(story: Story, seed: int) -> list[Hit]:
    """A bit in one record of each kind without which nobody can tell how things stood."""
    chance = random.Random(seed)
    of_kind: dict[int, list[Hit]] = {}
    for hit in rotting.hits(story.storage, chance):
        if hit.record is not None and hit.record.kind not in rotting.SURVIVED:
            of_kind.setdefault(hit.record.kind, []).append(hit)
    assert of_kind.keys() >= {rot.OUTCOMES, rot.QUEUE_SET, rot.SUBSCRIBER_SET, rot.REARMED, rot.OPENED}
    return [chance.choice(hits) for hits in of_kind.values()]


@pytest.mark.parametrize("running", [False, True])
def test_what_is_no_message_needs_a_checkpoint(story: Story, tmp_path: Path, seed: int, running: bool) -> None:
    """RULES 28: with a checkpoint that covers them the broker runs on, says so, and keeps such a checkpoint: twice, so
    that one of the two may rot as well. It runs on when they rot beside it, and a seal and the watermark with them."""
    turned = others(story, seed)
    if running:
        turned.append(next(hit for hit in rotting.hits(story.storage, random.Random(seed)) if rotting.is_seal(hit)))
    judge = Judge(story, turned)
    storage = copied(story, tmp_path, [] if running else turned)
    with story.broker(storage) as broker:
        if running:
            for hit in turned:
                hit.turn(storage)
            rot.flip(storage / "watermark", 9)
            judge.repeats(broker)
            judge.answers(broker)
            judge.adopts(broker)
            broker.kill()
            broker.start()
        judge.named(broker, len(turned))
        judge.answers(broker)
        eventually_blocking(lambda: broker.output().count("syncbrok.space.checkpoint_saved") >= 2, "both made anew")
        broker.kill()
        rotting.forget(storage, "checkpoint")
        broker.start()
        judge.repeats(broker)
        judge.released(broker)
    judged(judge)


def test_without_one_the_start_is_refused(story: Story, tmp_path: Path, seed: int) -> None:
    """RULES 28: the error names file and offset. (Each kind alone: ``test_damage_of_anything_else_is_refused``.)"""
    for hit in random.Random(seed).sample(others(story, seed), 2):
        storage = copied(story, tmp_path / str(hit.record and hit.record.kind), [hit], "checkpoint*")
        broker = story.broker(storage)
        with pytest.raises(AssertionError, match=str(rotting.REFUSED)):
            broker.start()
        assert hit.record is not None
        assert f"{hit.path.name}, offset {hit.record.at}" in broker.output(), hit.where


def test_what_nobody_can_tell_is_given_up_by_salvage(story: Story, tmp_path: Path) -> None:
    """RULES 28: a header that is gone may have been anything, so a start without a checkpoint is refused and says what
    to do; salvage names the loss, and its log starts: who waited for the lost message goes out, and nothing else is
    lost."""
    lost = next(told for told in story.messages if told.open)
    storage = copied(story, tmp_path, [], "checkpoint*")
    record = next(one for path in rot.segments(storage) for one in rot.records(path) if one.own == lost.sequence)
    with record.path.open("r+b") as file:
        file.seek(record.at)
        file.write(bytes(rot.RECORD_HEADER_BYTES))
    broker = story.broker(storage)
    with pytest.raises(AssertionError, match=str(rotting.REFUSED)):
        broker.start()
    place = f"{record.path.name}, offset {record.at}, sequences {lost.sequence} to {lost.sequence}"
    assert place in broker.output()
    assert "syncbrok log salvage" in broker.output()
    saved = subprocess.run(
        [sys.executable, "-m", "syncbrok", "log", "salvage", "--storage", storage, "--out", tmp_path / "recovered"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert f"lost: sequences {lost.sequence} to {lost.sequence} ({record.path.name} at {record.at}" in saved.stdout
    with story.broker(tmp_path / "recovered") as broker:
        assert broker.request("GET", f"/v1/messages/{lost.id}").json()["type"].endswith("lost")
        assert broker.request("PATCH", "/v1/queues/held/subscribers/p", {"paused": False}).status == 200
        judge = Judge(story, [])
        judge.lost = {lost.sequence}
        others = [told for told in story.messages if told is not lost]
        standing = lambda: {broker.request("GET", f"/v1/messages/{one.id}").json()["state"] for one in others}  # noqa: E731
        eventually_blocking(lambda: standing() == {"complete"}, "all that is left is complete")
        judge.finds(broker)
        judge.answers(broker)
    judged(judge)


@pytest.mark.parametrize("checkpoints", ["whole", "rotten"])
@pytest.mark.parametrize("part", ["directory", "arrays", "all, and it fits another log"])
def test_checkpoints_and_sidecars_rot(story: Story, tmp_path: Path, seed: int, part: str, checkpoints: str) -> None:
    """RULES 28: whatever stands in the sidecars, at the start and after, is no reason to answer, keep or release
    anything else; nor is what has rotted in a checkpoint."""
    storage = copied(story, tmp_path, [])
    judge = Judge(story, [])
    chance = random.Random(seed)
    bits = chance.sample(range(8), 2)
    _spoil_sidecars(storage, part, bits[0])
    for path in storage.glob("checkpoint*") if checkpoints == "rotten" else ():
        rot.flip(path, chance.randrange(path.stat().st_size), chance.randrange(8))
    with story.broker(storage) as broker:
        for bit in (None, bits[1]):
            if bit is not None:
                _spoil_sidecars(storage, part, bit)
            judge.finds(broker)
            judge.answers(broker)
            judge.repeats(broker)
        judge.adopts(broker)
        judge.released(broker)
    judged(judge)


def _spoil_sidecars(storage: Path, part: str, bit: int) -> None:
    sidecars = list(storage.glob("*.idx"))
    assert sidecars
    for path in sidecars:
        if part in rot.sidecar_parts(path):
            rot.turn_every_word(path, *rot.sidecar_parts(path)[part], bit)
        else:
            rot.make_anothers(path)
