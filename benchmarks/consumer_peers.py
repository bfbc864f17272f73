"""Consumers, each a process of its own: ``python -m benchmarks.consumer_peers WHAT PORT COUNT``.

pull           takes 1,000 at a time over HTTP and acknowledges them with one request
websocket      a stream with a group and a large window, acknowledging 500 at a time
events         Server-Sent Events: acknowledges nothing
multiplexed    one stream of the multiplexed frontend
msgpack_bus    looks at the msgpack bus, one connection each, until all have come

Each prints the seconds until it had so many messages, and the CPU seconds it took itself: it does as little as it can
with a message, so that the broker is what is measured.
"""

import http.client
import socket
import struct
import sys
import time
from typing import Any, Final

import orjson
import uvloop
from aiohttp import ClientSession, ClientWSTimeout

from benchmarks.delivery import QUEUE
from benchmarks.processes import Failed

_HOST: Final = "127.0.0.1"
_GROUP: Final = "workers"
_PULLED_TOGETHER: Final = 1_000
_WINDOW: Final = 2_000
_ACKNOWLEDGED_TOGETHER: Final = 500
_SILENCE_S: Final = 30.0
_READ_BYTES: Final = 256 << 10
_STREAM: Final = f"/v1/queues/{QUEUE}/stream?start=beginning"


def pull(port: int, count: int) -> None:
    """The last acknowledgement is answered when it returns."""
    connection = http.client.HTTPConnection(_HOST, port, timeout=_SILENCE_S)
    wanted = orjson.dumps({"max": _PULLED_TOGETHER, "wait": 5, "group": _GROUP})
    taken = 0
    while taken < count:
        leases = [one["lease"] for one in _answer(connection, f"/v1/queues/{QUEUE}/pull", wanted)["messages"]]
        if not leases:
            raise Failed(f"nothing came any more after {taken} of {count} messages")
        if over := _answer(connection, "/v1/leases:ack", orjson.dumps({"leases": leases}))["over"]:
            raise Failed(f"{len(over)} leases were over")
        taken += len(leases)
    connection.close()


def _answer(connection: http.client.HTTPConnection, path: str, body: bytes) -> Any:
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    said = answer.read()
    if answer.status != 200:
        raise Failed(f"{path}: {answer.status} {said.decode(errors='replace')}")
    return orjson.loads(said)


async def websocket(port: int, count: int) -> None:
    url = f"http://{_HOST}:{port}{_STREAM}&group={_GROUP}&window={_WINDOW}"
    async with ClientSession() as session, session.ws_connect(url, timeout=ClientWSTimeout(_SILENCE_S)) as stream:
        taken = 0
        unacknowledged: list[int] = []
        while taken < count:
            told = orjson.loads(await stream.receive_str())
            if told["type"] == "message":
                taken += 1
                unacknowledged.append(told["sequence"])
            elif told["type"] != "subscribed":
                raise Failed(f"the broker said {told}")
            if len(unacknowledged) == _ACKNOWLEDGED_TOGETHER or (taken == count and unacknowledged):
                await stream.send_bytes(orjson.dumps({"type": "ack", "sequences": unacknowledged}))
                unacknowledged = []


def events(port: int, count: int) -> None:
    asked = f"GET {_STREAM} HTTP/1.1\r\nHost: {_HOST}\r\nAccept: text/event-stream\r\n\r\n".encode()
    if (ended := _ends(port, asked, b"}\n\n", count)) < count:
        raise Failed(f"the stream ended after {ended} of {count} events")


def multiplexed(port: int, count: int) -> None:
    asserted = orjson.dumps({"MessageType": "Queue", "Name": QUEUE, "Type": "P2P", "StreamID": "one"})
    # the last members of a message: an error has no type
    came = _ends(port, struct.pack("<I", len(asserted)) + asserted, b'"Type":"P2P","StreamID":"one"}', count)
    if came < count:
        raise Failed(f"the stream ended after {came} of {count} messages")


def msgpack_bus(port: int, count: int) -> None:
    """A look ends where nothing waits, or after the most that one look takes."""
    taken = 0
    while taken < count:
        came = _ends(port, f"{QUEUE}\n".encode(), b"\n", count - taken)
        if not came:
            raise Failed(f"nothing came any more after {taken} of {count} messages")
        taken += came


def _ends(port: int, asked: bytes, end: bytes, most: int) -> int:
    """Ask, and count ``end`` in what comes until there are ``most`` or the broker closes: parsing would cost the
    consumer more than receiving."""
    found, kept = 0, b""
    with socket.create_connection((_HOST, port), _SILENCE_S) as connection:
        connection.sendall(asked)
        while found < most and (data := connection.recv(_READ_BYTES)):
            seen = kept + data
            found += seen.count(end)
            kept = seen[len(seen) - len(end) + 1 :]  # what may be the beginning of an end
    return found


def main(what: str, port: str, count: str) -> None:
    began, began_cpu_s = time.perf_counter(), time.process_time()
    if what == "websocket":
        uvloop.run(websocket(int(port), int(count)))
    else:
        work = {"pull": pull, "events": events, "multiplexed": multiplexed, "msgpack_bus": msgpack_bus}[what]
        work(int(port), int(count))
    print(time.perf_counter() - began, time.process_time() - began_cpu_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
