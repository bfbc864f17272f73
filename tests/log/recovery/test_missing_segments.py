"""A segment that is gone together with the watermark is missed: the files beside it know better (DESIGN 4)."""

import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from syncbrok.log.format.codec import Decoded
from syncbrok.log.format.records import Gap
from syncbrok.log.index import sidecar
from syncbrok.log.offline.salvage import salvage
from syncbrok.log.offline.verify import Finding, verify
from syncbrok.log.recovery.recovery import recover
from syncbrok.log.segments import segment, watermark
from syncbrok.model.errors import LogCorrupt, LogFull
from tests.support.log.journals import everything, killed_before, open_journal, publish, roll


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Four segments, their sidecars, a checkpoint of the end and a watermark; closed in good order."""
    directory = tmp_path / "log"
    journal = open_journal(directory)
    for _ in range(3):
        publish(journal, 3)
        roll(journal)
    publish(journal, 2)
    journal.save_checkpoint(journal.durable_sequence, {"part": b"of the state"})
    journal.close()
    return directory


def lose(log: Path, *names: str) -> None:
    for name in names:
        for path in log.glob(name):
            path.unlink()


def segments(log: Path) -> list[str]:
    return [segment.segment_path(log, base).name for base in segment.segment_bases(log)]


def missed(log: Path, *texts: str) -> None:
    """The start refuses it, and verify says so; nothing is changed by either."""
    before = sorted((path.name, path.read_bytes()) for path in log.iterdir())
    with pytest.raises(LogCorrupt) as refused:
        recover(log)
    assert any(text in refused.value.detail for text in texts), refused.value.detail
    found = [one for one in verify(log) if isinstance(one, Finding) and not one.harmless]
    assert found
    assert sorted((path.name, path.read_bytes()) for path in log.iterdir()) == before


@pytest.mark.parametrize("beside", ["everything", "no checkpoint", "nothing"])
def test_the_first_segment_and_the_watermark(log: Path, beside: str) -> None:
    """A log that does not begin at its beginning has a watermark that says why; without one it is refused."""
    lose(log, watermark.NAME, segments(log)[0])
    if beside != "everything":
        lose(log, "checkpoint*")
    if beside == "nothing":
        lose(log, "*.idx")
    missed(log, "segments before this one may be missing")


@pytest.mark.parametrize("gone", [1, 2])
@pytest.mark.parametrize("beside", ["*.idx", "checkpoint*"])
def test_the_last_segments_and_the_watermark(log: Path, gone: int, beside: str) -> None:
    """A checkpoint says how far the log was durable, and a sidecar that there was a segment: each alone is enough."""
    lose(log, watermark.NAME, beside, *segments(log)[-gone:])
    missed(log, "segments after this one are missing", "a checkpoint, says that records stood here")


@pytest.mark.parametrize("gone", [1, 2, 3])
@pytest.mark.parametrize("beside", ["their own sidecars", "*.idx"])
def test_the_last_segments_and_all_that_tells_of_them(log: Path, gone: int, beside: str) -> None:
    """Watermark and checkpoints gone too: what is left ends with a seal, and there is a watermark before any seal."""
    names = segments(log)[-gone:]
    own = [name.replace(".log", ".idx") for name in names]
    lose(log, watermark.NAME, "checkpoint*", *names, *(own if beside == "their own sidecars" else [beside]))
    missed(log, "segments after this one may be missing")


def test_a_crash_anywhere_around_two_rolls(tmp_path: Path) -> None:
    """Killed before each system call while a log is begun and rolled twice: what is left starts, a sealed end too."""

    def work(directory: Path) -> None:
        journal = open_journal(directory, segment_bytes=4_096)
        for _ in range(2):
            publish(journal, 3)
            roll(journal)
        journal.close()

    call, killed, sealed = 0, True, set()
    while killed:
        call += 1
        left = tmp_path / str(call)
        killed = killed_before(call, lambda left=left: work(left))  # type: ignore[misc]
        found = recover(left)
        if found.header and found.active is None:
            sealed.add(found.header.base)
        assert all(finding.harmless for finding in verify(left) if isinstance(finding, Finding))
        shutil.rmtree(left)
    assert len(sealed) == 2, "both rolls were cut in two between the seal and the next segment"


def test_no_segment_is_sealed_before_there_is_a_watermark(tmp_path: Path) -> None:
    """Without room for it the first segment stays open, so that a start does not miss what never was."""
    log = tmp_path / "log"

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))  # a watermark has 4,608 bytes
        journal = open_journal(log, segment_bytes=2_048)
        publish(journal, 3)
        with pytest.raises(LogFull):
            roll(journal)
        publish(journal, 1)
        os.kill(os.getpid(), signal.SIGKILL)

    assert killed_before(0, work)
    assert not (log / watermark.NAME).exists()
    assert recover(log).active is not None
    journal = open_journal(log)
    roll(journal)
    journal.close()
    assert segment.read_seal(segment.segment_path(log, 1)) is not None
    assert watermark.read(log) is not None


@pytest.mark.parametrize("beside", ["*.idx", "checkpoint*"])
def test_all_segments_and_the_watermark(log: Path, beside: str) -> None:
    """A directory with a checkpoint or a sidecar and no segment is no empty log."""
    lose(log, watermark.NAME, "*.log", beside)
    with pytest.raises(LogCorrupt, match="but no segment"):
        recover(log)


def test_what_another_log_left_says_nothing(log: Path, tmp_path: Path) -> None:
    """Sidecars and checkpoints count for the log that they name, and a damaged one for none."""
    other = tmp_path / "other"
    journal = open_journal(other)
    publish(journal, 1)
    journal.close()
    shutil.copy(log / "checkpoint", other / "checkpoint")
    for path in log.glob("*.idx"):
        shutil.copy(path, other / path.name)
    assert len(everything(other)) == 2
    last = log / segments(log)[-1]
    lose(log, watermark.NAME)
    *_, end = segment.read_records(last, end=len(last.read_bytes().rstrip(b"\0")))
    assert isinstance(end.what, Decoded)
    cut = last.read_bytes()[: end.offset]
    last.write_bytes(cut)
    shutil.copy(last.with_suffix(".idx"), log / f"{int(last.stem) + 1:020d}.idx")
    missed(log, "says that records stood here")
    for path in (log / "checkpoint", *log.glob("*.idx")):
        damaged = bytearray(path.read_bytes())
        damaged[40] ^= 1
        path.write_bytes(damaged)
    assert recover(log).durable == end.what.fact.sequence - 1


def test_what_is_left_can_be_salvaged(log: Path, tmp_path: Path) -> None:
    """Refused is not lost: salvage makes a log of what is there, which names the rest."""
    lose(log, watermark.NAME, segments(log)[1])
    salvage(log, tmp_path / "new")
    facts = everything(tmp_path / "new")
    (gap,) = [fact for fact in facts if isinstance(fact, Gap)]
    assert gap.first <= 7, "the first message of the second segment"
    assert gap.last >= 9, "its last"
    lose(log, segments(log)[0])
    salvage(log, tmp_path / "newer")
    assert everything(tmp_path / "newer")


@pytest.mark.parametrize("beside", ["*.idx", "checkpoint*"])
def test_salvage_names_what_is_missing_at_the_end(log: Path, tmp_path: Path, beside: str) -> None:
    """What a checkpoint or a sidecar tells of is named without a watermark too: no sequence is given twice."""
    ended = sidecar.read_head(log / segments(log)[-1].replace(".log", ".idx"))
    assert ended is not None
    lose(log, watermark.NAME, beside, segments(log)[-1])
    report = salvage(log, tmp_path / "new")
    assert (report.last, report.lost[-1].last) == (ended[1], ended[1])
    assert recover(tmp_path / "new").durable == ended[1]


def test_a_backup_of_a_log_that_is_being_written(log: Path, tmp_path: Path) -> None:
    """docs/operations.md, backups: what says how far the log reaches is copied before the log, and so vouches for
    nothing that the copy misses; the other way round the copy is refused."""
    for order in (("watermark", "checkpoint*"), ("*.log", "*.idx")):
        copy = tmp_path / f"copy-{len(order[0])}"
        copy.mkdir()
        journal = open_journal(log)
        for pattern in order:
            for path in log.glob(pattern):
                shutil.copy(path, copy / path.name)
        publish(journal, 2)
        journal.save_checkpoint(journal.durable_sequence, {})
        journal.close()
        for path in log.iterdir():
            if not (copy / path.name).exists():
                shutil.copy(path, copy / path.name)
        if order[0] == "watermark":
            assert everything(copy) == everything(log)
        else:
            missed(copy, "says that records stood here")
