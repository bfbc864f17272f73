"""A broker whose listeners speak TLS: the same broker, to those who trust its certificate, and to nobody else."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import aiohttp
import msgpack
import pytest

from syncbrok.client import Client
from tests.support.broker.process import ROOT, BrokerProcess
from tests.support.certificates import Authority, Files
from tests.support.polling import eventually_blocking


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def configured(files: Files, more: str = "", frontends: str = "{}") -> str:
    return f"http: {{tls: {{cert: {files.cert}, key: {files.key}}}{more}}}\nfrontends: {frontends}\n"


@pytest.fixture
def broker(tmp_path: Path, authority: Authority) -> Iterator[BrokerProcess]:
    config = configured(authority.signs("broker"), ", headers_timeout: 2s, connections_per_address: 24")
    with BrokerProcess(tmp_path / "log", config=config, tls=authority.client()) as running:
        yield running


def connected(broker: BrokerProcess, tls: ssl.SSLContext) -> ssl.SSLSocket:
    raw = socket.create_connection(("127.0.0.1", broker.port), timeout=20)
    return tls.wrap_socket(raw, server_hostname="127.0.0.1")


def answer_to(broker: BrokerProcess, tls: ssl.SSLContext) -> bytes:
    """What a request is answered with, where there is an answer. (Of TLS 1.3 the client's half of the handshake is over
    before the broker has seen its certificate.)"""
    with suppress(ssl.SSLError, ConnectionError), connected(broker, tls) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return client.recv(100)
    return b""


def fingerprint(broker: BrokerProcess, tls: ssl.SSLContext) -> bytes | None:
    """The certificate that a new connection is shown."""
    with connected(broker, tls) as connection:
        return connection.getpeercert(binary_form=True)


async def test_every_way_of_http_goes_over_tls(broker: BrokerProcess, authority: Authority) -> None:
    """INTERFACES 1, http.tls: simple publishes, large ones, batches, the page, a WebSocket and a stream of events."""
    async with Client(broker.url, tls=authority.client()) as client:
        await client.declare("shop")
        first = await client.publish("shop", b"small")
        large = os.urandom(900_000)
        second = await client.publish("shop", large, parents=[first])
        many = await client.publish_many("shop", [b"%d" % number for number in range(500)])
        assert len({one.id for one in (first, second, *many)}) == 502
        assert await client.wait(second) == "complete"
    assert broker.request("GET", f"/v1/messages/{second.id}/content").body == large
    assert broker.request("GET", "/").status == 200
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=authority.client())) as session:
        async with session.ws_connect(f"{broker.url}/v1/queues/shop/stream?start=beginning&window=10") as reader:
            assert (await reader.receive_json())["type"] == "subscribed"
            assert (await reader.receive_json())["id"] == first.id
        async with session.get(f"{broker.url}/v1/queues/shop/stream?start=beginning") as stream:
            found = b""
            while first.id.encode() not in found:
                found += await stream.content.readany()


def test_who_does_not_trust_it_says_nothing(broker: BrokerProcess) -> None:
    """A client that trusts other authorities only ends the handshake; so does one that knows nothing after TLS 1.1."""
    with pytest.raises(ssl.SSLCertVerificationError):
        connected(broker, ssl.create_default_context())
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings(action="ignore"):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connected(broker, old)


def test_a_client_in_clear_is_told(broker: BrokerProcess) -> None:
    """What speaks HTTP is answered in HTTP, once, and the log says who it was; a token it sent is read by nobody."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as client:
        client.sendall(b"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert "https://" in json.loads(body)["detail"]
    eventually_blocking(lambda: "syncbrok.tls.handshake_failed" in broker.output(), "it is logged")
    assert "without TLS" in broker.output()


def test_half_a_handshake_is_a_connection_and_ends_in_time(broker: BrokerProcess) -> None:
    """INTERFACES 5: 40 sockets that begin a handshake and stop are counted (24 an address), each ends within
    http.headers_timeout, and a client beside them is served."""
    hello = bytes.fromhex("1603010200010001fc0303")  # the beginning of a ClientHello of 512 bytes
    with ExitStack() as open_ones:
        half = [socket.create_connection(("127.0.0.1", broker.port), timeout=20) for _ in range(40)]
        for one in half:
            open_ones.enter_context(one)
            one.sendall(hello)
        assert broker.request("GET", "/healthz").status == 200
        for one in half:  # or this waits until its own time is over
            with suppress(ConnectionError):
                one.recv(1)
        assert broker.request("GET", "/healthz").status == 200


def test_a_renewed_certificate_is_shown_after_sighup(broker: BrokerProcess, authority: Authority) -> None:
    """INTERFACES 1: SIGHUP reads the files again. Connections that are open go on; files that do not fit each other
    change nothing and are told."""
    tls = authority.client()
    with connected(broker, tls) as before:
        first = fingerprint(broker, tls)
        files = authority.signs("broker")
        assert fingerprint(broker, tls) == first
        broker.process.send_signal(signal.SIGHUP)
        eventually_blocking(lambda: fingerprint(broker, tls) != first, "the new one is shown")
        second = fingerprint(broker, tls)
        assert "syncbrok.broker.certificates_changed" in broker.output()
        files.key.write_bytes(authority.signs("another").key.read_bytes())
        broker.process.send_signal(signal.SIGHUP)
        eventually_blocking(lambda: "config_not_reloaded" in broker.output(), "it is told")
        assert str(files.key) in broker.output()
        assert fingerprint(broker, tls) == second
        before.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert before.recv(100).startswith(b"HTTP/1.1 200 ")


def test_with_client_ca_only_who_shows_a_certificate_speaks(tmp_path: Path, authority: Authority) -> None:
    """INTERFACES 1, client_ca: without a certificate of it there is no request, and one of another authority does not
    help. The commands take theirs from --ca and --cert."""
    files, mine = authority.signs("broker"), authority.signs("me", "me.example")
    config = configured(files).replace(f"key: {files.key}", f"key: {files.key}, client_ca: {authority.file}")
    other = Authority(tmp_path, "other").signs("other", "me.example")
    with BrokerProcess(tmp_path / "log", config=config, tls=authority.client(mine)) as broker:
        assert broker.request("GET", "/v1/queues").status == 200
        for shows in (None, other):
            assert answer_to(broker, authority.client(shows)) == b""
        assert answer_to(broker, authority.client(mine)).startswith(b"HTTP/1.1 200 ")
        command = [sys.executable, "-m", "syncbrok", "queues", "list", "--url", broker.url]
        ways = ([], ["--ca", str(authority.file)], ["--ca", str(authority.file), "--cert", str(mine.both)])
        codes = []
        for more in ways:
            done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
            codes.append(done.returncode)
            assert "Traceback" not in done.stderr
        assert codes[2] == 0
        assert codes[0] == codes[1] != 0


def test_what_came_whole_over_tcp_is_published_though_its_peer_has_gone(tmp_path: Path, authority: Authority) -> None:
    """INTERFACES 4, msgpack_bus: the end of the connection ends a message, over TLS too, where the peer is gone as soon
    as it has said so. One whose connection breaks instead was cut off, and is not published."""
    files = authority.signs("broker")
    tls = f"tls: {{cert: {files.cert}, key: {files.key}}}"
    producer_port = socket.create_server(("127.0.0.1", 0))
    port = producer_port.getsockname()[1]
    producer_port.close()
    config = configured(files, frontends=f"{{msgpack_bus: {{producer_port: {port}, consumer_port: 0, {tls}}}}}")
    message = msgpack.packb({"Topic": "news", "Data": b"hello"})
    with BrokerProcess(tmp_path / "log", config=config, tls=authority.client()) as broker:

        def produce(*, broken: bool) -> None:
            raw = socket.create_connection(("127.0.0.1", port), timeout=20)
            with authority.client().wrap_socket(raw, server_hostname="127.0.0.1") as peer:
                peer.sendall(message)
                if not broken:
                    peer.unwrap()

        def published() -> int:
            answer = broker.request("GET", "/v1/queues/news")
            return answer.json()["statistics"]["accepted"] if answer.status == 200 else 0

        for number in range(1, 21):
            produce(broken=False)
            eventually_blocking(lambda number=number: published() == number, "it is published")
        produce(broken=True)
        produce(broken=False)
        eventually_blocking(lambda: published() >= 21, "the last one is published")
        assert published() == 21


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("no key", "no key"),
        ("no file", "No such file"),
        ("another's key", "private key"),
        ("no certificate", "private key"),
        ("encrypted", "encrypted"),
        ("no authority", "no certificate in PEM"),
    ],
)
def test_files_that_cannot_be_used_are_told_before_it_starts(
    tmp_path: Path, authority: Authority, broken: str, words: str
) -> None:
    """Bad input: exit 2, the listener and the file are named, and no log was begun."""
    files = authority.signs("broker")
    text = configured(files)
    match broken:
        case "no key":
            text = text.replace(f", key: {files.key}", "")
        case "no file":
            files.cert.unlink()
        case "another's key":
            files.key.write_bytes(authority.signs("another").key.read_bytes())
        case "no certificate":
            files.cert.write_text("nothing\n")
        case "encrypted":
            command = ["openssl", "ec", "-aes128", "-passout", "pass:x", "-in", files.key, "-out", files.key]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("no openssl here")
        case "no authority":
            (tmp_path / "empty.pem").write_text("")
            text = text.replace(f"key: {files.key}", f"key: {files.key}, client_ca: {tmp_path / 'empty.pem'}")
    config = tmp_path / "broker.yml"
    config.write_text(text)
    arguments = ["serve", "--config", str(config), "--storage", str(tmp_path / "log"), "--port", "0"]
    command = [sys.executable, "-m", "syncbrok", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "http.tls" in done.stderr
    assert not (tmp_path / "log").exists()


async def test_the_waiting_room_speaks_tls_too(tmp_path: Path, authority: Authority) -> None:
    """While the log is read the port says 503 to those who speak TLS: nothing is ever answered in clear there."""
    from syncbrok.cli.serve.waiting_room import WaitingRoom
    from syncbrok.frontends.bounds import Bounds
    from syncbrok.frontends.listening import ListenerTls, server_context
    from syncbrok.frontends.over_http.requests.connection import Limits

    files, bounds = authority.signs("broker"), Bounds()
    probe = socket.create_server(("127.0.0.1", 0))
    port = probe.getsockname()[1]
    probe.close()
    limits = Limits(10.0, bounds, bounds.connections(1_000, 1_000))
    room = WaitingRoom("127.0.0.1", port, limits, ListenerTls(server_context(files.cert, files.key)))
    connector = aiohttp.TCPConnector(ssl=authority.client())
    async with room, aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as client:
        async with client.get("/healthz") as answer:
            assert answer.status == 200
        async with client.get("/readyz") as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    room.close()
    await asyncio.sleep(0)
    assert bounds.descriptors.used == 0
