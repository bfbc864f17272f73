"""``syncbrok publish --lines``, ``consume`` and ``tail`` against a real broker, as pipes use them.

Broken by hand to see these fail: a message printed and not acknowledged; a lease that is over ending the command; lines
that wait for more lines; bytes taken for text.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker.process import ROOT, BrokerProcess
from tests.support.broker.ways import Way
from tests.support.polling import eventually_blocking


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "storage") as running:
        running.request("POST", "/v1/queues", {"name": "shop"})
        yield running


def started(broker: BrokerProcess, *arguments: str, url: str = "") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "syncbrok", *arguments, "--url", url or broker.url]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ran(broker: BrokerProcess, *arguments: str, given: bytes = b"") -> tuple[int, bytes, bytes]:
    out, error = (process := started(broker, *arguments)).communicate(given, timeout=30)
    return process.returncode, out, error


def test_lines_in_lines_out(broker: BrokerProcess) -> None:
    """INTERFACES 1: each line is a message, the last one with or without a line feed, and bytes stay what they are."""
    code, ids, _ = ran(broker, "publish", "shop", "--lines", given=b"one\ntwo\n\xff\nlast")
    assert (code, len(ids.split())) == (0, 4)
    code, out, _ = ran(broker, "consume", "shop", "--count", "3", "--wait", "5s")
    assert (code, out) == (0, b"one\ntwo\n\xff\n")
    code, out, _ = ran(broker, "consume", "shop", "--wait", "100ms", "--json")
    assert json.loads(out)["content"] == "last"
    eventually_blocking(
        lambda: broker.request("GET", "/v1/queues/shop").json()["statistics"]["waiting"] == 0, "all is acknowledged"
    )
    assert ran(broker, "consume", "shop", "--wait", "100ms") == (0, b"", b"")


@pytest.mark.parametrize("how", [(), ("--lines",)])
def test_a_publish_to_a_cluster_is_asked_again(broker: BrokerProcess, how: tuple[str, ...]) -> None:
    """INTERFACES 1: to several addresses each message has a key, so that an answer that was lost with its node costs
    neither the message nor a second one."""
    with Way(broker.port) as first, Way(broker.port) as second:
        first.swallow = b'"id'
        process = started(broker, "publish", "shop", *how, url=f"{first.url},{second.url}")
        ids, error = process.communicate(b"one\ntwo", timeout=30)
        assert (process.returncode, error, first.swallow) == (0, b"", b"")
    assert len(ids.split()) == (2 if how else 1)
    assert broker.request("GET", "/v1/queues/shop").json()["statistics"]["accepted"] == len(ids.split())


def test_lines_fit_what_the_broker_takes(tmp_path: Path) -> None:
    """INTERFACES 1: how much a batch may be is the broker's to set; a command that does not know it publishes all lines
    all the same, in order, each once. One line that is too much by itself is named."""
    lines = [b"%03d" % number for number in range(30)]
    with BrokerProcess(tmp_path / "storage", config="http: {batch_lines: 7, batch: 100, body: 100}\n") as running:
        running.request("POST", "/v1/queues", {"name": "shop"})
        code, ids, error = ran(running, "publish", "shop", "--lines", given=b"\n".join(lines))
        assert (code, error) == (0, b"")
        kept = running.request("GET", "/v1/queues/shop/messages").json()["messages"]
        assert [one["id"].encode() for one in kept] == ids.split()
        assert [running.request("GET", f"/v1/messages/{one['id']}/content").body for one in kept] == lines
        code, _, error = ran(running, "publish", "shop", "--lines", given=b"x" * 200)
        assert (code, b"100 bytes" in error) == (4, True), error


def test_lines_are_published_as_they_come(broker: BrokerProcess) -> None:
    """INTERFACES 1: a pipe that stays open does not hold back what it has said."""
    process = started(broker, "publish", "shop", "--lines")
    assert process.stdin is not None
    assert process.stdout is not None
    for content in (b"first\n", b"second\n"):
        process.stdin.write(content)
        process.stdin.flush()
        assert len(process.stdout.readline()) > 30
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_tail_prints_what_is_accepted(broker: BrokerProcess) -> None:
    """INTERFACES 1: from the beginning, or from now on; nobody else gets less for it."""
    broker.request("POST", "/v1/queues/shop/messages", b"old")
    code, out, _ = ran(broker, "tail", "shop", "--start", "beginning", "--count", "1")
    assert (code, out) == (0, b"old\n")
    process = started(broker, "tail", "shop", "--json", "--count", "1")

    def arrived() -> bool:
        broker.request("POST", "/v1/queues/shop/messages", b"new")
        return process.poll() is not None

    eventually_blocking(arrived, "it has printed one", timeout_s=30)
    out, _ = process.communicate()
    assert json.loads(out)["content"] == "new"
    assert broker.request("GET", "/v1/queues/shop/subscribers").json()["subscribers"] == []


@pytest.mark.parametrize("arguments", [("consume", "shop"), ("tail", "shop", "--start", "beginning")])
def test_an_interrupt_is_how_it_ends(broker: BrokerProcess, arguments: tuple[str, ...]) -> None:
    """INTERFACES 1: what goes on until it is stopped ends well when it is, and says nothing."""
    broker.request("POST", "/v1/queues/shop/messages", b"one")
    process = started(broker, *arguments)
    assert process.stdout is not None
    assert process.stdout.readline() == b"one\n"
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=30)
    assert (process.returncode, out, error) == (0, b"", b"")


def test_what_was_printed_too_late_is_told(broker: BrokerProcess) -> None:
    """RULES 9: a lease that ran out while its message was being printed; the message comes again, and the command goes
    on with the next."""
    broker.request("PATCH", "/v1/queues/shop", {"retry": ["0s"] * 5})
    for number in range(3):
        broker.request("POST", "/v1/queues/shop/messages", b"%d" % number * 400_000)
    process = started(broker, "consume", "shop", "--lease", "1s", "--count", "3")
    assert process.stdout is not None
    failed = lambda: broker.request("GET", "/v1/queues/shop").json()["statistics"]["failed"]  # noqa: E731
    eventually_blocking(lambda: failed() >= 1, "the pipe is full, and the lease of what fills it runs out", 30)
    out, error = process.communicate(timeout=30)
    assert process.returncode == 0
    assert [line[:1] for line in out.split()] == [b"0", b"1", b"2"]
    assert b"comes again" in error


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("consume", "nothing"), 3, b"nothing"),
        (("tail", "nothing"), 3, b"nothing"),
        (("consume", "shop", "--lease", "soon"), 4, b"lease"),
        (("publish", "shop", "--lines", "--key", "k"), 2, b"--key"),
        (("consume", "shop", "--count", "-1"), 2, b"--count"),
        (("tail", "shop", "--count", "none"), 2, b"--count"),
    ],
)
def test_mistakes_are_told(broker: BrokerProcess, arguments: tuple[str, ...], code: int, words: bytes) -> None:
    """CONTRIBUTING, errors: the exit code scripts rely on, and what to mend."""
    found, _, error = ran(broker, *arguments)
    assert found == code, error
    assert words in error
    assert b"Traceback" not in error


def test_tail_and_consume_go_on_at_the_next_address(broker: BrokerProcess) -> None:
    """INTERFACES 1: with the addresses of a cluster, a node that goes costs nothing that was accepted: ``tail`` goes on
    behind its last event, ``consume`` with what was not acknowledged."""
    with Way(broker.port) as one, Way(broker.port) as other:
        url = f"{one.url}, {other.url}"
        tailing = started(broker, "tail", "shop", "--start", "beginning", "--count", "2", url=url)
        consuming = started(broker, "consume", "shop", "--count", "2", url=url)
        broker.request("POST", "/v1/queues/shop/messages", b"first")
        for process in (tailing, consuming):
            assert process.stdout is not None
            assert process.stdout.readline() == b"first\n"
        one.cut()
        broker.request("POST", "/v1/queues/shop/messages", b"second")
        for process in (tailing, consuming):
            out, error = process.communicate(timeout=60)
            assert (process.returncode, out.replace(b"first\n", b"")) == (0, b"second\n"), error
