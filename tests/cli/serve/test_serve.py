"""``syncbrok serve`` as a process: what it prints, what its signals do, and how it ends (INTERFACES 1)."""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import pytest

from syncbrok.cli.serve.log_lines import start_logging
from syncbrok.cli.serve.waiting_room import WaitingRoom
from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.over_http.requests.connection import Limits
from syncbrok.space.budgets import Budgets
from tests.support.broker.process import ROOT, BrokerProcess, held_port
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually, eventually_blocking


@pytest.fixture(scope="module")
def used_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a queue and some messages in it, closed in order."""
    storage = tmp_path_factory.mktemp("used") / "storage"
    with BrokerProcess(storage, queues="queues:\n  orders: {}\n") as running:
        for number in range(5):
            running.request("POST", "/v1/queues/orders/messages", b"message %d" % number)
        assert running.terminate() == 0
    return storage


def serve(tmp_path: Path, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """``syncbrok serve`` that is expected to end by itself."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SYNCBROK_")}
    return subprocess.run(
        [sys.executable, "-m", "syncbrok", "serve", *arguments],
        cwd=tmp_path, env={**env, "PYTHONPATH": str(ROOT), **variables}, capture_output=True, text=True, timeout=30,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


@pytest.fixture
def started(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A broker whose standard output can be read; in ``tmp_path``, on a port of its own choice."""
    process = subprocess.Popen(
        [sys.executable, "-m", "syncbrok", "serve", "--port", "0"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_one_line_with_the_address_then_exit_0(started: "subprocess.Popen[str]", tmp_path: Path) -> None:
    """Standard output is one line with the address, once it serves; the log goes to standard error, a JSON object a
    line; SIGTERM ends it with 0, and the directory is nobody else's."""
    assert started.stdout is not None
    line = started.stdout.readline()
    address = line.split("http://")[1].split(",")[0]
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request("GET", "/healthz")
    assert connection.getresponse().read() == b'{"status":"ok"}'
    connection.close()
    started.terminate()
    rest, log = started.communicate(timeout=40)
    assert (started.returncode, rest) == (0, "")
    events = [json.loads(one)["event"] for one in log.splitlines()]
    assert events[0] == "syncbrok.space.opened"
    assert events[-1] == "syncbrok.broker.stopped"
    assert (tmp_path / "storage").stat().st_mode & 0o077 == 0


def test_sighup_reads_the_queues_again(tmp_path: Path) -> None:
    """New entries are declared, a bad file changes nothing and is named in the log, the broker goes on (RULES 18)."""
    with BrokerProcess(tmp_path / "storage", queues="queues:\n  a: {}\n") as broker:
        file = tmp_path / "storage--queues.yml"

        def names() -> list[str]:
            return [one["name"] for one in broker.request("GET", "/v1/queues").json()["queues"]]

        file.write_text("queues:\n  b: {timout: 1s}\n")
        broker.process.send_signal(signal.SIGHUP)
        eventually_blocking(lambda: "syncbrok.yaml.refused" in broker.output(), "the mistake in the log")
        assert "--queues.yml:2: queues.b.timout: unknown key; did you mean 'timeout'?" in broker.output()
        assert names() == ["a"]
        file.write_text("queues:\n  b: {timeout: 1s}\n")
        broker.process.send_signal(signal.SIGHUP)
        eventually_blocking(lambda: names() == ["a", "b"], "the new queue")
        eventually_blocking(lambda: '"yaml_undeclared":["a"]' in broker.output(), "the queue that is not in the file")
        assert broker.terminate() == 0


def test_a_restart_does_not_revert_a_patch(tmp_path: Path) -> None:
    """What was changed over HTTP stays until the file's entry itself changes (RULES 18)."""
    broker = BrokerProcess(tmp_path / "storage", queues="queues:\n  a: {timeout: 1s}\n")

    def timeout_after(change: str | None = None) -> str:
        if change:
            (tmp_path / "storage--queues.yml").write_text(f"queues:\n  a: {{timeout: {change}}}\n")
        with broker:
            found = broker.request("GET", "/v1/queues/a").json()["timeout"]
            broker.request("PATCH", "/v1/queues/a", {"timeout": "9s"})
            assert broker.terminate() == 0
        return str(found)

    assert timeout_after() == "1s"
    assert timeout_after() == "9s"
    assert timeout_after("1000ms") == "9s", "the same, written otherwise"
    assert timeout_after("2s") == "2s"


def test_a_queue_that_says_no_scope_has_the_one_of_the_configuration(tmp_path: Path) -> None:
    """INTERFACES 1, ``defaults``: however it is made, from the file, over HTTP, by the original's route; one that says
    its own keeps that, and so does one that is there when the default changes."""
    queues = "queues:\n  filed: {}\n  said: {scope: all}\n"

    def scopes(running: BrokerProcess) -> dict[str, str]:
        return {one["name"]: one["scope"] for one in running.request("GET", "/v1/queues").json()["queues"]}

    with BrokerProcess(tmp_path / "storage", queues=queues, config="defaults: {scope: same}\n") as running:
        assert running.request("POST", "/v1/queues", {"name": "asked"}).status == 201
        assert running.request("POST", "/v1/queues", {"name": "asked"}).status == 200
        assert running.request("POST", "/v1/queues", {"name": "own", "scope": "all"}).status == 201
        assert running.request("POST", "/queue", headers={"queue": "original"}).status == 200
        made = {"filed": "same", "said": "all", "asked": "same", "own": "all", "original": "same"}
        assert scopes(running) == made
        assert running.terminate() == 0
    with BrokerProcess(tmp_path / "storage", queues=queues) as running:
        assert scopes(running) == made


def test_the_original_file_serves(tmp_path: Path) -> None:
    """``Storage: path`` and ``Queues: NAME: urls: [...]``: stored there, delivered as the original did."""
    with Recorder() as recorder:
        text = f"Storage: {tmp_path / 'old'}\nQueues:\n  orders:\n    urls: ['{recorder.url}']\n"
        broker = BrokerProcess(tmp_path / "unused", queues=text)
        at = broker._arguments.index("--storage")
        del broker._arguments[at : at + 2]
        with broker:
            id_ = broker.request("POST", "/msg", b"hello", {"queue": "orders"}).body.decode()
            (received,) = recorder.wait_for(1)
            assert json.loads(received.body) == {"id": id_, "content": "aGVsbG8="}
            assert broker.terminate() == 0
    assert list((tmp_path / "old").glob("*.log"))


def test_attempts_in_flight_are_waited_for(tmp_path: Path) -> None:
    """SIGTERM: publishes and readiness answer 503, the attempt that is out gets its answer, then exit 0."""
    asked, go_on = threading.Event(), threading.Event()

    def slowly(_: object) -> int:
        asked.set()
        go_on.wait(20)
        return 200

    with Recorder(slowly) as recorder, BrokerProcess(tmp_path / "storage", queues=f"""
queues: {{orders: {{subscribers: [{{name: slow, endpoint: '{recorder.url}'}}]}}}}
""") as broker:  # fmt: skip
        id_ = broker.request("POST", "/v1/queues/orders/messages", b"x").json()["id"]
        assert asked.wait(10)
        broker.process.terminate()
        eventually_blocking(lambda: broker.request("GET", "/readyz").status == 503, "not ready")
        assert broker.request("POST", "/v1/queues/orders/messages", b"y").status == 503
        assert broker.process.poll() is None
        go_on.set()
        assert broker.process.wait(30) == 0
        broker.start()
        assert broker.request("GET", f"/v1/messages/{id_}").json()["state"] == "complete"
        assert len(recorder.requests) == 1


def test_who_waits_is_told_when_the_broker_stops(tmp_path: Path) -> None:
    """RULES 8: a publisher that waits gets its 202 and Location when draining begins, event streams end, and neither
    keeps the broker from stopping at once."""
    queues = "queues: {q: {subscribers: [{endpoint: 'http://127.0.0.1:9/', paused: true}]}}\n"
    with BrokerProcess(tmp_path / "storage", queues=queues) as broker, ThreadPoolExecutor() as threads:
        waiting = threads.submit(broker.request, "POST", "/v1/queues/q/messages", b"x", {"Prefer": "wait=50"})
        stream = threads.submit(broker.request, "GET", "/v1/events")
        seen = ("syncbrok_waiters 1.0", "syncbrok_listeners 1.0")
        eventually_blocking(
            lambda: all(one in broker.request("GET", "/metrics").body.decode() for one in seen), "both are there"
        )
        began = time.monotonic()
        assert broker.terminate() == 0
        assert time.monotonic() - began < 3
        reply = waiting.result(10)
        assert (reply.status, reply.json()["state"]) == (202, "pending")
        assert stream.result(10).status == 200
        broker.start()
        assert broker.request("GET", reply.headers["Location"]).json()["id"] == reply.json()["id"]


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """Whoever cannot wait for attempts in flight loses nothing by it: the message is delivered after the next start."""
    go_on = threading.Event()
    with Recorder(lambda _: 200 if go_on.wait(20) else 500) as recorder, BrokerProcess(
        tmp_path / "storage", queues=f"queues: {{q: {{subscribers: [{{endpoint: '{recorder.url}'}}]}}}}\n"
    ) as broker:  # fmt: skip
        broker.request("POST", "/v1/queues/q/messages", b"x")
        recorder.wait_for(1)
        broker.process.send_signal(signal.SIGINT)
        eventually_blocking(lambda: broker.request("GET", "/readyz").status == 503, "draining")
        began = time.monotonic()
        broker.process.send_signal(signal.SIGINT)
        assert broker.process.wait(10) == 128 + signal.SIGINT
        assert time.monotonic() - began < 5
        go_on.set()
        broker.start()
        recorder.wait_for(2)


MISTAKES = [
    (("--config", "no.yml"), {}, "no.yml: cannot be read"),
    (("--config", "broker.yml"), {}, "broker.yml:2: http.prot: unknown key; did you mean 'port'?"),
    (("--queues", "queues-bad.yml"), {}, "queues-bad.yml:1: que: unknown key; did you mean 'queues'?"),
    (("--port", "http"), {}, "--port: expected a whole number"),
    ((), {"SYNCBROK_HTTP_HOST": "a b"}, "SYNCBROK_HTTP_HOST: expected an address"),
    (("--nonsense",), {}, "No such option"),
]


@pytest.mark.parametrize(("arguments", "variables", "said"), MISTAKES)
def test_a_mistake_stops_the_start(
    tmp_path: Path, arguments: tuple[str, ...], variables: dict[str, str], said: str
) -> None:
    """Exit 2, what is wrong and where on standard error, no traceback, no log made."""
    (tmp_path / "broker.yml").write_text("http:\n  prot: 5\n")
    (tmp_path / "queues-bad.yml").write_text("que: {}\n")
    ended = serve(tmp_path, *arguments, **variables)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "storage").exists()


def test_a_port_in_use_is_said_before_the_log_is_touched(tmp_path: Path) -> None:
    """Exit 1 with the address and what to do; the log has not been opened."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = serve(tmp_path, "--port", str(port))
    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "storage").exists()


@pytest.mark.parametrize("setting", ["framed: {port: %d}", "msgpack_bus: {producer_port: 0, consumer_port: %d}"])
def test_the_port_in_use_is_named_where_it_is_a_frontends(tmp_path: Path, setting: str) -> None:
    """INTERFACES 1: exit 1 with the address that could not be had, and where to set another, not with that of HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "broker.yml").write_text(f"frontends: {{{setting % port}}}\n")
        ended = serve(tmp_path, "--port", "0", "--config", "broker.yml")
    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}: " in ended.stderr
    assert "its frontend in the configuration" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_frontends_that_took_any_port_say_which(tmp_path: Path) -> None:
    """INTERFACES 1 and 4: port 0 takes any that is free, and the log names it beside its setting, each of two of one
    frontend. What is named can be connected to."""
    with BrokerProcess(tmp_path / "storage", frontends=["framed", "msgpack_bus"]) as broker:
        assert set(broker.tcp) == {"framed", "msgpack_bus.producer_port", "msgpack_bus.consumer_port"}
        assert len({broker.port, *broker.tcp.values()}) == 4
        for port in broker.tcp.values():
            socket.create_connection(("127.0.0.1", port), timeout=10).close()
        before = dict(broker.tcp)
        broker.kill()
        broker.start()
        assert broker.tcp == before


def test_two_brokers_never_share_a_log(tmp_path: Path) -> None:
    """The second one ends with 75 and leaves the first alone."""
    with BrokerProcess(tmp_path / "storage") as broker:
        ended = serve(tmp_path, "--storage", "storage", "--port", "0")
        assert ended.returncode == 75
        assert "Traceback" not in ended.stderr
        assert broker.request("GET", "/readyz").status == 200


def test_a_damaged_log_is_refused(used_log: Path, tmp_path: Path) -> None:
    """Exit 65, naming file, offset and sequences, and what to do; nothing is repaired by itself (DESIGN 4)."""
    storage = tmp_path / "storage"
    storage.mkdir()
    for file in used_log.iterdir():
        (storage / file.name).write_bytes(file.read_bytes())
    (segment,) = storage.glob("*.log")
    content = bytearray(segment.read_bytes())
    at = content.index(b"message 2")
    content[at] ^= 0xFF
    segment.write_bytes(content)
    (storage / "checkpoint").unlink(missing_ok=True)
    ended = serve(tmp_path, "--storage", "storage", "--port", "0")
    assert ended.returncode == 65, ended.stderr
    assert segment.name in ended.stderr
    assert "Traceback" not in ended.stderr


def test_endpoints_here_are_dialled_only_while_nobody_else_can_connect(tmp_path: Path, recorder: Recorder) -> None:
    """Listening on all addresses, the broker calls nothing on this machine, unless guard.allow says so."""
    queues = f"queues: {{q: {{retry: [], subscribers: [{{endpoint: '{recorder.url}'}}]}}}}\n"
    with BrokerProcess(tmp_path / "open", queues=queues, config="http: {host: 0.0.0.0, insecure: open}\n") as broker:
        told = broker.request("POST", "/v1/queues/q/messages", b"x", {"Prefer": "wait=10"}).json()
        assert told["deliveries"][0]["reason"] == "forbidden_address"
    allowing = "http: {host: 0.0.0.0, insecure: open}\nguard: {allow: [127.0.0.0/8]}\n"
    with BrokerProcess(tmp_path / "allowed", queues=queues, config=allowing) as broker:
        told = broker.request("POST", "/v1/queues/q/messages", b"x", {"Prefer": "wait=10"}).json()
        assert told["deliveries"][0]["state"] == "delivered"


def test_tokens_are_asked_for(tmp_path: Path) -> None:
    """``http.tokens``: without one 401, with one what its scopes allow; only the hash is configured."""
    digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of "secret"
    config = f"http: {{tokens: [{{name: ci, sha256: {digest}, scopes: [read]}}]}}\n"
    with BrokerProcess(tmp_path / "storage", config=config) as broker:
        assert broker.request("GET", "/v1/queues").status == 401
        token = {"Authorization": "Bearer secret"}
        assert broker.request("GET", "/v1/queues", headers=token).status == 200
        assert broker.request("POST", "/v1/queues", {"name": "a"}, headers=token).status == 403
        url = ["--url", broker.url]
        command = [sys.executable, "-m", "syncbrok", "queues", "list", *url]
        refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
        assert (refused.returncode, "SYNCBROK_TOKEN" in refused.stderr) == (4, True)
        env = {**os.environ, "SYNCBROK_TOKEN": "secret"}
        allowed = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=20, check=False)
        assert allowed.returncode == 0


def bounded(bounds: Bounds) -> Limits:
    return Limits(10.0, bounds, bounds.connections(1_000, 1_000))


def descriptors() -> int:
    """How many this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def port() -> Iterator[int]:
    """Of a waiting room, which answers nobody where it is told to take any port."""
    with held_port() as held:
        yield held


async def test_while_the_log_is_read_it_is_alive_and_not_ready(port: int) -> None:
    """``/healthz`` answers as soon as the process runs; everything else is 503 with Retry-After (INTERFACES 3)."""
    room = WaitingRoom("127.0.0.1", port, bounded(Bounds()))
    async with room, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
        async with client.get("/healthz") as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ok"})
        for method, path in (("GET", "/readyz"), ("POST", "/v1/queues/orders/messages"), ("GET", "/")):
            async with client.request(method, path, data=b"x" if method == "POST" else None) as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
                assert (await answer.json())["type"] == "urn:syncbrok:problem:draining"
    room.close()


async def test_while_the_log_is_read_an_event_source_is_cut_off_and_comes_again(port: int) -> None:
    """INTERFACES 3: a browser's EventSource that is answered anything but 200 gives up for ever, one whose connection
    breaks comes again with the id it has. So it gets no answer; a reader that does not say it is one gets the 503."""
    room = WaitingRoom("127.0.0.1", port, bounded(Bounds()))
    asked = "GET /v1/queues/orders/stream HTTP/1.1\r\nHost: localhost\r\nAccept: {}\r\nConnection: close\r\n\r\n"
    async with room:
        for accept, wanted in (("text/event-stream", b""), ("*/*", b"HTTP/1.1 503")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(asked.format(accept).encode())
            assert (await asyncio.wait_for(reader.read(), 10))[:12] == wanted
            writer.close()
    room.close()


async def test_while_the_log_is_read_a_crowd_leaves_it_its_descriptors(port: int) -> None:
    """INTERFACES 5, descriptors: the log comes first, at a start too. Of 200 sockets that ask for nothing half of what
    there is to share are let in, who comes last is answered, and once they are gone nothing is counted."""
    bounds = Bounds(Budgets.of(256))
    room = WaitingRoom("127.0.0.1", port, bounded(bounds))
    before = descriptors()
    async with room:
        crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client, client.get("/healthz") as answer:
            assert answer.status == 200
        assert descriptors() - before - len(crowd) < bounds.descriptors.total // 2
        for _, writer in crowd:
            writer.close()
    await eventually(lambda: not bounds.descriptors.used, "they are given back")
    room.close()


async def test_who_comes_between_waiting_room_and_broker_is_served() -> None:
    """A connection of the moment between the two is neither refused nor reset: it waits until the broker takes it."""
    room = WaitingRoom("127.0.0.1", 0, bounded(Bounds()))
    async with room:
        pass
    port = room.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    def answer(_: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        out.write(b"served")
        out.close()

    async with await asyncio.start_server(answer, sock=room.sockets[0]):
        assert await reader.read() == b"served"
    writer.close()
    await writer.wait_closed()


def test_log_lines_are_escaped() -> None:
    """One event is one line, whatever its fields hold; text lines too (logs are JSON, escaped)."""
    import io
    import logging

    before = logging.getLogger().handlers[:]
    try:
        for form in ("json", "text"):
            out = io.StringIO()
            start_logging("info", form, out)
            logging.getLogger("syncbrok.test").info(
                "syncbrok.test.said", extra={"name_given": 'a\nb" \x1b[31m', "some": (1, b"\xff"), "ratio": 0.5}
            )
            logging.getLogger("syncbrok.test").debug("syncbrok.test.quiet")
            (line,) = out.getvalue().splitlines()
            assert "\x1b" not in line
            if form == "json":
                shown = json.loads(line)
                assert (shown["event"], shown["name_given"]) == ("syncbrok.test.said", 'a\nb" \x1b[31m')
                assert shown["some"] == [1, "ff"]
    finally:
        logging.captureWarnings(capture=False)
        logging.getLogger().handlers[:] = before
        logging.getLogger("syncbrok").setLevel(logging.NOTSET)
