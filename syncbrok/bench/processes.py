"""The processes a measurement needs, each started for it and ended with it: broker, subscriber, load."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from syncbrok.client import Connection
from syncbrok.model.errors import BrokerFault

_READY_WITHIN_S = 60.0


class SinkProcess:
    """A subscriber in a process of its own; with ``log`` the bare durable server."""

    def __init__(self, log: Path | None = None) -> None:
        arguments = [sys.executable, "-m", "syncbrok.bench.sink", *(["--log", str(log)] if log else [])]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.pid = self._process.pid
        self.url = f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def report(self) -> dict[str, Any]:
        """End it; ``count``, ``p50_ms``, ``p99_ms`` of what it received."""
        said, _ = self._process.communicate("")
        report: dict[str, Any] = json.loads(said)
        return report


class Broker:
    """``syncbrok serve`` on a fresh log in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._said = directory / "broker.out"
        queues = directory / "queues.yml"
        queues.write_text("queues: {}\n")
        # A configuration of its own: one that stands in the working directory may ask for tokens.
        config = directory / "broker.yml"
        config.write_text("")
        arguments = ["serve", "--config", str(config), "--storage", str(directory / "log"), "--port", "0"]
        arguments += ["--queues", str(queues)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SYNCBROK_")}
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "syncbrok", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment,
            )
        self.port = self._wait_until_ready()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, method: str, path: str, body: dict[str, Any] | bytes | None = None, kind: str = "") -> Any:
        """One request; the JSON of its answer. Raises ``BrokerFault`` with what the broker said against it."""
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        headers = {"Content-Type": kind or "application/json"}
        with Connection(f"http://127.0.0.1:{self.port}", timeout_s=120) as connection:
            answer = connection.request(method, path, data, headers)
        if answer.status >= 300:
            raise BrokerFault(f"{method} {path}: {answer.status} {answer.body.decode()}")
        return json.loads(answer.body or b"null")

    def wait_until_empty(self, queue: str, timeout_s: float = 600.0) -> None:
        """Until nothing in the queue waits. The pauses are long enough not to be felt by the broker."""
        deadline = time.monotonic() + timeout_s
        while self.waiting(queue):
            if time.monotonic() > deadline:
                raise BrokerFault(f"queue {queue} still holds {self.waiting(queue)} messages after {timeout_s:g} s")
            time.sleep(0.02)

    def waiting(self, queue: str) -> int:
        return int(self.ask("GET", f"/v1/queues/{queue}")["statistics"]["waiting"])

    def _wait_until_ready(self) -> int:
        deadline = time.monotonic() + _READY_WITHIN_S
        while time.monotonic() < deadline and self.process.poll() is None:
            for line in self._said.read_text().splitlines():
                if line.startswith("Syncbrok serves on http://"):
                    return int(line.split(",")[0].rsplit(":", 1)[1].rstrip("/"))
            time.sleep(0.02)
        raise BrokerFault(f"the broker did not start; it said:\n{self._said.read_text()}")


def load(**wish: Any) -> dict[str, Any]:
    """Run the generator; see ``load``. Raises ``BrokerFault`` where anything but success came back."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "syncbrok.bench.load", json.dumps(wish)], stdout=subprocess.PIPE, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    refused = {status: count for status, count in result["statuses"].items() if not status.startswith("2")}
    if refused:
        raise BrokerFault(f"POST {wish['path']} was refused: {refused}")
    return result
