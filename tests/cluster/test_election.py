"""Never two nodes that may begin attempts at one moment, whatever network, clocks and pauses do; and somebody leads
again once they are quiet. Each node is the real ``Election``; stream and network are simulated, by chance."""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from syncbrok.cluster.election import Due, Election, LeaseTimes, Role, epoch_of

LEASE_S = 2.0
TIMES = LeaseTimes.of(LEASE_S)
NODES = 3


class Stream:
    """A log with compare-and-swap, as an engine with a majority is."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, str]] = []  # (node, kind)

    def append(self, node: int, kind: str, last: int) -> int | None:
        """The sequence, if the stream ended with ``last``."""
        if last != len(self.messages):
            return None
        self.messages.append((node, kind))
        return len(self.messages)


class Node:
    """A process: told everything late, sometimes paused, started again when it was fenced."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number = number
        self.rate = world.chance.uniform(1 - world.drift, 1 + world.drift)
        self.offset_us = world.chance.randrange(10**12)
        self.paused_until = 0.0
        self.start()

    def start(self) -> None:
        self.life = next(self.world.lives)
        messages = self.world.stream.messages
        self.read = len(messages)
        if self.world.chance.random() < 0.2:  # from a replica that has less
            self.read = self.world.chance.randint(1, len(messages))
        self.election = Election(TIMES, 1, self.world.chance.random, self.clock_us())
        through, self.read = self.read, self.world.chance.randint(0, self.read)  # how much its files had already
        self._read_on(through)
        if not any(kind.startswith("claim") for _, kind in messages[: self.read]):
            self.election.unclaimed(self.clock_us())
        self.appending = False
        self.ended_all = False
        """its attempts, before it gives up on purpose: it begins no more"""
        self.world.later(0.0, self.look, self.life)

    def clock_us(self) -> int:
        return self.offset_us + int(self.world.now * 1e6 * self.rate)

    def holds(self) -> bool:
        return self.election.holds(self.clock_us()) and not self.ended_all

    def do(self, life: int, step: Callable[..., Any], *given: Any) -> None:
        """A step of this process, unless it was started anew since; later, while it is paused."""
        if life != self.life:
            return
        if self.world.now < self.paused_until:
            self.world.later(self.paused_until - self.world.now, self.do, life, step, *given)
            return
        step(*given)

    def look(self, life: int) -> None:
        self.do(life, self._look)

    def _look(self) -> None:
        if self.election.role in (Role.FENCED, Role.YIELDED):
            self.start()
            return
        due = None if self.appending else self.election.due(self.clock_us())
        if due is not None:
            self.append(due.value, claim=due is Due.CLAIM)
        elif self.election.role is Role.LEADING and not self.appending and self.world.chance.random() < 0.3:
            self.ended_all = self.world.chance.random() < 0.02
            self.append("yield" if self.ended_all else "batch")
        self.world.later(self.world.chance.uniform(0.01, 0.1), self.look, self.life)

    def append(self, kind: str, *, claim: bool = False) -> None:
        """Ask until it is known: the answer may be lost, before or after it was stored."""
        self.appending = True
        self._send(kind, self.read, self.clock_us(), claim)

    def _send(self, kind: str, last: int, sent_us: int, claim: bool) -> None:
        world = self.world
        if world.chance.random() < world.loss or world.cut[self.number]:
            world.later(0.3, self.do, self.life, self._send, kind, last, sent_us, claim)
            return
        world.later(world.delay(), self._arrive, self.life, kind, last, sent_us, claim)

    def _arrive(self, life: int, kind: str, last: int, sent_us: int, claim: bool) -> None:
        """At the engine, whatever became of the node meanwhile."""
        world = self.world
        name = (self.number, f"{kind} {life}.{last}")
        stored = world.stream.append(self.number, name[1], last)
        if stored is None and world.stream.messages[last : last + 1] == [name]:
            stored = last + 1  # it was stored before, and the answer was lost
        if world.chance.random() < world.loss or world.cut[self.number]:
            world.later(0.3, self.do, life, self._send, kind, last, sent_us, claim)
            return
        world.later(world.delay(), self.do, life, self._answered, stored, sent_us, claim)

    def _answered(self, stored: int | None, sent_us: int, claim: bool) -> None:
        self.appending = False
        if stored is None:
            if claim:
                self.election.claim_refused(self.clock_us())
                self.catch_up()
            else:
                self.election.append_refused()
            return
        self.read = stored
        if claim:
            self.election.claim_stored(sent_us, stored)
        else:
            self.election.append_stored(sent_us)
            if self.world.stream.messages[stored - 1][1].startswith("yield"):
                self.election.gave_up()

    def catch_up(self) -> None:
        self.read = len(self.world.stream.messages)

    def receive(self, life: int, sequence: int) -> None:
        self.do(life, self._receive, sequence)

    def _receive(self, sequence: int) -> None:
        if self.election.role is Role.FOLLOWING and sequence > self.read:
            self._read_on(sequence)

    def _read_on(self, through: int) -> None:
        """All of that in one step, as ``Following.step`` does."""
        if through > self.read:
            self.election.received(self.clock_us())
        for at in range(self.read, through):
            kind = self.world.stream.messages[at][1]
            if kind.startswith("claim"):
                self.election.claimed(at + 1, self.clock_us())
            elif kind.startswith("yield"):
                self.election.yielded(self.clock_us())
        self.read = max(self.read, through)


class World:
    def __init__(self, seed: int, drift: float) -> None:
        self.chance = random.Random(seed)
        self.drift = drift
        self.now = 0.0
        self.loss = 0.1
        self.queue: list[Any] = []
        self.order = itertools.count()
        self.lives = itertools.count()
        self.stream = Stream()
        self.stream.append(-1, "birth", 0)
        self.told = 1
        self.cut = [False] * NODES
        self.led_s = 0.0
        self.nodes = [Node(self, number) for number in range(NODES)]

    def later(self, delay: float, step: Callable[..., Any], *given: Any) -> None:
        heapq.heappush(self.queue, (self.now + delay, next(self.order), step, given))

    def delay(self) -> float:
        return self.chance.expovariate(1 / 0.02) if self.chance.random() < 0.97 else self.chance.uniform(0.1, 3.0)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            before = self.now
            self.now, _, step, given = heapq.heappop(self.queue)
            holders = [node for node in self.nodes if node.holds()]
            assert len(holders) <= 1, f"two may begin attempts at {self.now:.3f} s: {holders}"
            if holders:
                self.led_s += self.now - before
            step(*given)
            self._tell()
            self._mischief()

    def _tell(self) -> None:
        for sequence in range(self.told + 1, len(self.stream.messages) + 1):
            for one in self.nodes:
                if not self.cut[one.number]:
                    self.later(self.delay(), one.receive, one.life, sequence)
        self.told = len(self.stream.messages)

    def _mischief(self) -> None:
        pick = self.chance.random()
        node = self.chance.choice(self.nodes)
        if pick < 0.0005:
            node.paused_until = self.now + self.chance.uniform(0.1, 8.0)
        elif pick < 0.0008:
            self.cut[node.number] = True
            self.later(self.chance.uniform(0.5, 8.0), self._mend, node.number)
        elif pick < 0.0010:
            node.start()

    def _mend(self, number: int) -> None:
        self.cut[number] = False


@pytest.mark.parametrize("drift", [0.0, 0.04])
@pytest.mark.parametrize("seed", range(4))
def test_never_two_that_may_begin_attempts(seed: int, drift: float) -> None:
    """Random delays, pauses, cuts, restarts and drifting clocks. (A million steps: make soak.)"""
    world = World(seed, drift)
    world.run(30_000)
    assert world.led_s > world.now / 4, "or nothing was tried"


def test_a_lease_without_the_margin_and_patience_is_seen_to_break() -> None:
    """The test can fail: if followers wait shorter than the lease is, two hold it."""
    hasty = TIMES._replace(patience_us=TIMES.lease_us // 2, jitter_us=TIMES.lease_us // 10)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tests.cluster.test_election.TIMES", hasty)
        with pytest.raises(AssertionError, match="two may begin attempts"):
            _try(range(20))


def _try(seeds: Iterable[int]) -> None:
    for seed in seeds:
        World(seed, 0.0).run(30_000)


def test_epochs_grow_with_claims_and_generations() -> None:
    """A receiver compares them: a later claim is greater, and a stream made anew greater than all before."""
    assert epoch_of(1, 5) < epoch_of(1, 6) < epoch_of(2, 1)
