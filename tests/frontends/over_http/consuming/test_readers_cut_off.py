"""Readers that are cut off before they have seen anything: what comes meanwhile is there when they are back."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncbrok.client import Client, Received
from tests.support.broker.process import ROOT, BrokerProcess
from tests.support.polling import eventually, eventually_blocking


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "storage") as running:
        running.request("POST", "/v1/queues", {"name": "shop"})
        assert running.request("POST", "/v1/queues/shop/messages", b"long ago").status == 201
        yield running


def first_line(url: str, beginning: str, last_id: str | None = None) -> str:
    """One connection of an EventSource, until a line that begins so: the rest of that line."""
    asked = urllib.request.Request(url, headers={} if last_id is None else {"Last-Event-ID": last_id})
    with urllib.request.urlopen(asked, timeout=20) as stream:
        while line := stream.readline().decode():
            if line.startswith(beginning):
                return line.removeprefix(beginning).strip()
    raise AssertionError(f"the stream has ended without {beginning!r}")


@pytest.mark.parametrize("path", ["/v1/queues/shop/stream", "/v1/events"])
def test_an_event_stream_says_where_it_begins(broker: BrokerProcess, path: str) -> None:
    """INTERFACES 3: the first thing of a stream is an id, so a browser that is cut off at once misses nothing."""
    begun = first_line(broker.url + path, "id: ")
    published = broker.request("POST", "/v1/queues/shop/messages", b"while it was away").json()
    first = json.loads(first_line(broker.url + path, "data: ", begun))
    assert published["id"] in (first.get("id"), first.get("message"))


@pytest.mark.parametrize("path", ["/v1/queues/shop/stream", "/v1/events"])
def test_an_empty_last_id_is_none(broker: BrokerProcess, path: str) -> None:
    """INTERFACES 3: a reader that has seen no id yet may say so by an empty ``Last-Event-ID``."""
    begun = first_line(broker.url + path, "id: ")
    assert first_line(broker.url + path, "id: ", "") == begun


UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize(
    ("path", "more"), [("/v1/queues/shop/stream", ""), ("/v1/queues/shop/stream", UPGRADE), ("/v1/events", "")]
)
def test_a_reader_that_is_gone_before_its_stream_begins_is_no_defect(
    broker: BrokerProcess, path: str, more: str
) -> None:
    """CONTRIBUTING, errors: the log tells a trace where the broker is wrong, not where somebody hangs up: each wrote
    1.5 KB of it and took twice the processor time."""
    asked = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}\r\n".encode()
    for _ in range(100):
        with socket.create_connection(("127.0.0.1", broker.port), timeout=10) as connection:
            connection.sendall(asked)
    assert broker.request("GET", "/healthz").status == 200
    published = broker.request("POST", "/v1/queues/shop/messages", b"x", {"Prefer": "wait=10"})
    assert published.status == 200, "nobody who is gone is waited for"
    assert "Traceback" not in broker.output(), broker.output()[-2_000:]


async def test_the_client_goes_on_from_where_it_began(broker: BrokerProcess) -> None:
    """INTERFACES 3: without a group the broker forgets a consumer with its connection; what is accepted until the next
    one is there comes all the same, though nothing had come before."""
    taken: list[bytes] = []
    async with Client(broker.url) as client:

        @client.stream("shop")
        async def handle(message: Received) -> None:
            taken.append(message.content)

        running = asyncio.create_task(client.run())

        def streams() -> int:
            return len(broker.request("GET", "/v1/queues/shop/subscribers").json()["subscribers"])

        await eventually(lambda: streams() == 1, "the consumer is there", 20)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        assert broker.request("POST", "/v1/queues/shop/messages", b"while it was away").status == 201
        await eventually(lambda: taken, "the message", 20)
        assert taken == [b"while it was away"]
        client.stop()
        await running


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_tail_goes_on_when_the_broker_is_back(broker: BrokerProcess, how: str) -> None:
    """INTERFACES 1: tail prints what is accepted until it is stopped; that its broker goes is no end, and is told."""
    command = [sys.executable, "-m", "syncbrok", "tail", "shop", "--count", "2", "--url", broker.url, "--start", "1"]
    tail = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert tail.stdout is not None
    assert tail.stderr is not None
    assert tail.stdout.readline() == b"long ago\n"
    told: list[bytes] = []
    reading = threading.Thread(target=lambda: told.append(tail.stderr.readline()))  # type: ignore[union-attr]
    reading.start()
    broker.terminate() if how == "stop" else broker.kill()
    eventually_blocking(lambda: told, "it says that the broker has gone", 20)
    assert b"goes on when the broker is back" in told[0]
    broker.start()
    assert broker.request("POST", "/v1/queues/shop/messages", b"while it was away").status == 201
    out, _ = tail.communicate(timeout=30)
    reading.join()
    assert (tail.returncode, out) == (0, b"while it was away\n")


def test_tail_of_what_is_not_there_ends(broker: BrokerProcess) -> None:
    """INTERFACES 1: a queue that is not there, and a broker that never was, end it in words."""
    for arguments, code in ((("nothing",), 3), (("shop", "--url", "http://127.0.0.1:9"), 5)):
        command = [sys.executable, "-m", "syncbrok", "tail", *arguments]
        url = () if "--url" in arguments else ("--url", broker.url)
        ended = subprocess.run([*command, *url], cwd=ROOT, capture_output=True, timeout=30, check=False)
        assert ended.returncode == code, ended.stderr
