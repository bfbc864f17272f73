"""Segments go oldest first, when they are old enough, copied first where an archive is configured; readers finish."""

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from syncbrok.log.segments import retention
from syncbrok.log.segments.options import PIPELINE
from syncbrok.log.segments.segment import SegmentInfo
from syncbrok.model.facts import Carried, Reason
from syncbrok.model.message import Message
from syncbrok.model.names import MessageId, QueueName, SubscriberId, sequence_of
from syncbrok.space.channels import ChangeSubscriber, Replay
from tests.support.delivery.factlog import dead_letters
from tests.support.disk.bad_sector import unreadable
from tests.support.log.journals import open_journal, publish, roll
from tests.support.polling import eventually
from tests.support.power.tree import TreeRecording, tree_after_power_loss
from tests.support.space.spaces import REFUSED, Clock, Consumer, Running, forget_checkpoints, running_space

SMALL = 65_536
DAY_S = 86_400.0
QUEUE, A = QueueName("q"), SubscriberId("a")
NOW_US = 1_800_000_000_000_000


class Aged(NamedTuple):
    base: int
    last_time_us: int
    sealed: bool = True


def aged(*days: float) -> list[Aged]:
    """Segments whose newest records are so many days old; the last one is active."""
    made = [Aged(number * 100, NOW_US - int(day * DAY_S * 1e6)) for number, day in enumerate(days)]
    return [*made[:-1], made[-1]._replace(sealed=False)]


@pytest.mark.parametrize(
    ("days", "gone"),
    [
        ([10, 9, 8, 1, 0], 3),
        ([10, 9, 8], 2),
        ([10], 0),
        ([1, 10, 0], 0),
        ([10, 1, 9, 0], 1),
        ([7, 0], 0),
    ],
)
def test_a_prefix_that_is_old_enough(days: list[float], gone: int) -> None:
    """DESIGN 4: only a prefix of the log goes, by the age of each segment's newest record, never the active one."""
    segments = aged(*days)
    assert retention.expired(segments, NOW_US - 7 * int(DAY_S * 1e6)) == tuple(segments[:gone])
    assert retention.expired([], NOW_US - 7 * int(DAY_S * 1e6)) == ()
    sealed = [one._replace(sealed=True) for one in segments]
    assert sealed[-1] not in retention.expired(sealed, NOW_US - 7 * int(DAY_S * 1e6))


def segment(directory: Path, base: int = 1, content: bytes = b"log" * 700_000) -> Path:
    path = directory / f"{base:020d}.log"
    path.write_bytes(content)
    path.with_suffix(".idx").write_bytes(b"idx")
    return path


def test_dropped_now_unlinked_later(tmp_path: Path) -> None:
    """A dropped segment is no longer a log by name at once; its bytes go after the grace period, so readers finish."""
    path, kept = segment(tmp_path), segment(tmp_path, 2)
    with path.open("rb") as reader:
        retention.drop(path, NOW_US)
        assert sorted(one.name for one in tmp_path.glob("*.log")) == [kept.name]
        assert not path.with_suffix(".idx").exists()
        assert retention.sweep(tmp_path, NOW_US + 59_000_000, 60) == []
        assert reader.read(3) == b"log"
        swept = retention.sweep(tmp_path, NOW_US + 60_000_000, 60)
    assert swept == [f"{path.stem}.idx.dropped", f"{path.name}.dropped"]
    assert sorted(one.name for one in tmp_path.iterdir()) == [f"{kept.stem}.idx", kept.name]


def test_a_sweep_takes_what_a_crash_left(tmp_path: Path) -> None:
    """A crash between the two renames leaves a sidecar without its segment; it goes, and nothing else does."""
    path, kept = segment(tmp_path), segment(tmp_path, 2)
    path.rename(path.with_name(path.name + ".dropped"))
    (tmp_path / "watermark").write_bytes(b"")
    assert f"{path.stem}.idx" in retention.sweep(tmp_path, NOW_US * 2)
    assert sorted(one.name for one in tmp_path.iterdir()) == [f"{kept.stem}.idx", kept.name, "watermark"]


def test_only_what_was_copied_may_go(tmp_path: Path) -> None:
    """With an archive configured a segment stays until its copy there is whole and noted; without one it may go."""
    log, archive = tmp_path / "log", tmp_path / "archive"
    log.mkdir()
    path = segment(log)
    assert retention.may_drop(path, None)
    assert not retention.may_drop(path, archive)
    copied = retention.archive_segment(path, archive)
    assert retention.may_drop(path, archive)
    assert (archive / path.name).read_bytes() == path.read_bytes()
    assert (log / "archived").read_text() == f"{path.name} {path.stat().st_size} {copied.crc:08x}\n"
    assert list(archive.iterdir()) == [archive / path.name]
    (archive / path.name).write_bytes(b"less")
    assert not retention.may_drop(path, archive)
    (archive / path.name).unlink()
    assert not retention.may_drop(path, archive)


def test_a_copy_nobody_noted_does_not_count(tmp_path: Path) -> None:
    """A crash between the copy and its line in the marker file: it is copied again. Odd lines are passed over."""
    log, archive = tmp_path / "log", tmp_path / "archive"
    log.mkdir()
    path = segment(log, content=b"abc")
    retention.archive_segment(path, archive)
    (log / "archived").write_text("half a li\nname x 00\nname 3 zz\n")
    assert not retention.may_drop(path, archive)
    retention.archive_segment(path, archive)
    assert [copy.name for copy in retention.copies(log)] == [path.name]
    assert retention.may_drop(path, archive)


def test_an_error_says_which_side_it_was_on(tmp_path: Path) -> None:
    """A page of a segment that cannot be read costs its bytes in the copy and no more (RULES 28) once it is known to be
    damaged, and is no page that the pipeline has archived. Where the copy cannot be written the segment stays, and the
    error names the copy."""
    log, archive = tmp_path / "log", tmp_path / "archive"
    log.mkdir()
    path = segment(log)
    whole = path.read_bytes()
    with unreadable(path, 0):
        with pytest.raises(OSError, match=path.name):
            retention.archive_segment(path, archive)
        retention.archive_segment(path, archive, damaged=True)
        assert retention.may_drop(path, archive)
        assert not retention.may_drop(path, PIPELINE)
    assert (archive / path.name).read_bytes() == bytes(4_096) + whole[4_096:]
    (archive / f"{path.name}.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match=f"{path.name}.tmp"):
        retention.archive_segment(path, archive)


def test_no_power_loss_takes_a_directory_above_the_archive(tmp_path: Path) -> None:
    """Once a segment may go, its copy outlives a power loss, and so do all directories above it: those that were made
    for it, and those that a run before had made when it was killed, or when their fsync failed."""
    path, disk = segment(tmp_path, content=b"abc"), TreeRecording(tmp_path / "disk")
    with disk.running():
        (disk.root / "made/before").mkdir(parents=True)
        retention.archive_segment(path, disk.root / "made/before/x/archive")
    for seed in range(40):
        left = tree_after_power_loss(disk.events, random.Random(seed), in_order=seed % 2 == 0)
        assert left.get(f"made/before/x/archive/{path.name}") == b"abc", seed


def test_an_archive_that_cannot_be_written_keeps_the_segment(tmp_path: Path) -> None:
    """An error while copying is the caller's to see; the segment is as it was and still may not go."""
    path = segment(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        retention.archive_segment(path, tmp_path / "file")
    assert path.exists()
    assert not retention.may_drop(path, tmp_path / "file")


def test_only_what_the_pipeline_has_archived_may_go(tmp_path: Path) -> None:
    """With ``archive: pipeline`` a segment stays until the pipeline has noted these very bytes; a copy that the broker
    made is not that, and another log's note of the same name and size neither."""
    path = segment(tmp_path)
    assert not retention.may_drop(path, PIPELINE)
    retention.archive_segment(path, tmp_path / "copies")
    assert not retention.may_drop(path, PIPELINE)
    size = path.stat().st_size
    retention.note(tmp_path, [retention.Copy(path.name, size, 0x1234, "file:/archive")])
    assert not retention.may_drop(path, PIPELINE)
    archived = retention.Copy(path.name, size, retention.file_crc(path), "hdfs://name/a folder/é")
    retention.note(tmp_path, [archived])
    assert retention.may_drop(path, PIPELINE)
    assert archived in retention.copies(tmp_path)
    path.write_bytes(b"gol" * 700_000)
    assert not retention.may_drop(path, PIPELINE)


def test_the_pipelines_note_is_no_copy(tmp_path: Path) -> None:
    """Back from ``archive: pipeline`` to a directory: a file of that size which nobody noted as a copy is not trusted.
    A program that knows lines of three words only passes over the pipeline's."""
    path = segment(tmp_path)
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies" / path.name).write_bytes(path.read_bytes())
    retention.note(tmp_path, [retention.Copy(path.name, path.stat().st_size, retention.file_crc(path), "file:/a b")])
    assert not retention.may_drop(path, tmp_path / "copies")
    assert [len(line.split(" ")) for line in (tmp_path / "archived").read_text().splitlines()] == [5]


def test_half_a_line_spoils_no_other(tmp_path: Path) -> None:
    """A crash in the middle of noting leaves half a line; the next note begins on a line of its own."""
    (tmp_path / "archived").write_text("00000000000000000001.log 12")
    noted = retention.Copy("00000000000000000009.log", 34, 0x5678)
    retention.note(tmp_path, [noted])
    assert list(retention.copies(tmp_path)) == [noted]


def test_a_journal_refuses_to_drop_what_is_not_archived(tmp_path: Path) -> None:
    """The last look is the journal's own: whoever asks it to drop a segment that the pipeline has not noted is refused,
    and the log is whole."""
    journal = open_journal(tmp_path, archive=PIPELINE)
    publish(journal)
    roll(journal)
    info = journal.sections()[0]
    assert journal.held_back(info)
    with pytest.raises(retention.NotArchived, match="00000000000000000001"):
        journal.trim_oldest()
    assert info.path.exists()
    crc = retention.file_crc(info.path)
    retention.note(tmp_path, [retention.Copy(info.path.name, info.bytes, crc, "file:/a")])
    journal.trim_oldest()
    assert not info.path.exists()
    assert journal.sections()[0].base == info.last + 1
    journal.close()


async def test_retention_waits_for_the_pipeline(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Segments older than the retention stay until they are archived, in order; it is said once, and meanwhile
    nothing is carried along, or the log would grow every minute. Then they go, and what waits is carried once."""
    clock = Clock()
    consumer = Consumer(lambda delivery: None)
    async with running_space(
        tmp_path, consumer, clock_us=clock, segment_bytes=SMALL, retention_s=DAY_S, archive=PIPELINE
    ) as running:
        await running.queue("q", subscribers=["a"])
        for _ in range(3):
            await running.publish_all("q", *[Message(b"x" * 1_000)] * 40)
        journal, maintenance = running.space._journal, running.space._maintenance
        clock.forward(2 * DAY_S)
        before = journal.sections()
        with caplog.at_level("INFO"):
            assert [await maintenance.drop_expired() for _ in range(3)] == [0, 0, 0]
        assert [one.base for one in journal.sections()][: len(before)] == [one.base for one in before]
        assert journal.next_sequence < before[-1].last + 10, "nothing was carried"
        said = [one for one in caplog.records if one.message == "syncbrok.space.retention_waits_for_archive"]
        assert [vars(one)["first"] for one in said] == [1]
        sealed = [one for one in before if one.sealed]
        archive(tmp_path, *sealed[1:])
        assert await maintenance.drop_expired() == 0, "only a prefix goes"
        archive(tmp_path, sealed[0])
        assert await maintenance.drop_expired() >= len(sealed)
        carried = [fact for fact in journal.facts() if isinstance(fact, Carried)]
        assert len(carried) == len({fact.message.sequence for fact in carried}) > 0
        consumer.release()


@pytest.mark.parametrize("carried", [False, True])
async def test_what_is_delivered_again_is_read_where_it_stands(
    tmp_path: Path, carried: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """RULES 21: a message that has ended is not carried along, so the segment that a replay reads it from waits for the
    replay, its own or that of the newest record that carries it; through a start without a checkpoint, too."""
    clock, consumer, options = Clock(), Consumer(lambda _: REFUSED), {"segment_bytes": SMALL, "retention_s": DAY_S}
    async with running_space(tmp_path, consumer, clock_us=clock, **options) as running:
        dead = await dead_letter(running, clock, carried=carried)
        await running.put(ChangeSubscriber(QUEUE, A, {"paused": True}))
        await running.put(Replay(id=dead))
        clock.forward(1.1 * DAY_S)
        with caplog.at_level("INFO"):
            dropped = await running.space._maintenance.drop_expired()
            assert (dropped > 0) is carried, "what stands before the carried one goes"
            assert [await running.space._maintenance.drop_expired() for _ in range(2)] == [0, 0]
        said = [one for one in caplog.records if one.message == "syncbrok.space.retention_waits_for_replay"]
        assert [vars(one)["first"] for one in said] == [running.space._journal.sections()[0].base]
    forget_checkpoints(tmp_path)
    consumer = Consumer()
    async with running_space(tmp_path, consumer, clock_us=clock, **options) as running:
        assert await running.space._maintenance.drop_expired() == 0
        await running.put(ChangeSubscriber(QUEUE, A, {"paused": False}))
        await running.ended(dead)
        assert b"again" in consumer.contents
        assert await running.states(dead) == ["complete"]
        assert await running.space._maintenance.drop_expired() > 0


async def test_a_replay_does_not_hold_the_log_for_ever(tmp_path: Path) -> None:
    """After as long again as the retention the segment goes, and the replay ends in a dead letter that says why: else a
    subscriber that stays paused would make the log grow without an end."""
    clock, consumer = Clock(), Consumer(lambda _: REFUSED)
    async with running_space(tmp_path, consumer, clock_us=clock, segment_bytes=SMALL, retention_s=DAY_S) as running:
        dead = await dead_letter(running, clock, carried=False)
        await running.put(ChangeSubscriber(QUEUE, A, {"paused": True}))
        await running.put(Replay(id=dead))
        clock.forward(2.1 * DAY_S)
        assert await running.space._maintenance.drop_expired() > 0
    consumer = Consumer()
    async with running_space(tmp_path, consumer, clock_us=clock, segment_bytes=SMALL, retention_s=DAY_S) as running:
        await running.put(ChangeSubscriber(QUEUE, A, {"paused": False}))
        scheduler = running.space._state.scheduler
        await eventually(lambda: not scheduler.replaying(None), "the replay has ended")
        assert dead_letters(scheduler, 1)[sequence_of(dead)] is Reason.CONTENT_LOST
        assert b"again" not in {content for content, _ in consumer.seen}


async def dead_letter(running: Running, clock: Clock, *, carried: bool) -> MessageId:
    """A message that ended badly in an old segment, where it was accepted or (``carried``) where it was carried to."""
    await running.queue(QUEUE, subscribers=[A])
    consumer, journal = running.consumer, running.space._journal
    if carried:
        consumer.answer = lambda _: None
    dead = await running.publish(QUEUE, b"again")
    await fill(running)
    if carried:
        clock.forward(1.1 * DAY_S)
        assert await running.space._maintenance.drop_expired() > 0
        assert journal.sections()[0].base > sequence_of(dead)
        consumer.answer = lambda _: REFUSED
        consumer.release(REFUSED)
        await fill(running)
    await running.ended(dead)
    return dead


async def fill(running: Running) -> None:
    """Three segments and more."""
    for _ in range(3):
        await running.publish_all(QUEUE, *[Message(b"x" * 1_000)] * 80)


def archive(directory: Path, *segments: SegmentInfo) -> None:
    """Note them as the pipeline does."""
    retention.note(
        directory,
        [retention.Copy(one.path.name, one.bytes, retention.file_crc(one.path), "file:/a") for one in segments],
    )
