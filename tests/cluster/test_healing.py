"""A node's files are put right from its peers' before its log is opened (CLUSTER, keep; Failures "a local segment is
damaged", "a follower loses its disk", "replicas differ").

Broken by hand to see these fail: a copy that is not looked at; a watermark that is left as it was; what was dropped
elsewhere kept; the open segment not compared.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cluster.healing import Healing, Lack
from syncbrok.cluster.membership import NodeReport
from syncbrok.cluster.peers import PeerSegments
from syncbrok.log.journal import FileJournal
from syncbrok.log.offline.verify import Finding, verify
from syncbrok.log.segments.sealed_segments import SealedSegment, sealed_segments
from syncbrok.model.errors import LogDiverged
from syncbrok.model.journal import LogIdentity
from tests.support.log.journals import START_US, append_snapshot, message, opened

IDENTITY = LogIdentity(bytes(range(16, 32)), bytes(range(16)))
SEGMENTS = 5


class Killed(Exception):
    """The process dies here."""


class Directories:
    """Nodes that hold what stands in these directories, ``first`` and ``last`` of the log as they tell them."""

    def __init__(self, *directories: Path, first: int = 1, last: int = 1) -> None:
        self.directories = directories
        self.first, self.last = first, last
        self.asked = 0
        self.fetched: list[int] = []
        self.dies_after = -1

    def ask(self) -> list[PeerSegments]:
        self.asked += 1
        nodes = [
            NodeReport(str(at), f"http://{at}", 1, "following", 0, self.last, self.first)
            for at in range(len(self.directories))
        ]
        return [
            PeerSegments(node, tuple(sealed_segments(directory)))
            for node, directory in zip(nodes, self.directories, strict=True)
        ]

    def fetch(self, node: NodeReport, wanted: SealedSegment, path: Path) -> None:
        data = (self.directories[int(node.node)] / wanted.name).read_bytes()
        if len(self.fetched) == self.dies_after:
            path.with_name("half.tmp").write_bytes(b"")
            path.write_bytes(data[: len(data) // 2])
            raise Killed
        path.write_bytes(data)
        self.fetched.append(wanted.first)


def grow(journal: FileJournal) -> None:
    """One more segment begins; the one before has messages."""
    for _ in range(8):
        journal.append(journal.prepare([message(journal.id_key, journal.next_sequence)]))
    append_snapshot(journal)


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[FileJournal]:
    """A whole log of ``SEGMENTS`` sealed segments and an open one."""
    directory = tmp_path / "peer"
    directory.mkdir()
    journal: FileJournal = opened(FileJournal, directory, identity=IDENTITY)
    append_snapshot(journal)
    for _ in range(SEGMENTS):
        grow(journal)
    journal.append(journal.prepare([message(journal.id_key, journal.next_sequence)]))
    yield journal
    journal.close()


def place(journal: FileJournal) -> Path:
    return journal.sections()[0].path.parent


def copy_of(peer: FileJournal, to: Path, segments: int, *, cut: int = 0) -> Path:
    """A node that was there while so many were sealed, and had all but ``cut`` bytes of the next one then."""
    directory = place(peer)
    shutil.copytree(directory, to, ignore=shutil.ignore_patterns("lock", "*.tmp", "reserve"))
    sections = peer.sections()
    for one in sections[segments + 1 :]:
        (to / one.name).unlink()
        (to / one.name).with_suffix(".idx").unlink(missing_ok=True)
    (to / "watermark").unlink()
    active = to / sections[segments].name
    if sections[segments].sealed:
        seal = sealed_segments(directory)[segments]
        active.write_bytes(active.read_bytes()[: seal.bytes - 104 - cut] + bytes(500))
        active.with_suffix(".idx").unlink(missing_ok=True)
    before: FileJournal = opened(FileJournal, to, identity=IDENTITY)
    before.close()
    return to


def healing(directory: Path, peers: Directories, *, cut: bool = True) -> Healing:
    return Healing(directory, IDENTITY, peers, lambda: START_US, stream_is_cut=cut)


def is_a_prefix(directory: Path, peer: FileJournal, first: int = 1) -> FileJournal:
    """What is in the directory opens, as the log from ``first`` on, and has the peer's bytes; the journal, open."""
    journal: FileJournal = opened(FileJournal, directory, identity=IDENTITY)
    assert journal.first_sequence == first
    its = {one.first: one for one in peer.sections()}
    for one in journal.sections():
        assert one.path.read_bytes()[: one.bytes] == its[one.first].path.read_bytes()[: one.bytes]
    assert [met for met in verify(directory) if isinstance(met, Finding)] == []
    return journal


def test_who_lacks_nothing_asks_nobody(peer: FileJournal, tmp_path: Path) -> None:
    """A cluster starts whoever else is there."""
    whole = copy_of(peer, tmp_path / "here", SEGMENTS)
    peers = Directories(place(peer))
    for beginning in (0, 1, peer.sections()[2].first, peer.sections()[-1].first):
        assert healing(whole, peers).heal(beginning) is None
    assert not peers.asked
    is_a_prefix(whole, peer).close()


@pytest.mark.parametrize("harm", ["missing", "first missing", "cut", "no seal", "no header"])
def test_damaged_segments_are_fetched(peer: FileJournal, tmp_path: Path, harm: str) -> None:
    """What a start would refuse, or make the best of, is as it was before; what is sound stays as it is."""
    here = copy_of(peer, tmp_path / "here", SEGMENTS)
    hurt = peer.sections()[0 if harm == "first missing" else 2]
    path = here / hurt.name
    data = bytearray(path.read_bytes())
    if harm == "cut":
        path.write_bytes(data[:-200])
    elif harm == "no seal":
        path.write_bytes(data[:-60] + bytes(60))
    elif harm == "no header":
        path.write_bytes(bytes(128) + data[128:])
    else:
        path.unlink()
    peers = Directories(place(peer), last=peer.next_sequence - 1)
    assert healing(here, peers).heal(1) is None
    assert peers.fetched == [hurt.first]
    is_a_prefix(here, peer).close()


def test_one_that_cannot_be_read_is_fetched_again(peer: FileJournal, tmp_path: Path) -> None:
    """Rot that its ends do not show: whoever meets it asks for that segment."""
    here = copy_of(peer, tmp_path / "here", SEGMENTS)
    hurt = peer.sections()[1]
    data = bytearray((here / hurt.name).read_bytes())
    data[300] ^= 1
    (here / hurt.name).write_bytes(data)
    assert healing(here, Directories(place(peer))).refetch(hurt.first)
    assert not healing(here, Directories(place(peer))).refetch(hurt.first + 1)
    is_a_prefix(here, peer).close()


@pytest.mark.parametrize("segments", range(SEGMENTS - 1))
@pytest.mark.parametrize("cut", [0, 700])
def test_who_was_away_while_the_stream_was_cut(peer: FileJournal, tmp_path: Path, segments: int, cut: int) -> None:
    """Its open segment is made whole, those after it are fetched, and the log goes on with the roll that the stream
    begins with; a crash anywhere in between loses nothing, and the next start does the rest."""
    here = copy_of(peer, tmp_path / "here", segments, cut=cut)
    beginning = peer.sections()[-1].first
    dying = Directories(place(peer), last=peer.next_sequence - 1)
    dying.dies_after = 1
    with pytest.raises(Killed):
        healing(here, dying).heal(beginning)
    peers = Directories(place(peer), last=peer.next_sequence - 1)
    assert healing(here, peers).heal(beginning) is None
    fetched = [one.first for one in peer.sections()[segments:-1]]
    assert [*dying.fetched, *peers.fetched] == fetched
    journal = is_a_prefix(here, peer)
    assert journal.next_sequence == beginning
    journal.close()
    assert not list(here.glob("*.log.tmp"))


def test_an_empty_directory_gets_all_that_is_left(peer: FileJournal, tmp_path: Path) -> None:
    """From where the log begins by now, up to where the stream does; not before somebody says where it begins."""
    peer.trim_oldest()
    beginning, oldest = peer.sections()[-1].first, peer.first_sequence
    here = tmp_path / "here"
    here.mkdir()
    lack = healing(here, Directories(place(peer), first=0)).heal(beginning)
    assert isinstance(lack, Lack)
    assert lack.fatal
    assert healing(here, Directories(place(peer), first=oldest, last=peer.next_sequence)).heal(beginning) is None
    journal = is_a_prefix(here, peer, oldest)
    assert journal.next_sequence == beginning
    journal.close()


@pytest.mark.parametrize("dropped", [1, 3, SEGMENTS])
def test_what_was_dropped_elsewhere_goes(peer: FileJournal, tmp_path: Path, dropped: int) -> None:
    """Retention: a node that was away for longer keeps none of what the others have dropped; where nothing of its own
    is left it begins with the stream."""
    here = copy_of(peer, tmp_path / "here", 0, cut=700)
    for _ in range(dropped):
        peer.trim_oldest()
    beginning, oldest = peer.sections()[-1].first, peer.first_sequence
    assert healing(here, Directories(place(peer), first=oldest, last=peer.next_sequence)).heal(beginning) is None
    if dropped == SEGMENTS:
        journal: FileJournal = opened(FileJournal, here, identity=IDENTITY)
        assert not journal.sections()
    else:
        journal = is_a_prefix(here, peer, oldest)
        assert journal.next_sequence == beginning
    journal.close()


def test_nobody_has_it(peer: FileJournal, tmp_path: Path) -> None:
    """It says what is missing and who was asked, and has changed nothing."""
    here = copy_of(peer, tmp_path / "here", 1)
    before = {one.name: one.read_bytes() for one in here.glob("*.log")}
    path = place(peer) / peer.sections()[2].name
    data = bytearray(path.read_bytes())
    data[400] ^= 4  # its own copy is rotten, which it does not know
    path.write_bytes(data)
    lack = healing(here, Directories(place(peer), last=peer.next_sequence)).heal(peer.sections()[-1].first)
    assert isinstance(lack, Lack)
    assert f"{peer.sections()[1].first} to {peer.sections()[-1].first - 1}" in lack.describe()
    assert "0 at http://0 holds 1 to" in lack.describe()
    kept = {name: (here / name).read_bytes() for name in before}
    assert kept[peer.sections()[0].name] == before[peer.sections()[0].name]
    assert peer.sections()[2].name not in kept


def test_a_rotten_copy_is_not_taken(peer: FileJournal, tmp_path: Path) -> None:
    """The next peer is asked."""
    here, rotten = copy_of(peer, tmp_path / "here", SEGMENTS), copy_of(peer, tmp_path / "rotten", SEGMENTS)
    hurt = peer.sections()[1]
    data = bytearray((rotten / hurt.name).read_bytes())
    data[300] ^= 1
    (rotten / hurt.name).write_bytes(data)
    (here / hurt.name).unlink()
    peers = Directories(rotten, place(peer))
    assert healing(here, peers).heal(1) is None
    assert peers.fetched == [hurt.first] * 2
    is_a_prefix(here, peer).close()


def test_another_history_is_not_mended(peer: FileJournal, tmp_path: Path) -> None:
    """CLUSTER, "replicas differ": an open segment that is not the beginning of what the peers sealed is left as it
    is."""
    here = copy_of(peer, tmp_path / "here", 1)
    path = here / peer.sections()[1].name
    journal: FileJournal = opened(FileJournal, here, identity=IDENTITY)
    journal.append(journal.prepare([message(journal.id_key, journal.next_sequence, content=b"mine")]))
    journal.close()
    before = path.read_bytes()
    with pytest.raises(LogDiverged, match="the replicas differ"):
        healing(here, Directories(place(peer), last=peer.next_sequence)).heal(peer.sections()[-1].first)
    assert path.read_bytes() == before


def test_who_was_away_gets_the_rest_of_a_segment_of_which_some_was_erased(peer: FileJournal, tmp_path: Path) -> None:
    """RULES 32: its open segment has the content, that of the peers has not: the same records, and theirs counts. Where
    another one differs too they are two histories, and nothing is changed."""
    here = copy_of(peer, tmp_path / "here", 2, cut=250)
    first, beginning = peer.sections()[2].first, peer.sections()[3].first
    assert peer.erase([first + 1]) == 1
    assert (
        peer.sections()[2].path.read_bytes()[: (here / peer.sections()[2].name).stat().st_size]
        != (here / peer.sections()[2].name).read_bytes()
    )
    peers = Directories(place(peer), last=peer.next_sequence - 1)
    assert healing(here, peers).heal(beginning) is None
    is_a_prefix(here, peer).close()


def test_a_segment_that_differs_otherwise_stays_refused(peer: FileJournal, tmp_path: Path) -> None:
    """Erasing excuses the records that say it, and no others."""
    here = copy_of(peer, tmp_path / "here", 2)
    section = peer.sections()[2]
    other = tmp_path / "other"
    other.mkdir()
    strange: FileJournal = opened(FileJournal, other, identity=IDENTITY)
    append_snapshot(strange)
    for _ in range(2):
        grow(strange)
    other_words = b"massage %d" % strange.next_sequence
    strange.append(strange.prepare([message(strange.id_key, strange.next_sequence, content=other_words)]))
    strange.append(strange.prepare([message(strange.id_key, strange.next_sequence)]))
    strange.close()
    shutil.copy(other / section.name, here / section.name)
    peer.erase([section.first + 3])
    with pytest.raises(LogDiverged, match="replicas differ"):
        healing(here, Directories(place(peer), last=peer.next_sequence - 1)).heal(peer.sections()[3].first)
