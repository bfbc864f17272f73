"""Takes the pictures of docs/page.md (``make screenshots``): a broker with a shop in it, whose billing endpoint is
down, in a real browser."""

import sys
import tempfile
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.broker.process import BrokerProcess
from tests.support.http.browser import Browser
from tests.support.polling import eventually_blocking

WIDTH = 1_200
PICTURES = {
    "page-overview.png": 820,
    "page-queue.png": 900,
    "page-message.png": 1_250,
    "page-breakers.png": 780,
    "page-actions.png": 620,
}
"""how high each is"""


class _Shop(BaseHTTPRequestHandler):
    """Takes what is posted, but for what is posted to /down (503), /wrong (422) and /gone (410)."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status = {"/down": 503, "/wrong": 422, "/gone": 410}.get(self.path, 204)
        self.send_response(status)
        body = b"" if status == 204 else b'{"error": "this address is not known"}'
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's word)
        """Say nothing."""


@contextmanager
def _endpoints() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Shop)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _filled(broker: BrokerProcess, shop: str) -> str:
    """Queues, subscribers and messages of a shop; the id of one that waits."""
    for name, subscribers in {
        "customers": {"crm": "/", "billing": "/down"},
        "invoices": {"ledger": "/"},
        "addresses": {"maps": "/wrong"},
        "refunds": {"erp": "/gone"},
    }.items():
        assert broker.request("POST", "/v1/queues", {"name": name, "retry": ["10m"]}).status == 201
        for one, path in subscribers.items():
            breaker = {"failures": 1, "probe": ["10m", "10m"]} if path == "/down" else False
            body = {
                "name": one,
                "breaker": breaker,
                "endpoint": shop + path,
                "retry": [] if path == "/wrong" else ["10m"],
            }
            assert broker.request("POST", f"/v1/queues/{name}/subscribers", body).status == 201

    def publish(queue: str, content: bytes, *parents: str) -> str:
        headers = {"Content-Type": "application/json", **({"Syncbrok-Parent": ",".join(parents)} if parents else {})}
        return str(broker.request("POST", f"/v1/queues/{queue}/messages", content, headers).json()["id"])

    for number in range(3):
        publish("addresses", b'{"street": "Elm Street", "number": %d}' % number)
    publish("refunds", b'{"order": 1}')
    customer = publish("customers", b'{"customer": 7, "name": "Ada"}')
    orders = [publish("invoices", b'{"invoice": %d}' % number, customer) for number in range(3)]
    return publish("invoices", b'{"sum": 3}', *orders)


def take(directory: Path) -> None:
    """Write ``PICTURES`` into the directory."""
    with tempfile.TemporaryDirectory() as work, _endpoints() as shop, BrokerProcess(Path(work) / "log") as broker:
        waits = _filled(broker, shop)
        letters = "/v1/queues/addresses/dead-letters"
        eventually_blocking(
            lambda: len(broker.request("GET", letters).json()["dead_letters"]) == 3, "three are dead", 30
        )
        with Browser(Path(work) / "profile", "--force-color-profile=srgb", width=WIDTH) as browser:
            views = (
                ("#/", "waits for parent"),
                ("#/queues/addresses", "answered 422"),
                (f"#/messages/{waits}", "Critical"),
                ("#/breakers", "the next probe"),
                ("#/actions", "declared or changed a subscriber"),
            )
            for (name, height), (fragment, text) in zip(PICTURES.items(), views, strict=True):
                metrics = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
                browser.devtools("Emulation.setDeviceMetricsOverride", metrics)
                browser.open(f"{broker.url}/{fragment}")
                browser.wait_for(text)
                browser.wait_for("live", "#link")
                picture = browser.devtools("Page.captureScreenshot", {"format": "png"})["data"]
                (directory / name).write_bytes(b64decode(picture))


if __name__ == "__main__":
    take(Path(sys.argv[1]))
