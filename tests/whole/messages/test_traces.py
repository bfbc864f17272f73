"""INTERFACES 1, ``traces``: what a collector of OpenTelemetry is told of messages; real brokers, a real collector."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.support.broker.process import BrokerProcess, held_port
from tests.support.http.collector import Collector, SpanRead
from tests.support.http.recorder import Received, Recorder
from tests.support.polling import eventually_blocking

MESSAGES = "/v1/queues/shop/messages"
NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.proto")
OUTSIDE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def traced(tmp_path: Path, endpoint: str, **more: Any) -> BrokerProcess:
    settings = "".join(f", {name}: {value}" for name, value in more.items())
    return BrokerProcess(tmp_path / "log", config=f"traces: {{endpoint: '{endpoint}'{settings}}}\n")


def declare(broker: BrokerProcess, url: str, **settings: Any) -> None:
    broker.request("POST", "/v1/queues", {"name": "shop", "retry": ["50ms", "50ms"]})
    given = {"name": "till", "endpoint": url, **settings}
    assert broker.request("POST", "/v1/queues/shop/subscribers", given).status == 201


def publish(broker: BrokerProcess, content: bytes, **headers: str) -> str:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    reply = broker.request("POST", MESSAGES, content, named)
    assert reply.status in {200, 201, 202}, reply.body
    return str(reply.json()["id"])


def figure(broker: BrokerProcess, name: str) -> float:
    text = broker.request("GET", "/metrics").body.decode()
    return float(next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[1])


def of(spans: list[SpanRead], message: str, name: str) -> list[SpanRead]:
    return [span for span in spans if span.attributes["messaging.message.id"] == message and span.name == name]


def failing_once(content: bytes) -> Callable[[Received], int]:
    """Answers 503 to the first attempt of the message with this content."""
    return lambda request: 503 if request.body == content and request.headers["syncbrok-attempt"] == "1" else 200


def test_a_tree_is_one_trace(tmp_path: Path) -> None:
    """INTERFACES 1: the root's id is the id of the trace; a child's span stands below its first parent's; each attempt
    is a span with its status and reason, and the request names it; what a message waited for is told; a publisher's own
    span is a link."""
    with Collector() as collector, Recorder(failing_once(b"b")) as till, traced(tmp_path, collector.url) as broker:
        declare(broker, till.url)
        a = publish(broker, b"a", traceparent=OUTSIDE, tracestate="vendor=7")
        b = publish(broker, b"b", Syncbrok_Parent=a)
        c = publish(broker, b"c", Syncbrok_Parent=b, Prefer="wait=10")
        spans = collector.wait_for_spans(9)
        assert {span.trace for span in spans} == {a.replace("-", "")}
        published = [of(spans, one, "publish shop")[0] for one in (a, b, c)]
        assert [span.parent for span in published] == ["", published[0].id, published[1].id]
        assert [span.links for span in published] == [(tuple(OUTSIDE.split("-")[1:3]),), (), ()]
        assert {span.kind for span in published} == {"producer"}
        tries = [of(spans, one, "attempt shop") for one in (a, b, c)]
        assert [len(one) for one in tries] == [1, 2, 1]
        for message, attempts in zip(published, tries, strict=True):
            assert all(one.parent == message.id and one.start_us >= message.start_us for one in attempts)
        first, second = tries[1]
        assert (first.error, first.attributes["http.response.status_code"]) == ("status", 503)
        assert first.attributes["syncbrok.outcome"] == "failed"
        assert (second.error, second.attributes["syncbrok.outcome"]) == ("", "delivered")
        assert second.attributes["messaging.system"] == "syncbrok"
        assert second.attributes["messaging.destination.name"] == "shop"
        assert second.attributes["messaging.destination.subscription.name"] == "till"
        retry = next(one for one in of(spans, b, "wait shop") if one.attributes["syncbrok.waits_for"] == "retry")
        assert first.end_us <= retry.start_us <= retry.end_us <= second.start_us
        parents = next(one for one in of(spans, c, "wait shop") if one.attributes["syncbrok.waits_for"] == "parents")
        assert parents.end_us == second.end_us <= tries[2][0].start_us
        ids = [span.id for span in spans]
        assert len(set(ids)) == len(ids)
        named = [(request.id, request.headers["traceparent"]) for request in till.requests]
        wanted = [(a, tries[0][0]), (b, first), (b, second), (c, tries[2][0])]
        assert named == [(id_, f"00-{span.trace}-{span.id}-01") for id_, span in wanted]
        assert till.requests[0].headers["tracestate"] == "vendor=7"


def test_why_a_message_waited(tmp_path: Path) -> None:
    """INTERFACES 1: a delay, the one before it with its key, and the rate of its subscriber each are a span."""
    with Collector() as collector, Recorder() as till, traced(tmp_path, collector.url) as broker:
        declare(broker, till.url, rate="2/s")
        first = publish(broker, b"1", Syncbrok_Key="k", Syncbrok_Delay="200ms")
        second = publish(broker, b"2", Syncbrok_Key="k")
        third = publish(broker, b"3", Prefer="wait=10")
        publish(broker, b"4", Prefer="wait=10")
        spans = collector.wait_for_spans(11)
        why = {one: {span.attributes["syncbrok.waits_for"] for span in of(spans, one, "wait shop")}
               for one in (first, second, third)}  # fmt: skip
        assert "delay" in why[first]
        assert "key" in why[second]
        assert any("rate" in one.attributes.values() for one in spans)


def waits(spans: list[SpanRead], message: str) -> list[str]:
    """The reasons, in order."""
    return [str(span.attributes["syncbrok.waits_for"]) for span in of(spans, message, "wait shop")]


def test_a_pause_and_an_open_breaker_are_named(tmp_path: Path) -> None:
    """INTERFACES 1: the wait for a subscriber that was paused, or whose breaker was open, says so; what comes before
    and behind it is the window's."""
    with (Collector() as collector, Recorder(lambda request: int(request.body)) as till,
          traced(tmp_path, collector.url) as broker):  # fmt: skip
        breaker = {"failures": 1, "probe": ["1s", "1s"]}
        declare(broker, till.url, paused=True, breaker=breaker)
        paused = publish(broker, b"200")
        since_s = time.monotonic()  # a wait of less than a millisecond has no span
        eventually_blocking(lambda: time.monotonic() - since_s > 0.02, "the pause has lasted")
        broker.request("PATCH", "/v1/queues/shop/subscribers/till", {"paused": False})
        till.wait_for(1)
        publish(broker, b"503", Syncbrok_Expires="3s")
        till.wait_for(2)  # it is refused, and the probe a second away
        held = publish(broker, b"200", Prefer="wait=20")
        eventually_blocking(lambda: "breaker" in waits(collector.spans, held), "the wait for the probe is told")
        spans = collector.spans
        assert [why for why in waits(spans, paused) if why != "window"] == ["pause"]
        assert {why for why in waits(spans, held) if why != "window"} == {"breaker"}
        breaker_waits = [one for one in of(spans, held, "wait shop") if "breaker" in one.attributes.values()]
        assert max(one.end_us - one.start_us for one in breaker_waits) > 100_000


def test_who_comes_for_messages_is_told_of_the_span(tmp_path: Path) -> None:
    """INTERFACES 1: a pulled message, one over a WebSocket and each line of a request with several have the span of
    their attempt as header ``traceparent``, in place of the publisher's; ``tracestate`` is as it was."""
    with Collector() as collector, Recorder() as till, traced(tmp_path, collector.url) as broker:
        declare(broker, till.url, batch={"max": 10, "wait": "50ms"}, name="batches")
        for name in ("pulls", "socket"):
            broker.request("POST", "/v1/queues/shop/subscribers", {"name": name, "pull": True})
        message = publish(broker, b"a", traceparent=OUTSIDE, tracestate="vendor=7")
        pulled = broker.request("POST", "/v1/queues/shop/pull", {"group": "pulls", "wait": "10s"}).json()["messages"][0]
        broker.request("POST", f"/v1/leases/{pulled['lease']}:ack")
        pushed = asyncio.run(first_of_socket(broker.url))
        line = orjson.loads(till.wait_for(1)[0].body)
        found = {str(span.attributes["messaging.destination.subscription.name"]): span
                 for span in collector.wait_for_spans(4) if span.name == "attempt shop"}  # fmt: skip
        for name, told in (("pulls", pulled), ("socket", pushed), ("batches", line)):
            assert told["headers"]["traceparent"] == f"00-{message.replace('-', '')}-{found[name].id}-01"
            assert told["headers"]["tracestate"] == "vendor=7"


async def first_of_socket(url: str) -> dict[str, Any]:
    """The first message of the group, which is acknowledged."""
    stream = f"{url}/v1/queues/shop/stream?group=socket"
    async with aiohttp.ClientSession() as session, session.ws_connect(stream) as socket:
        async for frame in socket:
            told: dict[str, Any] = frame.json()
            if told["type"] == "message":
                await socket.send_json({"type": "ack", "sequence": told["sequence"]})
                await socket.close()
                return told
    raise AssertionError("closed without a message")


def test_a_child_of_an_old_root_is_in_its_trace(tmp_path: Path) -> None:
    """INTERFACES 1: the id of a trace is that of the root after a restart too, of a message that came since and of
    which the root is far above: its first attempt names the trace, and so do those that follow."""
    with Collector() as collector, Recorder(failing_once(b"c")) as till, traced(tmp_path, collector.url) as broker:
        declare(broker, till.url)
        root = publish(broker, b"a", Prefer="wait=10")
        child = publish(broker, b"b", Syncbrok_Parent=root, Prefer="wait=10")
        broker.terminate()
        broker.start()
        late = publish(broker, b"c", Syncbrok_Parent=child, Prefer="wait=10")
        requests = [one for one in till.wait_for(4) if one.id == late]
        assert [one.headers["traceparent"].split("-")[1] for one in requests] == [root.replace("-", "")] * 2


@pytest.mark.parametrize("end", [BrokerProcess.kill, BrokerProcess.terminate])
def test_trees_are_whole_or_absent(tmp_path: Path, end: Callable[[BrokerProcess], object]) -> None:
    """INTERFACES 1, ``share``: of each tree all spans or none, and the same trees after kill -9, and after an end in
    good order, whose checkpoint knows no ids. What is not recorded goes out with the publisher's own
    ``traceparent``."""
    with Collector() as collector, Recorder() as till, traced(tmp_path, collector.url, share=0.5) as broker:
        declare(broker, till.url, paused=True)
        trees: list[list[str]] = []
        for _ in range(12):
            root = publish(broker, b"r", traceparent=OUTSIDE)
            child = publish(broker, b"c", Syncbrok_Parent=root)
            trees.append([root, child, publish(broker, b"g", Syncbrok_Parent=child)])
        recorded = [tree for tree in trees if int(tree[0][-8:], 16) < 1 << 31]
        collector.wait_for_spans(3 * len(recorded))
        end(broker)
        broker.start()
        assert broker.request("PATCH", "/v1/queues/shop/subscribers/till", {"paused": False}).status == 200
        requests = {one.id: one for one in till.wait_for(36)}
        expected = {(one, name) for tree in recorded for one in tree for name in ("publish shop", "attempt shop")}
        found = lambda: {(span.attributes["messaging.message.id"], span.name) for span in collector.spans}  # noqa: E731
        eventually_blocking(lambda: expected <= found(), lambda: f"{expected - found()}")
        told = {span.attributes["messaging.message.id"] for span in collector.spans}
        assert told == {one for tree in recorded for one in tree}
        for tree in trees:
            for one in tree:
                named = requests[one].headers.get("traceparent", "").split("-")[1:2]
                if tree in recorded:
                    assert named == [tree[0].replace("-", "")]
                else:
                    assert named == ([OUTSIDE.split("-")[1]] if one == tree[0] else [])


def test_a_collector_that_is_down_costs_spans_alone(tmp_path: Path) -> None:
    """Nothing waits for the collector: deliveries go on, and the broker ends in good order."""
    with held_port() as port, Recorder() as till, traced(tmp_path, f"http://127.0.0.1:{port}") as broker:
        declare(broker, till.url)
        publish(broker, b"a", Prefer="wait=10")
        eventually_blocking(lambda: "traces_not_taken" in broker.output(), broker.output)
        publish(broker, b"b", Prefer="wait=10")
        assert figure(broker, "syncbrok_spans_sent_total") == 0
        assert broker.terminate() == 0
        assert len(till.requests) == 2


def test_a_collector_that_comes_back_is_told_what_waited(tmp_path: Path) -> None:
    """INTERFACES 1: what became durable while nobody took it is sent once somebody does, each span once; nothing of it
    is counted as lost, and the log says that it is over."""
    with held_port() as port, Recorder() as till, traced(tmp_path, f"http://127.0.0.1:{port}") as broker:
        declare(broker, till.url)
        a = publish(broker, b"a", Prefer="wait=10")
        eventually_blocking(lambda: "traces_not_taken" in broker.output(), broker.output)
        b = publish(broker, b"b", Syncbrok_Parent=a, Prefer="wait=10")
        with Collector(port=port) as collector:
            collector.wait_for_spans(4)
            eventually_blocking(lambda: figure(broker, "syncbrok_spans_sent_total") >= 4, broker.output)
            assert broker.terminate() == 0
            told = [span for span in collector.spans if span.name != "wait shop"]
        assert len({span.id for span in told}) == len(told)
        named = sorted((span.attributes["messaging.message.id"], span.name) for span in told)
        assert named == sorted((one, name) for one in (a, b) for name in ("publish shop", "attempt shop"))
        assert "syncbrok.space.traces_taken" in broker.output()
        assert '"lost":0' in broker.output().partition("syncbrok.space.traces_taken")[2].partition("\n")[0]


def test_a_collector_that_hangs_holds_nothing(tmp_path: Path) -> None:
    """One that takes connections and never answers: deliveries go on, and the broker ends within its bounds."""
    with socket.create_server(("127.0.0.1", 0)) as hung, Recorder() as till:
        with traced(tmp_path, f"http://127.0.0.1:{hung.getsockname()[1]}") as broker:
            declare(broker, till.url)
            publish(broker, b"a", Prefer="wait=10")
            taken, _ = hung.accept()
            with taken:
                publish(broker, b"b", Prefer="wait=10")
                assert broker.terminate() == 0
        assert len(till.requests) == 2


def test_a_collector_that_refuses_is_not_asked_again(tmp_path: Path) -> None:
    """A batch that was answered 400 is given up and counted, and said in the log once, without the query."""
    asked = "v1/traces?key=s3cret"
    with Collector(lambda _: 400) as collector, Recorder() as till, traced(tmp_path, collector.url + asked) as broker:
        declare(broker, till.url)
        publish(broker, b"a", Prefer="wait=10")
        eventually_blocking(lambda: figure(broker, "syncbrok_spans_lost_total") >= 2, broker.output)
        assert broker.output().count("traces_not_taken") == 1
        assert collector.paths[0] == f"/{asked}"
        assert "v1/traces?key=*** answered 400" in broker.output()
        assert "s3cret" not in broker.output()
        assert broker.terminate() == 0


def test_what_waits_is_told_at_the_end(tmp_path: Path) -> None:
    """SIGTERM: what became durable just before is sent before the process ends."""
    with Collector() as collector, Recorder() as till, traced(tmp_path, collector.url) as broker:
        declare(broker, till.url)
        publish(broker, b"a", Prefer="wait=10")
        assert broker.terminate() == 0
        assert {span.name for span in collector.spans} >= {"publish shop", "attempt shop"}


def test_off_is_off(tmp_path: Path) -> None:
    """Without an endpoint nothing of OpenTelemetry's SDK is imported, and a publisher's ``traceparent`` goes on as
    it came."""
    asked = f"import sys, syncbrok.cli.serve.broker; print([one for one in sys.modules if one in {NEEDED}])"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout == "[]\n"
    with Recorder() as till, BrokerProcess(tmp_path / "log") as broker:
        declare(broker, till.url)
        publish(broker, b"a", traceparent=OUTSIDE, Prefer="wait=10")
        assert till.requests[0].headers["traceparent"] == OUTSIDE
        assert figure(broker, "syncbrok_spans_lost_total") == 0


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    """INTERFACES 1: an endpoint without the packages ends the start with exit code 2, before the log is touched."""
    lacking = "import sys; sys.modules['opentelemetry.sdk'] = None; from syncbrok.cli.main import main; main()"
    (tmp_path / "broker.yml").write_text("traces: {endpoint: 'http://127.0.0.1:4318'}\n")
    arguments = ("serve", "--config", "broker.yml", "--port", "0", "--storage", "log")
    ended = subprocess.run(
        [sys.executable, "-c", lacking, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2, ended.stderr
    assert "pip install 'syncbrok[otel]'" in ended.stderr
    assert not (tmp_path / "log").exists()
