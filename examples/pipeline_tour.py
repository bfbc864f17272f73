#!/usr/bin/env python3
"""A tour of the pipeline, from an empty folder to its pictures. Needs the README's ``.venv``
and in it ``pip install "syncbrok[spark]"``.

    python3 examples/pipeline_tour.py                   in ./pipeline-tour
    python3 examples/pipeline_tour.py --folder DIR      there; what an earlier tour left in it is removed
    python3 examples/pipeline_tour.py --families 2000   more traffic

It starts a broker on an empty log and two subscribers, one of which fails now and then and one of which is down for a
while; publishes families of messages; kills the broker (SIGKILL) in the middle and starts it again; then runs every job
of ``syncbrok pipeline`` on the log and says where the pictures are. Everything is on 127.0.0.1 and in that folder.

The jobs run in one Spark session, since starting one takes longer than the jobs on so little data; each is printed as
the command you would type.
"""

import argparse
import json
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from syncbrok.cli.main import group
from syncbrok.pipeline.session import session

QUEUES = """
queues:
  customers:
    retry: [100ms, 200ms, 500ms, 1s, 1s, 1s]
    subscribers:
      - {name: crm, endpoint: "http://127.0.0.1:PORT/flaky"}
      - {name: billing, endpoint: "http://127.0.0.1:PORT/"}
  cards:
    retry: [100ms, 200ms, 500ms, 1s, 1s, 1s]
    subscribers: [{name: crm, endpoint: "http://127.0.0.1:PORT/flaky"}]
  letters:
    retry: [50ms, 50ms]
    subscribers: [{name: mail, endpoint: "http://127.0.0.1:PORT/down", breaker: false}]
"""  # without a breaker: with one its last letters would wait for minutes, each for a probe
SETTINGS = "storage: {segment: 64KiB}\n"  # so that there is something sealed to archive


class Endpoints(ThreadingHTTPServer):
    """The subscribers: ``/flaky`` refuses one request in ten and takes its time, ``/down`` refuses all, others none."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Delivery)
        self.chance = random.Random(4)
        self.pause = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The broker that is killed leaves its deliveries in the middle; nothing else is expected."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Delivery(BaseHTTPRequestHandler):
    server: Endpoints
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """The broker delivers with POST."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fails = self.path == "/down"
        if self.path == "/flaky":
            self.server.pause.wait(self.server.chance.expovariate(1 / 0.004))
            fails = self.server.chance.random() < 0.1
        self.send_response(500 if fails else 204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Not a line for each."""


class Broker:
    """``syncbrok serve`` in a process of its own."""

    def __init__(self, folder: Path, endpoints: int) -> None:
        self.folder = folder
        (folder / "queues.yml").write_text(QUEUES.replace("PORT", str(endpoints)))
        (folder / "broker.yml").write_text(SETTINGS)
        self.held = (
            socket.socket()
        )  # so nobody else is given the port; the broker, which sets this option too, can have it
        self.held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.held.bind(("127.0.0.1", 0))
        self.port = self.held.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        arguments = ["serve", "--storage", "storage", "--queues", "queues.yml", "--config", "broker.yml"]
        command = [sys.executable, "-m", "syncbrok", *arguments, "--port", str(self.port)]
        print("$ syncbrok " + " ".join(arguments))
        with (self.folder / "broker.out").open("ab") as said:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=said, stderr=said)
        deadline = time.monotonic() + 30
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"the broker did not start; it said:\n{(self.folder / 'broker.out').read_text()}")
            time.sleep(0.02)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Any:
        """The JSON of an answer."""
        request = urllib.request.Request(self.url + path, body, headers or {})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def batch(self, queue: str, lines: list[dict[str, Any]]) -> list[str]:
        """Publish all of them as one unit; their ids."""
        body = b"\n".join(json.dumps(line).encode() for line in lines)
        headers = {"Content-Type": "application/x-ndjson"}
        ids: list[str] = self.ask(f"/v1/queues/{queue}/messages:batch", body, headers)["ids"]
        return ids

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait()


def traffic(broker: Broker, families: int, chance: random.Random) -> None:
    """Each family: a customer, cards that wait for it, address changes that wait for one another, now and then a letter
    that nobody takes."""
    for number in range(families):
        (customer,) = broker.batch("customers", [{"data": {"customer": number}, "key": f"customer-{number % 50}"}])
        cards = [{"data": {"card": n}, "parents": [customer]} for n in range(chance.randrange(4))]
        if cards:
            broker.batch("cards", cards)
        moves: list[dict[str, Any]] = [{"data": {"move": 1}, "parents": [customer]}]
        moves += [{"data": {"move": n}, "parents": [f"#{n - 1}"]} for n in range(2, chance.randrange(2, 12))]
        last = broker.batch("customers", moves)[-1]
        if number % 20 == 0:
            (letter,) = broker.batch("letters", [{"content": "dear customer", "parents": [customer]}])
            broker.batch("cards", [{"data": {"replacement": number}, "parents": [letter, last]}])


def settled(broker: Broker, timeout_s: float = 60.0) -> None:
    """Wait until everything has ended."""
    deadline = time.monotonic() + timeout_s
    while any(queue["statistics"]["waiting"] for queue in broker.ask("/v1/queues?limit=100")["queues"]):
        if time.monotonic() > deadline:
            sys.exit(f"something still waits after {timeout_s:g} s: {broker.url}/v1/queues")
        time.sleep(0.1)


def write_log(folder: Path, families: int) -> None:
    chance = random.Random(4)
    endpoints = Endpoints()
    threading.Thread(target=endpoints.serve_forever, daemon=True).start()
    broker = Broker(folder, int(endpoints.server_address[1]))
    broker.start()
    try:
        traffic(broker, families // 2, chance)
        print(f"$ kill -9 {broker.process.pid}")
        broker.end(signal.SIGKILL)
        broker.start()
        traffic(broker, families - families // 2, chance)
        settled(broker)
        for queue in broker.ask("/v1/queues?limit=100")["queues"]:
            counts = queue["statistics"]
            print(f"  {queue['name']:<10} {counts['accepted']:>6} accepted, {counts['dead_letters']} dead letters")
    finally:
        broker.end(signal.SIGTERM)
        endpoints.shutdown()
        endpoints.server_close()


def jobs(folder: Path) -> None:
    """Every job, as a command, in one session."""
    spark = session(name="the tour of the pipeline", little=True)
    storage, out = str(folder / "storage"), str(folder / "out")
    both = ["--storage", storage, "--archive", f"{out}/archive"]
    query = "SELECT * FROM messages WHERE queue = 'letters'"
    for arguments in (
        ["audit", "--storage", storage, "--settled"],
        ["archive", "--storage", storage, "--out", f"{out}/archive"],
        ["report", *both, "--out", out],
        ["lineage", *both, "--out", out],
        ["replay", *both, "--sql", query],
    ):
        print("\n$ syncbrok pipeline " + shlex.join(arguments), flush=True)
        group.main(["pipeline", *arguments, "--quiet"], standalone_mode=False)
    spark.stop()


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--folder", type=Path, default=Path("pipeline-tour"))
    flags.add_argument("--families", type=int, default=400, metavar="N")
    given = flags.parse_args()
    folder: Path = given.folder.absolute()
    for left in ("storage", "out"):
        shutil.rmtree(folder / left, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_log(folder, given.families)
    jobs(folder)
    print(f"\nThe report:       {folder}/out/report.html\nA family as a tree: {folder}/out/lineage/tree.svg")


if __name__ == "__main__":
    main()
