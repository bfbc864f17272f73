"""A real broker on a disk of 4 MiB that somebody else fills and empties, and a judge of what came of it (RULES 27).

The judge is that of ``bad_disk``: what was answered 201 is there and is delivered, nothing is that was answered 507.
Besides, the broker ends only when it is told to, or at a start that says that there is no room (73).
"""

import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.disk.bad_disk import FULL, STOPPED, Answered, Broker, judge, serving
from tests.support.http.recorder import Recorder

CONFIG = "storage: {segment: 64KiB, reserve: 128KiB}\n"
_LIVES, _STEPS, _PUBLISHES_MAX = 4, 25, 250
_STEPS_KNOWN = ("publish", "publish", "publish", "fill", "room", "empty", "pause", "go on", "queues", "secret")


@contextmanager
def mounted(directory: Path, mib: int = 4) -> Iterator[Path | None]:
    """The small disk; None where this user may not mount one."""
    directory.mkdir()
    tmpfs = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", directory]
    if subprocess.run(tmpfs, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


def fill(path: Path) -> None:
    """Take all the room that is left."""
    with path.open("ab", buffering=0) as filler:
        for size in (1 << 16, 1 << 12):
            try:
                while filler.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


def ordeal(directory: Path, subscriber: Recorder, seed: int) -> tuple[str, list[str]]:
    """Some lives of a broker on the small disk, each ended by SIGTERM or SIGKILL: what was done, and what is wrong."""
    chance = random.Random(seed)
    published: list[Answered] = []
    with mounted(directory / "disk") as disk:
        if disk is None:
            return "no small disk: only root may mount one", []
        storage, filler = disk / "log", disk / "filler"
        for life in range(_LIVES):
            with serving(storage, config=CONFIG, beside=directory) as broker:
                wrong = list(_live(broker, filler, subscriber, published, chance, first=life == 0))
            if wrong:
                return f"life {life}", wrong
            if broker.process.returncode == FULL:
                _leave(filler, 0)  # as the exit code asks for
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        filler.unlink(missing_ok=True)
        with serving(storage, config=CONFIG, beside=directory) as broker:
            if not broker.ready() or _pause(broker, paused=False) != 200:
                return "with room again", [f"it does not go on: {broker.said()[-1_500:]}"]
            broker.end()
        full = sum(one.status == 507 for one in published)
        return f"{len(published)} publishes, {full} without room", list(judge(storage, published, subscriber))


def _live(
    broker: Broker, filler: Path, subscriber: Recorder, published: list[Answered], chance: random.Random, *, first: bool
) -> Iterator[str]:
    """What is wrong with this life; what it answers is added to ``published``."""
    if not broker.ready():
        if broker.process.returncode != FULL:
            yield f"the start ends with {broker.process.returncode}: {broker.said()[-1_500:]}"
        return
    if first:
        broker.request("POST", "/v1/queues", {"name": "q"})
        broker.request("POST", "/v1/queues/q/subscribers", {"name": "s", "endpoint": subscriber.url})
    for _ in range(_STEPS):
        _step(broker, chance.choice(_STEPS_KNOWN), filler, published, chance)
        health = broker.request("GET", "/healthz")[0]
        if health != 200 or any(one.status not in (201, 507) for one in published):
            yield f"/healthz answers {health}, publishes {published[-8:]}: {broker.said()[-1_500:]}"
            return
    number = chance.choice((signal.SIGTERM, signal.SIGKILL))
    code = broker.end(number)
    if code not in (STOPPED, -signal.SIGKILL):
        yield f"ended with {code}: {broker.said()[-1_500:]}"


def _step(broker: Broker, what: str, filler: Path, published: list[Answered], chance: random.Random) -> None:
    if what == "publish" and len(published) < _PUBLISHES_MAX:
        published += [broker.publish(f"key-{len(published) + number}") for number in range(chance.randrange(1, 12))]
    elif what == "fill":
        fill(filler)
    elif what == "room" and filler.exists():
        _leave(filler, chance.randrange(filler.stat().st_size + 1))
    elif what == "empty":
        filler.unlink(missing_ok=True)
    elif what in ("pause", "go on"):
        _pause(broker, paused=what == "pause")
    elif what == "queues":
        broker.request("POST", "/v1/queues", {"name": "other"})
        broker.request("DELETE", "/v1/queues/other")
    elif what == "secret":
        broker.request("POST", "/v1/queues/q/subscribers/s/rotate-secret", {})


def _leave(filler: Path, size: int) -> None:
    """The filler takes no more than this."""
    with filler.open("ab") as file:
        file.truncate(size)


def _pause(broker: Broker, *, paused: bool) -> int:
    return broker.request("PATCH", "/v1/queues/q/subscribers/s", {"paused": paused})[0]
