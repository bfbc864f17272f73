"""What an acknowledgement of a cluster means, as three brokers say it: here that a second one has the message too;
beside an engine whose certificates an authority of its own has signed."""

from collections.abc import Iterator

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from tests.support.broker.process import Reply
from tests.support.certificates import Authority
from tests.support.cluster.broker_trio import BrokerTrio
from tests.support.polling import eventually_blocking


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerTrio]:
    directory = tmp_path_factory.mktemp("trio")
    authority = Authority(directory)
    cluster = {"acknowledge": "quorum+follower", "ca": str(authority.file)}
    with BrokerTrio(directory, cluster=cluster, authority=authority) as running:
        leader = running.brokers[running.leader()]
        assert leader.request("POST", "/v1/queues", {"name": "q"}).status == 201
        yield running


def published(trio: BrokerTrio) -> Reply:
    return trio.brokers[trio.leader()].request("POST", "/v1/queues/q/messages", b"m")


def test_a_second_broker_has_it_or_the_answer_says_that_none_has(trio: BrokerTrio) -> None:
    """CLUSTER: 201 once a follower has it in its file. While no other broker is there it is 202 and ``quorum``, and no
    publish is lost or refused for it; then 201 again."""
    reply = eventually_blocking(
        lambda: found if (found := published(trio)).status == 201 else None, "followers tell how far they are"
    )
    assert reply.headers["Syncbrok-Sync"] == "quorum+follower"
    leader, followers = trio.leader(), trio.followers()
    for name in followers:
        trio.brokers[name].kill()
    alone = trio.brokers[leader].request("POST", "/v1/queues/q/messages", b"alone")
    assert (alone.status, alone.headers["Syncbrok-Sync"]) == (202, "quorum")
    batch = trio.brokers[leader].request(
        "POST", "/v1/queues/q/messages:batch", b'{"content": "1"}\n', {"Content-Type": "application/x-ndjson"}
    )
    assert (batch.status, batch.headers["Syncbrok-Sync"]) == (202, "quorum")
    metrics = trio.brokers[leader].request("GET", "/metrics").body.decode()
    assert "syncbrok_cluster_unconfirmed_total 2\n" in metrics
    assert "syncbrok_cluster_confirmations_waiting 0\n" in metrics
    trio.brokers[followers[0]].start()
    eventually_blocking(lambda: published(trio).status == 201, "the one that is back is waited for")
