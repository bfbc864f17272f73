"""One connection of the client, as the commands and Spark's tasks use it."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from syncbrok import client
from syncbrok.client import Connection
from syncbrok.client.answers import Repeats, retry_after_s
from syncbrok.client.connection import Broken, NoStream
from syncbrok.client.paths import broker_address, queue_path, segment


class Served:
    """A server that keeps what it was asked and answers with ``status`` and ``body``; None breaks off."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str | None]] = []
        self.connections = 0
        self.status: int | None = 200
        self.body = b"{}"
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                served.connections += 1
                super().setup()

            def do_GET(self) -> None:
                served.asked.append((self.command, self.path, self.headers["Authorization"]))
                if served.status is None:
                    self.close_connection = True
                    return
                self.send_response(served.status)
                self.send_header("Content-Length", str(len(served.body)))
                self.send_header("Retry-After", "7")
                self.end_headers()
                self.wfile.write(served.body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/below/"


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    thread = threading.Thread(target=served.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.server.shutdown()
    served.server.server_close()
    thread.join()


def test_it_is_kept_alive_and_opened_again(served: Served) -> None:
    """One connection for all requests, below the path of the URL, with the token; one that broke is told
    and the next request has another."""
    with Connection(served.url, "secret") as connection:
        for _ in range(3):
            assert connection.request("GET", "/v1/queues").status == 200
        assert (served.connections, served.asked) == (1, 3 * [("GET", "/below/v1/queues", "Bearer secret")])
        served.status = None
        with pytest.raises(Broken):
            connection.request("GET", "/v1/queues")
        served.status = 200
        assert connection.request("GET", "/v1/queues").body == b"{}"
    assert served.connections == 2


def test_an_answer_is_given_whatever_its_status(served: Served) -> None:
    """The problem and the pause of a refusal are read; of a page that is no broker's, its beginning."""
    served.status, served.body = 503, b'{"detail": "later"}'
    with Connection(served.url) as connection:
        answer = connection.request("GET", "/")
        assert (answer.status, answer.problem, answer.retry_after_s) == (503, {"detail": "later"}, 7.0)
        served.body = b"<html>" + bytes(1_000_000)
        answer = connection.request("GET", "/")
        assert (answer.problem, len(answer.body)) == ({}, 65_536)
        served.body = b"{}"
        assert connection.request("GET", "/").problem == {}


def test_lines_come_as_they_are_or_not_at_all(served: Served) -> None:
    """An answer that goes on is read line by line; another one is no stream, and is told whole."""
    served.body = b"one\r\n\ntwo"
    with Connection(served.url) as connection:
        assert list(connection.lines("/stream")) == [b"one", b"", b"two"]
        served.status, served.body = 404, b'{"detail": "none"}'
        with pytest.raises(NoStream) as refused:
            list(connection.lines("/stream"))
    assert (refused.value.answer.status, refused.value.answer.problem) == (404, {"detail": "none"})


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:10000", "ftp://a", "http://", "http://a:x", "http://a:99999", "http://a b"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    """Before anything is asked."""
    with pytest.raises(ValueError, match=r"expected a URL|Port|port"):
        broker_address(url)


@pytest.mark.parametrize(("name", "shown"), [("a/b", "a%2Fb"), ("..", "%2E%2E"), (".", "%2E"), ("ä?#", "%C3%A4%3F%23")])
def test_a_name_is_one_segment(name: str, shown: str) -> None:
    """No name of a queue leads to another route, also past a proxy that takes steps up."""
    assert (segment(name), queue_path(name)) == (shown, f"/v1/queues/{shown}")


def test_repeats_double_and_end() -> None:
    """The broker's word is the least pause, the others double up to a bound, and the time is kept."""
    repeats = Repeats(1_000.0, 0.4)
    pauses = [repeats.pause_s(0.0) for _ in range(4)]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, (0.1, 0.2, 0.4, 0.4), strict=True) if pause)
    assert None not in pauses
    assert repeats.pause_s(7.0) == 7.0
    assert repeats.pause_s(1_001.0) is None
    assert [retry_after_s(header) for header in ("7", " 7 ", None, "", "soon", "1234567", "-1")] == [
        7,
        7,
        0,
        0,
        0,
        0,
        0,
    ]


def test_a_command_does_not_wait_for_aiohttp() -> None:
    """A third of a second: what only asks or only verifies does not import it."""
    code = (
        "import sys, syncbrok.cli.remote.queues, syncbrok.client as c\n"
        "c.verify, c.Connection; print('aiohttp' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(client, "nothing")  # noqa: B009 (the point is that it is asked for)
