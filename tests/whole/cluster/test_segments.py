"""A cluster whose stream holds a part of the log only: what a node lacks of the rest comes from its peers (CLUSTER,
keep, and Failures "a follower loses its disk", "a local segment is damaged").
"""

import shutil
from collections.abc import Iterator

import pytest
from crc32c import crc32c

pytest.importorskip("nats", reason="needs syncbrok[cluster]")
pytest.importorskip("pyarrow", reason="needs syncbrok[spark]")

from syncbrok.cluster.engine import Engine
from syncbrok.cluster.following import beginning_of
from syncbrok.pipeline.decode.plan import plan
from syncbrok.pipeline.decode.query import CarriedRule, Query
from syncbrok.pipeline.decode.row_reader import read
from syncbrok.pipeline.log_snapshot import place_at, take_snapshot
from syncbrok.pipeline.schema import columns_of
from tests.support.cluster.broker_trio import BrokerTrio
from tests.support.crash.traffic import verified
from tests.support.polling import eventually_blocking

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
    made = Engine(trio.space, trio.engine.addresses)
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

    eventually_blocking(is_cut, lambda: f"the stream is cut beyond {first}, it begins with {found[0]}", 150)
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

    eventually_blocking(
        caught_up, lambda: f"{node} is as {leader}; it said {trio.brokers[node].output()[-2_000:]}", 150
    )
    assert len(sealed(trio, node)) > 5
    assert verified(trio.brokers[node].storage) == []


def test_a_follower_that_has_lost_its_disk_gets_all_from_its_peers(trio: BrokerTrio, engine: Engine) -> None:
    """Files are those of the leader, from the first segment on, though the stream holds the last of them only; and the
    node leads with them: everything that waits is there."""
    ids = publish(trio, 50)
    cut_beyond(engine, 1)
    old, node = trio.leader(), trio.followers()[0]
    broker = trio.brokers[node]
    broker.kill()
    shutil.rmtree(broker.storage)
    broker.start(150)
    are_alike(trio, node)
    assert broker.request("POST", "/v1/cluster/yield", {"to": node}).status == 202
    eventually_blocking(lambda: trio.leader() == node, "it leads", 150)
    for id_ in (ids[0], ids[-1]):
        assert eventually_blocking(lambda id_=id_: _content(trio, node, id_), "it serves").startswith(CONTENT)
    waiting = broker.request("GET", "/v1/queues/q").json()["statistics"]["waiting"]
    assert waiting == len(ids)
    assert trio.brokers[old].process.wait(150) == 0
    trio.brokers[old].start(150)


def test_any_node_can_be_read_over_the_network(trio: BrokerTrio) -> None:
    """INTERFACES 3, `/v1/log/segments`: leader and followers list the same log, each up to what it has durable, and
    their sealed and open segments give the same facts; of several nodes whichever answers is read."""
    ids = publish(trio, 8)
    urls = [trio.brokers[node].url for node in (trio.leader(), *trio.followers())]

    def facts(url: str) -> list[tuple[int, str]]:
        log = take_snapshot(place_at(url))
        query = Query("facts", columns_of("facts", "sequence,id"))
        batches = (batch for one in plan(log, query).parts for batch in read(one, log.uuid, query, CarriedRule()))
        return [(row["sequence"], row["id"]) for batch in batches for row in batch.to_pylist()]

    has_all = lambda url: [one for _, one in facts(url) if one][-len(ids) :] == ids  # noqa: E731
    for url in (*urls, ",".join(["http://127.0.0.1:9", *urls])):
        eventually_blocking(lambda url=url: has_all(url), f"{url} has what was published")
        sequences = [sequence for sequence, _ in facts(url)]
        assert sequences == [*range(sequences[0], sequences[-1] + 1)]


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
    trio.brokers[node].start(150)
    are_alike(trio, node)


def test_damaged_segments_are_fetched_again(trio: BrokerTrio) -> None:
    """One is missing, one was cut, of one the declarations have rotted, of one a message: the node has them as they
    were. Its checkpoints are gone too, without which a start alone would be refused (65). What a start does not see is
    found while it runs."""
    node = trio.followers()[0]
    broker = trio.brokers[node]
    broker.kill()
    paths = sorted(broker.storage.glob("[0-9]*.log"))
    paths[1].unlink()
    paths[2].write_bytes(paths[2].read_bytes()[:-1_000])
    data = bytearray(paths[3].read_bytes())
    data[128 + 92 + 20] ^= 0xFF  # the snapshot that it begins with
    paths[3].write_bytes(data)
    data = bytearray(paths[4].read_bytes())
    data[-1_000] ^= 0xFF
    paths[4].write_bytes(data)
    for path in broker.storage.glob("checkpoint*"):
        path.unlink()
    broker.start(150)
    are_alike(trio, node)
    eventually_blocking(
        lambda: b"syncbrok_cluster_segments_mended_total 1\n" in broker.request("GET", "/metrics").body, "it counts it"
    )


def test_a_replica_that_differs_takes_no_part(trio: BrokerTrio) -> None:
    """CLUSTER, "replicas differ": a sealed segment that is whole, and not what the others have. The node ends with 78
    and says where; started empty it is as they are again."""
    node = trio.followers()[0]
    broker = trio.brokers[node]
    broker.kill()
    path = sorted(broker.storage.glob("[0-9]*.log"))[2]
    path.write_bytes(rewritten(path.read_bytes()))
    path.with_suffix(".idx").unlink(missing_ok=True)
    assert verified(broker.storage) == []
    broker._spawn()
    assert broker.process.wait(150) == 78, broker.output()[-3_000:]
    said = broker.output().splitlines()[-1]
    assert f"the replicas differ: {path.name}" in said
    shutil.rmtree(broker.storage)
    broker.start(150)
    are_alike(trio, node)


def rewritten(data: bytes) -> bytes:
    """A sealed segment that says something else in one message, all checksums right."""
    found, at = bytearray(data), 128
    while found[at + 5] != 1:
        at += 92 + int.from_bytes(found[at + 8 : at + 12], "little")
    end = at + 92 + int.from_bytes(found[at + 8 : at + 12], "little")
    seal = len(found) - 104
    found[end - 1] ^= 1
    _sign(found, at, end)
    found[-4:] = crc32c(found[128:seal]).to_bytes(4, "little")
    _sign(found, seal, len(found))
    return bytes(found)


def _sign(data: bytearray, at: int, end: int) -> None:
    data[at + 84 : at + 88] = crc32c(data[at + 92 : end]).to_bytes(4, "little")
    data[at + 88 : at + 92] = crc32c(data[at : at + 88]).to_bytes(4, "little")


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
    assert broker.process.wait(150) == 78, broker.output()[-3_000:]
    said = broker.output().splitlines()[-1]
    assert "lacks the records 1 to " in said
    assert f"{other} at {trio.brokers[other].url} holds " in said
