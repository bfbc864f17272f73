"""A queue's name on every way through a real broker: what goes in by one door comes out of every other unchanged.

Broken by hand to see these fail: the fast path's answer without JSON's escapes; its length counted in characters; the
queue in a path taken as aiohttp decodes it; ``syncbrok-queue`` sent as it is; the client's paths not encoded.
"""

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from hypothesis import HealthCheck, given, settings
from prometheus_client.parser import text_string_to_metric_families

from tests.frontends.test_together import HTTP_IN, HTTP_OUT, broker_with_all, consumers_port, publishers_port
from tests.support.broker.process import ROOT, BrokerProcess, Reply
from tests.support.http.clients import Ways
from tests.support.http.hostile_names import HOSTILE, REFUSED, names
from tests.support.http.recorder import Recorder
from tests.support.pipeline.archive_log import WrittenLog
from tests.support.polling import eventually, eventually_blocking
from tests.support.tcp import wire_clients
from tests.support.tcp.wire import Client

ON_THE_WIRE = ("framed", "topics", "multiplexed", "msgpack")
_RUN = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Stage:
    """A broker with every frontend, and the ports of those over TCP."""

    def __init__(self, broker: BrokerProcess, ports: dict[str, int]) -> None:
        self.broker = broker
        self.ports = ports

    def declare(self, name: str) -> Reply:
        return self.broker.request("POST", "/v1/queues", {"name": name})

    def raw(self, head: bytes, body: bytes = b"") -> tuple[int, bytes]:
        """A request whose head is sent as it stands; status and body of its answer."""
        with socket.create_connection(("127.0.0.1", self.broker.port), timeout=10) as connection:
            more = b"\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
            connection.sendall(head + more + body)
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        return int(answer.split(b" ", 2)[1]), answer.partition(b"\r\n\r\n")[2]

    def simple(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """A simple publish on a connection that stays open, so that the fast path answers it, and the next request
        behind it: its length has to be right to the byte."""
        asked = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        with socket.create_connection(("127.0.0.1", self.broker.port), timeout=10) as connection:
            file = connection.makefile("rb")
            connection.sendall(asked)
            status = int(file.readline().split()[1])
            headers = {}
            while (line := file.readline().strip()) != b"":
                name, _, value = line.decode().partition(": ")
                headers[name.lower()] = value
            answer = file.read(int(headers["content-length"]))
            connection.sendall(asked)
            assert file.readline() == b"HTTP/1.1 201 Created\r\n", "the answer before ended where it said"
            file.close()
        return status, headers, answer


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    broker, ports = broker_with_all(tmp_path_factory.mktemp("names") / "storage")
    with broker:
        yield Stage(broker, ports)


def url(name: str) -> str:
    return f"/v1/queues/{quote(name, safe='')}"


def every_byte(name: str) -> str:
    """Another way to write the same."""
    return "/v1/queues/" + "".join(f"%{byte:02x}" for byte in name.encode())


# -- over HTTP --------------------------------------------------------------------------------------------------------


@_RUN
@given(name=names())
def test_a_name_is_the_same_in_every_route(stage: Stage, name: str) -> None:
    """INTERFACES 3 and 5: percent-encoded in paths, by both ways of a publish, in ``Location``, in lists and metrics;
    decoded it is the name that was declared, and no other queue."""
    declared = stage.declare(name)
    assert declared.status in (200, 201)
    assert declared.headers["Location"] == url(name)
    assert stage.broker.request("GET", declared.headers["Location"]).json()["name"] == name

    for path in (url(name), every_byte(name)):
        status, headers, body = stage.simple(f"{path}/messages", b"plain")
        assert (status, json.loads(body)["queue"]) == (201, name)
        assert headers["location"] == f"/v1/messages/{json.loads(body)['id']}"
        waited = stage.broker.request("POST", f"{path}/messages", b"waited", {"Prefer": "wait=5"})
        assert (waited.status, waited.json()["queue"]) == (200, name)
    batch = stage.broker.request(
        "POST", f"{url(name)}/messages:batch", b'{"content": "b"}', {"Content-Type": "application/x-ndjson"}
    )
    assert batch.status == 201
    status, body = stage.raw(b"POST /msg HTTP/1.1\r\nqueue: " + name.encode(), b"original")
    assert status == 200
    shown = stage.broker.request("GET", f"/v1/messages/{body.decode()}").json()
    assert shown["queue"] == name

    for route in ("messages", "subscribers", "dead-letters"):
        assert stage.broker.request("GET", f"{url(name)}/{route}").status == 200
    assert stage.broker.request("POST", f"{url(name)}/purge", {"dry_run": True}).status == 200
    assert stage.broker.request("PATCH", url(name), {"window": 7}).json()["name"] == name
    families = text_string_to_metric_families(stage.broker.request("GET", "/metrics").body.decode())
    labels = {sample.labels.get("queue") for family in families for sample in family.samples}
    assert name in labels
    assert stage.broker.request("DELETE", f"{url(name)}?force=true").status == 200
    assert stage.broker.request("GET", url(name)).status == 404


def test_all_are_listed_by_code_point(stage: Stage) -> None:
    """INTERFACES 5: compared by code point and case, so nothing is two names of one queue; pages follow each other by
    the name that ends one."""
    for name in HOSTILE:
        stage.declare(name)
    listed, after = list[str](), ""
    while True:
        more = f"&after={quote(after, safe='')}" if after else ""
        page = stage.broker.request("GET", f"/v1/queues?limit=3{more}").json()
        listed += [one["name"] for one in page["queues"]]
        after = page["next"]
        if after is None:
            break
    assert listed == sorted(listed)
    assert set(HOSTILE) <= set(listed)


@pytest.mark.parametrize("name", [name for name in REFUSED if name not in ("", ".", "..") and "\ud800" not in name])
def test_what_is_no_name_is_refused_by_every_route(stage: Stage, name: str) -> None:
    """INTERFACES 5: 400 with the rule that it breaks, on both ways of a publish, and nothing is made."""
    path = "/v1/queues/" + quote(name.encode("utf-8", "surrogateescape"), safe="")
    for target in (b"GET %b", b"POST %b/messages", b"POST %b/messages:batch", b"GET %b/stream", b"DELETE %b"):
        status, body = stage.raw(target % path.encode() + b" HTTP/1.1", b"")
        assert status == 400, (target, body)
        assert json.loads(body)["type"].endswith((":bad-name", ":malformed"))
    assert stage.broker.request("POST", "/v1/queues", {"name": name}).status == 400


@pytest.mark.parametrize(
    "path", ["a%zz", "%", "a%2", "%u0041", "a%FF", "%C3", "%ED%A0%80", "%C0%AF", "a%2Fb", "a%2fb", "%2E", "%2e%2E"]
)
def test_a_bad_escape_is_refused_and_not_guessed(stage: Stage, path: str) -> None:
    """INTERFACES 5: what is no escape or no UTF-8 (overlong forms and surrogates are none) is 400 on both ways, and a
    slash does not come in as ``%2F``."""
    for head in (f"POST /v1/queues/{path}/messages", f"GET /v1/queues/{path}", f"GET /v1/queues/{path}/messages"):
        status, body = stage.raw(f"{head} HTTP/1.1".encode(), b"x")
        assert status == 400, body
    status, body = stage.raw(f"GET /v1/events?queue={path} HTTP/1.1".encode())
    assert status == 400, body


def test_a_plus_in_a_path_is_a_plus(stage: Stage) -> None:
    """INTERFACES 5: only a query writes a blank as a plus."""
    stage.declare("one+one")
    for path in ("one+one", "one%2Bone"):
        assert stage.simple(f"/v1/queues/{path}/messages", b"x")[0] == 201
        assert stage.broker.request("GET", f"/v1/queues/{path}").json()["name"] == "one+one"
    assert stage.broker.request("GET", "/v1/queues/one%20one").status == 404


@pytest.mark.parametrize("header", [b"\xff", b"caf\xe9", b"a\xc3", b"\xed\xa0\x80"])
def test_a_header_that_is_no_utf8_is_refused(stage: Stage, header: bytes) -> None:
    """INTERFACES 2: ``/msg`` has the name as it is, in UTF-8; other bytes are the client's mistake, not a defect."""
    for route in (b"/msg", b"/queue", b"/subscrib"):
        status, body = stage.raw(b"POST " + route + b" HTTP/1.1\r\nqueue: " + header, b"x")
        assert status == 400, body
        assert json.loads(body)["type"].endswith(":bad-name")
    status, body = stage.raw(b"POST /msg HTTP/1.1\r\nqueue: topic a\r\nParentId: " + header, b"x")
    assert status == 400, body


@pytest.mark.parametrize("kind", ["raw", "cloudevents", "cloudevents-structured", "original"])
def test_a_subscriber_reads_the_name_it_was_sent(stage: Stage, kind: str) -> None:
    """INTERFACES 3, "What a v1 subscriber receives": ``syncbrok-queue`` and the ``source`` of a CloudEvent are
    percent-encoded; a header of CloudEvents once more, since its receivers decode it."""
    for name in ("topic a", "100%", "\u00e9+\U0001f4e8", 'a"b\\c', "a:b?c#d", "plain.name_1-2"):
        with Recorder() as recorder:
            stage.declare(name)
            endpoint = {"endpoint": recorder.url, "format": kind, "name": kind}
            assert stage.broker.request("POST", f"{url(name)}/subscribers", endpoint).status == 201
            assert stage.simple(f"{url(name)}/messages", b"x")[0] == 201
            eventually_blocking(lambda: len(recorder.requests) == 2, "both are delivered")
            for request in recorder.requests:
                if kind != "original":
                    assert unquote(request.headers["syncbrok-queue"], errors="strict") == name
                    assert request.headers["syncbrok-queue"] == quote(name, safe="")
                if kind == "cloudevents":
                    assert unquote(request.headers["ce-source"]) == f"/queues/{quote(name, safe='')}"
                if kind == "cloudevents-structured":
                    assert json.loads(request.body)["source"] == f"/queues/{quote(name, safe='')}"
            stage.broker.request("DELETE", f"{url(name)}/subscribers/{kind}")


# -- by every way in and out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["topic a", "100% +\u00e9\U0001f4e8?#&", "{x}[1],;:'\"\\", "-"])
async def test_every_door_leads_to_the_same_queue(stage: Stage, name: str) -> None:
    """INTERFACES 3 and 4: what is published by any frontend, or the client, in a queue leaves it by every other."""
    ways = Ways(stage.broker, name)
    assert stage.declare(name).status in (200, 201)
    sent = []
    for way in HTTP_IN:
        sent.append(f"over {way}".encode())
        await getattr(ways, f"publish_{way}")(sent[-1])
    for way in ON_THE_WIRE:
        sent.append(f"over TCP, {way}".encode())
        await getattr(wire_clients, f"publish_{way}")(publishers_port(stage.ports, way), name, sent[-1])
    seen: dict[str, list[bytes]] = {way: [] for way in (*HTTP_OUT, *(f"{way}, TCP" for way in ON_THE_WIRE))}
    async with asyncio.TaskGroup() as group:
        takes = [getattr(ways, f"take_{way}")(seen[way]) for way in HTTP_OUT]
        for way in ON_THE_WIRE:
            port = consumers_port(stage.ports, way)
            takes.append(getattr(wire_clients, f"take_{way}")(port, name, seen[f"{way}, TCP"]))
        tasks = [group.create_task(take) for take in takes]
        await eventually(
            lambda: all(set(sent) <= set(some) for some in seen.values()), "every way out has seen every way in", 20
        )
        for task in tasks:
            task.cancel()


def _passing(stage: Stage) -> list[str]:
    """Subscribers that are there as long as a connection is."""
    queues = stage.broker.request("GET", "/v1/queues?limit=1000").json()["queues"]
    paths = [f"{url(queue['name'])}/subscribers" for queue in queues]
    found = [one for path in paths for one in stage.broker.request("GET", path).json()["subscribers"]]
    return [one["id"] for one in found if one["endpoint"] in ("consumer:topics", "consumer:stream")]


async def test_a_name_that_is_no_utf8_is_refused_over_tcp(stage: Stage) -> None:
    """INTERFACES 4: framed and topics refuse it, and so does the message bus. With U+FFFD in place of its bytes it
    would be another queue, one for all such names."""
    # Those of the tests before, whose connections are closed, leave the queues that are counted here.
    await eventually(lambda: not _passing(stage), lambda: f"nobody is passing: {_passing(stage)}")
    before = stage.broker.request("GET", "/v1/queues?limit=1000").json()["queues"]
    bad = b"a\xffb"
    framed = struct.pack(">IBq", 9 + len(bad) + 1, 2, 1) + bytes((len(bad),)) + bad + b"\0x"
    with_key = struct.pack(">IBq", 9 + 2 + len(bad) + 1, 2, 1) + b"\2ok" + bytes((len(bad),)) + bad + b"x"
    topics = struct.pack(">HH", 3, 6 + len(bad)) + b"topic:" + bad + struct.pack(">I", 1) + b"x"
    for port, data in (
        (stage.ports["framed"], framed),
        (stage.ports["framed"], with_key),
        (stage.ports["topics"], topics),
        (stage.ports["msgpack_bus.consumer_port"], bad + b"\n"),
    ):
        client = await Client.connect(port)
        await client.send(data)
        assert b"is not UTF-8" in await client.rest() or port == stage.ports["msgpack_bus.consumer_port"]
        await client.close()
    assert stage.broker.request("GET", "/v1/queues?limit=1000").json()["queues"] == before


async def test_the_original_clients_of_topics_are_read(stage: Stage) -> None:
    """INTERFACES 4: two zero bytes where a topic's length is expected are passed over, so a length of 32 bits, as that
    broker's page describes, is read; a message of length 0 is read and not published."""
    name = b"topic:topic z"
    messages = [b"one", b"", b"two", b"", b"three"]
    written = [
        bytes(2 * at) + struct.pack(">I", len(name)) + name + struct.pack(">I", len(content)) + content
        for at, content in enumerate(messages)
    ]
    client = await Client.connect(stage.ports["topics"])
    await client.send(struct.pack(">H", 3) + b"".join(written))
    client.writer.write_eof()
    await client.rest()
    await client.close()
    page = stage.broker.request("GET", f"{url('topic z')}/messages").json()["messages"]
    assert [stage.broker.request("GET", f"/v1/messages/{one['id']}/content").body for one in page] == [
        message for message in messages if message
    ]


async def test_a_key_too_long_for_a_frame_is_cut(stage: Stage) -> None:
    """INTERFACES 4: a frame has room for 255 bytes of a key, however many characters they are; a longer key stopped
    its topic for every client of that format."""
    stage.declare("keyed")
    key = "\u00e9" * 200
    stage.broker.request("POST", "/v1/queues/keyed/messages:batch",
                         json.dumps({"content": "x", "key": key}).encode(),
                         {"Content-Type": "application/x-ndjson"})  # fmt: skip
    client = await Client.connect(stage.ports["framed"])
    await client.send(wire_clients.framed_frame(3, "keyed", b""))
    length, kind, _ = struct.unpack(">IBq", await client.receive(13))
    frame = await client.receive(length - 9 + 2)
    await client.close()
    assert kind == 3
    assert frame == b"\5keyed" + bytes((254,)) + ("\u00e9" * 127).encode() + b"x"


# -- at the command line, and over a crash ----------------------------------------------------------------------------


def command(stage: Stage, *arguments: str, given: str = "") -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "syncbrok", arguments[0], "--url", stage.broker.url, *arguments[1:]],
        cwd=ROOT, input=given, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("name", ["-q", "--help me", "100%/0".replace("/", "?"), "\u00e9 \U0001f4e8"])
def test_a_name_at_the_command_line(stage: Stage, name: str) -> None:
    """INTERFACES 1: every command takes every name; one that begins with a dash stands behind ``--``."""
    on = [sys.executable, "-m", "syncbrok", "queues", "create", "--url", stage.broker.url, "--", name]
    assert subprocess.run(on, cwd=ROOT, capture_output=True, check=False, timeout=60).returncode == 0
    command(stage, "publish", "--lines", "--", name, given="one\ntwo\n")
    assert command(stage, "consume", "--count", "2", "--", name) == "one\ntwo\n"
    assert command(stage, "tail", "--start", "beginning", "--count", "2", "--", name) == "one\ntwo\n"


def test_a_dash_without_the_two_before_it_is_explained(stage: Stage) -> None:
    """INTERFACES 1: a mistake says what to do."""
    on = [sys.executable, "-m", "syncbrok", "publish", "-queue"]
    ran = subprocess.run(on, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 2
    assert "stands behind --" in ran.stderr


@pytest.mark.parametrize("arguments", [("queues", "create"), ("queues", "show"), ("messages", "find", "--key")])
def test_what_is_no_utf8_is_a_mistake_of_the_caller(stage: Stage, arguments: tuple[str, ...]) -> None:
    """INTERFACES 1: exit code 2 and words, not a defect; a shell hands over whatever bytes it was given."""
    on = [sys.executable, "-m", "syncbrok", *arguments, b"a\xff"]
    environment = {**os.environ, "SYNCBROK_URL": stage.broker.url}
    ran = subprocess.run(on, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=60)
    assert (ran.returncode, b"not UTF-8" in ran.stderr) == (2, True), ran.stderr


def test_names_survive_a_crash_and_a_file_declares_them(tmp_path: Path) -> None:
    """INTERFACES 5, DESIGN 1, durable: after kill -9 the log gives every name back; ``queues.yml`` declares them too,
    and again finds them unchanged."""
    declared = {name: {"window": 5} for name in HOSTILE if "$" not in name}
    with BrokerProcess(tmp_path / "storage", queues=json.dumps({"queues": declared}, ensure_ascii=False)) as broker:
        ids = {}
        for name in declared:
            ids[name] = broker.request("POST", f"{url(name)}/messages", b"x").json()["id"]
        broker.kill()
        broker.start()
        for name, id_ in ids.items():
            assert broker.request("GET", url(name)).json()["window"] == 5
            assert broker.request("GET", f"/v1/messages/{id_}").json()["queue"] == name
        listed = {one["name"] for one in broker.request("GET", "/v1/queues?limit=1000").json()["queues"]}
        assert listed == set(declared)


# -- reserved names, and ids ------------------------------------------------------------------------------------------


def test_the_brokers_own_prefix_is_its_own(stage: Stage) -> None:
    """INTERFACES 5: nobody makes a queue, subscriber or group whose name begins with ``syncbrok.``, in this case."""
    assert stage.declare("syncbrok.events").status == 400
    assert stage.declare("Syncbrok.events").status == 201
    assert stage.declare("syncbrok").status == 201
    subscriber = {"name": "syncbrok.mine", "endpoint": "http://127.0.0.1:1/"}
    assert stage.broker.request("POST", "/v1/queues/syncbrok/subscribers", subscriber).status == 400
    assert stage.broker.request("POST", "/v1/queues/syncbrok/pull", {"group": "syncbrok.mine"}).status == 400
    assert stage.raw(b"POST /queue HTTP/1.1\r\nqueue: syncbrok.x")[0] == 400


def test_a_queue_of_an_old_log_keeps_its_name(tmp_path: Path) -> None:
    """INTERFACES 5: what was declared before the prefix was the broker's own is there, can be declared again alike,
    published in and subscribed to."""
    log = WrittenLog(tmp_path / "storage", queues=("syncbrok.mine", "A.b_c-9"))
    log.fill()
    log.close()
    with BrokerProcess(tmp_path / "storage") as broker:
        listed = [one["name"] for one in broker.request("GET", "/v1/queues").json()["queues"]]
        assert listed == ["A.b_c-9", "syncbrok.mine"]
        for name in listed:
            assert broker.request("POST", "/v1/queues", {"name": name}).status == 200
            assert broker.request("PATCH", f"/v1/queues/{name}", {"window": 3}).status == 200
            assert broker.request("POST", f"/v1/queues/{name}/messages", b"x").json()["queue"] == name
            assert broker.request("POST", f"/v1/queues/{name}/pull", {"group": "g", "wait": 5}).json()["messages"]


@pytest.mark.parametrize(
    "text", ["6ba7b810-9dad-11d1-80b4-00c04fd430c8", str(uuid.UUID(int=0)), "f47ac10b-58cc-4372-a567-0e02b2c3d479"]
)
def test_a_uuid_of_another_is_unknown(stage: Stage, text: str) -> None:
    """RULES 2: any UUID is an id: 404 where it is asked for, 422 where it is named as a parent, on every way in."""
    stage.declare("orders")
    for route in ("", "/content", "/tree"):
        assert stage.broker.request("GET", f"/v1/messages/{text}{route}").status == 404
    assert stage.broker.request("DELETE", f"/v1/messages/{text}").status == 404
    assert stage.broker.request("POST", f"/v1/messages/{text}/replay", {}).status == 404
    path = "/v1/queues/orders/messages"
    assert stage.broker.request("POST", path, b"x", {"Syncbrok-Parent": text}).status == 422
    assert stage.broker.request("POST", "/msg", b"x", {"queue": "orders", "ParentId": text}).status == 422
    line = json.dumps({"content": "x", "parents": [text]}).encode()
    kind = {"Content-Type": "application/x-ndjson"}
    assert stage.broker.request("POST", f"{path}:batch", line, kind).status == 422
    event = {"ce-specversion": "1.0", "ce-id": "1", "ce-type": "t", "ce-source": "/s", "ce-causationid": text}
    assert stage.broker.request("POST", path, b"x", event).status == 422


def test_an_id_with_anothers_bits_is_unknown(stage: Stage) -> None:
    """RULES 2: an id that names the place of a message, and is not that message's, is nobody's."""
    stage.declare("orders")
    path = "/v1/queues/orders/messages"
    mine = stage.broker.request("POST", path, b"x").json()["id"]
    for other in (mine[:14] + "4" + mine[15:], mine[:-1] + ("0" if mine[-1] != "0" else "1")):
        assert stage.broker.request("GET", f"/v1/messages/{other}").status == 404
        assert stage.broker.request("POST", path, b"x", {"Syncbrok-Parent": other}).status == 422
