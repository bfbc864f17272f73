"""A log that there is becomes the beginning of a stream: what a single node has written goes on as a cluster."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cluster.engine import Engine, EngineUnfit
from syncbrok.cluster.healing import Healing
from syncbrok.cluster.node import Node, NodeRun, NodeSettings
from syncbrok.cluster.peer_signature import PeerSignature
from syncbrok.cluster.peers import Peers
from syncbrok.cluster.replicated_journal import ReplicatedJournal
from syncbrok.cluster.seeding import SeedLog, SeedProgress, Unseedable, seed
from syncbrok.cluster.stream_messages import PIECE_BYTES, StreamKind, StreamMessage
from syncbrok.cluster.vault import make_key
from syncbrok.log.journal import FileJournal
from syncbrok.log.segments.retention import Copy, copies, note
from syncbrok.model.errors import LogCorrupt, LogLocked
from syncbrok.model.journal import JournalOptions, LogIdentity
from syncbrok.space.budgets import Budgets
from syncbrok.space.clock import wall_us
from syncbrok.space.standby import Standby
from tests.support.cluster.nats_engine import NatsEngine, append
from tests.support.cluster.replicated_places import HeldReplicated, is_made, opened, take_over
from tests.support.log.journals import open_journal, publish, roll
from tests.support.polling import eventually_blocking


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsEngine]:
    with NatsEngine(tmp_path_factory.mktemp("engine")) as running:
        yield running


@pytest.fixture
def engine(servers: NatsEngine, request: pytest.FixtureRequest) -> Iterator[Engine]:
    first = Engine("first", servers.addresses)
    first.connect()
    eventually_blocking(lambda: is_made(first), "servers that have just begun take their time")
    first.close()
    made = Engine(request.node.name, servers.addresses)
    made.connect()
    yield made
    made.close()


def single_node(directory: Path, batches: int = 40) -> LogIdentity:
    """A log of several segments with a batch that is longer than a message of the stream; which one it is."""
    directory.mkdir()
    journal = open_journal(directory)
    publish(journal, 1, content=bytes(PIECE_BYTES + 1_000))
    roll(journal)
    for number in range(batches):
        publish(journal, 1 + number % 7)
        if number % 15 == 14:
            roll(journal)
    identity = journal.identity
    journal.close()
    return identity


def nothing(_: SeedProgress) -> None:
    """Nobody looks."""


def put_in(engine: Engine, directory: Path, run: str = "r", told: Callable[[SeedProgress], None] = nothing) -> int:
    """The whole log in ``directory``; its last record."""
    with SeedLog.open(directory) as log:
        log.verify(lambda *_: None)
        eventually_blocking(lambda: _is_in(engine, log, run, told), "the engine answers", 60.0)
        return log.last


def _is_in(engine: Engine, log: SeedLog, run: str, told: Callable[[SeedProgress], None]) -> bool:
    """As the command does: asked again where a loaded engine has not answered."""
    try:
        seed(engine, log, lambda secrets: b"sealed " + secrets, 1, run, told)
    except OSError:
        return False
    return True


def files_of(directory: Path) -> dict[str, bytes]:
    """The records of each segment: what stands behind them is room."""
    return {path.name: path.read_bytes().rstrip(b"\0") for path in sorted(directory.glob("*.log"))}


def stream(engine: Engine) -> list[StreamMessage]:
    found: list[StreamMessage] = []
    while more := engine.read(len(found), 10.0):
        found += more
    return found


def test_any_node_has_the_files_of_the_log_that_was_put_in(engine: Engine, tmp_path: Path) -> None:
    """A node with an empty directory has the same files, byte for byte; one with a copy of the log goes on with it."""
    identity = single_node(tmp_path / "single")
    before = files_of(tmp_path / "single")
    last = put_in(engine, tmp_path / "single")
    assert files_of(tmp_path / "single") == before
    (tmp_path / "empty").mkdir()
    node = opened(HeldReplicated, tmp_path / "empty", identity=identity)
    take_over(engine, node)
    assert node.next_sequence == last + 1
    assert files_of(tmp_path / "empty") == before
    publish(node)
    node.close()
    copy = opened(HeldReplicated, tmp_path / "single", identity=identity)
    take_over(engine, copy)
    assert copy.next_sequence == last + 2
    copy.close()
    assert files_of(tmp_path / "single") == files_of(tmp_path / "empty")


def test_the_secrets_are_there_before_any_record(engine: Engine, tmp_path: Path) -> None:
    """Sealed, behind the birth and behind each segment's beginning, so that a purge up to one keeps them."""
    single_node(tmp_path / "single")
    (tmp_path / "single" / "secrets.json").write_bytes(b"whsec")
    put_in(engine, tmp_path / "single")
    found = stream(engine)
    assert [one.kind for one in found[:2]] == [StreamKind.BIRTH, StreamKind.VAULT]
    rolls = [at for at, one in enumerate(found) if one.kind is StreamKind.ROLL]
    assert len(rolls) > 2
    for at in rolls:
        assert found[at].log == found[0].log
        assert (found[at + 1].kind, found[at + 1].body) == (StreamKind.VAULT, b"sealed whsec")


def test_what_is_archived_is_known_from_the_start(engine: Engine, tmp_path: Path) -> None:
    """CLUSTER, note: what a single node, or the node whose log goes into a new stream, knows to be archived every node
    knows, and nothing of segments that are gone; begun again it is no other log."""
    identity = single_node(tmp_path / "single")
    names = sorted(files_of(tmp_path / "single"))
    noted = [Copy(name, 7, 5, "file:/a") for name in names[:2]]
    note(tmp_path / "single", [Copy(f"{0:020d}.log", 7, 5, "file:/a"), *noted, noted[0]])
    last = put_in(engine, tmp_path / "single")
    assert [one.kind for one in stream(engine)[:2]] == [StreamKind.BIRTH, StreamKind.NOTE]
    assert put_in(engine, tmp_path / "single", "again") == last
    (tmp_path / "empty").mkdir()
    node = opened(HeldReplicated, tmp_path / "empty", identity=identity)
    take_over(engine, node)
    node.close()
    assert list(copies(tmp_path / "empty")) == noted


def test_who_was_stopped_goes_on_where_the_stream_ends(engine: Engine, tmp_path: Path) -> None:
    """Begun again it puts in the rest: each batch stands in the stream once, and all of them do."""
    identity = single_node(tmp_path / "single")
    for number, stop_at in enumerate((3, 130, 150)):

        def stop(met: SeedProgress, stop_at: int = stop_at) -> None:
            if met.sequence > stop_at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            put_in(engine, tmp_path / "single", f"r{number}", stop)
    last = put_in(engine, tmp_path / "single", "last")
    whole = [one.last for one in stream(engine) if one.kind in (StreamKind.BATCH, StreamKind.ROLL) and one.last]
    assert whole == sorted(set(whole))
    assert whole[-1] == last
    assert put_in(engine, tmp_path / "single", "again") == last
    (tmp_path / "empty").mkdir()
    node = opened(HeldReplicated, tmp_path / "empty", identity=identity)
    take_over(engine, node)
    node.close()
    assert files_of(tmp_path / "empty") == files_of(tmp_path / "single")


def test_a_stream_that_holds_something_else_is_left_alone(engine: Engine, tmp_path: Path) -> None:
    """Another log's, a later generation's, or one that a node leads: nothing is written."""
    single_node(tmp_path / "single", 3)
    single_node(tmp_path / "other", 3)
    put_in(engine, tmp_path / "other")
    before = engine.state()
    with pytest.raises(EngineUnfit, match="another log"):
        put_in(engine, tmp_path / "single")
    append(engine, StreamMessage(StreamKind.CLAIM, 1, "a.r.1", node="a"), before.last)
    with pytest.raises(EngineUnfit, match="by a node"):
        put_in(engine, tmp_path / "other")
    assert engine.state().last == before.last + 1


def test_a_torn_write_is_not_put_in(engine: Engine, tmp_path: Path) -> None:
    """What the next start would cut off was never acknowledged, and a node that has cut it off must not be longer."""
    identity = single_node(tmp_path / "single", 3)
    path = max((tmp_path / "single").glob("*.log"))
    with SeedLog.open(tmp_path / "single") as log:
        end = log._end
    data = bytearray(path.read_bytes())
    data[end : end + 100] = bytes(range(100, 200))
    path.write_bytes(data)
    last = put_in(engine, tmp_path / "single")
    node = opened(HeldReplicated, tmp_path / "single", identity=identity)
    take_over(engine, node)
    assert node.next_sequence == last + 1
    node.close()


def test_a_log_that_is_damaged_or_in_use_is_refused(engine: Engine, tmp_path: Path) -> None:
    """Before anything is in the stream, which would have to be thrown away."""
    single_node(tmp_path / "single")
    held = opened(FileJournal, tmp_path / "single")
    with pytest.raises(LogLocked):
        put_in(engine, tmp_path / "single")
    held.close()
    path = sorted((tmp_path / "single").glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogCorrupt):
        put_in(engine, tmp_path / "single")
    with pytest.raises(Unseedable, match="no log"):
        put_in(engine, tmp_path / "nothing")
    assert engine.stream_state() is None


def test_no_node_leads_before_it_has_all_that_is_put_in(engine: Engine, tmp_path: Path) -> None:
    """Who would lead earlier would go on behind the half of a log."""
    single_node(tmp_path / "single")

    def stop(met: SeedProgress) -> None:
        if met.sequence > 150:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        put_in(engine, tmp_path / "single", "r1", stop)
    make_key(tmp_path / "cluster.key")
    now_us = 0

    def clock_us() -> int:
        nonlocal now_us
        now_us += 1_000_000  # patience ends at once
        return now_us

    def open_standby(identity: LogIdentity) -> Standby:
        open_log = partial(ReplicatedJournal.open, identity=identity)
        return Standby.open(tmp_path / "node", JournalOptions(), Budgets.of(1_000), wall_us, None, open_log)

    settings = NodeSettings("a", "http://a", {}, 2.0, tmp_path / "cluster.key", tmp_path / "node")
    nobody = Peers("a", list, PeerSignature(settings.key, "main"))
    node = Node(
        engine,
        settings,
        open_standby,
        lambda identity, cut: Healing(tmp_path / "node", identity, nobody, wall_us, stream_is_cut=cut),
        list,
        lambda _: None,
        NodeRun("r", clock_us, lambda: 0.0),
    )
    standbys: list[Standby] = []
    leading = threading.Thread(target=lambda: standbys.append(node.until_leading()))
    leading.start()
    eventually_blocking(lambda: node.sequence > 50, "it has read what there is")
    looked_s = time.monotonic()
    eventually_blocking(lambda: time.monotonic() > looked_s + 0.5, "it has looked often enough to claim")
    last = put_in(engine, tmp_path / "single", "r2")
    leading.join(30)
    assert node.sequence >= last
    kinds = [one.kind for one in stream(engine)]
    assert StreamKind.CLAIM not in kinds[: max(at for at, kind in enumerate(kinds) if kind is StreamKind.BATCH)]
    node.end(give_way=True)
    standbys[0].secret_store.close()
    standbys[0].close()
