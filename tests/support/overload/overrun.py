"""A bad day: publishers send twice what a queue's ten subscribers drain, and one of the ten hangs.

What the nine drain is bounded by their ``rate``, so it is the same on each machine. Of four messages of a publisher
three wait for the one before them (scope ``same``: at each subscriber by itself). A bystander in another queue goes
about its business meanwhile. The judge knows what publishers were answered and what the subscribers saw.
"""

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.broker.process import BrokerProcess
from tests.support.cluster.judge import Attempt, digest
from tests.support.http.webhook_receiver import WebhookReceiver
from tests.support.overload.attacks import MIB, Watch, attacked, publish_large
from tests.support.overload.neighbours import BareEndpoint
from tests.support.polling import eventually_blocking

NINE: Final = tuple(f"s{number}" for number in range(9))
HUNG: Final = "hung"
PUBLISHERS: Final = 4
FAMILY: Final = 4
GROWN_BYTES_MAX: Final = 64 * MIB
WINDOW: Final = 16
FAILURES: Final = 10
PROBE_S: Final = 10.0
TIMEOUT_S: Final = 15.0
LATER_MAX_S: Final = 0.02
"""so much longer a bystander may wait in any case: the machine's own doing"""
_MESSAGES: Final = "/v1/queues/overrun/messages"
_SUBSCRIBERS: Final = "/v1/queues/overrun/subscribers"
_KEEPS_UP: Final = 0.8
"""so much of its rate has each of the nine had when publishing ends, at least"""


class Load(NamedTuple):
    """``rate``: deliveries a second that each subscriber may have; twice as much is published, for ``lasts_s``."""

    rate: int
    lasts_s: float
    size_bytes: int


class Sent(NamedTuple):
    """A message that was accepted: when it was asked for, the one before it of its publisher, its content's digest."""

    since_ns: int
    parent: str
    content: str


class Overrun(NamedTuple):
    """What was seen of one. ``published_s``: how long publishing took. ``by_then``: how many each of the nine had when
    it ended. ``hung_asked``: requests that the one that hangs got; ``standing``: how it is shown in the end.
    ``bystander_s``: of its deliveries the quickest 99 %."""

    load: Load
    sent: Mapping[str, Sent]
    refused: Sequence[int]
    published_s: float
    by_then: Mapping[str, int]
    attempts: Sequence[Attempt]
    hung_asked: int
    standing: Mapping[str, Any] | None
    grown_bytes: int
    bystander_s: float
    bystander_missing: int

    @property
    def hung_allowed(self) -> int:
        """What was out as its breaker opened, and a probe after 1, 2, 4, 8 s and each ten seconds then (RULES 29)."""
        late_s = self.published_s - TIMEOUT_S
        return WINDOW if late_s < 0 else WINDOW + FAILURES + 4 + int(late_s / PROBE_S)

    @property
    def waited_s(self) -> float:
        """From the publish until a delivery to one of the nine began: of those the quickest 99 %."""
        waited_ns = sorted(one.begun_ns - self.sent[one.id].since_ns for one in self.attempts if one.id in self.sent)
        return waited_ns[int(0.99 * len(waited_ns))] / 1e9

    def __str__(self) -> str:
        had = self.by_then.values()
        return (
            f"{len(self.sent)} of {self.load.size_bytes} bytes published in {self.published_s:.0f} s, the nine had "
            f"{min(had)} to {max(had)} then; {self.grown_bytes / MIB:.0f} MiB; the hung one was asked "
            f"{self.hung_asked} times; p99 of the nine {self.waited_s:.1f} s, "
            f"of a bystander {1e3 * self.bystander_s:.1f} ms"
        )


class _Publisher(threading.Thread):
    """Sends a message at each of its moments; one it is late for at once."""

    def __init__(self, broker: BrokerProcess, load: Load, number: int) -> None:
        super().__init__()
        self._broker, self._load = broker, load
        self._every_s = PUBLISHERS / (2 * load.rate)
        self._offset_s = number / (2 * load.rate)
        self.sent: dict[str, Sent] = {}
        self.refused: list[int] = []

    def run(self) -> None:
        pause, parent = threading.Event(), ""
        began_s = time.monotonic() + self._offset_s
        for turn in range(int(self._load.lasts_s / self._every_s)):
            pause.wait(max(0.0, began_s + turn * self._every_s - time.monotonic()))
            content, since_ns = os.urandom(self._load.size_bytes), time.monotonic_ns()
            parent = "" if turn % FAMILY == 0 else parent
            headers = {"Syncbrok-Parent": parent} if parent else {}
            reply = self._broker.request("POST", _MESSAGES, content, headers)
            if reply.status == 201:
                accepted = reply.json()["id"]
                self.sent[accepted] = Sent(since_ns, parent, digest(content))
                parent = accepted
            else:
                self.refused.append(reply.status)


def overrun(directory: Path, load: Load, *, hung: bool = True) -> Overrun:
    """One, and then the nine get the rest as fast as they take it. ``hung``: the tenth hangs; else there are nine."""
    directory.mkdir(exist_ok=True)
    with ExitStack() as stack:
        receiver = stack.enter_context(WebhookReceiver(directory / "seen", share=0.0))
        hangs = stack.enter_context(closing(BareEndpoint()))
        target = stack.enter_context(attacked(directory / "storage"))
        broker = target.broker
        _declare(broker, {name: receiver.url(name) for name in NINE}, {"rate": f"{load.rate}/s"})
        if hung:
            _declare(broker, {HUNG: f"http://127.0.0.1:{hangs.port}/"}, {})
        publish_large(target, 30, "warm")
        publishers = [_Publisher(broker, load, number) for number in range(PUBLISHERS)]
        with Watch(target) as watch:
            began_s = time.monotonic()
            for one in publishers:
                one.start()
            for one in publishers:
                one.join()
            by_then = Counter(row[0] for row in receiver.rows())
            published_s, hung_asked = time.monotonic() - began_s, hangs.connections
        sent = {id_: message for one in publishers for id_, message in one.sent.items()}
        for name in NINE:
            _ask(broker, "PATCH", f"{_SUBSCRIBERS}/{name}", {"rate": None})
        for name in NINE:
            eventually_blocking(lambda: _standing(broker, name)["delivered"] >= len(sent), f"all at {name}", 900)  # noqa: B023
        return Overrun(
            load=load,
            sent=sent,
            refused=[status for one in publishers for status in one.refused] + watch.refused,
            published_s=published_s,
            by_then={name: by_then[name] for name in NINE},
            attempts=receiver.attempts(),
            hung_asked=hung_asked,
            standing=_standing(broker, HUNG) if hung else None,
            grown_bytes=watch.grown_bytes,
            bystander_s=watch.told.delay_s(0.99),
            bystander_missing=watch.told.missing,
        )


def _declare(broker: BrokerProcess, endpoints: Mapping[str, str], settings: Mapping[str, Any]) -> None:
    """The queue, where it is not there yet, and these subscribers."""
    queue = {"name": "overrun", "scope": "same", "retry": ["1m"] * 60, "window": WINDOW, "timeout": f"{TIMEOUT_S:.0f}s"}
    breaker = {"failures": FAILURES, "probe": ["1s", f"{PROBE_S:.0f}s"]}
    _ask(broker, "POST", "/v1/queues", queue)
    for name, endpoint in endpoints.items():
        _ask(broker, "POST", _SUBSCRIBERS, {"name": name, "endpoint": endpoint, "breaker": breaker, **settings})


def _standing(broker: BrokerProcess, name: str) -> dict[str, Any]:
    statistics: dict[str, Any] = _ask(broker, "GET", f"{_SUBSCRIBERS}/{name}")["statistics"]
    return statistics


def _ask(broker: BrokerProcess, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    reply = broker.request(method, path, body)
    assert reply.status < 300, (path, reply)
    return reply.json()


# -- the judge --------------------------------------------------------------------------------------------------------


def wrong_with(one: Overrun) -> Iterator[str]:
    """What was promised and did not hold (DESIGN 1, RULES 11, 15, 29 and 33)."""
    if one.refused or one.bystander_missing:
        yield f"refused: {one.refused[:5]}; {one.bystander_missing} of a bystander's were not delivered"
    if one.grown_bytes >= GROWN_BYTES_MAX:
        yield f"{one.grown_bytes / MIB:.0f} MiB more than before"
    due = one.load.rate * one.published_s
    for name, had in one.by_then.items():
        if had < _KEEPS_UP * min(due, len(one.sent) / 2):
            yield f"{name} had {had} in {one.published_s:.1f} s, its rate lets it have {due:.0f}"
        if had > due + one.load.rate + 1:
            yield f"{name} had {had} in {one.published_s:.1f} s, more than its rate of {one.load.rate}/s"
    if one.hung_asked > one.hung_allowed:
        yield f"the one that hangs was asked {one.hung_asked} times, {one.hung_allowed} are allowed"
    if one.standing is not None:
        waits = sum(one.standing[name] for name in ("backlog", "blocked", "in_flight", "retrying"))
        if waits < len(one.sent) or one.standing["dead_letters"] or one.standing["delivered"]:
            yield f"the one that hangs has not {len(one.sent)} waiting: {one.standing}"
    yield from _lost_or_early(one)


def _lost_or_early(one: Overrun) -> Iterator[str]:
    """Of the nine: each message once, whole, after its parent was acknowledged."""
    came: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
    for attempt in one.attempts:
        came[attempt.subscriber, attempt.id].append(attempt)
    for name in NINE:
        for id_, message in one.sent.items():
            here, parents = came[name, id_], came[name, message.parent]
            if len(here) != 1 or not here[0].well or here[0].content != message.content:
                yield f"{id_} came to {name} {len(here)} times, or not as it was sent"
            elif message.parent and not (parents and parents[0].answered_ns <= here[0].begun_ns):
                yield f"{id_} came to {name} before {message.parent} was acknowledged there"


def wrong_beside(one: Overrun, without: Overrun) -> Iterator[str]:
    """What the one that hangs has cost its neighbours, beside a run without it: more than twice what they waited."""
    if one.waited_s > 2 * without.waited_s:
        yield f"p99 of the nine {one.waited_s:.2f} s, {without.waited_s:.2f} s without the one that hangs"
    if one.bystander_s > max(2 * without.bystander_s, without.bystander_s + LATER_MAX_S):
        was_ms, is_ms = 1e3 * without.bystander_s, 1e3 * one.bystander_s
        yield f"p99 of a bystander {is_ms:.1f} ms, {was_ms:.1f} ms without the one that hangs"
