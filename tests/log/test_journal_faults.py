"""A full disk is refused and given back, a bad one is never trusted again, and a kill at any moment loses nothing.

Broken by hand to see these fail: ``cut_back`` without ``ftruncate``; ``LogFailed`` forgotten after it was raised once;
the reserve never released; the segment renamed before it was written; the seal left out.
"""

import itertools
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from syncbrok.log.format import codec
from syncbrok.log.segments.retention import archive_segment
from syncbrok.model.errors import LogFull
from syncbrok.model.facts import Outcomes, StoredMessage
from syncbrok.model.limits import KIB
from tests.support.log.journals import (
    ended,
    everything,
    fork,
    killed_before,
    open_journal,
    publish,
    records,
    roll,
)


def test_killed_before_any_system_call_of_a_roll(memory_path: Path) -> None:
    """Whenever a broker is killed while it writes and rolls, the next start has everything that was
    acknowledged, whole units, and nothing else."""
    call, killed = 0, True
    while killed:
        call += 1
        directory = memory_path / f"killed-{call}"
        acknowledged = memory_path / f"acknowledged-{call}"

        def work(directory: Path = directory, acknowledged: Path = acknowledged) -> None:
            journal = open_journal(directory)
            with acknowledged.open("w", buffering=1) as said:
                for _ in range(2):
                    publish(journal, 3, unit_ends={2})
                    said.write(f"{journal.durable_sequence}\n")
                    roll(journal)
                    publish(journal, 1)
                    said.write(f"{journal.durable_sequence}\n")
            journal.close()

        killed = killed_before(call, work)
        said = acknowledged.read_text().split() if acknowledged.exists() else []
        journal = open_journal(directory)
        facts = records(journal)
        assert [fact.sequence for fact in facts] == list(range(1, len(facts) + 1))
        assert len(facts) >= max(map(int, said), default=1), f"killed before call {call}: acknowledged ones are gone"
        assert sum(isinstance(fact, StoredMessage) for fact in facts) in (0, 3, 4, 7, 8)
        publish(journal)
        journal.close()
        shutil.rmtree(directory)
    assert call > 30


# -- no room -----------------------------------------------------------------------------------------------------------


def in_a_child(work: Callable[[], None]) -> None:
    """Do ``work`` in a forked process; its failure is this test's."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        try:
            work()
        except BaseException as problem:  # noqa: BLE001
            os.write(writing, repr(problem).encode()[:4_000])
            os._exit(1)
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        assert status == 0, pipe.read().decode()


def test_a_full_disk_refuses_and_gives_back(tmp_path: Path) -> None:
    """DESIGN section 4: what does not fit is cut back to the last good byte and its sequences are free again; the log
    stays usable, and nothing of what was refused comes back."""

    def work() -> None:
        journal = open_journal(tmp_path, segment_bytes=64 * KIB)
        kept = publish(journal, 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (80 * KIB, resource.RLIM_INFINITY))
        end = journal.sections()[-1].bytes
        with pytest.raises(LogFull):
            publish(journal, 1, content=bytes(100 * KIB))  # a real short write: part of it fits
        assert (journal.next_sequence, journal.sections()[-1].bytes) == (4, end)
        assert journal.sections()[-1].path.stat().st_size == end
        assert journal.has_room()
        kept += publish(journal, 1)
        with pytest.raises(LogFull):
            publish(journal, 1, content=bytes(100 * KIB))
        kept += publish(journal, 1)
        assert journal.read_many([2, 3, 4, 5]) == kept
        os._exit(0)

    in_a_child(work)
    assert [fact.sequence for fact in everything(tmp_path)] == [1, 2, 3, 4, 5]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system can be mounted by root only")
    yield directory
    subprocess.run(["umount", "-l", directory], check=True)


def until_full(work: Callable[[], object]) -> int:
    """How often ``work`` could be done before there was no room."""
    for times in itertools.count():
        try:
            work()
        except LogFull:
            return times
    raise AssertionError


def test_outcomes_are_still_written_when_the_disk_is_full(small_disk: Path) -> None:
    """DESIGN section 4: the reserve is for outcomes; messages are refused until there is room, and then accepted."""
    journal = open_journal(small_disk, segment_bytes=128 * KIB, reserve_bytes=64 * KIB)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(600 * KIB))

    def publish_five() -> None:
        if journal.wants_snapshot:
            roll(journal)
        publish(journal, 5, content=bytes(4_000))

    accepted = 5 * until_full(publish_five)
    assert accepted > 0
    assert not journal.has_room()
    with pytest.raises(LogFull):
        publish(journal)
    rows = 50 * until_full(lambda: ended(journal, range(2, 52), essential=True))
    assert rows * codec.ROW_BYTES > 32 * KIB
    assert not journal.has_room()
    filler.unlink()
    assert journal.has_room()
    if journal.wants_snapshot:
        roll(journal)
    publish(journal)
    facts = records(journal)
    journal.close()
    assert everything(small_disk) == facts
    assert sum(isinstance(fact, StoredMessage) for fact in facts) == accepted + 1
    assert sum(len(fact.rows) for fact in facts if isinstance(fact, Outcomes)) == rows


def test_a_roll_without_room_leaves_the_segment_as_it_was(small_disk: Path) -> None:
    """Where no next segment fits, the full one stays open for outcomes."""
    journal = open_journal(small_disk, segment_bytes=64 * KIB, reserve_bytes=16 * KIB)
    journal.close()
    journal = open_journal(small_disk, segment_bytes=64 * KIB, reserve_bytes=16 * KIB)
    publish(journal, 1, content=bytes(64 * KIB))
    assert journal.wants_snapshot
    (small_disk / "filler").write_bytes(b"")
    with (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            try:
                if filler.write(bytes(4 * KIB)) < 4 * KIB:
                    break
            except OSError:
                break
    with pytest.raises(LogFull):
        roll(journal)
    assert not journal.has_room()
    ended(journal, [2], essential=True)
    assert journal.wants_snapshot
    (small_disk / "filler").unlink()
    assert journal.has_room()
    roll(journal)
    assert [info.sealed for info in journal.sections()] == [True, False]
    journal.close()


def test_what_found_no_room_takes_none(small_disk: Path) -> None:
    """RULES 27: a checkpoint, or a copy in the archive, for which there is no room does not fill the disk for
    publishes; nor does what a killed process has left of a checkpoint and of a sidecar."""
    journal = open_journal(small_disk, segment_bytes=64 * KIB)
    publish(journal)
    with pytest.raises(OSError, match="No space"):
        journal.save_checkpoint(journal.durable_sequence, {"part": bytes(64 * 1024 * KIB)})
    assert not list(small_disk.glob("checkpoint*"))
    publish(journal, content=bytes(100 * KIB))
    disk = os.statvfs(small_disk)
    (small_disk / "filler").write_bytes(bytes(disk.f_bavail * disk.f_frsize - 40 * KIB))
    with pytest.raises(OSError, match="No space"):
        archive_segment(journal.sections()[0].path, small_disk / "archive")
    assert not list((small_disk / "archive").iterdir())
    (small_disk / "filler").unlink()
    publish(journal)
    journal.close()
    left = [small_disk / "checkpoint.tmp", small_disk / f"{1:020d}.idx.tmp"]
    for path in left:
        path.write_bytes(b"half")
    open_journal(small_disk, segment_bytes=64 * KIB).close()
    assert not any(path.exists() for path in left)


# -- a bad disk --------------------------------------------------------------------------------------------------------


WRITER = """
import sys
from pathlib import Path
from syncbrok.model.errors import LogFailed
from tests.support.log.journals import open_journal, publish, roll

journal = open_journal(Path(sys.argv[1]), sync=sys.argv[2])
try:
    for _ in range(6):
        publish(journal, 2)
        journal.sync()
        print(journal.durable_sequence, flush=True)
    roll(journal)
except LogFailed:
    for attempt in (publish, roll, lambda journal: journal.sync()):
        try:
            attempt(journal)
        except LogFailed:
            print("refused", flush=True)
    journal.close()
"""


@pytest.mark.parametrize(
    ("sync", "call", "injected"),
    [
        ("always", "pwrite64", "error=EIO:when=6"),
        ("interval", "fdatasync", "error=EIO:when=5"),
        ("interval", "fdatasync", "error=ENOSPC:when=4+"),
        ("always", "rename", "error=EIO:when=3+"),
    ],
)
def test_an_error_of_the_disk_is_final(tmp_path: Path, sync: str, call: str, injected: str) -> None:
    """DESIGN section 4: after a failed write or fsync nothing more is acknowledged, ever, though the next one would
    seem to go well; what was acknowledged before is there after the restart."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    log = tmp_path / "log"
    injection = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{injected}"]
    ran = subprocess.run(
        [*injection, sys.executable, "-c", textwrap.dedent(WRITER), log, sync],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert ran.returncode == 0, ran.stderr
    said = ran.stdout.split()
    assert said[-3:] == ["refused"] * 3
    acknowledged = max(map(int, said[:-3]), default=0)
    facts = everything(log)
    assert acknowledged <= len(facts)
    assert [fact.sequence for fact in facts] == list(range(1, len(facts) + 1))
