"""A log that was closed in good order opens by the index written then, and exactly as without it.

Broken by hand to see one fail: what stands behind the end not looked at.
"""

import random
import shutil
from pathlib import Path

import pytest

from syncbrok.log.index import sidecar
from syncbrok.log.recovery.recovery import Recovered, recover
from syncbrok.log.segments import segment
from syncbrok.model.errors import LogCorrupt
from tests.support.log.journals import ended, everything, open_journal, publish, roll


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A sealed segment and one with 700 messages, closed in good order."""
    journal = open_journal(tmp_path / "log", segment_bytes=256 * 1024)
    publish(journal, 5)
    roll(journal)
    for _ in range(7):
        messages = publish(journal, 100)
        ended(journal, [one.sequence for one in messages[:3]])
    journal.close()
    return tmp_path / "log"


def last_of(log: Path) -> Path:
    return segment.segment_path(log, segment.segment_bases(log)[-1])


def without_index(log: Path) -> Path:
    """A copy without the index of the last segment."""
    copy = log.with_name("without")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(log, copy)
    sidecar.path_of(copy, int(last_of(copy).stem)).unlink()
    return copy


def seen(recovered: Recovered) -> list[object]:
    """All that recovery answers, but how long it took and in which directory it was."""
    assert recovered.active is not None
    info, crc, places = recovered.active
    found = [places.last, places.records, places.end, places.times_us, places.sparse.tolist(), places.jumps]
    found += [places.queue_sequences(1, 0, 10_000), places.rows_of(8), places.queue_count(1)]
    report = recovered.report._replace(seconds=0.0, broken=None)
    return [recovered.header, info._replace(path=Path()), crc, recovered.durable, recovered.batch, report, found]


def test_the_index_says_what_looking_at_every_record_says(closed: Path) -> None:
    """The same log is opened, to the last number; and it was the index that said so."""
    recovered = recover(closed)
    assert recovered.header is not None
    assert recovered.active is not None
    info, crc, _ = recovered.active
    assert sidecar.read(closed, sidecar.Sealed(recovered.header.uuid, info.base, info.bytes, crc)) is not None
    assert seen(recovered) == seen(recover(without_index(closed)))


def test_damage_is_judged_as_without_it(closed: Path, seed: int) -> None:
    """A flipped bit anywhere, in the records or behind them: refused or mended just as if there were no index."""
    dice = random.Random(seed)
    path = last_of(closed)
    good = path.read_bytes()
    end = len(good.rstrip(b"\0"))
    for _ in range(30):
        data = bytearray(good)
        data[dice.choice((dice.randrange(end), end - 1, dice.randrange(end, len(data))))] ^= 1 << dice.randrange(8)
        path.write_bytes(data)
        assert verdict(without_index(closed)) == verdict(shutil.copytree(closed, closed.with_name("again")))
        shutil.rmtree(closed.with_name("again"))


def verdict(log: Path) -> object:
    try:
        recovered = recover(log)
    except LogCorrupt as refused:
        return refused.detail.replace(str(log), "")
    return seen(recovered)


def test_what_is_written_afterwards_is_not_hidden(closed: Path) -> None:
    """The index of the last close is no word on a log that was written to since, and then crashed."""
    journal = open_journal(closed, segment_bytes=256 * 1024)
    more = publish(journal, 50)
    shutil.copytree(closed, closed.with_name("crashed"))
    journal.close()
    facts = everything(closed.with_name("crashed"))
    assert facts[-1].sequence == more[-1].sequence
    assert everything(closed) == facts
