"""Judges what a power loss left of a Space: what publishers, operators and the consumer had been answered before, and
what the Space says afterwards.

Nothing of the broker is imported: who runs it (``power_space``) tells what it was answered. Of the files only the
archive is read, by the format.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from tests.support.power.directory import Event


class Sent:
    """A message and when (number of events recorded) it was accepted, was asked to be cancelled or replayed, and had
    its end answered; None: never. ``key`` is its idempotency key."""

    def __init__(self, id_: bytes, sequence: int, content: bytes, key: str, parents: Sequence["Sent"], at: int) -> None:
        self.id, self.sequence, self.content, self.key = id_, sequence, content, key
        self.parents, self.accepted = parents, at
        self.cancelling: int | None = None
        self.ended: tuple[int, str] | None = None
        self.replaying: int | None = None


@dataclass
class Life:
    """What was recorded. ``answers`` are (events, content) of each answer of the consumer, ``secrets`` (asked,
    answered, key), ``clock`` (events, Unix microseconds) of each jump."""

    events: list[Event]
    sent: dict[bytes, Sent] = field(default_factory=dict)
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    secrets: list[tuple[int, int, bytes]] = field(default_factory=list)
    clock: list[tuple[int, int]] = field(default_factory=list)


class Told(NamedTuple):
    """What a Space says of a message that had been accepted: that it is gone, a problem, or what it is. ``first``: whom
    its idempotency key leads to, empty where the key was not known."""

    gone: bool = False
    problem: str = ""
    content: bytes = b""
    parents: tuple[bytes, ...] = ()
    state: str = ""
    first: bytes = b""


def _kept_end(sent: Sent, moment: int) -> bool:
    """Its end was answered, and nobody had asked for a replay."""
    replayed = sent.replaying is not None and sent.replaying <= moment
    return sent.ended is not None and sent.ended[0] <= moment and not replayed


def _cancelled(sent: Sent, moment: int) -> bool:
    return sent.cancelling is not None and sent.cancelling <= moment


def wrong_attempt(sent: Sent, moment: int, answered: Collection[bytes]) -> Iterator[str]:
    """An attempt at ``sent`` after the loss at ``moment``; ``answered`` are contents the consumer had answered."""
    if _kept_end(sent, moment):
        yield f"attempted again after its end was answered: {sent.content[:12]!r} {sent.ended}"
    for parent in sent.parents:
        if parent.content not in answered and not _cancelled(parent, moment):
            yield f"{sent.content[:12]!r} went before {parent.content[:12]!r}"


def wrong_message(sent: Sent, moment: int, answered: Collection[bytes], told: Told, *, copied: bool) -> Iterator[str]:
    """``copied``: it stands whole in the archive."""
    what = f"{sent.content[:12]!r} (sequence {sent.sequence})"
    if told.problem:
        yield f"{what} was accepted, and is lost: {told.problem}"
    elif told.gone:
        if sent.content not in answered and not _cancelled(sent, moment):
            yield f"{what} is gone and had not ended"
        elif not copied:
            yield f"{what} is gone and not in the archive"
    elif told.content != sent.content or told.parents != tuple(one.id for one in sent.parents):
        yield f"{what} is not what was accepted"
    elif _kept_end(sent, moment) and sent.ended is not None and told.state != sent.ended[1]:
        yield f"{what} had ended as {sent.ended[1]} and is {told.state}"
    elif told.first != sent.id:
        yield f"{what}: its idempotency key is not known any more"


def archived(log: Path, archive: Path, content: bytes) -> bool:
    """In a copy that is what the log's marker file says of it: lines of a name, a size and a checksum."""
    marker = log / "archived"
    noted = [line.split(" ")[:3] for line in marker.read_text(errors="replace").splitlines()] if marker.exists() else []
    for copy in sorted(archive.glob("*.log")):
        data = copy.read_bytes()
        if content in data:
            return [copy.name, str(len(data)), f"{crc32c(data):08x}"] in noted
    return False


def wrong_secret(life: Life, moment: int, keys: Sequence[bytes]) -> Iterator[str]:
    """``keys`` sign; the first must be that of the newest secret that was answered, or of one asked for later."""
    answered = max((number for number, one in enumerate(life.secrets) if one[1] <= moment), default=None)
    if answered is None:
        return
    if not keys or keys[0] not in [key for asked, _, key in life.secrets[answered:] if asked <= moment]:
        yield f"rotation {answered} was answered, and another secret signs"
