"""Several publishers, webhooks and retention on a small disk that fills and empties under them (RULES 1 and 27).

Each publisher sends one message after the other to its queue and notes what it was answered. The judge knows that, what
the endpoints got, and how the process ended: what was answered 201 goes to each subscriber of its queue, what was
answered 507 to none, and nothing else is answered.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from tests.support.broker.process import ROOT
from tests.support.disk import small_disk
from tests.support.disk.bad_disk import STOPPED, Answered, Broker, serving
from tests.support.http.recorder import Received, Recorder
from tests.support.polling import eventually_blocking

QUEUES: Final = 2
PUBLISHERS: Final = 4
_CONFIG: Final = "storage: {segment: 64KiB, reserve: 128KiB, retention: 1s}\n"
_PADDING: Final = b"." * 4_000
_WITHIN_S: Final = 30.0
_PACE_S: Final = 0.004


class Publisher(threading.Thread):
    """Publishes to its queue until it is stopped."""

    def __init__(self, broker: Broker, name: str, queue: int) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._name = name
        self._over = threading.Event()
        self.queue = queue
        self.answered: list[Answered] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Note each answer; the content begins with the key."""
        path = f"/v1/queues/q{self.queue}/messages"
        while not self._over.wait(_PACE_S):
            key = f"{self._name}-{len(self.answered)}"
            body = f"{key} ".encode() + _PADDING
            status, said = self._broker.request("POST", path, body, {"Idempotency-Key": key})
            self.answered.append(Answered(key, status, said["id"] if status in (200, 201) else ""))

    def since(self, place: int) -> list[int]:
        """What it was answered behind the first so many."""
        return [one.status for one in self.answered[place:]]


def ordeal(directory: Path, lives: int, mib: int = 4) -> tuple[str, list[str]]:
    """The disk fills and empties twice in each of so many lives of the broker, which retention begins: what was done,
    and what is wrong. All lives but the last are killed. What retention drops takes room for another minute:
    many rounds need more than 4 MiB."""
    publishers: list[Publisher] = []
    with small_disk.mounted(directory / "disk", mib) as disk, ExitStack() as stack:
        if disk is None:
            return "no small disk: only root may mount one", []
        endpoints = [stack.enter_context(Recorder(_refusing)) for _ in range(2 * QUEUES)]
        wrong: list[str] = []
        for life in range(1, lives + 1):
            with serving(disk / "log", config=_CONFIG, beside=directory) as broker:
                if not broker.ready():
                    return f"life {life}", [f"it does not start: {broker.said()[-1_500:]}"]
                if life == 1:
                    _declare(broker, endpoints)
                publishers += _fill_and_empty(broker, disk / "filler", life)
                if life == lives:
                    wrong = [*_undelivered(publishers, endpoints)]
                    if (code := broker.end()) != STOPPED:
                        wrong.append(f"it ends with {code}: {broker.said()[-1_500:]}")
        wrong += _unverified(disk / "log")
        if (disk / "log" / f"{1:020d}.log").exists():
            wrong.append("retention has dropped nothing")
    statuses = [answer.status for one in publishers for answer in one.answered]
    if others := {*statuses} - {201, 507}:
        wrong.append(f"publishers were answered {others}")
    done = f"full {2 * lives} times: {statuses.count(201)} accepted, {statuses.count(507)} without room"
    return f"{done}, {sum(len(one.requests) for one in endpoints)} requests to {len(endpoints)} endpoints", wrong


def _refusing(request: Received) -> int:
    """Of eleven messages one is refused at first."""
    refused = int(request.headers["syncbrok-sequence"]) % 11 == 0 and request.headers["syncbrok-attempt"] == "1"
    return 503 if refused else 200


def _declare(broker: Broker, endpoints: Sequence[Recorder]) -> None:
    for queue in range(QUEUES):
        made = {"name": f"q{queue}", "retry": ["50ms", "50ms", "1s", "5s"]}
        assert broker.request("POST", "/v1/queues", made)[0] == 201
        for side in (0, 1):
            made = {"name": f"s{side}", "endpoint": endpoints[2 * queue + side].url}
            assert broker.request("POST", f"/v1/queues/q{queue}/subscribers", made)[0] == 201


def _fill_and_empty(broker: Broker, filler: Path, life: int) -> list[Publisher]:
    """Publishers each of which is taken from, then refused, then taken from again, twice. Raises ``AssertionError``
    where one waits for that in vain."""
    publishers = [Publisher(broker, f"{life}-{number}", number % QUEUES) for number in range(PUBLISHERS)]

    def all_are(status: int, at_least: int) -> None:
        began = [len(one.answered) for one in publishers]

        def they_are() -> bool:
            if status == 507:
                small_disk.fill(filler)  # what was freed meanwhile too
            return all(one.since(place).count(status) >= at_least for one, place in zip(publishers, began, strict=True))

        eventually_blocking(they_are, lambda: f"{status} for each publisher: {broker.said()[-1_500:]}", _WITHIN_S)
        assert broker.request("GET", "/healthz")[0] == 200

    with ExitStack() as publishing:
        for one in publishers:
            publishing.enter_context(one)
        for _ in range(2):
            all_are(201, 10)
            all_are(507, 5)
            filler.unlink()
        all_are(201, 10)
    return publishers


def _undelivered(publishers: Sequence[Publisher], endpoints: Sequence[Recorder]) -> Iterator[str]:
    """What is wrong with what the endpoints got."""
    for number, endpoint in enumerate(endpoints):
        mine = [answer for one in publishers if one.queue == number // 2 for answer in one.answered]
        accepted = {one.key for one in mine if one.status == 201}
        if missing := _missing(accepted, endpoint):
            yield f"endpoint {number} never got {sorted(missing)[:10]}"
        if more := _came(endpoint) - accepted:
            yield f"endpoint {number} got what was refused: {sorted(more)[:10]}"


def _missing(accepted: set[str], endpoint: Recorder) -> set[str]:
    """Those that have not come to it after a while."""
    try:
        eventually_blocking(lambda: accepted <= _came(endpoint), "all that was accepted is delivered", _WITHIN_S)
    except AssertionError:
        return accepted - _came(endpoint)
    return set()


def _came(endpoint: Recorder) -> set[str]:
    return {request.body.partition(b" ")[0].decode() for request in list(endpoint.requests)}


def _unverified(storage: Path) -> list[str]:
    command = [sys.executable, "-m", "syncbrok", "log", "verify", "--storage", str(storage)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return [f"the log does not verify: {done.stdout[-800:]}{done.stderr[-800:]}"] * bool(done.returncode)
