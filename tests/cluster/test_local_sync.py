"""What a node's own files are worth where a quorum has the batch: they are fsynced now and then, so a power failure
takes an end of them, and damage may be cut off. The node reads that again. Nothing that is said of the files is ahead
of what was fsynced.

Broken by hand to see these fail: a watermark and a checkpoint of what is written; a cut that is forgotten; a batch of
several units whose rest is taken for another batch.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncbrok.cli.serve.single_node import log_options
from syncbrok.config import load_config
from syncbrok.log.format.codec import Header, read_header
from syncbrok.log.journal import FileJournal
from syncbrok.log.segments import checkpoint, watermark
from syncbrok.log.segments.segment import segment_bases, segment_path
from syncbrok.model.errors import LogCorrupt, LogDiverged
from syncbrok.model.journal import JournalOptions
from syncbrok.space.budgets import Budgets
from tests.support.cluster.memory_engine import MemoryEngine
from tests.support.cluster.replicated_places import IDENTITY, HeldReplicated, Replicated, take_over
from tests.support.log.journals import message, opened, publish
from tests.support.power.directory import SECTOR_BYTES


class Lazily(Replicated):
    """Whose files are fsynced only by ``sync``."""

    def _open(self, options: JournalOptions, clock_us: Any) -> HeldReplicated:
        self.directory.mkdir(exist_ok=True)
        in_files = {"segment_bytes": 64 * 1024, "reserve_bytes": 4_096, "syncs_each": False}
        journal: HeldReplicated = opened(
            HeldReplicated, self.directory, clock_us, IDENTITY, **options._asdict(), **in_files
        )
        take_over(self.engine, journal)
        return journal


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Lazily]:
    made = Lazily(tmp_path / "log")
    made.engine.unsure = 0
    yield made
    made.close()


def active(directory: Path) -> Path:
    return segment_path(directory, segment_bases(directory)[-1])


def lose_power(place: Lazily, journal: Any, chance: random.Random) -> None:
    """Of what was not fsynced, each sector is there or not."""
    _, synced = journal._synced_place
    end = journal._active.end
    place.crash()
    with active(place.directory).open("r+b") as file:
        for at in range(synced // SECTOR_BYTES, end // SECTOR_BYTES + 1):
            begin, stop = max(synced, at * SECTOR_BYTES), (at + 1) * SECTOR_BYTES
            if chance.random() < 0.5:
                file.seek(begin)
                file.write(bytes(stop - begin))


def segments(journal: Any) -> list[bytes]:
    return [section.path.read_bytes()[: section.bytes] for section in journal.sections()]


@pytest.mark.parametrize("seed", range(12))
def test_what_a_power_failure_took_is_read_again(place: Lazily, seed: int) -> None:
    """CLUSTER, Failures: what a quorum has is durable, whatever became of the leader's own unsynced end; the files are
    the same bytes again, and those of before are not touched."""
    chance = random.Random(seed)
    journal = place.open()
    for number in range(40):
        publish(journal, chance.randint(1, 9), content=chance.randbytes(300))
        if number == 15:
            journal.sync()
    before, last = segments(journal), journal.next_sequence - 1
    assert (journal.durable_sequence, journal.synced_sequence < last) == (last, True)
    lose_power(place, journal, chance)
    again = place.open(begun=False)
    assert segments(again) == before
    assert again.next_sequence - 1 == last
    assert again.lost_through == 0, "nothing had vouched for it"


def test_nothing_is_said_of_more_than_was_fsynced(place: Lazily) -> None:
    """The watermark, what records say of those before them, and a checkpoint never name what a power failure takes."""
    journal = place.open()
    publish(journal, 3)
    journal.sync()
    synced = journal.synced_sequence
    publish(journal, 5)
    place.clock.now_us += 10_000_000
    publish(journal, 5)  # a mark is due
    assert journal.next_sequence - 1 > journal.synced_sequence == synced
    mark = watermark.read(place.directory)
    assert mark is not None
    assert mark.durable <= synced
    told = [read_header(journal.prepare([message(journal.id_key, journal.next_sequence)]).data)]
    assert [one.synced_through for one in told if isinstance(one, Header)] == [synced]
    journal.save_checkpoint(journal.next_sequence - 1, {"state": b"of what is not fsynced"})
    assert journal.load_checkpoint() is None
    journal.sync()
    journal.save_checkpoint(journal.next_sequence - 1, {"state": b"of what is"})
    assert journal.load_checkpoint() is not None


def test_a_checkpoint_of_what_is_gone_is_not_believed(place: Lazily) -> None:
    """RELIABILITY: a disk that lied may leave a checkpoint behind whose records it lost. A node starts without it, has
    again what it names, and then it is the state of this log again."""
    journal = place.open()
    publish(journal, 10)
    journal.sync()
    publish(journal, 10)
    through = journal.next_sequence - 1
    crc = journal._crc_of_record(through)
    assert crc is not None
    end = journal._active.end
    place.crash()
    checkpoint.save(place.directory, IDENTITY.uuid, through, crc, {"state": b"ahead"})
    _zero(active(place.directory), journal._synced_place[1], end)
    again = opened(HeldReplicated, place.directory, place.clock, IDENTITY, reserve_bytes=0)
    assert again.next_sequence - 1 < through == again.lost_through
    assert again.load_checkpoint() is None
    take_over(place.engine, again)
    assert again.next_sequence - 1 == through
    again.close()


def _zero(path: Path, begin: int, end: int) -> None:
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(bytes(end - begin))


def _spoil(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("where", ["vouched for", "before a later one"])
def test_a_damaged_end_is_cut_and_read_again(place: Lazily, where: str) -> None:
    """CLUSTER, Failures: damage in the segment that is written to is cut off there and fetched again, where a single
    broker refuses to start."""
    journal = place.open()
    for _ in range(20):
        publish(journal, 3)
        journal.sync()
    before, end = segments(journal), journal._active.end
    if where == "vouched for":
        journal.close()
    place.crash()
    _spoil(active(place.directory), end // 2)
    with pytest.raises(LogCorrupt):
        opened(FileJournal, place.directory, identity=IDENTITY)
    again = place.open(begun=False)
    assert segments(again) == before
    assert list(place.directory.glob("*.broken")), "what was cut off is kept"


@pytest.mark.parametrize("starts", [1, 2])
def test_what_was_cut_off_must_be_in_the_stream(place: Lazily, starts: int) -> None:
    """CLUSTER R6: an engine that has lost its end is not believed because the node has lost it too; nor at the next
    start, which finds nothing damaged."""
    journal = place.open()
    for _ in range(20):
        publish(journal, 3)
    last = journal.next_sequence - 1
    journal.close()
    place.crash()
    _spoil(active(place.directory), journal._active.end // 2)
    engine: MemoryEngine = place.engine
    del engine.messages[-4:]
    for _ in range(starts):
        again = opened(HeldReplicated, place.directory, place.clock, IDENTITY, reserve_bytes=0)
        with pytest.raises(LogDiverged, match=f"had {last} once, and the stream ends with"):
            take_over(engine, again)
        again.close()


def test_the_rest_of_a_batch_of_several_units_is_read(place: Lazily) -> None:
    """A log that one machine wrote has batches of which recovery keeps some units: a node whose power failed while it
    read such a stream goes on in the middle of one."""
    journal = place.open()
    publish(journal, 3)
    journal.sync()
    first = journal.next_sequence
    several = FileJournal.prepare(journal, [message(journal.id_key, first + at) for at in range(6)])
    journal.append(several)
    publish(journal, 3)
    before, end = segments(journal), journal._active.end
    begin = journal._synced_place[1]
    place.crash()
    _zero(active(place.directory), begin + several.ends[3], end)
    again = place.open(begun=False)
    assert segments(again) == before


@pytest.mark.parametrize(
    ("cluster", "each"),
    [("", False), ("local_sync: always", True), ("acknowledge: quorum+local", True)],
)
def test_the_configuration_says_whether_each_write_is_fsynced(tmp_path: Path, cluster: str, each: bool) -> None:
    """CLUSTER, ``acknowledge`` and ``local_sync``; a single broker always does (RULES 1)."""
    file = tmp_path / "broker.yml"
    servers = "engine: [{url: 'nats://h:1', monitor: 'http://h:2'}]"
    node = f"cluster:\n  node: a\n  {servers}\n  advertise: http://h:3\n  key: k\n  {cluster}\n"
    for text, wanted in ((node, each), ("", True)):
        file.write_text(text)
        journal, in_files = log_options(load_config(file, {}, {}), Budgets.of())
        assert (journal.sync, in_files.syncs_each) == ("always", wanted)
