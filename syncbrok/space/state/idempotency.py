"""Idempotency keys (RULES 4): which message a key belongs to, and what makes two publishes the same.

The index holds a 64-bit hash of (queue, key) and a sequence for each message that has a key: a dictionary for the
newest, sorted columns of 16 bytes an entry for the rest. A hit is always checked against the message itself, so a
hash that two keys share costs a read and never a message. The index is bounded; where it does not reach back far
enough for a queue's window, the log's own index is asked (``LookupResult.older``).
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from syncbrok.model import limits
from syncbrok.model.facts import Messages
from syncbrok.model.message import HOPS, Message
from syncbrok.model.names import MessageId

_recent_max: Final = 1 << 16
_merge_below: Final = 4
"""a run is merged into its elder when it is not this many times smaller: a handful of runs, each key moved rarely"""
_untold: Final = frozenset({"traceparent", "tracestate", HOPS})
"""headers that differ when a client repeats a publish, or when it comes by another way"""

Column = npt.NDArray[np.uint64]


def key_hash(queue: int, key: str) -> int:
    return key_hashes(queue, (key,))[0]


def key_hashes(queue: int, keys: Iterable[str]) -> list[int]:
    """``key_hash`` of each: 64 bits of (queue, key)."""
    begun = hashlib.blake2b(digest_size=8, salt=queue.to_bytes(8, "little"))
    digests = _digests(begun, [key.encode("utf-8", "surrogatepass") for key in keys])
    hashes: list[int] = np.frombuffer(b"".join(digests), "<u8").tolist()
    return hashes


def _digests(begun: "hashlib.blake2b", ends: Iterable[bytes]) -> list[bytes]:
    """The digest of ``begun`` continued with each of ``ends``. Copying a digest costs half of beginning another."""
    made = []
    for end in ends:
        digest = begun.copy()
        digest.update(end)
        made.append(digest.digest())
    return made


def fingerprint(message: Message, parents: Iterable[MessageId | int]) -> bytes:
    """16 bytes over body, content type, parents and settings. ``parents`` are ids, or for a line of the same batch
    without an idempotency key its distance: repeated, that line has another id, and the same place. The moment a
    message expires is often counted from the publish, so only whether it does is covered."""
    return _digests(_fingerprint_begun(message, parents), (message.content,))[0]


def alike_fingerprints(content_type: str, contents: Iterable[bytes]) -> list[bytes]:
    """``fingerprint`` of messages that have nothing but their content and a key."""
    return _digests(_fingerprint_begun(Message(b"", content_type), ()), contents)


def _fingerprint_begun(message: Message, parents: Iterable[MessageId | int]) -> "hashlib.blake2b":
    """All but the content."""
    parts = [
        message.content_type,
        message.key,
        "" if message.parent_failure is None else str(int(message.parent_failure)),
        str(message.due_us),
        str(message.delay_us),
        str(message.expires_us != 0),
    ]
    if message.erase_after_us:  # else as it was before there was one
        parts.append(str(message.erase_after_us))
    for name, value in sorted(message.headers):
        if name not in _untold:
            parts += [name, value]
    settings = "".join([f"{len(part)}:{part}" for part in parts])
    related = b"".join([b"#%d." % one if isinstance(one, int) else b"=" + one for one in parents])
    digest = hashlib.blake2b(b"%d:%d:" % (len(settings), len(related)), digest_size=16)
    digest.update(settings.encode("utf-8", "surrogatepass"))
    digest.update(related)
    return digest


def _hashes_of(messages: Messages) -> Iterable[tuple[int, int]]:
    """Hash and sequence of each message that has a key; nothing where none has."""
    first = messages.sequence
    if messages.keyed is not None:
        return zip(messages.keyed.hashes, range(first, messages.last + 1), strict=True)
    return [
        (key_hash(messages.attributes_at(position).queue, extras.idempotency_key), first + position)
        for position, extras in messages.extras.items()
        if extras.idempotency_key
    ]


class _Run(NamedTuple):
    """Sorted by hash; of equal hashes only the newest is kept. ``newest_us``: time of its newest message."""

    hashes: Column
    sequences: Column
    newest_us: int


class KeyStatistics(NamedTuple):
    entries: int
    runs: int
    complete_since_us: int


class KeyIndex:
    """Filled by the facts that are applied. ``complete_since_us``: every key of a message accepted later is here."""

    def __init__(self, entries_max: int = limits.idempotency_keys_max, recent_max: int = _recent_max) -> None:
        self.complete_since_us = 0
        self._entries_max = entries_max
        self._recent_max = recent_max
        self._recent: dict[int, int] = {}
        self._recent_us = 0
        self._newest = 0
        """highest sequence noted: only what lies below it can be older than what its key stands for"""
        self._runs: list[_Run] = []  # oldest first

    def note(self, messages: Messages) -> None:
        """Messages that are durable now; of some of them there may be keys."""
        found = _hashes_of(messages)
        if messages.sequence < self._newest:  # carried by retention: since it was accepted its key may be used anew
            found = [(hash_, sequence) for hash_, sequence in found if (self.find(hash_) or 0) <= sequence]
        if not found:
            return
        self._recent.update(found)
        self._newest = max(self._newest, messages.last)
        self._recent_us = max(self._recent_us, messages.time_us)
        if len(self._recent) >= self._recent_max:
            self._fold()

    def find(self, hash_: int) -> int | None:
        """Sequence of the newest message with a key of this hash."""
        found = self._recent.get(hash_)
        if found is not None:
            return found
        wanted = np.uint64(hash_)
        for run in reversed(self._runs):
            at = int(run.hashes.searchsorted(wanted))
            if at < len(run.hashes) and run.hashes[at] == wanted:
                return int(run.sequences[at])
        return None

    def none_of(self, hashes: Sequence[int]) -> bool:
        """Whether no message has a key with one of these hashes: a tenth of the time of asking ``find`` for each."""
        if not self._recent.keys().isdisjoint(hashes):
            return False
        wanted = np.sort(np.array(hashes, np.uint64))  # neighbours are looked for in neighbouring memory
        for run in self._runs:
            at = run.hashes.searchsorted(wanted)
            at[at == len(run.hashes)] = 0
            if (run.hashes[at] == wanted).any():
                return False
        return True

    def forget_before(self, time_us: int) -> None:
        """No window reaches back so far any more: let go of the runs that are wholly older."""
        self._runs = [run for run in self._runs if run.newest_us >= time_us]

    def save(self) -> bytes:
        """The state for a checkpoint: three numbers, then hashes and sequences."""
        if self._recent:
            self._fold()
        run = _merged(self._runs) if self._runs else _empty
        numbers = np.array([len(run.hashes), run.newest_us, self.complete_since_us], dtype="<u8")
        return numbers.tobytes() + run.hashes.tobytes() + run.sequences.tobytes()

    def load(self, saved: bytes) -> None:
        numbers = np.frombuffer(saved, dtype="<u8", count=3)
        count = int(numbers[0])
        columns = np.frombuffer(saved, dtype="<u8", offset=24, count=2 * count).astype(np.uint64)
        self._recent = {}
        self._newest = int(columns[count:].max()) if count else 0
        self._runs = [_Run(columns[:count], columns[count:], int(numbers[1]))] if count else []
        self.complete_since_us = int(numbers[2])

    def statistics(self) -> KeyStatistics:
        entries = len(self._recent) + sum(len(run.hashes) for run in self._runs)
        return KeyStatistics(entries, len(self._runs), self.complete_since_us)

    def _fold(self) -> None:
        count = len(self._recent)
        hashes = np.fromiter(self._recent.keys(), dtype=np.uint64, count=count)
        sequences = np.fromiter(self._recent.values(), dtype=np.uint64, count=count)
        order = np.argsort(hashes, kind="stable")
        self._runs.append(_Run(hashes[order], sequences[order], self._recent_us))
        self._recent = {}
        while len(self._runs) > 1 and len(self._runs[-2].hashes) < _merge_below * len(self._runs[-1].hashes):
            self._runs[-2:] = [_merged(self._runs[-2:])]
        while len(self._runs) > 1 and sum(len(run.hashes) for run in self._runs) > self._entries_max:
            self.complete_since_us = max(self.complete_since_us, self._runs.pop(0).newest_us)


_empty: Final = _Run(np.empty(0, np.uint64), np.empty(0, np.uint64), 0)


def _merged(runs: list[_Run]) -> _Run:
    hashes = np.concatenate([run.hashes for run in runs])
    sequences = np.concatenate([run.sequences for run in runs])
    order = np.lexsort((sequences, hashes))
    hashes, sequences = hashes[order], sequences[order]
    last = np.append(hashes[1:] != hashes[:-1], True)  # of equal hashes, the one with the highest sequence
    return _Run(hashes[last], sequences[last], max(run.newest_us for run in runs))
