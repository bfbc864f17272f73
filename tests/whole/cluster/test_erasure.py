"""Erasing in a cluster (RULES 32): at once through whoever leads, and off every disk in time, the engine's too; a node
that was killed meanwhile, was away, or is new ends with the same bytes.
"""

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from tests.support.cluster.broker_nodes import BrokerNode
from tests.support.cluster.broker_trio import BrokerTrio
from tests.support.crash.traffic import verified
from tests.support.polling import eventually_blocking

WITHIN_S = 20
CONFIG = f"storage: {{segment: 128KiB, erase_within: {WITHIN_S}s}}\n"
_MARKS = itertools.count(1)
_gone: list[bytes] = []


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerTrio]:
    with BrokerTrio(tmp_path_factory.mktemp("trio"), CONFIG) as running:
        leader = running.brokers[running.leader()]
        assert leader.request("POST", "/v1/queues", {"name": "q"}).status == 201
        yield running


def publish(broker: BrokerNode, mark: bytes) -> str:
    """Its id. What has the mark in it: key, idempotency key, a header, and content of more than a segment's part."""
    keys = {"Idempotency-Key": f"idem-{mark.decode()}", "Syncbrok-Key": f"key-{mark.decode()}"}
    headers = {**keys, "Syncbrok-Forward-X-Whose": f"header-{mark.decode()}"}
    answer = broker.request("POST", "/v1/queues/q/messages", b"%s " % mark * 500, headers)
    assert answer.status == 201, answer.body
    return str(answer.json()["id"])


def fill(broker: BrokerNode, count: int = 40) -> None:
    """What stands around it, in several segments."""
    for number in range(count):
        assert broker.request("POST", "/v1/queues/q/messages", b"%d" % number * 5_000).status == 201


def erase(broker: BrokerNode, id_: str) -> None:
    assert broker.request("DELETE", f"/v1/messages/{id_}/content").status == 200
    assert broker.request("GET", f"/v1/messages/{id_}/content").status == 410


def holding(trio: BrokerTrio, mark: bytes, *, journals: bool = False) -> list[str]:
    """Files that have the mark: of every node and of every server of the engine, checkpoints and leftovers too.
    ``journals``: also those by which the servers agree, which each shortens by itself every few minutes."""
    roots = [one.storage for one in trio.brokers.values()] + [one.store for one in trio.engine.servers]
    paths = [Path(at) / name for root in roots for at, _, names in os.walk(root) for name in names]
    return [str(path) for path in paths if (journals or "_js_" not in path.parts) and mark in _bytes(path)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def sealed(broker: BrokerNode) -> dict[str, bytes]:
    paths = sorted(broker.storage.glob("[0-9]*.log"))
    return {path.name: path.read_bytes() for path in paths[:-1]}


def is_gone_everywhere(trio: BrokerTrio, mark: bytes) -> None:
    """No file has the mark, all nodes have the same bytes, and each log verifies."""
    _gone.append(mark)
    eventually_blocking(
        lambda: not holding(trio, mark), lambda: f"it is gone, not from {holding(trio, mark)}", 6 * WITHIN_S
    )
    one, *others = trio.brokers.values()

    def alike() -> bool:
        return bool(sealed(one)) and all(sealed(other) == sealed(one) for other in others)

    eventually_blocking(alike, "all have the same bytes", 6 * WITHIN_S)
    for broker in trio.brokers.values():
        assert verified(broker.storage) == []
        assert "replicas differ" not in broker.output()


def test_erased_messages_leave_every_disk(trio: BrokerTrio) -> None:
    """At once nobody is told it through the leader or a follower, and in time no file of a node or of the engine has
    it. The id stays, and a repetition of the idempotency key answers it."""
    leader = trio.brokers[trio.leader()]
    mark = b"mark-%d-of-all" % next(_MARKS)
    fill(leader)
    id_ = publish(leader, mark)
    fill(leader)
    assert len(holding(trio, mark)) >= 6
    erase(trio.brokers[trio.followers()[0]], id_)
    is_gone_everywhere(trio, mark)
    keys = {"Idempotency-Key": f"idem-{mark.decode()}", "Syncbrok-Key": f"key-{mark.decode()}"}
    headers = {**keys, "Syncbrok-Forward-X-Whose": f"header-{mark.decode()}"}
    again = leader.request("POST", "/v1/queues/q/messages", b"%s " % mark * 500, headers)
    assert (again.status, again.json()["id"]) == (200, id_)


def test_a_takeover_in_the_middle_goes_on(trio: BrokerTrio) -> None:
    """The leader is killed when it has written one of several segments anew, while one node is away; the next leader
    does the rest, whoever was away does it when it is back, and a node with an empty disk gets what the others have."""
    old = trio.leader()
    leader, (away, _) = trio.brokers[old], trio.followers()
    marks = [b"mark-%d-of-takeover" % next(_MARKS) for _ in range(3)]
    ids = []
    for mark in marks:
        ids.append(publish(leader, mark))
        fill(leader, 20)
    trio.brokers[away].kill()
    for id_ in ids:
        erase(leader, id_)
    said = leader.output().count("syncbrok.log.segment_erased")
    eventually_blocking(lambda: leader.output().count("syncbrok.log.segment_erased") > said, "it begins", 2 * WITHIN_S)
    leader.kill()
    (heir,) = {*trio.brokers} - {old, away}
    successor = trio.brokers[heir]
    eventually_blocking(lambda: successor.request("GET", "/v1/queues/q").status == 200, "it leads", 60)
    for id_ in ids:
        assert successor.request("GET", f"/v1/messages/{id_}/content").status == 410
    leader.start(150)
    eventually_blocking(lambda: "syncbrok.space.erased" in successor.output(), "the successor ends it", 6 * WITHIN_S)
    trio.brokers[away].start(150)
    shutil.rmtree(trio.brokers[_stopped(trio, old)].storage)
    trio.brokers[old].start(150)
    for mark in marks:
        is_gone_everywhere(trio, mark)


def _stopped(trio: BrokerTrio, node: str) -> str:
    trio.brokers[node].kill()
    return node


def test_the_engine_has_it_in_no_file(trio: BrokerTrio) -> None:
    """What was erased above stands in no journal of the engine's servers either, which shorten them every two minutes:
    it was written to none once more. (Two minutes of waiting; neither more traffic nor a restart makes them sooner.)"""
    if not _gone:
        test_erased_messages_leave_every_disk(trio)
    found = lambda: [path for mark in _gone for path in holding(trio, mark, journals=True)]  # noqa: E731
    eventually_blocking(lambda: not found(), lambda: f"it is gone, not from {found()}", 240)


def test_a_cluster_that_keeps_all_of_its_stream_erases_nothing(tmp_path: Path) -> None:
    """409, with words that say which setting is in the way; the message stays."""
    with BrokerTrio(tmp_path, CONFIG, keep="all") as trio:
        leader = trio.brokers[trio.leader()]
        assert leader.request("POST", "/v1/queues", {"name": "q"}).status == 201
        id_ = publish(leader, b"mark-of-all")
        answer = leader.request("DELETE", f"/v1/messages/{id_}/content")
        assert answer.status == 409
        assert "cluster.keep: all" in answer.json()["detail"]
        assert leader.request("GET", f"/v1/messages/{id_}/content").status == 200
