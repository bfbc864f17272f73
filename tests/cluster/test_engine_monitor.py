"""What a server's monitor says of how it runs, and when it says nothing of it."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cluster.engine import Engine, EngineServer


class Monitor(ThreadingHTTPServer):
    says = b""


class _Answer(BaseHTTPRequestHandler):
    server: Monitor

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.says)

    def log_message(self, *_: object) -> None:
        """Not on the terminal."""


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    with Monitor(("127.0.0.1", 0), _Answer) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize(
    ("says", "syncs"),
    [
        (b'{"jetstream": {"config": {"store_dir": "/d", "sync_always": true}}}', True),
        (b'{"jetstream": {"config": {"store_dir": "/d"}}}', False),
        (b'{"jetstream": {}}', None),  # it has just begun, or has no room any more
        (b'{"jetstream": {"config": {}}}', None),
        (b"{}", None),
        (b"[]", None),
        (b"none of it", None),
    ],
)
def test_a_server_whose_store_does_not_run_says_nothing(monitor: Monitor, says: bytes, syncs: bool | None) -> None:
    """That is not that it does not fsync, for which a node refuses for good."""
    monitor.says = says
    server = EngineServer("nats://127.0.0.1:1", f"http://127.0.0.1:{monitor.server_port}")
    assert Engine("main", [server]).syncs_always(server) is syncs
