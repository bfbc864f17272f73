"""Erasing in a cluster (RULES 32): at once through whoever leads, and off every disk in time, the engine's too; a node
that was killed meanwhile, was away, or is new ends with the same bytes.
"""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from tests.support.cluster.broker_trio import BrokerTrio
from tests.support.cluster.erasure import CONFIG, WITHIN_S, erase, fill, holding, is_gone_everywhere, publish
from tests.support.polling import eventually_blocking

_MARKS = itertools.count(1)


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerTrio]:
    with BrokerTrio(tmp_path_factory.mktemp("trio"), CONFIG) as running:
        leader = running.brokers[running.leader()]
        assert leader.request("POST", "/v1/queues", {"name": "q"}).status == 201
        yield running


def test_erased_messages_leave_every_disk(trio: BrokerTrio) -> None:
    """At once nobody is told it through the leader or a follower, and in time no file of a node or of the engine has
    it. The id stays, and a repetition of the idempotency key answers it. What its queue keeps for a second only (RULES
    37) goes by itself, everywhere too."""
    leader = trio.brokers[trio.leader()]
    mark = b"mark-%d-of-all" % next(_MARKS)
    fill(leader)
    id_ = publish(leader, mark)
    fill(leader)
    assert len(holding(trio, mark)) >= 6
    short, kept = b"short-%d-of-all" % next(_MARKS), {"name": "short", "retention": "1s"}
    assert leader.request("POST", "/v1/queues", kept).status == 201
    past = leader.request("POST", "/v1/queues/short/messages", short * 500).json()["id"]
    erase(trio.brokers[trio.followers()[0]], id_)
    is_gone_everywhere(trio, mark)
    is_gone_everywhere(trio, short)
    assert trio.brokers[trio.followers()[1]].request("GET", f"/v1/messages/{past}").status == 410
    keys = {"Idempotency-Key": f"idem-{mark.decode()}", "Syncbrok-Key": f"key-{mark.decode()}"}
    headers = {**keys, "Syncbrok-Forward-X-Whose": f"header-{mark.decode()}"}
    again = leader.request("POST", "/v1/queues/q/messages", b"%s " % mark * 500, headers)
    assert (again.status, again.json()["id"]) == (200, id_)


def test_a_takeover_in_the_middle_goes_on(trio: BrokerTrio) -> None:
    """The leader is killed when it has written one of several segments anew, while one node is away; the next leader
    does the rest, whoever was away does it when it is back, and a node with an empty disk gets what the others have.
    So with what a queue keeps for a time that ends meanwhile (RULES 37)."""
    old = trio.leader()
    leader, (away, _) = trio.brokers[old], trio.followers()
    brief = b"brief-%d-of-takeover" % next(_MARKS)
    assert leader.request("POST", "/v1/queues", {"name": "brief", "retention": "8s"}).status == 201
    kept = [leader.request("POST", "/v1/queues/brief/messages", brief * 100).json()["id"] for _ in range(20)]
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
    for mark in (*marks, brief):
        is_gone_everywhere(trio, mark)
    now = trio.brokers[trio.leader()]
    assert {now.request("GET", f"/v1/messages/{id_}").status for id_ in kept} == {410}


def _stopped(trio: BrokerTrio, node: str) -> str:
    trio.brokers[node].kill()
    return node


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
