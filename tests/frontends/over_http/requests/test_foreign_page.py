"""A page of another site in a real browser, beside a real broker with the settings it comes with."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker.process import BrokerProcess
from tests.support.http.browser import Browser, installed
from tests.support.polling import eventually_blocking

pytestmark = pytest.mark.skipif(not installed, reason="no chromium and chromedriver here")
REBOUND = "attacker.example"
TRY = """
const [broker, callback] = [arguments[0], arguments[arguments.length - 1]];
const tries = {};
const socket = new Promise(done => {
  const ws = new WebSocket(broker.replace("http", "ws") + "/v1/queues/shop/stream?start=beginning");
  ws.onmessage = event => done("read " + event.data);
  ws.onopen = () => ws.send(JSON.stringify({type: "publish", ref: 1, content: "forged"}));
  ws.onerror = () => done("refused");
});
const asked = (path, options) => fetch(broker + path, options).then(
  async answer => answer.type === "opaque" ? "opaque" : answer.status + " " + await answer.text(), () => "refused");
const plain = {method: "POST", body: "forged", headers: {"Content-Type": "text/plain"}, mode: "no-cors"};
Promise.all([
  socket,
  asked("/v1/queues"),
  asked("/v1/queues/shop/messages", plain),
  asked("/v1/queues/shop/purge", {...plain, body: "{}"}),
  asked("/v1/queues", {method: "POST", body: '{"name": "forged"}', headers: {"Content-Type": "application/json"}}),
]).then(callback);
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One whose DNS is the attacker's: the name is this machine."""
    with Browser(tmp_path_factory.mktemp("profile"), f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1") as running:
        yield running


@pytest.fixture(scope="module")
def foreign() -> Iterator[int]:
    """The port of a web server that has an empty page."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"hi")

        def log_message(self, *_: object) -> None:
            """Tests are quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "storage") as running:
        assert running.request("POST", "/v1/queues", {"name": "shop"}).status == 201
        assert running.request("POST", "/v1/queues/shop/messages", b"secret").status == 201
        yield running


def accepted(broker: BrokerProcess) -> int:
    return len(broker.request("GET", "/v1/queues/shop/messages").json()["messages"])


@pytest.mark.parametrize("name", ["localhost", REBOUND])
def test_a_foreign_page_reads_nothing_and_changes_nothing(
    browser: Browser, foreign: int, broker: BrokerProcess, name: str
) -> None:
    """DESIGN 1, who may speak: whichever way a page tries (a socket, fetch with and without leave), it sees no message
    and none is published; the broker has nobody it would wait for."""
    browser.open(f"http://{name}:{foreign}/")
    tried = browser.run_async(TRY, f"http://127.0.0.1:{broker.port}")
    assert tried[0] == "refused"
    assert tried[1] == "refused"
    assert tried[4] == "refused"
    assert not [one for one in tried if "secret" in one or "forged" in one]
    assert accepted(broker) == 1
    assert broker.request("GET", "/v1/queues/forged").status == 404
    assert broker.request("GET", "/v1/queues/shop/subscribers").json()["subscribers"] == []


def test_a_name_that_was_rebound_shows_nothing(browser: Browser, broker: BrokerProcess) -> None:
    """DESIGN 1, who may speak: a page whose name now means this machine is of the broker's own origin for the browser;
    the broker does not answer by that name."""
    browser.open(f"http://{REBOUND}:{broker.port}/healthz")
    tried = browser.run_async(TRY, f"http://{REBOUND}:{broker.port}")
    assert tried[0] == "refused"
    assert tried[1].startswith("421 ")
    assert tried[4].startswith("421 ")
    assert not [one for one in tried if "secret" in one]
    assert accepted(broker) == 1


def test_the_page_of_the_broker_may(browser: Browser, broker: BrokerProcess) -> None:
    """DESIGN 1, who may speak: what is refused to others works for the broker's own page, so the tests above would
    notice if it worked for them."""
    browser.open(f"{broker.url}/healthz")
    tried = browser.run_async(TRY, broker.url)
    assert tried[0].startswith('read {"type":"subscribed"')
    assert tried[1].startswith("200 ")
    assert tried[2].startswith("201 ")
    assert tried[4].startswith("201 ")
    eventually_blocking(lambda: accepted(broker) == 3, "what the socket and the page have published")
