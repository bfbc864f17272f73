"""The examples do what their first lines say, started as a reader would start them."""

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from tests.support.broker.process import BrokerProcess, held_port
from tests.support.http.node_client import beside, node
from tests.support.polling import eventually_blocking
from tests.whole.test_tidy import ROOT

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes ...").decode()
ID = "018f2d3c-0000-8000-8000-000000000001"


class Example:
    """An example that listens, and what it has printed."""

    def __init__(self, port: int, output: Path) -> None:
        self.port = port
        self._output = output

    def post(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", "/", body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def printed(self) -> str:
        return self._output.read_text()


@contextmanager
def example(folder: Path, name: str, *options: str) -> Iterator[Example]:
    output, command = folder / "printed", [*started(folder, name), *options]
    with (
        held_port() as port,
        output.open("w") as out,
        subprocess.Popen(
            [*command, "--port", str(port)], stdout=out, env={**os.environ, "WEBHOOK_SECRET": SECRET}
        ) as process,
    ):
        try:
            eventually_blocking(lambda: "listening" in output.read_text(), f"{name} listening on port {port}")
            eventually_blocking(lambda: connects(port), f"{name} taking connections")
            yield Example(port, output)
        finally:
            process.kill()


def started(folder: Path, name: str) -> list[str]:
    """The command that starts it."""
    file = ROOT / "examples" / name
    if file.suffix == ".py":
        return [sys.executable, str(file)]
    program, copy = node(), str(beside(file, folder))
    served = [str(ROOT / "tests" / "support" / "http" / "serve_route.mjs")] if name == ROUTE else []
    return [program, *served, copy]


def connects(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def signed(body: bytes, at: datetime) -> dict[str, str]:
    signature = Webhook(SECRET).sign(ID, at, body.decode())
    return {"webhook-id": ID, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}


def test_the_subscriber_speaks_both_formats(tmp_path: Path) -> None:
    """INTERFACES 2 and 3: it acknowledges a v1 webhook, and the original's JSON with the body ``true``."""
    with example(tmp_path, "subscriber.py") as subscriber:
        v1 = subscriber.post(b"first", {"webhook-id": ID, "syncbrok-attempt": "2", "syncbrok-parents": "p"})
        original = {"id": ID, "content": base64.b64encode(b"second").decode()}
        answer = subscriber.post(json.dumps(original).encode(), {"Content-Type": "application/json"})
        assert v1[0] == 200
        assert answer == (200, b"true")
        assert subscriber.printed().splitlines()[1:] == [
            f"   1  first  id {ID}  after p  attempt 2",
            f"   2  second  id {ID} (original format)",
        ]


def test_the_subscriber_fails_when_told_to(tmp_path: Path) -> None:
    """--fail-first N answers 503 N times, then acknowledges: what a subscriber in trouble looks like."""
    with example(tmp_path, "subscriber.py", "--fail-first", "2") as subscriber:
        assert [subscriber.post(b"x", {"webhook-id": ID})[0] for _ in range(3)] == [503, 503, 200]


ROUTE = "receive_next.mjs"
STARTED = ("verify_webhook.py", "receive_aiohttp.py", "receive_fastapi.py", "receive_flask.py", "receive_express.mjs")
RECEIVERS = (*STARTED, ROUTE)


@pytest.mark.parametrize("name", RECEIVERS)
def test_only_what_was_signed_is_believed(tmp_path: Path, name: str) -> None:
    """A changed body, an old timestamp and a missing or broken signature are refused; two signatures may be there."""
    now = datetime.now(UTC)
    with example(tmp_path, name) as receiver:
        genuine = signed(b"content", now)
        both = {**genuine, "webhook-signature": "v1,AAAA " + genuine["webhook-signature"]}
        assert receiver.post(b"content", genuine)[0] == 204
        assert receiver.post(b"content", both)[0] == 204
        forged = [
            (b"changed", genuine),
            (b"content", signed(b"content", now - timedelta(hours=1))),
            (b"content", {"webhook-id": ID}),
            (b"content", {**genuine, "webhook-signature": "v1,not base64"}),
        ]
        assert [receiver.post(body, headers)[0] for body, headers in forged] == [401] * 4


@pytest.mark.parametrize("name", STARTED)
@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_" + base64.b64encode(bytes(23)).decode()])
def test_a_receiver_without_a_secret_does_not_start(tmp_path: Path, name: str, secret: str) -> None:
    """INTERFACES 3, secrets: with none, or one that anybody could guess, a forged webhook would be genuine. The
    receiver says so in words and ends."""
    environment = {**os.environ, "WEBHOOK_SECRET": secret}
    command = [*started(tmp_path, name), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as one:
        try:
            printed, words = one.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            one.kill()
            printed, words = one.communicate()
    assert one.returncode == 1, printed
    assert "WEBHOOK_SECRET" in words
    assert "Traceback" not in words


@pytest.mark.parametrize("name", RECEIVERS[1:])  # the library of the first one takes no body that is not text
def test_the_webhooks_of_a_broker_are_believed(tmp_path: Path, name: str) -> None:
    """INTERFACES 3: what a broker signs with the subscriber's secret is taken, text and bytes alike, also while it is
    being rotated; what it signs with another is refused, and told as such."""
    with example(tmp_path, name) as receiver, BrokerProcess(tmp_path / "storage") as broker:
        broker.request("POST", "/v1/queues", {"name": "orders", "retry": ["0s"]})
        endpoint = f"http://127.0.0.1:{receiver.port}/"
        subscribers = "/v1/queues/orders/subscribers"
        broker.request("POST", subscribers, {"name": "right", "endpoint": endpoint, "secret": SECRET})
        for content in (b"text", b"\xff\x00", b""):
            answer = broker.request("POST", "/v1/queues/orders/messages", content, {"Prefer": "wait=20"}).json()
            assert (answer["state"], answer["deliveries"][0]["status"]) == ("complete", 204)
        other = "whsec_" + base64.b64encode(b"another secret of as many bytes!").decode()
        broker.request("POST", f"{subscribers}/right/rotate-secret", {"secret": other})  # signed with both for a day
        answer = broker.request("POST", "/v1/queues/orders/messages", b"rotated", {"Prefer": "wait=20"}).json()
        assert answer["state"] == "complete"
        broker.request("DELETE", f"{subscribers}/right")
        broker.request("POST", subscribers, {"name": "wrong", "endpoint": endpoint, "secret": other})
        answer = broker.request("POST", "/v1/queues/orders/messages", b"forged", {"Prefer": "wait=20"}).json()
        assert (answer["state"], answer["deliveries"][0]["status"]) == ("dead", 401)
        assert receiver.printed().count("genuine") == 4


@pytest.mark.skipif(shutil.which("curl") is None, reason="the example uses curl, which is not installed")
def test_the_family_is_published_and_a_refusal_told_in_words(tmp_path: Path) -> None:
    """A queue that is not there is told as the broker tells it, with what to do, and nothing else is printed; where no
    broker answers, the example fails as well."""
    with BrokerProcess(tmp_path / "storage") as broker:
        broker.request("POST", "/v1/queues", {"name": "orders"})
        done = family("orders", broker.url)
        assert [line.split()[0] for line in done.stdout.splitlines()] == ["parent", "first", "second"]
        assert (done.returncode, done.stderr) == (0, "")
        refused = family("nothing", broker.url)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("there is no queue 'nothing'")
        assert "POST /v1/queues" in refused.stderr
        assert "Traceback" not in refused.stderr
    unheard = family("orders", broker.url)
    assert (unheard.returncode, unheard.stdout) == (1, "")
    assert "Traceback" not in unheard.stderr


def family(queue: str, url: str) -> "subprocess.CompletedProcess[str]":
    command = [str(ROOT / "examples" / "publish_family.sh"), queue, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_client_publishes_families_and_takes_them_parents_first(tmp_path: Path) -> None:
    """As its first lines say: every child after its parents, and nothing is left waiting."""
    with BrokerProcess(tmp_path / "storage") as broker:
        command = [sys.executable, str(ROOT / "examples" / "client_family.py"), "--url", broker.url, "--families", "40"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "120 messages, every child after its parents" in ran.stdout


def test_the_client_works_off_jobs_without_asyncio(tmp_path: Path) -> None:
    """As its first lines say: each job is tried until it works, and the program ends by itself."""
    with BrokerProcess(tmp_path / "storage") as broker:
        command = [sys.executable, str(ROOT / "examples" / "client_worker.py"), "--url", broker.url, "--jobs", "40"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout == "40 of 40 jobs done; the last one is complete\n"
