"""A neighbour of those who take all they can get: it publishes one message after the other, and is delivered to.

``python -m tests.support.overload.bystander PORT PID EVERY_S HOST DIRECTORY``: a process of its own, so that nothing
the attack does in Python counts as time of the broker. It subscribes itself to the queue ``mine`` of the broker on
``PORT``, says ``ready``, goes on until its standard input ends, and writes one line of JSON: see ``Told``. ``HOST`` is
what the broker is to call it by: a name it has to look up for each delivery, since then the connection does not stay.
In ``DIRECTORY``, on the broker's disk, it writes a little now and then: what that takes nobody can be quicker than.
"""

import http.client
import json
import os
import select
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.broker.process import resident_bytes

ADDRESS: Final = "127.0.0.2"
"""the address from which it connects, and at which it is delivered to"""
_LATE_S: Final = 30.0
_LARGE_BYTES: Final = 8_192
"""of every second message: it needs room for its content; small ones need none"""


class Told(NamedTuple):
    """``statuses``: of each publish, 0 where there was no answer. ``delivered_s``: seconds from before each accepted
    publish until its delivery began, of what has arrived; ``missing``: how many have not, though waited for.
    ``most_bytes``: the most memory the broker has had. ``disk_s``: what each synchronous write of 100 bytes took."""

    statuses: list[int]
    delivered_s: list[float]
    missing: int
    most_bytes: int
    disk_s: list[float]

    def delay_s(self, share: float) -> float:
        """That of the quickest ``share``."""
        return _of_share(self.delivered_s, share)

    def disk_delay_s(self, share: float) -> float:
        """The same of the disk alone."""
        return _of_share(self.disk_s, share)


def _of_share(took: list[float], share: float) -> float:
    return sorted(took)[min(len(took) - 1, int(len(took) * share))]


class _Endpoint(ThreadingHTTPServer):
    """Answers each delivery at once, and notes when it came."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *, stays: bool) -> None:
        self.stays = stays
        self.arrived_s: dict[int, float] = {}
        super().__init__((ADDRESS, 0), _Delivery)


class _Delivery(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Endpoint

    def do_POST(self) -> None:
        came_s = time.monotonic()
        number = int(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.arrived_s.setdefault(number, came_s)
        self.send_response_only(200)
        self.send_header("Content-Length", "0")
        if not self.server.stays:
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Not of interest."""


class _Publisher:
    """One connection, made again where it was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: bytes) -> int:
        """The status; 0 where there was none."""
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self._port, 30, source_address=(ADDRESS, 0))
            self._connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._connection = None
            return 0
        return answer.status


def _weigh(pid: int, every_s: float, over: threading.Event, most: list[int]) -> None:
    while not over.wait(every_s):
        most[0] = max(most[0], resident_bytes(pid))


def _write(directory: Path, every_s: float, over: threading.Event, took_s: list[float]) -> None:
    file = os.open(directory / f"bystander-{os.getpid()}", os.O_CREAT | os.O_WRONLY | os.O_DSYNC)
    try:
        while not over.wait(every_s):
            began_s = time.monotonic()
            os.pwrite(file, bytes(100), 0)
            took_s.append(time.monotonic() - began_s)
    finally:
        os.close(file)


def main(port: int, pid: int, every_s: float, host: str, directory: Path) -> None:
    endpoint = _Endpoint(stays=host == ADDRESS)
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    publisher = _Publisher(port)
    subscriber = {"name": f"bystander-{os.getpid()}", "endpoint": f"http://{host}:{endpoint.server_port}/"}
    status = publisher.ask("POST", "/v1/queues/mine/subscribers", json.dumps(subscriber).encode())
    assert status == 201, status
    over, most = threading.Event(), [resident_bytes(pid)]
    disk_s: list[float] = []
    weighing = threading.Thread(target=_weigh, args=(pid, every_s / 2, over, most))
    writing = threading.Thread(target=_write, args=(directory, every_s, over, disk_s))
    weighing.start()
    writing.start()
    print("ready", flush=True)
    statuses: list[int] = []
    began_s: dict[int, float] = {}
    while not select.select([sys.stdin], [], [], every_s)[0]:
        number, now_s = len(statuses), time.monotonic()
        content = b"%d" % number + b" " * (number % 2 * _LARGE_BYTES)
        statuses.append(publisher.ask("POST", "/v1/queues/mine/messages", content))
        if statuses[-1] == 201:
            began_s[number] = now_s
    until_s = time.monotonic() + _LATE_S
    while len(endpoint.arrived_s) < len(began_s) and time.monotonic() < until_s:
        over.wait(0.01)
    over.set()
    weighing.join()
    writing.join()
    publisher.ask("DELETE", f"/v1/queues/mine/subscribers/{subscriber['name']}", b"")
    arrived_s = endpoint.arrived_s
    delivered_s = [arrived_s[number] - since_s for number, since_s in began_s.items() if number in arrived_s]
    told = Told(statuses, delivered_s, len(began_s) - len(delivered_s), most[0], disk_s)
    print(json.dumps(told._asdict()), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
