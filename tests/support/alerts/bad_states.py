"""Real brokers in the states that the alerts are for, each brought there by what does it in life.

A bad state is a context manager. It is given a ``Stage``, where it starts a broker that Prometheus scrapes, and yields
what is to be done again and again while somebody watches; "healthy" is one too, and no alert is for it.
"""

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.alerts.prometheus import TOKEN, Prometheus
from tests.support.broker.process import ROOT, BrokerProcess
from tests.support.disk import bad_disk, rot, small_disk
from tests.support.http.recorder import Received, Recorder
from tests.support.polling import eventually_blocking

Stir = Callable[[], object]
_FAKETIME: Final = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
_NDJSON: Final = {"Content-Type": "application/x-ndjson"}
_SMALL_SEGMENTS: Final = "storage: {segment: 64KiB}\n"


class Stage(NamedTuple):
    """Where one broker is brought into a bad state, and the name under which it is scraped."""

    directory: Path
    prometheus: Prometheus
    name: str

    @contextmanager
    def broker(self, storage: Path | None = None, **options: Any) -> Iterator[BrokerProcess]:
        """One that has been scraped once."""
        with self.scraped(BrokerProcess(storage or self.directory / "storage", **options)) as broker:
            yield broker

    @contextmanager
    def scraped(self, broker: BrokerProcess) -> Iterator[BrokerProcess]:
        """Start this one and have it scraped until the end."""
        with broker:
            self.prometheus.scrape(self.name, broker.port)
            eventually_blocking(lambda: self.prometheus.is_scraped(self.name), f"{self.name} is scraped")
            try:
                yield broker
            finally:
                self.prometheus.leave(self.name)


class BadState(NamedTuple):
    """``alert`` is what must fire in it, and ``also`` may. ``needs``: what a machine lacks for it, in words; "" for
    nothing."""

    alert: str
    make: Callable[[Stage], AbstractContextManager[Stir]]
    also: tuple[str, ...] = ()
    needs: Callable[[], str] = str


def nothing() -> None:
    """For a state that stays as it is."""


def declared(broker: BrokerProcess, endpoint: str, **settings: Any) -> None:
    """A queue "orders" with one subscriber, "billing"."""
    of_queue = {name: settings.pop(name) for name in ("max_backlog",) if name in settings}
    assert broker.request("POST", "/v1/queues", {"name": "orders", **of_queue}).status == 201
    made = broker.request(
        "POST", "/v1/queues/orders/subscribers", {"name": "billing", "endpoint": endpoint, **settings}
    )
    assert made.status == 201, made.body


def publish(broker: BrokerProcess, body: bytes = b"x", **headers: str) -> str:
    """One message to "orders"; its id."""
    answer = broker.request("POST", "/v1/queues/orders/messages", body, headers)
    assert answer.status == 201, answer.body
    return str(answer.json()["id"])


def batch(broker: BrokerProcess, count: int, content: str = "x") -> None:
    lines = f'{{"content": "{content}"}}\n'.encode() * count
    assert broker.request("POST", "/v1/queues/orders/messages:batch", lines, _NDJSON).status == 201


def tried(broker: BrokerProcess, body: bytes = b"x") -> int:
    """How a publish is answered; 0 without an answer."""
    try:
        return broker.request("POST", "/v1/queues/orders/messages", body).status
    except OSError:
        return 0


@contextmanager
def hanging() -> Iterator[Recorder]:
    """An endpoint that answers nothing before the end."""
    over = threading.Event()
    with Recorder(lambda _: 200 if over.wait(600) else 500) as endpoint:
        try:
            yield endpoint
        finally:
            over.set()


# -- the process -------------------------------------------------------------------------------------------------------


@contextmanager
def healthy(stage: Stage) -> Iterator[Stir]:
    with Recorder() as endpoint, stage.broker() as broker:
        declared(broker, endpoint.url)
        yield lambda: publish(broker)


@contextmanager
def down(stage: Stage) -> Iterator[Stir]:
    with stage.broker() as broker:
        broker.terminate()
        yield nothing


@contextmanager
def draining(stage: Stage) -> Iterator[Stir]:
    """It is told to end while an attempt is out."""
    with hanging() as endpoint, stage.broker() as broker:
        declared(broker, endpoint.url)
        publish(broker)
        eventually_blocking(lambda: endpoint.requests, "the attempt is out")
        broker.process.send_signal(signal.SIGTERM)
        yield nothing


@contextmanager
def restarted(stage: Stage) -> Iterator[Stir]:
    with stage.broker() as broker:

        def again() -> None:
            broker.terminate()
            broker.start()
            eventually_blocking(lambda: stage.prometheus.is_scraped(stage.name), "it is scraped")

        yield again


@contextmanager
def killed(stage: Stage) -> Iterator[Stir]:
    with stage.broker() as broker:
        declared(broker, "http://127.0.0.1:1/", paused=True)
        publish(broker)
        broker.kill()
        broker.start()
        yield nothing


@contextmanager
def killed_idle(stage: Stage) -> Iterator[Stir]:
    """It has done nothing since it was started on a log that was closed."""
    with stage.broker() as broker:
        broker.terminate()
        broker.start()
        broker.kill()
        broker.start()
        yield nothing


@contextmanager
def torn(stage: Stage) -> Iterator[Stir]:
    """Killed in the middle of a write: half a record stands at the end."""
    with stage.broker() as broker:
        declared(broker, "http://127.0.0.1:1/", paused=True)
        publish(broker)
        broker.kill()
        last = rot.segments(broker.storage)[-1]
        record = rot.records(last)[-1]
        whole = last.read_bytes()[record.at : record.end]
        with last.open("r+b") as file:
            file.seek(record.end)
            file.write(whole[:60])
        broker.start()
        yield nothing


@contextmanager
def held_up(stage: Stage) -> Iterator[Stir]:
    with stage.broker() as broker:
        often = 'while kill -STOP "$0"; do sleep 0.4; kill -CONT "$0"; sleep 0.2; done'
        with subprocess.Popen(["sh", "-c", often, str(broker.process.pid)]) as stopping:
            try:
                yield nothing
            finally:
                stopping.kill()
                broker.process.send_signal(signal.SIGCONT)


class UnderFaketime(BrokerProcess):
    """A broker whose wall clock is ahead by what stands in the file ``clock`` (``+60``)."""

    def __init__(self, storage: Path) -> None:
        super().__init__(storage)
        self.clock = storage.parent / "clock"
        self.clock.write_text("+0")
        self._limited = (
            "env", f"LD_PRELOAD={_FAKETIME}", f"FAKETIME_TIMESTAMP_FILE={self.clock}", "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        )  # fmt: skip


@contextmanager
def clock_set(stage: Stage) -> Iterator[Stir]:
    broker = UnderFaketime(stage.directory / "storage")
    with stage.scraped(broker):
        broker.clock.write_text("+600")
        yield nothing


@contextmanager
def faulty(stage: Stage) -> Iterator[Stir]:
    """A copy of the broker with a defect in one route."""
    tree = stage.directory / "tree"
    shutil.copytree(ROOT / "syncbrok", tree / "syncbrok", ignore=shutil.ignore_patterns("__pycache__"))
    route = tree / "syncbrok" / "frontends" / "over_http" / "resources" / "history.py"
    before = "    token = narrowed(request)\n"
    assert route.read_text().count(before) == 1
    route.write_text(route.read_text().replace(before, f"{before}    raise RuntimeError\n"))
    broker = BrokerProcess(stage.directory / "storage")
    broker.tree = tree
    with stage.scraped(broker):
        assert broker.request("GET", "/v1/history").status == 500
        yield nothing


# -- the disk ----------------------------------------------------------------------------------------------------------


@contextmanager
def injected(broker: BrokerProcess, what: str) -> Iterator[None]:
    """From now on each write and fsync of a segment of the log is answered so, by strace."""
    paths = [word for path in broker.storage.glob("*.log") for word in ("-P", str(path))]
    calls = "pwrite64,pwritev,pwritev2,fdatasync,fsync"
    asked = ["-o", "/dev/null", *paths, "-e", f"trace={calls}", "-e", f"inject={calls}:{what}"]
    with subprocess.Popen(["strace", "-f", "-qq", *asked, "-p", str(broker.process.pid)]) as tracing:
        threads = Path(f"/proc/{broker.process.pid}/task")

        def attached() -> bool:
            assert tracing.poll() is None, "strace may trace here"
            return all("TracerPid:\t0\n" not in (one / "status").read_text() for one in threads.iterdir())

        eventually_blocking(attached, "strace traces each thread")
        try:
            yield
        finally:
            broker.kill()
            tracing.terminate()


def strace_is_missing() -> str:
    if os.geteuid():
        return "root, to trace a broker"
    return "" if shutil.which("strace") else "strace"


def mount_is_missing() -> str:
    return "root, to mount a small disk" if os.geteuid() else ""


def faketime_is_missing() -> str:
    return "" if _FAKETIME else "faketime"


@contextmanager
def fails(stage: Stage) -> Iterator[Stir]:
    """Each write of the log fails; the broker is started again, as its unit does, on a disk that is well."""
    with stage.broker() as broker:
        declared(broker, "http://127.0.0.1:1/", paused=True)
        with injected(broker, "error=EIO"):
            assert tried(broker) in (0, 503)
            assert broker.process.wait(30.0) == bad_disk.FAILED
        broker.start()
        yield nothing


@contextmanager
def hangs(stage: Stage) -> Iterator[Stir]:
    with stage.broker() as broker, ThreadPoolExecutor(1) as publisher:
        declared(broker, "http://127.0.0.1:1/", paused=True)
        with injected(broker, "delay_enter=8000000"):
            publisher.submit(tried, broker)
            yield nothing


@contextmanager
def is_slow(stage: Stage) -> Iterator[Stir]:
    with Recorder() as endpoint, stage.broker() as broker:
        declared(broker, endpoint.url)
        with injected(broker, "delay_enter=400000"):
            yield lambda: tried(broker)


@contextmanager
def is_full(stage: Stage) -> Iterator[Stir]:
    with small_disk.mounted(stage.directory / "disk") as disk, Recorder() as endpoint:
        assert disk is not None
        config = "storage: {segment: 64KiB, reserve: 128KiB}\n"
        storage = stage.directory / "log"
        storage.symlink_to(disk / "log")
        with stage.broker(disk / "log", config=config) as broker:
            declared(broker, endpoint.url)
            small_disk.fill(disk / "filler")
            eventually_blocking(lambda: tried(broker, bytes(9_000)) == 507, "a publish is refused")
            yield nothing


@contextmanager
def is_damaged(stage: Stage) -> Iterator[Stir]:
    """A bit of a sealed segment turns while the broker is down."""
    with stage.broker(config=_SMALL_SEGMENTS) as broker:
        declared(broker, "http://127.0.0.1:1/", paused=True)
        batch(broker, 200, "y" * 1_000)
        batch(broker, 200, "z" * 1_000)
        broker.terminate()
        message = next(one for one in rot.records(rot.segments(broker.storage)[0]) if one.kind == rot.MESSAGE)
        rot.flip(message.path, message.content_at)
        broker.start()
        yield nothing


@contextmanager
def will_fill(stage: Stage) -> Iterator[Stir]:
    """More than a gigabyte is written, and it goes on."""
    with stage.broker() as broker:
        assert broker.request("POST", "/v1/queues", {"name": "orders"}).status == 201
        yield lambda: batch(broker, 15, "y" * 1_000_000)


# -- clients -----------------------------------------------------------------------------------------------------------


@contextmanager
def refuses(stage: Stage) -> Iterator[Stir]:
    with stage.broker() as broker:
        declared(broker, "http://127.0.0.1:1/", paused=True, max_backlog={"messages": 1})
        yield lambda: tried(broker)


@contextmanager
def guessed(stage: Stage) -> Iterator[Stir]:
    """Somebody tries tokens, many at a time."""
    known = f"{{name: prometheus, sha256: {sha256(TOKEN.encode()).hexdigest()}, scopes: [read]}}"
    with stage.broker(config=f"http: {{tokens: [{known}]}}\n") as broker, ThreadPoolExecutor(50) as guessing:

        def guess(number: int) -> None:
            broker.request("GET", "/v1/queues", headers={"Authorization": f"Bearer {number}"})

        yield lambda: list(guessing.map(guess, range(50)))


@contextmanager
def crowded(stage: Stage) -> Iterator[Stir]:
    """Ten addresses hold connections on which nothing is asked."""
    with ExitStack() as held, stage.broker(descriptors=256) as broker:

        def connect() -> None:
            for host in range(2, 12):
                for _ in range(20):
                    try:
                        source = (f"127.0.0.{host}", 0)
                        held.enter_context(socket.create_connection(("127.0.0.1", broker.port), 5, source))
                    except OSError:
                        return

        yield connect


# -- subscribers -------------------------------------------------------------------------------------------------------


@contextmanager
def dropped(stage: Stage) -> Iterator[Stir]:
    """Retention ends what a subscriber that does not count has not taken. It looks at each start."""
    with stage.broker(config="storage: {segment: 64KiB, retention: 1s}\n") as broker:
        declared(broker, "http://127.0.0.1:1/", paused=True, counts=False)
        batch(broker, 200, "y" * 1_000)
        batch(broker, 1)
        broker.terminate()
        old_s = time.monotonic() + 2.0
        eventually_blocking(lambda: time.monotonic() > old_s, "the first segment is old")
        broker.start()
        yield nothing


@contextmanager
def endpoint_fails(stage: Stage) -> Iterator[Stir]:
    with stage.broker() as broker:
        declared(broker, "http://127.0.0.1:1/", retry=["1s"] * 60)
        publish(broker)
        yield nothing


@contextmanager
def breaker_open(stage: Stage) -> Iterator[Stir]:
    """The endpoint hangs, so each probe is out for as long as an attempt may be: most scrapes see one."""
    with hanging() as endpoint, stage.broker() as broker:
        breaker = {"failures": 3, "probe": ["1s", "1s"]}
        declared(broker, endpoint.url, retry=["1s"] * 60, timeout="2s", breaker=breaker)
        batch(broker, 10)
        yield nothing


@contextmanager
def gone(stage: Stage) -> Iterator[Stir]:
    with Recorder(lambda _: 410) as endpoint, stage.broker() as broker:
        declared(broker, endpoint.url)
        publish(broker)
        yield nothing


@contextmanager
def paused(stage: Stage) -> Iterator[Stir]:
    with stage.broker() as broker:
        declared(broker, "http://127.0.0.1:1/", paused=True)
        publish(broker)
        yield nothing


@contextmanager
def paused_late(stage: Stage) -> Iterator[Stir]:
    """All that waits has been tried before, so none of it is behind the cursor."""
    with Recorder(lambda _: 503) as endpoint, stage.broker() as broker:
        declared(broker, endpoint.url)
        publish(broker)
        eventually_blocking(lambda: endpoint.requests, "it is tried")
        broker.request("PATCH", "/v1/queues/orders/subscribers/billing", {"paused": True})
        yield nothing


@contextmanager
def falls_behind(stage: Stage) -> Iterator[Stir]:
    with hanging() as endpoint, stage.broker() as broker:
        declared(broker, endpoint.url, timeout="5m")
        batch(broker, 10_000)
        batch(broker, 10_000)
        yield lambda: batch(broker, 10)


@contextmanager
def stuck(stage: Stage) -> Iterator[Stir]:
    """A child waits for its parent, which waits for a subscriber that is paused."""
    with Recorder() as endpoint, stage.broker() as broker:
        declared(broker, "http://127.0.0.1:1/", paused=True)
        parent = publish(broker)
        assert broker.request("POST", "/v1/queues", {"name": "children"}).status == 201
        broker.request("POST", "/v1/queues/children/subscribers", {"name": "one", "endpoint": endpoint.url})
        broker.request("POST", "/v1/queues/children/messages", b"x", {"Syncbrok-Parent": parent})
        yield nothing


@contextmanager
def late(stage: Stage) -> Iterator[Stir]:
    """Each message is refused at first and taken three seconds later."""

    def answer(request: Received) -> int:
        return 400 if request.headers["syncbrok-attempt"] == "1" else 200

    with Recorder(answer) as endpoint, stage.broker() as broker:
        declared(broker, endpoint.url, retry=["3s"] * 9)
        yield lambda: publish(broker)


@contextmanager
def dies(stage: Stage) -> Iterator[Stir]:
    with Recorder(lambda _: 400) as endpoint, stage.broker() as broker:
        declared(broker, endpoint.url, retry=[])
        publish(broker)
        yield nothing


@contextmanager
def reader_silent(stage: Stage) -> Iterator[Stir]:
    with stage.broker(config="storage: {reader_hold: 1s}\n") as broker:
        assert broker.request("PUT", "/v1/log/readers/warehouse", {"hold": True}).status == 200
        yield nothing


_ENDED: Final = ("SyncbrokDown", "SyncbrokUncleanStart")
_WAITS: Final = ("SyncbrokSubscriberDisabled", "SyncbrokMessageStuck")
_ILL: Final = ("SyncbrokSubscriberFailing", "SyncbrokBreakerOpen", "SyncbrokMessageStuck")
OF_THE_MACHINE: Final = frozenset({"SyncbrokLoopHeldUp", "SyncbrokCommitsSlow"})
"""What else runs on a machine makes these fire at any broker, within the seconds that stand here for minutes."""
BAD_STATES: Final[dict[str, BadState]] = {
    "down": BadState("SyncbrokDown", down),
    "draining": BadState("SyncbrokDown", draining, _WAITS),
    "log failed": BadState("SyncbrokLogFailed", fails, (*_ENDED, *_WAITS), strace_is_missing),
    "damaged": BadState("SyncbrokLogDamaged", is_damaged, (*_WAITS, "SyncbrokDown")),
    "full": BadState("SyncbrokLogFull", is_full, (), mount_is_missing),
    "disk hangs": BadState("SyncbrokDiskHangs", hangs, (), strace_is_missing),
    "restarts": BadState("SyncbrokRestarts", restarted, ("SyncbrokDown", "SyncbrokRefusesLoad")),
    "retention dropped": BadState("SyncbrokRetentionDropped", dropped, ("SyncbrokDown", *_WAITS)),
    "reader silent": BadState("SyncbrokReaderHoldsNoMore", reader_silent),
    "faults": BadState("SyncbrokFaults", faulty),
    "refuses load": BadState("SyncbrokRefusesLoad", refuses, _WAITS),
    "wrong tokens": BadState("SyncbrokWrongTokens", guessed),
    "loop held up": BadState("SyncbrokLoopHeldUp", held_up, ("SyncbrokDown",)),
    "budget short": BadState("SyncbrokBudgetShort", crowded, ("SyncbrokRefusesLoad",)),
    "clock stepped": BadState("SyncbrokClockStepped", clock_set, (), faketime_is_missing),
    "will fill": BadState("SyncbrokDiskWillFill", will_fill),
    "unclean start": BadState("SyncbrokUncleanStart", killed, ("SyncbrokDown", *_WAITS)),
    "killed while idle": BadState("SyncbrokUncleanStart", killed_idle, ("SyncbrokDown",)),
    "torn tail": BadState("SyncbrokTornTail", torn, (*_ENDED, *_WAITS)),
    "commits slow": BadState("SyncbrokCommitsSlow", is_slow, (), strace_is_missing),
    "failing": BadState("SyncbrokSubscriberFailing", endpoint_fails, _ILL),
    "breaker open": BadState("SyncbrokBreakerOpen", breaker_open, _ILL),
    "endpoint disabled": BadState("SyncbrokEndpointDisabled", gone, ("SyncbrokDeadLetters", *_WAITS)),
    "paused": BadState("SyncbrokSubscriberDisabled", paused, _WAITS),
    "paused after a failure": BadState("SyncbrokSubscriberDisabled", paused_late, _ILL),
    "backlog grows": BadState("SyncbrokBacklogGrows", falls_behind, _WAITS),
    "stuck": BadState("SyncbrokMessageStuck", stuck, _WAITS),
    "late": BadState("SyncbrokDeliverySlow", late, _ILL),
    "dead letters": BadState("SyncbrokDeadLetters", dies),
}
