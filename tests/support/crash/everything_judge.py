"""Judges what publishers were answered and subscribers saw, with everything at once: scopes, policies, keys, delays,
expiries, batches, cancels, replays, subscribers that move, consumers that pull or read over TCP.

It imports nothing of the broker and reads no log: what it knows is what clients know. All moments are seconds of one
monotonic clock of one process.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

CLOCK_S = 0.002
"""a delay may seem shorter by this: the broker rounds times to microseconds, threads are told the time apart"""
LATE_S = 5.0
"""so much later than its expiry an attempt may be seen: the endpoint's thread has waited for a busy processor"""


@dataclass(slots=True)
class Asked:
    """A message the broker has answered for. ``sent_s``: when it was asked for first. ``line``: of its batch."""

    id: str
    sequence: int
    queue: str
    content: bytes
    sent_s: float
    parents: tuple[str, ...] = ()
    policy: str = "fail"
    key: str = ""
    delay_s: float = 0.0
    expires_s: float = 0.0
    """0: never"""


@dataclass(slots=True)
class Seen:
    """One attempt, as its subscriber saw it. ``well``: it was acknowledged; then ``at_s`` is before the answer left."""

    subscriber: str
    id: str
    content: bytes
    at_s: float
    well: bool
    replay: bool


@dataclass(slots=True)
class Life:
    """All that is known in the end. ``subscribers``: of each queue, ``loose`` those whose frontend has no answers of
    its own, so that nobody outside can say when they had a message. ``ends``: id -> state, ``None`` where the broker
    does not know the message. ``poison``: contents that endpoints refused for a while; ``cancelled``: ids."""

    scopes: dict[str, str]
    subscribers: dict[str, tuple[str, ...]]
    loose: frozenset[str]
    asked: list[Asked]
    seen: list[Seen]
    ends: dict[str, str | None]
    poison: frozenset[bytes]
    cancelled: frozenset[str] = frozenset()
    first: dict[tuple[str, str], float] = field(default_factory=dict)
    """(id, subscriber) -> first attempt that is no replay"""
    last: dict[tuple[str, str], float] = field(default_factory=dict)
    good: dict[tuple[str, str], float] = field(default_factory=dict)


def broken(life: Life) -> list[str]:
    """Every promise that was not kept, in words."""
    for one in life.seen:
        where = (one.id, one.subscriber)
        if one.well:
            life.good[where] = min(one.at_s, life.good.get(where, one.at_s))
        if not one.replay:
            life.first[where] = min(one.at_s, life.first.get(where, one.at_s))
            life.last[where] = max(one.at_s, life.last.get(where, one.at_s))
    return [*_lost(life), *_twice(life), *_early(life), *_overtaken(life), *_out_of_time(life)]


def _lost(life: Life) -> Iterator[str]:
    """Nothing that was answered for may be forgotten, wait for ever, or be complete at somebody who never had it."""
    bad = spoilt(life.asked, life.cancelled)
    for message in life.asked:
        end = life.ends.get(message.id)
        if end is None:
            yield f"lost: {message.id} was accepted and is not known any more"
        elif end not in ("complete", "dead", "expired", "dropped"):
            yield f"stuck: {message.id} of {message.queue} is {end} after all was mended"
        elif end != "complete" and message.id not in bad:
            yield f"lost: {message.id} of {message.queue} ended {end}, and nothing was wrong with it"
        if end == "complete":
            for subscriber in life.subscribers[message.queue]:
                if (message.id, subscriber) not in life.good:
                    yield f"lost: {message.id} is complete and {subscriber} never acknowledged it"


def spoilt(asked: Iterable[Asked], cancelled: Iterable[str]) -> set[str]:
    """Those that may end badly though every endpoint is mended: cancelled, or expired, or failed or held through one of
    these."""
    found = set(cancelled)
    for message in sorted(asked, key=lambda one: one.sequence):
        if message.expires_s or (message.policy != "deliver" and not found.isdisjoint(message.parents)):
            found.add(message.id)
    return found


def _twice(life: Life) -> Iterator[str]:
    """A publish that is repeated with its key is one message, and nobody ever sees another's content under an id."""
    by_content: dict[bytes, set[str]] = defaultdict(set)
    for one in life.seen:
        by_content[one.content].add(one.id)
    for message in life.asked:
        by_content[message.content].add(message.id)
    for content, ids in by_content.items():
        if len(ids) > 1:
            yield f"twice: {content[:40]!r} was accepted as {sorted(ids)}"


def _early(life: Life) -> Iterator[str]:
    """No attempt of a child before each parent was acknowledged where it counts, none of a parent after its child's."""
    by_id = {message.id: message for message in life.asked}
    for child in life.asked:
        if child.policy == "deliver":  # it goes when its parents have ended, whichever way
            continue
        for at in life.subscribers[child.queue]:
            begun = life.first.get((child.id, at))
            if begun is None:
                continue
            for parent in (by_id[one] for one in child.parents if one in by_id):
                same = life.scopes[child.queue] == "same" and parent.queue == child.queue
                where = (at,) if same else life.subscribers[parent.queue]
                for there in where:
                    if there in life.loose:
                        continue
                    had = life.good.get((parent.id, there))
                    if had is None or had > begun:
                        yield f"early: {child.id} went to {at} before {there} had acknowledged its parent {parent.id}"
                    if life.last.get((parent.id, there), 0.0) > begun:
                        yield f"late parent: {parent.id} went to {there} after its child {child.id} to {at}"


def _overtaken(life: Life) -> Iterator[str]:
    """Of the messages of one key to one subscriber no attempt of a later one begins before every earlier has ended."""
    chains: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for message in life.asked:
        if message.key:
            chains[message.queue, message.key].append(message)
    for (queue, key), messages in chains.items():
        messages.sort(key=lambda one: one.sequence)
        for at in life.subscribers[queue]:
            newest, before = 0.0, ""
            for message in messages:
                begun = life.first.get((message.id, at))
                if begun is None:
                    continue
                if begun < newest:
                    yield f"overtaken: {message.id} of key {key} went to {at} before {before} was done there"
                if life.last[message.id, at] > newest:
                    newest, before = life.last[message.id, at], message.id


def _out_of_time(life: Life) -> Iterator[str]:
    """Not before its delay is over, not after it has expired."""
    for message in life.asked:
        for at in life.subscribers[message.queue]:
            begun = life.first.get((message.id, at))
            if begun is not None and begun < message.sent_s + message.delay_s - CLOCK_S:
                yield f"undelayed: {message.id} went to {at} {message.sent_s + message.delay_s - begun:.3f} s early"
            ended = life.last.get((message.id, at))
            if ended is not None and message.expires_s and ended > message.expires_s + LATE_S:
                yield f"unexpired: {message.id} went to {at} {ended - message.expires_s:.3f} s after it had expired"


def counts(life: Life) -> dict[str, int]:
    """What the life had in it, so that a test can say that it was worth judging."""

    def having(wanted: Iterable[object]) -> int:
        return sum(1 for one in wanted if one)

    return {
        "messages": len(life.asked),
        "children": having(one.parents for one in life.asked),
        "keyed": having(one.key for one in life.asked),
        "delayed": having(one.delay_s for one in life.asked),
        "expiring": having(one.expires_s for one in life.asked),
        "replayed": having(one.replay for one in life.seen),
        "cancelled": len(life.cancelled),
        "attempts": len(life.seen),
        **{f"taken by {at}": having(one.subscriber == at for one in life.seen) for at in sorted(life.loose)},
    }
