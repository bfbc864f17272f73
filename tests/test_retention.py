"""Segments go oldest first, when they are old enough, copied first where an archive is configured; readers finish."""

from pathlib import Path
from typing import NamedTuple

import pytest

from syncbrok.log import retention

DAY_S = 86_400.0
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
    assert retention.expired(segments, NOW_US, 7 * DAY_S) == tuple(segments[:gone])
    assert retention.expired([], NOW_US, 7 * DAY_S) == ()
    sealed = [one._replace(sealed=True) for one in segments]
    assert sealed[-1] not in retention.expired(sealed, NOW_US, 7 * DAY_S)


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


def test_an_archive_that_cannot_be_written_keeps_the_segment(tmp_path: Path) -> None:
    """An error while copying is the caller's to see; the segment is as it was and still may not go."""
    path = segment(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        retention.archive_segment(path, tmp_path / "file")
    assert path.exists()
    assert not retention.may_drop(path, tmp_path / "file")
