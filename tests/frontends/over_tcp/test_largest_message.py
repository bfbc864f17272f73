"""The largest message that is taken over TCP is the one of the configuration, as over HTTP."""

import base64
import json
import socket
import struct
from pathlib import Path

import pytest

from tests.support.broker.process import BrokerProcess
from tests.support.polling import eventually_blocking


def framed(queue: bytes, content: bytes) -> bytes:
    payload = bytes([len(queue)]) + queue + b"\0" + content
    return struct.pack(">IBq", 9 + len(queue) + len(content), 2, 0) + payload


def topics(queue: bytes, content: bytes) -> bytes:
    name = b"topic:" + queue
    return struct.pack(">HH", 3, len(name)) + name + struct.pack(">I", len(content)) + content


def multiplexed(queue: bytes, content: bytes) -> bytes:
    asserted = {"MessageType": "Queue", "Name": queue.decode(), "Type": "P2P", "Durable": True, "StreamID": "1"}
    body = base64.b64encode(content).decode()
    published = {"MessageType": "EPMessage", "Route": queue.decode(), "Type": "P2P", "Body": body, "StreamID": "1"}
    frames = (json.dumps(one).encode() for one in (asserted, published))
    return b"".join(struct.pack("<I", len(one)) + one for one in frames)


def msgpack_bus(queue: bytes, content: bytes) -> bytes:
    head = b"\x82\xa5Topic" + bytes([0xA0 | len(queue)]) + queue
    return head + b"\xa4Data\xc6" + struct.pack(">I", len(content)) + content


PUBLISHES = {
    "framed": framed,
    "topics": topics,
    "multiplexed": multiplexed,
    "msgpack_bus.producer_port": msgpack_bus,
}


@pytest.mark.parametrize("largest_kib", [3, 5_000])
def test_the_largest_message_is_that_of_the_configuration(tmp_path: Path, largest_kib: int) -> None:
    """INTERFACES 5: ``http.body`` is the largest message, smaller or larger than 1 MiB, whichever way it comes."""
    largest = largest_kib * 1024
    names = [one.partition(".")[0] for one in PUBLISHES]
    config = f"http: {{body: {largest_kib}KiB}}\n"
    with BrokerProcess(tmp_path / "storage", config=config, frontends=names) as broker:
        for name, written in PUBLISHES.items():
            for content in (b"x" * (largest + 1), b"y" * largest):
                with socket.create_connection(("127.0.0.1", broker.tcp[name]), timeout=60) as connection:
                    try:
                        connection.sendall(written(b"from_" + name[:6].encode(), content))
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(65_536):
                            pass
                    except (ConnectionError, TimeoutError):
                        assert content[:1] == b"x", "the broker hangs up on what is too large, and on nothing else"
            queue = f"/v1/queues/from_{name[:6]}/messages"

            def kept(queue: str = queue) -> list[str]:
                listed = broker.request("GET", queue)
                found = listed.json()["messages"] if listed.status == 200 else []
                return [one["id"] for one in found]

            eventually_blocking(kept, f"the message over {name}", 60)
            contents = [broker.request("GET", f"/v1/messages/{one}/content").body for one in kept()]
            assert [one[:1] * (len(one) == largest) for one in contents] == [b"y"], name
