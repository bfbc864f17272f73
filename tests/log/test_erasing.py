"""Erased messages leave the files: segments, sidecars, tails that were cut off; whatever is killed in the middle."""

import resource
import shutil
from functools import partial
from pathlib import Path

import pytest

from syncbrok.log.format.records import facts_of
from syncbrok.log.journal import FileJournal
from syncbrok.log.offline.verify import Finding, verify
from syncbrok.log.segments import retention
from syncbrok.log.segments.options import PIPELINE
from syncbrok.log.segments.retention import Copy
from syncbrok.model.errors import LogFull
from syncbrok.model.facts import Carried, Outcome, Outcomes, Reason, Row, StoredMessage
from tests.support.disk.rot import flip
from tests.support.log.journals import START_US, killed_before, open_journal, opened, publish, records, roll

SECRET = b"of-ann-alone-"
FIELDS = {"content": SECRET * 9, "key": "key-of-ann", "idempotency_key": "once-of-ann", "fingerprint": b"f" * 16}
WRITTEN = (SECRET, b"key-of-ann", b"once-of-ann", b"answer-to-ann")


def told(directory: Path, **options: object) -> tuple[FileJournal, list[StoredMessage], list[StoredMessage]]:
    """A log in which some messages of Ann and of others stand in three segments, one of hers carried, with answers."""
    journal = open_journal(directory, **options)
    hers: list[StoredMessage] = []
    others: list[StoredMessage] = []
    for _ in range(2):
        hers += publish(journal, 3, **FIELDS)
        others += publish(journal, 40)
        row = Row(hers[-1].sequence, 1, 1, Outcome.DEAD, Reason.STATUS, 500, START_US, 0, 0, 1, b"answer-to-ann")
        rows = (row._replace(message=others[-1].sequence, detail=b"another"), row)
        journal.append(journal.prepare([Outcomes(journal.next_sequence, START_US, rows)]))
        roll(journal)
    carried = Carried(journal.next_sequence, START_US, hers[0], (), ())
    journal.append(journal.prepare([carried]))
    roll(journal)
    return journal, hers, others


def left(directory: Path) -> list[tuple[str, bytes]]:
    """What of Ann's stands in any file of the log, whatever it is called."""
    return [(path.name, one) for path in sorted(directory.iterdir()) for one in WRITTEN if one in path.read_bytes()]


def check(directory: Path) -> list[Finding]:
    return [met for met in verify(directory) if isinstance(met, Finding)]


def test_nothing_is_left_in_any_file(tmp_path: Path) -> None:
    """RULES 32: content, keys and answers are in no file of the log: not in the message's own segment, not where it was
    carried to, not in the outcomes, the sidecars or a tail that was cut off. ``log verify`` finds nothing wrong, and
    everything else is told as before."""
    journal, hers, others = told(tmp_path)
    journal.close()
    journal = open_journal(tmp_path)
    (tmp_path / f"{1:020d}.log.99.broken").write_bytes(SECRET)
    before = [fact.sequence for fact in records(journal)]
    assert {name.rpartition(".")[2] for name, _ in left(tmp_path)} == {"log", "broken"}
    gone = [one.sequence for one in hers]
    assert journal.erase(gone) == 3
    assert left(tmp_path) == []
    assert journal.read_many([one.sequence for one in others]) == others
    assert all(one is not None and one.erased for one in journal.read_many(gone))
    assert [fact.sequence for fact in records(journal)] == before
    journal.close()
    assert check(tmp_path) == []
    again = open_journal(tmp_path)
    assert again.recovery.clean
    assert again.read_many([one.sequence for one in others]) == others
    assert [one.sequence for one in facts_of(records(again))]
    again.close()


def test_killed_anywhere_it_is_done_once_more(memory_path: Path) -> None:
    """RULES 32: killed before any of its calls the log opens whole, every segment is the old one or the new one, and
    erasing again leaves nothing."""
    made = memory_path / "made"
    journal, hers, others = told(made)
    journal.close()
    gone = [one.sequence for one in hers]

    def erase(directory: Path) -> None:
        opened(FileJournal, directory).erase(gone)

    call, killed = 0, True
    while killed:
        call += 1
        directory = memory_path / str(call)
        shutil.copytree(made, directory)
        killed = killed_before(call, partial(erase, directory))
        journal = opened(FileJournal, directory)
        assert dict(journal.damages) == {}
        assert journal.read_many([one.sequence for one in others]) == others
        for one, was in zip(journal.read_many(gone), hers, strict=True):
            assert one is not None
            assert one.erased or one == was
        journal.erase(gone)
        journal.close()
        assert left(directory) == []
        assert check(directory) == []
        shutil.rmtree(directory)
    assert call > 20


def test_damage_beside_what_is_erased_stays_damage(tmp_path: Path) -> None:
    """RULES 28 and 29: a segment is written anew with the damage that it has: the seal does not vouch for it."""
    journal, hers, others = told(tmp_path)
    journal.close()
    path = tmp_path / f"{1:020d}.log"
    flip(path, path.read_bytes().index(others[7].content))
    journal = open_journal(tmp_path)
    journal.erase([one.sequence for one in hers])
    assert left(tmp_path) == []
    journal.check(journal.sections()[0])
    assert [(one.first, one.last) for one in journal.damages[1]] == [(others[7].sequence, others[7].sequence)]
    assert journal.kind_of(others[7].sequence) == "lost"
    journal.close()


def test_without_room_the_segments_stay_as_they_were(tmp_path: Path) -> None:
    """RULES 27 and 29: where there is no room for another segment the old one stays, and erasing is tried again."""
    journal, hers, _ = told(tmp_path)
    gone = [one.sequence for one in hers]
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.log")}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
        with pytest.raises(LogFull):
            journal.erase(gone)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.log")} == before
    assert list(tmp_path.glob("*.log.tmp")) == []
    assert journal.erase(gone) == 3
    journal.close()


def test_what_the_pipeline_has_archived_stays_archived(tmp_path: Path) -> None:
    """RULES 32: a rewritten segment has other bytes than the pipeline noted; its facts are archived all the same, so
    retention may still drop it. One that was not archived is not noted."""
    journal, hers, _ = told(tmp_path, archive=PIPELINE)
    first, second = (tmp_path / section.name for section in journal.sections()[:2])
    retention.note(tmp_path, [Copy(first.name, first.stat().st_size, retention.file_crc(first), "file:/archive")])
    assert retention.may_drop(first, PIPELINE)
    journal.erase([one.sequence for one in hers])
    assert retention.may_drop(first, PIPELINE)
    assert not retention.may_drop(second, PIPELINE)
    journal.close()


def test_the_brokers_own_copy_is_made_again(tmp_path: Path) -> None:
    """RULES 32: a segment that was copied to the archive and has not been dropped yet is copied again."""
    archive = tmp_path / "archive"
    journal, hers, _ = told(tmp_path / "log", archive=archive)
    first = tmp_path / "log" / journal.sections()[0].name
    retention.archive_segment(first, archive)
    assert left(archive)
    journal.erase([one.sequence for one in hers])
    assert left(archive) == []
    assert (archive / first.name).read_bytes() == first.read_bytes()
    journal.close()
