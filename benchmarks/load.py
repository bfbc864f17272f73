"""The load: wrk for a stream of requests, and a batch writer that lays down a backlog of a known size."""

import json
import resource
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

import orjson

from benchmarks.processes import Failed, Serving, aside, find

CONNECTIONS: Final = 64
MESSAGE_BYTES: Final = 200
NDJSON: Final = "application/x-ndjson"
_SCRIPT: Final = Path(__file__).with_name("load.lua")
_FILL_LINES: Final = 5_000
_FILL_CONNECTIONS: Final = 2
_BATCH_BYTES_MAX: Final = 8 << 20
_WINDOWS_MAX: Final = 4


class Load(NamedTuple):
    """What wrk saw, and the CPU it took itself."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        return self.requests / self.seconds


def content(size_bytes: int = MESSAGE_BYTES) -> bytes:
    """A message: printable, so that it is the same size inside JSON."""
    return b"x" * size_bytes


def lines(count: int, size_bytes: int = MESSAGE_BYTES) -> bytes:
    """A batch of ``count`` messages without parents."""
    return (orjson.dumps({"content": content(size_bytes).decode()}) + b"\n") * count


def wrk(
    url: str,
    body: bytes,
    seconds: float,
    folder: Path,
    *,
    connections: int = CONNECTIONS,
    kind: str = "text/plain",
    per_s: float = 0.0,
    paths: int = 1,
) -> Load:
    """POST ``body`` for so long; twice as long, and so on up to ``_WINDOWS_MAX`` times, where a window ended before
    the first answer (a quick one, on a machine that is busy with its handshakes). With ``paths`` the ``qN`` in the URL
    is counted. Raises ``Failed`` where anything was refused, or nothing was answered."""
    file = folder / "wrk.body"
    file.write_bytes(body)
    for window in range(_WINDOWS_MAX):
        lasts_s = seconds * 2**window
        arguments = ["-t", "1", "-c", str(connections), "-d", f"{ceil(lasts_s) + 1}s", "--timeout", "30s"]
        arguments += ["-s", str(_SCRIPT), url, "--", str(file), kind, f"{per_s:.3f}", str(paths)]
        load = _one_window(arguments, lasts_s)
        if load.requests:
            return load
    raise Failed(f"wrk on {url}: no answer within {lasts_s:.1f} s")


def _one_window(arguments: list[str], seconds: float) -> Load:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        aside([find("wrk"), *arguments]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    time.sleep(seconds)
    # wrk knows whole seconds only; an interrupt ends it in order
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode or not out.endswith("}\n"):
        raise Failed(f"wrk ended with {process.returncode}: {out}")
    said = json.loads(out.splitlines()[-1])
    if said["refused"] or said["broken"]:
        raise Failed(f"wrk {' '.join(arguments)}: {said}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Load(said["requests"], said["seconds"], said["p50_ms"], said["p99_ms"], cpu_s)


def fill(broker: Serving, queue: str, messages: int, size_bytes: int = MESSAGE_BYTES) -> float:
    """Publish so many plain messages in batches, two at a time; the seconds it took. All are fsynced on return."""
    path = f"/v1/queues/{queue}/messages:batch"
    whole = max(1, min(_FILL_LINES, messages, _BATCH_BYTES_MAX // (size_bytes + 20)))
    body = lines(whole, size_bytes)
    began = time.perf_counter()
    with ThreadPoolExecutor(_FILL_CONNECTIONS) as pool:
        sent = [pool.submit(broker.ask, "POST", path, body, NDJSON) for _ in range(messages // whole)]
        for one in sent:
            one.result()
    if rest := messages % whole:
        broker.ask("POST", path, lines(rest, size_bytes), NDJSON)
    return time.perf_counter() - began
