"""A story on a real broker, copies of its log that rot, and the judge of what a broker makes of one.

Nothing of the broker is imported: it is a process that is asked over HTTP, its log is read by the format (``rot``), and
what must come of each message is worked out here from what was published and which record was hit. The rule (RULES 28):
damage in a sealed segment costs the records it hit and no others, it is named, and what is kept, released or answered
is the same with and without checkpoint and sidecars.
"""

import json
import random
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.support.broker.process import BrokerProcess, Reply
from tests.support.disk import rot
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking

REFUSED = 65
SHORT = "1s"
"""a retention by which a start takes the sealed segments of a story"""
SURVIVED = frozenset({rot.MESSAGE, rot.CARRIED, rot.SEALED})
"""kinds of records without which a start can tell how things stood"""
_BALLAST = b"".join(b'{"content":"%s"}\n' % (b"x" * 100) for _ in range(400))


class Told(NamedTuple):
    """A message that was answered 201. ``open``: its subscriber was paused."""

    id: str
    queue: str
    content: bytes
    parents: tuple[str, ...] = ()
    policy: str = "fail"
    key: str = ""
    open: bool = False

    @property
    def sequence(self) -> int:
        return rot.sequence_of(self.id)


@dataclass
class Story:
    """A log on the disk, and what was published into it."""

    storage: Path
    subscriber: Recorder
    messages: list[Told] = field(default_factory=list)

    def queues(self) -> str:
        to = self.subscriber.url
        return (
            "queues:\n"
            f'  held: {{subscribers: [{{name: p, endpoint: "{to}", paused: true}}]}}\n'
            f'  kids: {{subscribers: [{{name: k, endpoint: "{to}"}}]}}\n'
            "  ballast: {}\n"
        )

    def broker(self, storage: Path, retention: str = "7d") -> BrokerProcess:
        """Not started. With ``SHORT`` it finds the segments that are sealed now old."""
        if retention == SHORT:
            grow_old(storage)
        config = f"storage: {{segment: 64KiB, retention: {retention}}}\n"
        return BrokerProcess(storage, queues=self.queues(), config=config)

    def tell(self, broker: BrokerProcess, families: int) -> None:
        """Messages that are open and have children of each policy, some that are complete, some with keys."""
        for number in range(families):
            parent = self._publish(broker, "held", b"parent %d" % number, open=True, key=f"open {number}")
            for policy in ("fail", "hold", "deliver"):
                self._publish(broker, "kids", policy.encode(), (parent.id,), policy, open=True)
            done = self._publish(broker, "kids", b"done %d" % number, key=f"done {number}", wait=True)
            self._publish(broker, "held", b"after %d" % number, (done.id,), open=True)

    def _publish(
        self,
        broker: BrokerProcess,
        queue: str,
        content: bytes,
        parents: tuple[str, ...] = (),
        policy: str = "fail",
        key: str = "",
        *,
        open: bool = False,  # noqa: A002
        wait: bool = False,
    ) -> Told:
        told = Told("", queue, content, parents, policy, key, open)
        reply = publish(broker, told, wait=wait)
        assert reply.status in (200, 201), reply
        told = told._replace(id=reply.json()["id"])
        self.messages.append(told)
        return told


def publish(broker: BrokerProcess, told: Told, *, wait: bool = False) -> Reply:
    """As it was published the first time."""
    headers = {"Syncbrok-Parent-Failure": told.policy}
    if told.parents:
        headers["Syncbrok-Parent"] = ", ".join(told.parents)
    if told.key:
        headers["Idempotency-Key"] = told.key
    if wait:
        headers["Prefer"] = "wait=20"
    return broker.request("POST", f"/v1/queues/{told.queue}/messages", told.content, headers)


def seal(broker: BrokerProcess) -> None:
    """Fill the segment that is written to, so that it is sealed and the next one begun."""
    before = len(rot.segments(broker.storage))
    while len(rot.segments(broker.storage)) == before:
        lines = {"Content-Type": "application/x-ndjson"}
        assert broker.request("POST", "/v1/queues/ballast/messages:batch", _BALLAST, lines).status == 201


def grow_old(storage: Path) -> None:
    """Wait until the segments that are sealed now are older than ``SHORT``. A start that comes before finds nothing to
    take, and the broker looks again only a minute later."""
    sealed_s = rot.segments(storage)[-2].stat().st_mtime
    eventually_blocking(lambda: time.time() - sealed_s > 1.0, "the sealed segments are older than the retention")


def make_story(directory: Path, subscriber: Recorder, families: int = 2) -> Story:
    """A sealed segment with everything in it, a replay too; the broker has been stopped in good order."""
    story = Story(directory / "log", subscriber)
    with story.broker(story.storage) as broker:
        story.tell(broker, families)
        done = next(told for told in story.messages if not told.open)
        assert broker.request("POST", f"/v1/messages/{done.id}/replay", {"descendants": False}).status == 200
        eventually_blocking(lambda: figure(broker, "syncbrok_in_flight") == 0, "the replay has ended")
        seal(broker)
        eventually_blocking(lambda: list(story.storage.glob("*.idx")), "a sidecar")
        eventually_blocking((story.storage / "checkpoint").exists, "a checkpoint")
        assert broker.terminate() == 0
    return story


def carried(story: Story, directory: Path) -> Story:
    """The same story after retention has dropped its segment and carried along what had not ended; that one is sealed
    now."""
    later = Story(directory / "carried", story.subscriber, [told for told in story.messages if told.open])
    shutil.copytree(story.storage, later.storage)
    with later.broker(later.storage, SHORT) as broker:
        eventually_blocking(lambda: not (later.storage / f"{1:020d}.log").exists(), "the first segment gone")
        assert broker.terminate() == 0
    with later.broker(later.storage) as broker:
        seal(broker)
        eventually_blocking(lambda: len(list(later.storage.glob("*.idx"))) >= 1, "a sidecar")
        assert broker.terminate() == 0
    return later


class Hit(NamedTuple):
    """A bit that is turned: in a record, or (None) in the segment's own header."""

    path: Path
    offset: int
    bit: int
    record: rot.Record | None

    @property
    def where(self) -> str:
        if self.record is None:
            return f"{self.path.name} header byte {self.offset}"
        record = self.record
        return f"{self.path.name} kind {record.kind} sequence {record.sequence} byte {self.offset - record.at}"

    def turn(self, storage: Path) -> None:
        rot.flip(storage / self.path.name, self.offset, self.bit)


def hits(storage: Path, chance: random.Random) -> Iterator[Hit]:
    """One in every part of every record of the sealed segments: header, meta, content; and in their own headers."""
    for path in rot.segments(storage)[:-1]:
        yield Hit(path, chance.randrange(rot.SEGMENT_HEADER_BYTES), chance.randrange(8), None)
        for record in rot.records(path):
            parts = ((record.at, record.body_at), (record.body_at, record.content_at), (record.content_at, record.end))
            for start, end in parts:
                if start < end:
                    yield Hit(path, chance.randrange(start, end), chance.randrange(8), record)


def is_seal(hit: Hit) -> bool:
    return hit.record is not None and hit.record.kind == rot.SEALED


def forget(storage: Path, *patterns: str) -> None:
    for pattern in patterns:
        for path in storage.glob(pattern):
            path.unlink()


def figure(broker: BrokerProcess, name: str) -> float:
    """A metric without labels."""
    found = re.search(rf"^{name} (\S+)$", broker.request("GET", "/metrics").body.decode(), re.MULTILINE)
    assert found, f"no metric {name}"
    return float(found[1])


class Judge:
    """What is wrong with a broker on a copy of the story's log in which ``turned`` were hit; ``wrong`` grows."""

    def __init__(self, story: Story, turned: list[Hit], *, dropped: bool = False) -> None:
        """``dropped``: retention has taken what had ended."""
        self.story = story
        self.dropped = dropped
        self._before = len(story.subscriber.requests)
        self.lost = {hit.record.own for hit in turned if hit.record is not None and hit.record.kind in (1, 3)}
        self.nameless: set[int] = set()
        """lost ones of which not even the id is left"""
        self.wrong: list[str] = []

    def saves(self, storage: Path) -> None:
        """Retention, where there is any, may have carried messages before their bits turned: what has a copy beside the
        one that was hit, once all that is old has gone, is not lost. (Where bits turn under its hands it looks again a
        minute later.)"""
        if not self.dropped:
            return
        old = [storage / path.name for path in rot.segments(self.story.storage)[:-1]]
        with suppress(AssertionError):  # of what keeps a segment others speak
            eventually_blocking(lambda: not any(path.exists() for path in old), "old segments gone", 90.0)
        carried = {
            record.own: path.read_bytes()[record.content_at : record.end]
            for path in rot.segments(storage)
            if path not in old
            for record in rot.records(path)
            if record.kind == rot.CARRIED
        }
        self.lost -= {told.sequence for told in self.story.messages if carried.get(told.sequence) == told.content}

    def answers(self, broker: BrokerProcess) -> dict[str, Any]:
        """What is answered about every message; wrong ones are noted. The same must be answered whenever asked."""
        answers: dict[str, Any] = {}
        for told in self.story.messages:
            reply = broker.request("GET", f"/v1/messages/{told.id}")
            content = broker.request("GET", f"/v1/messages/{told.id}/content")
            answers[told.id] = reply.status, _kind(reply), reply.json().get("state")
            lost = told.sequence in self.lost
            self._expect(told, "GET", reply, 410 if lost else 200, "lost" if lost else "")
            self._expect(told, "GET of the content", content, 410 if lost else 200, "lost" if lost else "")
            if not lost and content.body != told.content:
                self.wrong.append(f"{told.content!r}: the content is {content.body!r}")
            if lost:
                self._expect(told, "a cancel", broker.request("DELETE", f"/v1/messages/{told.id}"), 410, "lost")
                again = broker.request("POST", f"/v1/messages/{told.id}/replay", {"dry_run": True})
                self._expect(told, "a replay", again, 410, "lost")
        return answers

    def repeats(self, broker: BrokerProcess) -> None:
        """Every key is used again: the first one's id, or a refusal that names it."""
        for told in self.story.messages:
            if not told.key:
                continue
            reply = publish(broker, told)
            lost = told.sequence in self.lost
            self._expect(told, "its key again", reply, 409 if lost else 200, "first-lost" if lost else "")
            nameless = lost and told.sequence in self.nameless
            if reply.json().get("id") != told.id and not nameless:
                self.wrong.append(f"{told.content!r}: its key again answers {reply.body!r}")

    def finds(self, broker: BrokerProcess) -> None:
        """What is listed of a queue, found by a key and named as children is the same, whoever keeps tables of it."""
        told = [one for one in self.story.messages if one.sequence not in self.lost]
        for queue in ("held", "kids"):
            listed = broker.request("GET", f"/v1/queues/{queue}/messages?limit=1000").json()["messages"]
            self._same(f"messages of {queue}", listed, [one.id for one in told if one.queue == queue])
        for one in told:
            tree = broker.request("GET", f"/v1/messages/{one.id}/tree?direction=down&depth=1").json()["nodes"]
            family = [one.id, *(child.id for child in told if one.id in child.parents)]
            self._same(f"{one.content!r} and its children", tree, family)
            if one.key:
                found = broker.request("GET", f"/v1/messages?idempotency_key={quote(one.key)}").json()["messages"]
                self._same(f"messages of the key {one.key}", found, [one.id])

    def _same(self, what: str, answered: list[dict[str, Any]], ids: list[str]) -> None:
        if [one["id"] for one in answered] != ids:
            self.wrong.append(f"{what}: {len(answered)} are answered, which are not those {len(ids)} that there are")

    def adopts(self, broker: BrokerProcess) -> None:
        """Every message may still be named as a parent."""
        for told in self.story.messages:
            reply = publish(broker, Told("", "ballast", b"adopted", (told.id,), "hold"))
            self._expect(told, "a child of it", reply, 201, "")

    def named(self, broker: BrokerProcess, records: int) -> None:
        """The damage stands in the metric, on the page and in the log."""
        eventually_blocking(
            lambda: figure(broker, "syncbrok_log_damaged_records") >= records, f"{records} damaged records named", 30.0
        )
        log = broker.request("GET", "/v1/overview").json()["log"]
        if log["damaged_records"] != records or not log["damage"]:
            self.wrong.append(f"the page says {log['damaged_records']} damaged records, not {records}: {log['damage']}")
        if "syncbrok.log.record_damaged" not in broker.output():
            self.wrong.append("the log does not name the damage")

    def released(self, broker: BrokerProcess) -> None:
        """The subscriber takes again: what is whole arrives, what is lost dies, children follow their policy."""
        assert broker.request("PATCH", "/v1/queues/held/subscribers/p", {"paused": False}).status == 200
        self.ends(broker, "dead letters of what was lost")

    def ends(self, broker: BrokerProcess, what: str) -> None:
        """Wait until every message stands as it must in the end."""
        expected = self._expected()

        def standing() -> list[str]:
            return [
                f"{told.content!r} of {told.parents} is {state}, not {expected[told.id]}"
                for told in self.story.messages
                if told.sequence not in self.lost
                and (state := broker.request("GET", f"/v1/messages/{told.id}").json().get("state"))
                not in expected[told.id]
                and not (self.dropped and state is None)  # it had ended before its segment went
            ] + self._deliveries(expected)

        found: list[str] = []
        try:
            eventually_blocking(lambda: not found.__setitem__(slice(None), standing()) and not found, what, 20.0)
        except AssertionError:
            self.wrong += found

        def unlisted() -> list[str]:
            letters = broker.request("GET", "/v1/queues/held/dead-letters?limit=1000").json()["dead_letters"]
            listed = {letter["sequence"] for letter in letters if letter["reason"] == "content_lost"}
            return [
                f"{told.content!r} is lost and no dead letter is listed: {json.dumps(letters)[:500]}"
                for told in self.story.messages
                if told.sequence in self.lost and told.open and told.queue == "held" and told.sequence not in listed
            ]

        try:
            eventually_blocking(lambda: not found.__setitem__(slice(None), unlisted()) and not found, what, 20.0)
        except AssertionError:
            self.wrong += found

    def _deliveries(self, expected: dict[str, tuple[str | None, ...]]) -> list[str]:
        """What has not arrived and must, and what has and must not."""
        arrived = {request.id for request in self.story.subscriber.requests[self._before :]}
        return [
            f"{told.content!r} of {told.parents} must end {expected[told.id]}, and did {'' if well else 'not '}arrive"
            for told in self.story.messages
            if told.open
            and (told.sequence not in self.lost or expected[told.id] != ("complete",))
            and (well := told.id in arrived) != (expected[told.id] == ("complete",))
        ]

    def _expected(self) -> dict[str, tuple[str | None, ...]]:
        """The states that each message may end in; None: it is gone."""
        ended: dict[str, tuple[str | None, ...]] = {}
        for told in self.story.messages:
            if self.dropped and not told.open:
                ended[told.id] = (None,)
            elif told.sequence in self.lost and told.open:
                ended[told.id] = ("dead",)
            elif any(ended.get(parent, (None,))[0] not in (None, "complete") for parent in told.parents):
                ended[told.id] = {"fail": ("dead",), "hold": ("held", "expired"), "deliver": ("complete",)}[told.policy]
            else:
                ended[told.id] = ("complete",)
        return ended

    def _expect(self, told: Told, what: str, reply: Reply, status: int, kind: str) -> None:
        if reply.status != status or (kind and _kind(reply) != kind):
            self.wrong.append(f"{told.content!r}: {what} answers {reply.status} {reply.body[:200]!r}")


def _kind(reply: Reply) -> str:
    """The last word of a problem's type."""
    return str(reply.json().get("type", "")).rpartition(":")[2] if reply.status >= 400 else ""


_GONE = ((), (), ("checkpoint*",), ("*.idx",), ("checkpoint*", "*.idx"))


def ordeal(story: Story, storage: Path, seed: int) -> tuple[str, list[str]]:
    """Up to ten bits of a copy of the story's log turn, before a start or while the broker runs, with and without
    checkpoint and sidecars: what was done, and what is wrong then."""
    chance = random.Random(seed)
    shutil.copytree(story.storage, storage)
    possible = list(hits(storage, chance))
    if chance.random() < 0.7:
        possible = [hit for hit in possible if hit.record is None or hit.record.kind in SURVIVED]
    turned = {hit.record and hit.record.at: hit for hit in chance.sample(possible, chance.randrange(1, 11))}
    running, gone, dropped = chance.random() < 0.4, chance.choice(_GONE), chance.random() < 0.3
    judge = Judge(story, list(turned.values()), dropped=dropped)
    needed = any(hit.record is not None and hit.record.kind not in SURVIVED for hit in turned.values())
    done = f"{len(turned)} bits, {'running' if running else 'stopped'}, without {gone or 'nothing'}"
    if not running:
        _turn(storage, turned, gone)
    broker = story.broker(storage, SHORT if dropped else "7d")
    try:
        if needed and not running and "checkpoint*" in gone:
            return f"{done}, refused", _refusal(broker)
        broker.start()
        if running:
            try:
                _turn(storage, turned, ())
            except FileNotFoundError:
                if not dropped:
                    raise
                return f"{done}, dropped before they turned", []  # retention was quicker than we
            judge.saves(storage)
        if not dropped:
            judge.repeats(broker)
            answers = judge.answers(broker)
            broker.kill()
            if not needed:
                forget(storage, *gone)
            broker.start()
            judge.named(broker, len(turned))
            if judge.answers(broker) != answers:
                judge.wrong.append("other answers after the start")
        judge.released(broker)
    finally:
        broker.__exit__()
    where = [f"{hit.where} bit {hit.bit}" for hit in turned.values()]
    return f"{done}{', dropped' if dropped else ''}", judge.wrong + (where if judge.wrong else [])


def _turn(storage: Path, turned: dict[int | None, Hit], gone: tuple[str, ...]) -> None:
    for hit in turned.values():
        hit.turn(storage)
    forget(storage, *gone)


def _refusal(broker: BrokerProcess) -> list[str]:
    """A start that must be refused, in words."""
    try:
        broker.start()
    except AssertionError:
        said = broker.output()
        if broker.process.returncode == REFUSED and ".log, offset " in said:
            return []
        return [f"ended with {broker.process.returncode}: {said[-500:]}"]
    return ["it has started, though nobody can tell how things stood"]
