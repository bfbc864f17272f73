"""A cluster whose stream holds a part of the log only: what a node lacks of the rest comes from its peers (CLUSTER,
keep, and Failures "a follower loses its disk", "a local segment is damaged").

Broken by hand to see these fail: a stream that is never cut; a node that does not look at its files before it opens its
log; one that asks no peer for what it cannot read.
"""

import shutil
from collections.abc import Iterator

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cluster.engine import Engine
from syncbrok.cluster.following import beginning_of
from tests.support.broker_trio import BrokerTrio
from tests.support.polling import eventually_blocking
from tests.support.traffic import verified

CONFIG = "storage: {segment: 128KiB}\n"
KEEP = "1MiB"
CONTENT = bytes(range(256)) * 200


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerTrio]:
    with BrokerTrio(tmp_path_factory.mktemp("trio"), CONFIG, keep=KEEP) as running:
        leader = running.brokers[running.leader()]
        assert leader.request("POST", "/v1/queues", {"name": "q"}).status == 201
        made = {"name": "s", "pull": True}  # so that nothing of it ends: all is to be there for whoever leads next
        assert leader.request("POST", "/v1/queues/q/subscribers", made).status == 201
        yield running


@pytest.fixture
def engine(trio: BrokerTrio) -> Iterator[Engine]:
    made = Engine("main", trio.engine.addresses)
    made.connect()
    yield made
    made.close()


def publish(trio: BrokerTrio, count: int) -> list[str]:
    """Their ids."""
    leader = trio.brokers[trio.leader()]
    answers = [leader.request("POST", "/v1/queues/q/messages", CONTENT + b"%d" % number) for number in range(count)]
    assert [one.status for one in answers] == [201] * count
    return [str(one.json()["id"]) for one in answers]


def cut_beyond(engine: Engine, first: int) -> int:
    """What the stream begins with, once that is later than this."""
    found = [0]

    def is_cut() -> bool:
        found[0] = beginning_of(engine)
        return found[0] > first and engine.state().bytes <= 3 << 19

    eventually_blocking(is_cut, lambda: f"the stream is cut beyond {first}, it begins with {found[0]}", 60)
    return found[0]


def sealed(trio: BrokerTrio, node: str) -> dict[str, bytes]:
    """The sealed segments of a node, by name."""
    paths = sorted(trio.brokers[node].storage.glob("[0-9]*.log"))
    return {path.name: path.read_bytes() for path in paths[:-1]}


def are_alike(trio: BrokerTrio, node: str) -> None:
    """The node has, byte for byte, what its leader has."""
    leader = trio.leader()
    at = lambda one: trio.status(one)["nodes"]  # noqa: E731

    def caught_up() -> bool:
        lags = {one["node"]: one["lag_records"] for one in at(node)}
        return lags.get(node) == 0 and lags.get(leader) == 0 and sealed(trio, node) == sealed(trio, leader)

    eventually_blocking(caught_up, lambda: f"{node} is as {leader}; it said {trio.brokers[node].output()[-2_000:]}", 60)
    assert len(sealed(trio, node)) > 5
    assert verified(trio.brokers[node].storage) == []


def test_a_follower_that_has_lost_its_disk_gets_all_from_its_peers(trio: BrokerTrio, engine: Engine) -> None:
    """Files are those of the leader, from the first segment on, though the stream holds the last of them only; and the
    node leads with them: everything that waits is there."""
    ids = publish(trio, 50)
    cut_beyond(engine, 1)
    node = trio.followers()[0]
    broker = trio.brokers[node]
    broker.kill()
    shutil.rmtree(broker.storage)
    broker.start(90)
    are_alike(trio, node)
    assert broker.request("POST", "/v1/cluster/yield", {"to": node}).status == 202
    eventually_blocking(lambda: trio.status(node)["leader"]["node"] == node, "it leads", 60)
    for id_ in (ids[0], ids[-1]):
        assert eventually_blocking(lambda id_=id_: _content(trio, node, id_), "it serves").startswith(CONTENT)
    waiting = broker.request("GET", "/v1/queues/q").json()["statistics"]["waiting"]
    assert waiting == len(ids)
    for one in trio.brokers.values():
        if one.process.poll() is not None:
            one.start(90)


def _content(trio: BrokerTrio, node: str, id_: str) -> bytes:
    try:
        answer = trio.brokers[node].request("GET", f"/v1/messages/{id_}/content")
    except OSError:
        return b""
    return answer.body if answer.status == 200 else b""


def test_a_follower_that_was_away_while_the_stream_was_cut_goes_on(trio: BrokerTrio, engine: Engine) -> None:
    """Its open segment is made whole from a peer, what came after it is fetched, and it follows."""
    node = trio.followers()[0]
    last = next(one["sequence"] for one in trio.status(node)["nodes"] if one["node"] == node)
    trio.brokers[node].kill()
    publish(trio, 50)
    cut_beyond(engine, last + 5)
    trio.brokers[node].start(90)
    are_alike(trio, node)


def test_damaged_segments_are_fetched_again(trio: BrokerTrio) -> None:
    """One is missing, one was cut, of one an outcome or a declaration has rotted: the node starts, and has them as they
    were. Its checkpoints are gone too, without which a start alone would be refused (65)."""
    node = trio.followers()[0]
    broker = trio.brokers[node]
    broker.kill()
    paths = sorted(broker.storage.glob("[0-9]*.log"))
    paths[1].unlink()
    paths[2].write_bytes(paths[2].read_bytes()[:-1_000])
    data = bytearray(paths[3].read_bytes())
    data[128 + 92 + 20] ^= 0xFF  # the snapshot that it begins with
    paths[3].write_bytes(data)
    for path in broker.storage.glob("checkpoint*"):
        path.unlink()
    broker.start(90)
    are_alike(trio, node)


def test_what_no_peer_has_is_named(trio: BrokerTrio) -> None:
    """A node with an empty directory, and a segment that is gone everywhere: it ends with 78, says which records are
    missing and who was asked, and has served nothing."""
    node, other = trio.followers()
    broker = trio.brokers[node]
    broker.kill()
    shutil.rmtree(broker.storage)
    gone = [trio.brokers[one].storage / f"{1:020d}.log" for one in (trio.leader(), other)]
    for path in gone:
        path.unlink()
    broker._spawn()
    assert broker.process.wait(90) == 78, broker.output()[-3_000:]
    said = broker.output().splitlines()[-1]
    assert "lacks the records 1 to " in said
    assert f"{other} at {trio.brokers[other].url} holds " in said
