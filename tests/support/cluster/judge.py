"""Judges what a cluster did while its nodes were killed, stopped and cut off from each other: what publishers were
answered, what subscribers saw, what stands in the stream and in the files of each node.

It imports nothing of the broker. Moments are nanoseconds of one monotonic clock. Those of attempts are all taken by one
process with one thread (``webhook_receiver``): an attempt has *begun* when its first byte was read, and was *answered*
before the first byte of the answer was written. So where a child seems to begin before its parent was answered it did,
whatever the machine was busy with: the broker cannot have known of an answer that was not written yet.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

GENERATION_SHIFT: Final = 40
"""of an epoch: the generation of the stream is above it, the place of the claim below"""
_BYTES: Final = ("batch", "roll")
_BEGUN: Final = attrgetter("begun_ns")


class Published(NamedTuple):
    """An answer to a publish. ``node``: who led, as the answer says. ``status``: 201, or 200 where the key was known.
    ``content``: the digest of what was sent."""

    key: str
    id: str
    queue: str
    parents: tuple[str, ...]
    content: str
    node: str
    status: int
    sent_ns: int
    answered_ns: int


class Attempt(NamedTuple):
    """One attempt, as its subscriber saw it. ``answered_ns``: 0 where the request broke off. ``well``: it was
    acknowledged. ``content``: the digest of what came."""

    subscriber: str
    id: str
    epoch: int
    begun_ns: int
    answered_ns: int
    well: bool
    content: str


class Isolated(NamedTuple):
    """From and until when a node could not reach the engine's others, nor they it."""

    node: str
    from_ns: int
    until_ns: int


class Stored(NamedTuple):
    """A message of the stream, as its headers say. ``first`` and ``last``: records of the log; 0 where it says none."""

    sequence: int
    kind: str
    epoch: int
    n: str
    first: int
    last: int
    piece: int
    pieces: int
    body: bytes


@dataclass(slots=True)
class ClusterLife:
    """All that is known in the end. ``subscribers``: those that count, of each queue. ``logs``: of each node the bytes
    of its segments by their names, without the zeros at the end."""

    subscribers: Mapping[str, Sequence[str]]
    published: list[Published]
    attempts: list[Attempt]
    isolated: list[Isolated] = field(default_factory=list)
    stream: list[Stored] = field(default_factory=list)
    logs: dict[str, dict[str, bytes]] = field(default_factory=dict)


def digest(content: bytes) -> str:
    """By which contents are compared."""
    return hashlib.sha256(content).hexdigest()[:20]


def broken(life: ClusterLife) -> list[str]:
    """Every promise that was not kept, in words."""
    return [
        *_lost(life),
        *_named_twice(life),
        *_out_of_order(life),
        *_isolated(life),
        *wrong_stream(life.stream),
        *wrong_logs(life.logs),
        *_not_of_the_stream(life),
    ]


def _lost(life: ClusterLife) -> Iterator[str]:
    """Each message that was answered for is acknowledged by each counted subscriber, and is what was published."""
    good = {(one.subscriber, one.id) for one in life.attempts if one.well}
    contents = {one.id: one.content for one in life.published}
    for id_, queue in {one.id: one.queue for one in life.published}.items():
        for subscriber in life.subscribers[queue]:
            if (subscriber, id_) not in good:
                yield f"lost: {id_} of {queue} was accepted, and {subscriber} never acknowledged it"
    for attempt in life.attempts:
        wanted = contents.get(attempt.id)
        if wanted is None:
            yield f"unasked: {attempt.id} went to {attempt.subscriber}, and no publish was answered with it"
        elif attempt.answered_ns and attempt.content != wanted:
            yield f"changed: {attempt.id} went to {attempt.subscriber} with another content"


def _named_twice(life: ClusterLife) -> Iterator[str]:
    """A key leads to one message, however often it is published, and a message has one key."""
    ids, keys = defaultdict(set), defaultdict(set)
    created = Counter[str]()
    for one in life.published:
        ids[one.key].add(one.id)
        keys[one.id].add(one.key)
        created[one.key] += one.status == 201
    yield from (f"twice: key {key} is {sorted(found)}" for key, found in ids.items() if len(found) > 1)
    yield from (f"twice: {id_} has the keys {sorted(found)}" for id_, found in keys.items() if len(found) > 1)
    yield from (f"twice: key {key} was answered 201 {count} times" for key, count in created.items() if count > 1)


@dataclass(slots=True)
class _Seen:
    """The attempts of one message: the first and the last of them, and of each subscriber when it acknowledged it first
    and last."""

    first: Attempt
    last: Attempt
    good: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, one: Attempt) -> None:
        self.first = min(self.first, one, key=_BEGUN)
        self.last = max(self.last, one, key=_BEGUN)
        if one.well:
            earliest, latest = self.good.get(one.subscriber, (one.answered_ns, one.answered_ns))
            self.good[one.subscriber] = min(earliest, one.answered_ns), max(latest, one.answered_ns)


def _out_of_order(life: ClusterLife) -> Iterator[str]:
    """No attempt of a child before the last acknowledgement of each parent at each counted subscriber, and none of a
    parent after the first of a child."""
    seen: dict[str, _Seen] = {}
    for one in life.attempts:
        seen.setdefault(one.id, _Seen(one, one)).add(one)
    queues = {one.id: one.queue for one in life.published}
    for child, parents in {one.id: one.parents for one in life.published}.items():
        for parent in parents if child in seen else ():
            yield from _before(seen[child].first, parent, seen.get(parent), life.subscribers[queues[parent]])


def _before(child: Attempt, parent: str, seen: _Seen | None, subscribers: Sequence[str]) -> Iterator[str]:
    """What is wrong with the parent's attempts, as the first one of the child goes."""
    what = f"{child.id} began at {child.subscriber}, epoch {child.epoch},"
    if seen is None:
        yield f"early: {what} and nobody has seen its parent {parent}"
        return
    for subscriber in subscribers:
        had = seen.good.get(subscriber)
        if had is None or had[0] > child.begun_ns:
            when = "never" if had is None else f"{(had[0] - child.begun_ns) / 1e6:.1f} ms later"
            yield f"early: {what} and its parent {parent} was acknowledged by {subscriber} {when}"
        elif had[1] > child.begun_ns:
            yield f"early: {what} before {subscriber} had acknowledged its parent {parent} again"
    if seen.last.begun_ns > child.begun_ns:
        late_ms = (seen.last.begun_ns - child.begun_ns) / 1e6
        where = f"{seen.last.subscriber}, epoch {seen.last.epoch}, {late_ms:.1f} ms later"
        yield f"late parent: {what} and its parent {parent} at {where}"


def _isolated(life: ClusterLife) -> Iterator[str]:
    """Nothing that was asked and answered while a node was isolated was accepted by it. (200: it knew the key, and what
    it knows a quorum has.)"""
    for cut in life.isolated:
        for one in life.published:
            if (
                one.status == 201
                and one.node == cut.node
                and cut.from_ns < one.sent_ns < one.answered_ns < cut.until_ns
            ):
                yield f"isolated: {one.id} was acknowledged by {cut.node}, which reached nobody"


def wrong_stream(stream: Sequence[Stored]) -> Iterator[str]:
    """Every append stands in it once, and in the epoch of the last claim before it; batches follow each other."""
    names = Counter(one.n for one in stream)
    yield from (f"stored twice: {n}" for n, count in names.items() if count > 1)
    claim, next_record, next_piece = 0, 0, 1
    for one in stream:
        if one.kind == "claim":
            claim, next_piece = one.sequence, 1
            continue
        # Before the first claim that is kept stand those of an epoch whose claim was purged, and what a seed put in.
        if claim and one.kind != "birth" and one.epoch & ((1 << GENERATION_SHIFT) - 1) != claim:
            yield f"stale append: {one.kind} {one.n} at {one.sequence} is of epoch {one.epoch}, after claim {claim}"
        if one.kind not in _BYTES:
            continue
        if one.piece not in (next_piece, 1):
            yield f"torn: piece {one.piece} of {one.pieces} at {one.sequence} follows none before it"
        # The seal of the segment before has a sequence too, and is not sent.
        if next_record and one.first != next_record and (one.kind, one.first) != ("roll", next_record + 1):
            yield f"gap: {one.kind} at {one.sequence} begins with record {one.first}, not {next_record}"
        next_piece = one.piece % one.pieces + 1
        if one.last:
            next_record = one.last + 1


def wrong_logs(logs: Mapping[str, Mapping[str, bytes]]) -> Iterator[str]:
    """Segments of one name are the same bytes on all nodes, or one begins with the other."""
    for name in sorted({name for found in logs.values() for name in found}):
        having = {node: found[name] for node, found in logs.items() if name in found}
        longest = max(having, key=lambda node: len(having[node]))
        for node, data in having.items():
            if having[longest][: len(data)] != data:
                at = next(at for at, (one, two) in enumerate(zip(data, having[longest], strict=False)) if one != two)
                yield f"replicas differ: {name} of {node} and of {longest}, from byte {at} on"


def whole_batches(stream: Sequence[Stored]) -> Iterator[bytes]:
    """The bytes of each batch that has all its pieces."""
    held: list[bytes] = []
    for one in stream:
        if one.kind == "claim":
            held.clear()
        if one.kind in _BYTES:
            if one.piece == 1:
                held.clear()
            held.append(one.body)
            if one.piece == one.pieces:
                yield b"".join(held)
                held.clear()


def _not_of_the_stream(life: ClusterLife) -> Iterator[str]:
    """What the stream holds stands in the files of whoever has most of it, in that order; what retention has dropped
    there may still stand at the beginning of the stream."""
    if not life.stream or not life.logs:
        return
    fullest = max(life.logs, key=lambda node: sum(map(len, life.logs[node].values())))
    log = b"".join(data for _, data in sorted(life.logs[fullest].items()))
    at, missing = 0, 0
    for body in whole_batches(life.stream):
        found = log.find(body.rstrip(b"\0"), at)
        if found < 0:
            missing += at > 0
        else:
            at = found
    if missing:
        yield f"not of the stream: {missing} batches of it do not stand in the log of {fullest}"


def counts(life: ClusterLife) -> dict[str, int]:
    """What the life had in it."""
    epochs = {one.epoch for one in life.attempts}
    newest, stale = 0, 0
    for one in sorted(life.attempts, key=lambda attempt: attempt.begun_ns):
        stale += one.epoch < newest
        newest = max(newest, one.epoch)
    seen = {(one.subscriber, one.id) for one in life.attempts if one.well}
    return {
        "acknowledged": len({one.id for one in life.published}),
        "children": len({one.id for one in life.published if one.parents}),
        "asked again": len(life.published) - len({one.id for one in life.published}),
        "attempts": len(life.attempts),
        "acknowledged again": sum(one.well for one in life.attempts) - len(seen),
        "epochs": len(epochs),
        "after a later epoch": stale,
    }
