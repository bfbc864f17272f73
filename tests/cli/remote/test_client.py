"""The client of the commands, against servers that are no broker: never a traceback, always what happened and where."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from syncbrok.cli.exits import CommandFailed
from syncbrok.cli.remote.client import BrokerConnection, Response, exit_code_of, refusal, segment
from tests.support.cluster.nodes import Node


@contextmanager
def server(reply: bytes, *, connections: int = 1) -> Iterator[str]:
    """Answers whatever is asked with these bytes and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(connections):
                with listener.accept()[0] as connection:
                    connection.recv(65_536)
                    connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def response(status: int, body: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def failed(reply: bytes) -> CommandFailed:
    with server(reply) as url, closing(BrokerConnection(url)) as client, pytest.raises(CommandFailed) as raised:
        client.ask("GET", "/v1/queues").json()
    return raised.value


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"", "broke off or does not speak HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "broke off or does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "broke off or does not speak HTTP"),
    ],
)
def test_what_does_not_speak_http_is_unreachable(reply: bytes, said: str) -> None:
    """Something else listens there: exit code 5, as where nobody does."""
    error = failed(reply)
    assert said in error.message
    assert error.exit_code == 5


def test_a_page_is_no_broker() -> None:
    """Another web server at that address: said so, with how its answer began."""
    error = failed(response(200, b"<html>hello"))
    assert "is there a broker" in error.message
    assert "<html>" in error.mend
    error = failed(response(502, b"<html>bad gateway"))
    assert error.message == "the broker answered 502"
    assert "is there a broker" in error.mend


def test_http_where_tls_was_expected() -> None:
    """It is said that it is TLS that failed, not that nobody is there."""
    with (
        server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url,
        closing(BrokerConnection(url.replace("http:", "https:"))) as client,
        pytest.raises(CommandFailed) as raised,
    ):
        client.ask("GET", "/v1/queues")
    assert raised.value.exit_code == 5
    assert "no TLS connection" in raised.value.message
    assert "http://" in raised.value.mend


@pytest.mark.parametrize("token", ["a\nb", "ü"])
def test_a_token_that_no_header_can_carry(token: str) -> None:
    """A usage error that does not show the token."""
    with pytest.raises(CommandFailed) as raised:
        BrokerConnection("http://127.0.0.1:10000", token)
    assert raised.value.exit_code == 2
    assert "--token" in raised.value.message
    assert token not in raised.value.message


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, 4),
        (401, 4),
        (403, 4),
        (404, 3),
        (409, 4),
        (410, 3),
        (413, 4),
        (422, 4),
        (408, 1),
        (429, 1),
        (500, 1),
        (503, 1),
        (507, 1),
    ],
)
def test_exit_codes_say_what_to_do(status: int, code: int) -> None:
    """3: not there; 4: the asker can mend it; 1: it may work later."""
    assert exit_code_of(status) == code


def test_a_problem_is_told_with_what_to_do() -> None:
    """The detail of the problem document, and advice for whoever sits at a command line."""
    body = {"type": "urn:syncbrok:problem:unknown-queue", "title": "T", "detail": "no queue 'a'", "mend": "POST ..."}
    error = refusal(Response(404, {}, json.dumps(body).encode()))
    assert (error.message, error.exit_code) == ("no queue 'a'", 3)
    assert "syncbrok queues" in error.mend
    body["type"] = "urn:syncbrok:problem:something-new"
    assert refusal(Response(400, {}, json.dumps(body).encode())).mend == "POST ..."
    assert refusal(Response(400, {}, b"[]")).message == "the broker answered 400"


@pytest.mark.parametrize(
    "url",
    ["", "ftp://a", "http://", "http://a:x", "http://a:99999", "http://a/b c", "http://a/\n", "a,,b", "a,ftp://b"],
)
def test_a_wrong_url_is_a_usage_error(url: str) -> None:
    """Exit 2, before anything is asked."""
    with pytest.raises(CommandFailed) as raised:
        BrokerConnection(url)
    assert raised.value.exit_code == 2
    assert "--url" in raised.value.message


def test_a_host_and_port_are_enough() -> None:
    """``--url localhost:10000`` is what people type."""
    with server(response(200, b"{}")) as url, closing(BrokerConnection(url.removeprefix("http://"))) as client:
        assert client.ask("GET", "/").json() == {}


def test_several_addresses_stand_with_commas_between_them() -> None:
    """INTERFACES 1: the nodes of a cluster: who leads is found, and what only one of them can do is done there."""
    with Node() as gone, Node() as follower, Node() as leader:
        gone.end()
        follower.says("no-leader")
        url = f"{gone.url},{follower.url.removeprefix('http://')} , {leader.url}"
        with closing(BrokerConnection(url, "secret")) as client:
            assert client.ask("POST", "/v1/queues", {"name": "shop"}).status == 200
            assert client.ask("GET", "/v1/queues").status == 200
        assert [(one.method, one.token) for one in leader.asked] == [
            ("POST", "Bearer secret"),
            ("GET", "Bearer secret"),
        ]
        leader.end()
        follower.end()
        with closing(BrokerConnection(url)) as client, pytest.raises(CommandFailed) as raised:
            client.ask("GET", "/v1/queues")
    assert raised.value.exit_code == 5
    assert all(node.url.removeprefix("http://") in raised.value.message for node in (gone, follower, leader))


@pytest.mark.parametrize(
    ("text", "shown"), [("a/b", "a%2Fb"), ("..", "%2E%2E"), ("ä?#", "%C3%A4%3F%23"), ("a.b", "a.b")]
)
def test_a_name_is_one_segment_of_a_path(text: str, shown: str) -> None:
    """Whatever is typed for a queue cannot reach another route."""
    assert segment(text) == shown


def test_an_empty_name_is_a_usage_error() -> None:
    """``queues delete "$UNSET"`` must not ask for the path that is left without a name."""
    with pytest.raises(CommandFailed) as raised:
        segment("")
    assert raised.value.exit_code == 2
