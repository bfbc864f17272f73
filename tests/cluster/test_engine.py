"""What is asked of the engine, on three real servers: compare-and-swap, the leader's own word, reading in batches, and
that it is verified and not believed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cluster.engine import Engine, EngineServer, EngineUnfit, Fate
from syncbrok.cluster.stream_messages import PIECE_BYTES, StreamKind, StreamMessage
from tests.support.cluster.cut_links import CutLinks
from tests.support.cluster.nats_engine import HOSTS, NatsEngine, append
from tests.support.polling import eventually_blocking


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsEngine]:
    with NatsEngine(tmp_path_factory.mktemp("engine")) as running:
        yield running


@pytest.fixture
def engine(servers: NatsEngine, request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = Engine(request.node.name.replace("[", "_").strip("]"), servers.addresses)
    made.connect()
    yield made
    made.close()


def beat(number: int) -> StreamMessage:
    return StreamMessage(StreamKind.BEAT, 1, f"a.r.{number}")


def test_who_has_not_seen_everything_cannot_append(engine: Engine) -> None:
    """Every append names the message that it follows."""
    engine.make_stream()
    assert append(engine, beat(1), 0) == 1
    assert engine.try_append(beat(2), 0, 5.0) == (Fate.ELSEWHERE, 0)
    assert engine.try_append(beat(2), 2, 5.0) == (Fate.ELSEWHERE, 0)
    assert append(engine, beat(2), 1) == 2
    assert engine.state()[:2] == (1, 2)


def test_the_leader_says_what_stands_where(engine: Engine) -> None:
    """mine, another's, or nothing."""
    engine.make_stream()
    mine = StreamMessage(StreamKind.BATCH, 5, "a.r.1", b"\0\xffbytes" * 1000, first=1, last=9, batch=1)
    append(engine, mine, 0)
    assert engine.from_leader(1) == mine._replace(sequence=1)
    assert engine.from_leader(2) is None


def test_it_is_read_in_batches_in_order(engine: Engine) -> None:
    """A follower reads by Direct Get, more than one request has room for, and bodies of the largest size."""
    engine.make_stream()
    large = StreamMessage(StreamKind.BATCH, 1, "a.r.0", bytes(PIECE_BYTES), first=1, last=9, batch=1)
    assert engine.read(0, 5.0) == []
    assert append(engine, large, 0) == 1
    for number in range(1, 300):
        append(engine, beat(number), number)
    found: list[StreamMessage] = []
    while more := engine.read(found[-1].sequence if found else 0, 10.0):
        found += more
    assert found[0] == large._replace(sequence=1)
    assert [one.sequence for one in found] == list(range(1, 301))
    assert [one.n for one in found[1:]] == [f"a.r.{number}" for number in range(1, 300)]


def test_a_stream_is_made_once_and_on_purpose(engine: Engine) -> None:
    """Nobody invents a log."""
    with pytest.raises(EngineUnfit, match="syncbrok cluster init"):
        engine.verify()
    engine.make_stream()
    engine.verify()
    append(engine, beat(1), 0)
    with pytest.raises(EngineUnfit):
        engine.make_stream(1)
    assert engine.state().last == 1


def test_an_engine_that_keeps_less_is_refused(engine: Engine, tmp_path: Path) -> None:
    """Fewer replicas, and servers that fsync every two minutes, NATS's default."""
    engine.make_stream(1)
    with pytest.raises(EngineUnfit, match="replicas is 1, and must be 3"):
        engine.verify()
    with NatsEngine(tmp_path, sync="2m") as lazy:
        other = Engine("main", lazy.addresses)
        other.connect()
        try:
            other.make_stream()
            with pytest.raises(EngineUnfit, match="sync_interval: always"):
                other.verify()
        finally:
            other.close()


def test_no_engine_is_told(servers: NatsEngine) -> None:
    """The address is named; nothing waits for ever."""
    nobody = Engine("main", [servers.addresses[0]._replace(url="nats://127.0.0.1:1")])
    with pytest.raises(OSError, match=r"127\.0\.0\.1:1"):
        nobody.connect()


def test_what_retention_dropped_is_purged(engine: Engine) -> None:
    """Purged up to a place the stream begins there, and goes on where it was; asked again nothing changes."""
    engine.make_stream()
    for number in range(1, 6):
        append(engine, beat(number), number - 1)
    engine.purge(4)
    engine.purge(4)
    assert engine.state()[:2] == (4, 5)
    first = engine.first()
    assert first is not None
    assert first.n == "a.r.4"
    assert [one.sequence for one in engine.read(0, 5.0)] == [4, 5]
    assert append(engine, beat(6), 5) == 6


def test_a_server_that_vanishes_is_left_for_another(servers: NatsEngine) -> None:
    """CLUSTER, Failures: a host that is gone closes no connection. Whoever was connected to its server, which says
    nothing and refuses nothing, soon asks another one. (NATS's clients ping every two minutes by themselves.)"""
    with CutLinks() as links:
        ports = [links.link("x", host, one.port) for host, one in zip(HOSTS, servers.servers, strict=True)]
        addresses = [EngineServer(f"nats://127.0.0.1:{port}", "http://127.0.0.1:1") for port in ports]
        engine = Engine("vanishes", addresses)
        engine.connect()
        try:
            engine.make_stream()
            (host,) = (h for h, port in zip(HOSTS, ports, strict=True) if str(port) in str(engine.client.connected_url))
            links.isolate("x", host)

            def stored() -> bool:
                return engine.try_append(beat(1), 0, 1.0)[0] in (Fate.STORED, Fate.ELSEWHERE)

            eventually_blocking(stored, "another server answers", 45)
        finally:
            engine.close()


def test_what_was_not_sent_does_not_keep_it_from_being_let_go(tmp_path: Path) -> None:
    """CLUSTER, failures: the engine has gone and an append waits in the client to be sent. The node that stops then
    lets go of the engine in peace, and what is asked afterwards has no answer: neither is a defect."""
    with NatsEngine(tmp_path) as running:
        engine = Engine("gone", running.addresses)
        engine.connect()
        for server in running.servers:
            server.kill()
        eventually_blocking(lambda: engine.client.is_reconnecting, "the client notices")
        assert engine.try_append(beat(1), 0, 0.3) == (Fate.UNKNOWN, 0)
        assert engine.client.pending_data_size > 0
        client = engine.client
        engine.close()
        assert client.is_closed
