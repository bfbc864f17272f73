"""A real broker whose disk fails at one chosen system call, and a judge of what came of it.

The judge imports nothing of the broker: it knows what it was answered over HTTP, how the process ended, and what a
start on the same directory, without a fault, answers afterwards (DESIGN 1, INTERFACES 1):

* nothing is answered 201 that is not there afterwards, and nothing 507 that is;
* no request waits for ever, and the process ends when it is told to, or by itself with a code of the table;
* its last words name the storage, not an address or a defect, and where the disk has failed the file;
* the next start is ready, has everything, and the log verifies.
"""

import http.client
import itertools
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.broker.process import ROOT
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking

CONFIG = "storage: {segment: 64KiB, reserve: 256KiB, retention: 2s}\n"
CALLS = ("openat", "pwrite64", "write", "fdatasync", "fsync", "rename", "unlink", "fallocate", "ftruncate", "utimensat",
         "flock")  # fmt: skip
READS = ("read", "pread64", "preadv2")
"""calls that need no room, whatever the disk says"""
KINDS = (*itertools.product(CALLS, ("EIO", "ENOSPC"), ("", "+")), *itertools.product(READS, ("EIO",), ("", "+")))
"""(call, error, and ``+`` where all later calls fail too)"""
STOPPED, DAMAGED, FULL, FAILED = 0, 65, 73, 74
BODY = bytes(range(256)) * 36
_NAMES = ("", "lock", "watermark", "watermark.tmp", "reserve", "next.tmp", "secrets.json", "secrets.new",
          "checkpoint", "checkpoint.tmp", "checkpoint.before")  # fmt: skip
_SEQUENCES = 130
"""of a segment's first record; a story is shorter"""


class Fault(NamedTuple):
    """``error`` is what the ``when``-th ``call`` on a file of the storage answers, counted by thread; with ``+`` behind
    it all later ones too."""

    call: str
    error: str
    when: str

    @property
    def codes(self) -> tuple[int, ...]:
        """How the process may end: as it was told to, or at the start because the disk is full, or because it is bad.
        A failed fsync is final whatever the reason. What cannot be read of a sealed segment is damage."""
        if self.call in READS:
            return STOPPED, DAMAGED, FAILED
        return (STOPPED, FAILED) if self.error == "EIO" else (STOPPED, FULL, FAILED)[: 3 if "sync" in self.call else 2]

    def __str__(self) -> str:
        return f"{self.call}-{self.error}-{self.when}"


class Answered(NamedTuple):
    """What a publish was answered: 0 for no answer at all."""

    key: str
    status: int
    id: str


class Broker:
    """``syncbrok serve`` on ``storage``, on any port, perhaps under strace. Its other files are in ``beside``."""

    def __init__(
        self, storage: Path, fault: Fault | None = None, config: str = CONFIG, beside: Path | None = None
    ) -> None:
        place = (beside or storage.parent) / storage.name
        self._out, self._err = place.with_suffix(".out"), place.with_suffix(".err")
        config_path, queues = place.with_suffix(".yml"), place.with_suffix(".queues.yml")
        config_path.write_text(config)
        queues.write_text("queues: {}\n")
        arguments = [sys.executable, "-m", "syncbrok", "serve", "--port", "0", "--storage", str(storage),
                     "--config", str(config_path), "--queues", str(queues), "--log-level", "warning"]  # fmt: skip
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [*_injection(storage, fault), *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        self.address = ""

    def ready(self, timeout_s: float = 90.0) -> bool:
        """Whether it serves; False where it has ended instead."""

        def answers() -> bool:
            self.address = self._out.read_text().partition("http://")[2].partition(",")[0]
            return bool(self.address) or self.process.poll() is not None

        eventually_blocking(answers, "it serves, or has ended", timeout_s)
        return bool(self.address)

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status (0: no answer, the connection was closed) and the body, as JSON where it is. Raises ``TimeoutError``
        where it hangs."""
        connection = http.client.HTTPConnection(self.address, timeout=45)
        try:
            connection.request(method, path, json.dumps(body) if isinstance(body, dict) else body, headers or {})
            answer = connection.getresponse()
            data = answer.read()
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException):
            return 0, None
        finally:
            connection.close()
        try:
            return answer.status, json.loads(data)
        except ValueError:
            return answer.status, data

    def publish(self, key: str, body: bytes = BODY) -> Answered:
        status, said = self.request("POST", "/v1/queues/q/messages", body, {"Idempotency-Key": key})
        return Answered(key, status, said["id"] if status in (200, 201) else "")

    def end(self, number: int = signal.SIGTERM, timeout_s: float = 90.0) -> int:
        """Told to end, if it has not; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout_s)

    def said(self) -> str:
        """On standard error."""
        return self._err.read_text(errors="replace")


@contextmanager
def serving(
    storage: Path, fault: Fault | None = None, config: str = CONFIG, beside: Path | None = None
) -> Iterator[Broker]:
    """A broker that is gone at the end, whatever happens."""
    broker = Broker(storage, fault, config, beside)
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.process.kill()
            broker.process.wait()


def _injection(storage: Path, fault: Fault | None) -> Sequence[str]:
    if fault is None:
        return ()
    segments = [f"{base:020d}.{kind}" for base in range(1, _SEQUENCES) for kind in ("log", "idx")]
    paths = [word for name in (*_NAMES, *segments) for word in ("-P", str(storage / name).rstrip("/"))]
    inject = f"inject={fault.call}:error={fault.error}:when={fault.when}"
    trace = ["-o", str(storage.with_suffix(".trace")), "-e", f"trace={fault.call}"]
    return ["strace", "-D", "-f", "-qq", *trace, *paths, "-e", inject]


def was_hit(storage: Path) -> bool:
    """Whether the fault of the last broker on ``storage`` has happened: it made so many calls."""
    return "INJECTED" in storage.with_suffix(".trace").read_text(errors="replace")


def prepare(storage: Path, subscriber: Recorder) -> list[Answered]:
    """A log with several segments and a secret, its broker killed: so that a start has much to do."""
    with serving(storage) as broker:
        assert broker.ready(), broker.said()
        assert broker.request("POST", "/v1/queues", {"name": "q"})[0] == 201
        made = {"name": "s", "endpoint": subscriber.url, "secret": "whsec_" + "A" * 43 + "="}
        assert broker.request("POST", "/v1/queues/q/subscribers", made)[0] == 201
        published = [broker.publish(f"before-{number}") for number in range(16)]
        assert {one.status for one in published} == {201}
        broker.end(signal.SIGKILL)
    return published


def story(broker: Broker) -> list[Answered]:
    """Everything that writes: publishes over several segments, declarations, secrets. What publishes were answered."""
    published = []
    for number in range(14):
        published.append(broker.publish(f"during-{number}"))
        if number == 3:
            broker.request("POST", "/v1/queues/q/subscribers/s/rotate-secret", {})
        elif number == 6:
            broker.request("PATCH", "/v1/queues/q/subscribers/s", {"timeout": "5s"})
        elif number == 9:
            broker.request("POST", "/v1/queues", {"name": "other"})
            broker.request("DELETE", "/v1/queues/other")
    return published


def _names_what(last_words: str, storage: Path) -> bool:
    """Whether they say which file, or that no file of the log can be read."""
    nothing = f"the disk reads nothing of the log in {storage}"
    return nothing in last_words or str(storage) in last_words.replace(f"the log in {storage}", "")


def ordeal(prepared: Path, before: Sequence[Answered], storage: Path, fault: Fault, subscriber: Recorder) -> list[str]:
    """What is wrong, in words; nothing: all promises were kept. ``storage`` is made of ``prepared``, and gone after."""
    shutil.copytree(prepared, storage)
    try:
        published = list(before)
        wrong = list(suffer(storage, fault, published)) or list(judge(storage, published, subscriber))
    finally:
        shutil.rmtree(storage, ignore_errors=True)
    return [f"{fault}: {one}" for one in wrong]


def suffer(storage: Path, fault: Fault, published: list[Answered]) -> Iterator[str]:
    """What is wrong with how a broker with the fault ends. What it answered is added to ``published``."""
    with serving(storage, fault) as broker:
        try:
            if broker.ready():
                published += story(broker)
            gives_up = any(one.status in (0, 503) for one in published)
            code = broker.process.wait(90.0) if gives_up else broker.end()
        except (TimeoutError, AssertionError, subprocess.TimeoutExpired) as problem:
            yield f"it hangs: {problem!r}\n{broker.said()[-2_000:]}"
            return
        said = broker.said()
        last_words = said[said.rfind("\nsyncbrok:") + 1 :] if code else ""
        if code not in fault.codes:
            yield f"ended with {code}: {last_words or said[-1_500:]}"
        elif code in (DAMAGED, FAILED) and not _names_what(last_words, storage):
            yield f"ended with {code} and does not name the file: {last_words}"
        elif code and str(storage) not in last_words and "the log" not in last_words:
            yield f"ended with {code} and does not say where: {last_words}"
        if "a defect" in said or "cannot listen" in said:
            yield f"blames something else: {last_words or said[-1_500:]}"


def judge(storage: Path, published: Sequence[Answered], subscriber: Recorder) -> Iterator[str]:
    """What is wrong with what a start without a fault finds."""
    with serving(storage) as broker:
        try:
            ready = broker.ready()
        except AssertionError as problem:
            yield f"the next start hangs: {problem}"
            return
        if not ready:
            yield f"the next start ends with {broker.process.wait()}: {broker.said()[-1_500:]}"
            return
        yield from complete(broker, published, subscriber)
        if (code := broker.end()) != 0:
            yield f"the next start ends with {code}: {broker.said()[-1_500:]}"
    verified = subprocess.run(
        [sys.executable, "-m", "syncbrok", "log", "verify", "--storage", str(storage)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if verified.returncode:
        yield f"the log does not verify: {verified.stdout[-800:]}{verified.stderr[-800:]}"


def complete(broker: Broker, published: Sequence[Answered], subscriber: Recorder) -> Iterator[str]:
    """What is wrong: all that was accepted is there and is delivered, nothing that was refused is."""
    accepted = [one for one in published if one.status == 201]
    for one in accepted:
        status, content = broker.request("GET", f"/v1/messages/{one.id}/content")
        if status != 410 and (status, content) != (200, BODY):
            yield f"{one} is answered {status} at the next start"
    for one in published:
        if one.status == 507 and broker.publish(one.key).status != 201:
            yield f"{one} is there all the same"
    again = broker.publish("afterwards")
    if again.status != 201:
        yield f"the next start answers {again.status} to a publish"

    def missing() -> set[str]:
        return {one.id for one in (*accepted, again) if one.id} - {one.id for one in subscriber.requests}

    try:
        eventually_blocking(lambda: not missing(), "everything accepted is delivered", 60.0)
    except AssertionError:
        yield f"never delivered: {sorted(missing())}"
