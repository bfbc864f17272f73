"""A real cluster seen by its clients: whichever node they come to, they are served by the one that leads."""

import asyncio
import hashlib
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from http.client import IncompleteRead
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.frontends.proxy_protocol import header
from tests.support.certificates import Authority
from tests.support.cluster.broker_trio import BrokerTrio
from tests.support.polling import eventually_blocking
from tests.support.tcp.wire_clients import publish_framed


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerTrio]:
    with BrokerTrio(tmp_path_factory.mktemp("trio")) as running:
        leader = running.brokers[running.leader()]
        assert leader.request("POST", "/v1/queues", {"name": "q"}).status == 201
        yield running


def published(trio: BrokerTrio, node: str, content: bytes) -> str:
    """Its id, once a node has answered; whoever has no leader is asked again, as a client does."""
    key = {"Idempotency-Key": content.decode()}

    def accepted() -> str:
        try:
            answer = trio.brokers[node].request("POST", "/v1/queues/q/messages", content, key)
        except OSError:  # cut off with its leader
            return ""
        assert answer.status in (200, 201, 503), answer
        return str(answer.json()["id"]) if answer.status < 300 else ""

    return eventually_blocking(accepted, f"{content!r} is accepted")


def test_any_node_takes_a_message_and_says_who_leads(trio: BrokerTrio) -> None:
    """Each node says the same of the cluster, and each one's answer names the leader."""
    leader = trio.leader()
    url = trio.brokers[leader].url
    for node in trio.brokers:
        answer = trio.brokers[node].request("POST", "/v1/queues/q/messages", b"from %b" % node.encode())
        assert (answer.status, answer.headers["Syncbrok-Leader"]) == (201, url)
        assert answer.headers["Syncbrok-Sync"] == "quorum"
        id_ = answer.json()["id"]
        for other in trio.brokers.values():
            assert other.request("GET", f"/v1/messages/{id_}/content").body == b"from %b" % node.encode()
        assert trio.brokers[node].request("GET", "/healthz").headers["Syncbrok-Leader"] == url


def test_a_format_over_tcp_reaches_the_leader_through_any_node(trio: BrokerTrio) -> None:
    """As it is, byte for byte, its half-close too."""
    before = _accepted(trio)
    for port in trio.framed.values():
        asyncio.run(publish_framed(port, "q", b"framed"))
    assert _accepted(trio) == before + len(trio.framed)


def test_a_stream_through_a_follower_ends_with_its_leader(trio: BrokerTrio) -> None:
    """After kill -9 the stream breaks off, publishes through the same follower answer 503 until another leads, and
    nothing that was acknowledged is missing then; the one that was killed comes back as a follower."""
    old = trio.leader()
    follower = trio.followers()[0]
    ids = [published(trio, follower, b"before %d" % number) for number in range(5)]
    with urlopen(trio.brokers[follower].url + "/v1/events", timeout=30) as stream:
        ids.append(published(trio, follower, b"seen"))
        found = b""
        while ids[-1].encode() not in found:
            found += stream.readline()
        trio.brokers[old].kill()
        with pytest.raises(IncompleteRead):
            stream.read()
    ids += [published(trio, follower, b"after %d" % number) for number in range(5)]
    new = trio.leader()
    assert new != old
    for id_ in ids:
        assert trio.brokers[follower].request("GET", f"/v1/messages/{id_}").status == 200
    trio.brokers[old].start()
    assert trio.leader() == new
    published(trio, old, b"through the one that came back")


def test_the_leader_gives_way_to_whom_is_named(trio: BrokerTrio) -> None:
    """Asked through a follower, which is named itself: it leads next and says so from its first word on; the one before
    ends with 0, and the epoch has grown."""
    old = trio.leader()
    to, asked = trio.followers()
    epoch = trio.status(asked)["epoch"]
    assert trio.brokers[asked].request("POST", "/v1/cluster/yield", {"to": old}).status == 400
    answer = trio.brokers[asked].request("POST", "/v1/cluster/yield", {"to": to})
    assert (answer.status, answer.json()) == (202, {"to": to})
    assert trio.brokers[old].process.wait(30) == 0

    def first_word() -> dict[str, Any]:
        said = trio.status(to)
        return said if said["leader"] and said["leader"]["node"] == to else {}

    said = eventually_blocking(first_word, "it says that it leads")
    assert [one["role"] for one in said["nodes"] if one["node"] == to] == ["leading"], "at once"
    assert trio.leader() == to
    published(trio, asked, b"the other one leads")
    assert trio.status(asked)["epoch"] > epoch
    trio.brokers[old].start()


def test_without_a_quorum_the_leader_reads_nothing(trio: BrokerTrio) -> None:
    """Two of three engine servers pause: the leader cannot tell whether it leads, and says so to whoever reads, through
    a follower too; when they go on it leads as before, or has given way: by then its lease is over, and another node
    may have claimed the lead first."""
    leader = trio.leader()
    follower = trio.followers()[0]
    for one in trio.engine.servers[:2]:
        one.pause(paused=True)
    try:
        for node in (leader, follower):
            broker = trio.brokers[node]
            eventually_blocking(
                lambda broker=broker: broker.request("GET", "/readyz").status == 503, "it is not ready", 60
            )
            answer = broker.request("GET", "/v1/queues/q")
            assert (answer.status, answer.json()["type"]) == (503, "urn:syncbrok:problem:no-quorum")
            assert broker.request("GET", "/v1/cluster").status == 200
    finally:
        for one in trio.engine.servers[:2]:
            one.pause(paused=False)
    broker = trio.brokers[leader]

    def decided() -> bool:
        if broker.process.poll() is None:
            with suppress(OSError):  # it ends at this moment
                return broker.request("GET", "/readyz").status == 200
        return broker.process.poll() is not None

    eventually_blocking(decided, "it leads, or has ended", 60)
    if broker.process.poll() is not None:
        assert broker.process.poll() == 76, broker.output()
        assert trio.leader() != leader
        broker.start()
    published(trio, follower, b"it goes on")


def test_over_mutual_tls_it_is_the_same(tmp_path: Path) -> None:
    """Nodes show each other certificates of one authority, and a client one that is no node's: each node serves it, and
    it may name neither itself nor another as somebody else's relay."""
    authority = Authority(tmp_path)
    node = authority.signs("node")
    tls = authority.client(authority.signs("client", "client.example"))
    more = f"http: {{tls: {{cert: {node.cert}, key: {node.key}, client_ca: {authority.file}}}}}\n"
    with BrokerTrio(tmp_path, more, tls) as trio:
        leader = trio.leader()
        assert trio.brokers[leader].request("POST", "/v1/queues", {"name": "q"}).status == 201
        for broker in trio.brokers.values():
            answer = broker.request("POST", "/v1/queues/q/messages", b"x")
            assert (answer.status, answer.headers["Syncbrok-Leader"]) == (201, trio.brokers[leader].url)
            with (
                socket.create_connection(("127.0.0.1", broker.port), timeout=20) as raw,
                tls.wrap_socket(raw, server_hostname="127.0.0.1") as client,
            ):
                client.sendall(header(("192.0.2.7", 1), ("192.0.2.8", 2)) + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert b" 400 " in client.recv(100)


def test_a_follower_reads_its_configuration_again(tmp_path: Path) -> None:
    """SIGHUP while it follows: tokens and certificates are those of the files as they are now, for its own routes and
    for the relay; and they still are once it leads."""
    authority = Authority(tmp_path)
    node = authority.signs("node")
    tls = authority.client(node)
    more = f"http: {{tls: {{cert: {node.cert}, key: {node.key}, client_ca: {authority.file}}}, tokens: [%s]}}\n"
    old, new = ({"Authorization": f"Bearer {secret}"} for secret in ("old", "new"))
    with BrokerTrio(tmp_path, more % _token("old"), tls) as trio:
        trio.headers = old
        name = trio.followers()[0]
        follower = trio.brokers[name]
        assert [follower.request("GET", "/v1/cluster", None, one).status for one in (old, new)] == [200, 401]
        before = _shown(follower.port, tls)
        authority.signs("node")
        config = tmp_path / f"{name}--config.yml"
        config.write_text(config.read_text().replace(_token("old"), _token("new")))
        follower.process.send_signal(signal.SIGHUP)
        eventually_blocking(lambda: _shown(follower.port, tls) != before, "the new certificate is shown")
        asked = lambda headers: follower.request("GET", "/v1/cluster", None, headers).status  # noqa: E731
        eventually_blocking(lambda: [asked(one) for one in (old, new)] == [401, 200], "the new token opens it")
        answer = follower.request("POST", "/v1/queues", {"name": "q"}, old)
        assert answer.status == 201, "the leader was told nothing: its tokens are as they were"
        gives_way = lambda: follower.request("POST", "/v1/cluster/yield", {"to": name}, old).status == 202  # noqa: E731
        eventually_blocking(gives_way, "the leader has heard of the follower")

        def serves() -> bool:
            try:
                answer = follower.request("GET", "/v1/queues/q", None, new)
            except OSError:  # cut off: it is about to lead
                return False
            return answer.status == 200 and answer.headers["Syncbrok-Leader"] == follower.url

        eventually_blocking(serves, "it leads, and knows the new token")
        assert [follower.request("GET", "/v1/queues/q", None, one).status for one in (old, new)] == [401, 200]


def test_a_token_that_is_created_counts_on_each_node(tmp_path: Path) -> None:
    """INTERFACES 1, tokens: created on the leader it opens the routes that a follower answers itself, revoked it opens
    them no more, and the next leader knows what there are."""
    with BrokerTrio(tmp_path) as trio:
        name = trio.followers()[0]
        follower = trio.brokers[name]

        def created(token: str, headers: dict[str, str]) -> dict[str, str]:
            answer = follower.request("POST", "/v1/tokens", {"name": token, "scopes": ["admin", "read"]}, headers)
            assert answer.status == 201, answer
            return {"Authorization": f"Bearer {answer.json()['token']}"}

        asked = lambda headers: follower.request("GET", "/v1/cluster", None, headers).status  # noqa: E731
        trio.headers = stays = created("stays", {})
        queue = follower.request("POST", "/v1/queues", {"name": "q"}, stays)
        assert queue.json()["statistics"]["changed_by"] == "stays", "who asked travels with what a follower passes on"
        goes = created("goes", stays)
        eventually_blocking(
            lambda: [asked(one) for one in ({}, stays, goes)] == [401, 200, 200], "it has heard of both"
        )
        assert follower.request("DELETE", "/v1/tokens/goes", None, stays).status == 204
        eventually_blocking(
            lambda: [asked(one) for one in (stays, goes)] == [200, 401], "it has heard that one is gone"
        )
        gives_way = lambda: follower.request("POST", "/v1/cluster/yield", {"to": name}, stays).status == 202  # noqa: E731
        eventually_blocking(gives_way, "the leader has heard of the follower")

        def leads() -> bool:
            try:
                answer = follower.request("GET", "/v1/tokens", None, stays)
            except OSError:  # cut off: it is about to lead
                return False
            return answer.status == 200 and answer.headers["Syncbrok-Leader"] == follower.url

        eventually_blocking(leads, "it leads, and knows the token")
        assert [one["name"] for one in follower.request("GET", "/v1/tokens", None, stays).json()["tokens"]] == ["stays"]
        assert follower.request("GET", "/v1/tokens", None, goes).status == 401


def _token(secret: str) -> str:
    return f"{{name: ops, sha256: {hashlib.sha256(secret.encode()).hexdigest()}, scopes: [read, publish, admin]}}"


def _shown(port: int, tls: ssl.SSLContext) -> bytes | None:
    """The certificate that a new connection sees."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as raw,
        tls.wrap_socket(raw, server_hostname="127.0.0.1") as client,
    ):
        return client.getpeercert(binary_form=True)


def _accepted(trio: BrokerTrio) -> int:
    statistics = trio.brokers["a"].request("GET", "/v1/queues/q").json()["statistics"]
    return int(statistics["accepted"])
