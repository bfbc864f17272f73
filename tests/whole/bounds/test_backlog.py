"""A real broker whose queue bounds its backlog, its endpoint that hangs, and kill -9."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from syncbrok.model import limits
from tests.support.broker.process import BrokerProcess
from tests.support.http.recorder import Received, Recorder
from tests.support.polling import eventually_blocking

FILE = """
queues:
  orders:
    max_backlog: {{messages: 40, bytes: 1KiB}}
    retry: [{retry}]
    subscribers:
      - {{name: a, endpoint: "{url}", window: 4, breaker: false, headers: {{x-queue: orders}}}}
  free:
    subscribers:
      - {{name: a, endpoint: "{url}", headers: {{x-queue: free}}}}
"""
QUEUE = "/v1/queues/orders"


def test_a_full_queue_refuses_until_its_endpoint_goes_on(tmp_path: Path) -> None:
    """RULES 35, INTERFACES 3: of 16 clients exactly 40 publishes are accepted, the others answered 429 with Retry-After
    and which bound it is; a batch is refused as a whole; after kill -9 the figures are those of before, whatever the
    endpoint does, and another queue goes on. When the endpoint answers, all that was accepted is delivered, and
    there is room again."""
    goes_on = threading.Event()
    seen: list[bytes] = []

    def answer(request: Received) -> int:
        if request.headers["x-queue"] == "orders" and not goes_on.is_set():
            return 503
        seen.append(request.body)
        return 200

    with Recorder(answer) as recorder:
        queues = FILE.format(url=recorder.url, retry=", ".join(["1s"] * limits.retry_steps_max))
        with BrokerProcess(tmp_path / "log", queues=queues) as broker:

            def publish(number: int) -> int:
                return broker.request("POST", f"{QUEUE}/messages", b"%03d" % number).status

            with ThreadPoolExecutor(16) as clients:
                statuses = list(clients.map(publish, range(120)))
            assert (statuses.count(201), statuses.count(429)) == (40, 80)
            accepted = {b"%03d" % number for number, status in enumerate(statuses) if status == 201}
            for _ in range(2):
                shown = broker.request("GET", QUEUE).json()
                assert shown["max_backlog"] == {"messages": 40, "bytes": 1024}
                assert shown["statistics"]["backlog"] == {"messages": 40, "bytes": 120}
                refused = broker.request("POST", f"{QUEUE}/messages", b"x")
                assert refused.status == 429
                assert int(refused.headers["Retry-After"]) >= 1
                problem = refused.json()
                assert problem["type"].endswith("backlog-full")
                assert (problem["bound"], problem["max"], problem["stands"]) == ("messages", 40, 40)
                lines = b"\n".join(json.dumps({"content": "x"}).encode() for _ in range(3))
                as_batch = {"Content-Type": "application/x-ndjson"}
                assert broker.request("POST", f"{QUEUE}/messages:batch", lines, as_batch).status == 429
                assert broker.request("POST", "/v1/queues/free/messages:batch", lines, as_batch).status == 201
                metrics = broker.request("GET", "/metrics").body
                assert b'syncbrok_queue_backlog_bytes{queue="orders"} 120.0' in metrics
                assert b'syncbrok_queue_backlog_share{queue="orders"} 1.0' in metrics
                broker.kill()
                broker.start()
            goes_on.set()
            eventually_blocking(lambda: accepted <= set(seen), "all that was accepted came")
            empty = {"messages": 0, "bytes": 0}
            eventually_blocking(
                lambda: broker.request("GET", QUEUE).json()["statistics"]["backlog"] == empty, "nothing stands there"
            )
            never = broker.request("POST", f"{QUEUE}/messages", b"x" * 1025)
            assert (never.status, never.json()["bound"]) == (413, "bytes")
            changed = broker.request("PATCH", QUEUE, b'{"max_backlog": null}')
            assert changed.json()["max_backlog"] is None
            assert publish(999) == 201
