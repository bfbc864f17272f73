"""Messages of the stream: what stands in their headers and bodies; pure.

The stream of a Space holds the log in batches, in the order in which the leaders appended them, and between them who
leads. Headers are text, as NATS has them; the body is bytes of the log, unless the kind says otherwise.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from syncbrok.model import limits
from syncbrok.model.journal import LogIdentity

PIECE_BYTES: Final = 4 * limits.MIB
"""the largest body; a batch that is longer goes in pieces (an engine's ``max_payload`` is 8 MiB)"""


class StreamKind(StrEnum):
    """``BIRTH``: the first message, made with the stream. ``BATCH``: bytes of the log. ``ROLL``: the record that begins
    a segment. ``DROP``: segments before ``first`` are gone. ``ERASE``: an ``EraseOrder``. ``NOTE``: lines of what
    is archived, none where all are taken back. ``VAULT``: secrets, sealed. ``CLAIM``, ``YIELD``, ``BEAT``: who
    leads."""

    BIRTH = "birth"
    BATCH = "batch"
    ROLL = "roll"
    DROP = "drop"
    ERASE = "erase"
    NOTE = "note"
    VAULT = "vault"
    CLAIM = "claim"
    YIELD = "yield"
    BEAT = "beat"


class StreamMessage(NamedTuple):
    """``n`` names this append and no other, whoever asks: node, run of its process, counter. ``first`` and ``last`` are
    sequences of the log; of a batch in pieces only the last piece has ``last``. ``sequence`` is its place in the
    stream, 0 before it has one. A roll says what birth and claim said, whose place in the stream may be purged:
    ``listeners`` is the claim's body. ``sealed``: the checksum of the segment before the roll's, as its seal has it."""

    kind: StreamKind
    epoch: int
    n: str
    body: bytes = b""
    first: int = 0
    last: int = 0
    batch: int = 0
    piece: int = 1
    pieces: int = 1
    node: str = ""
    url: str = ""
    log: str = ""
    generation: int = 0
    listeners: str = ""
    sealed: str = ""
    sequence: int = 0


class EraseOrder(NamedTuple):
    """Each node writes its segments before the one that begins with ``first`` anew, without what the facts of the log
    up to the record ``through`` say to be erased (RULES 32). It follows the roll of that segment, and each later
    one."""

    first: int
    through: int

    def message(self) -> StreamMessage:
        """As it stands in the stream."""
        return StreamMessage(StreamKind.ERASE, 0, "", first=self.first, last=self.through)


def log_name(identity: LogIdentity) -> str:
    """As ``StreamMessage.log`` has it."""
    return f"{identity.uuid.hex()}.{identity.id_key.hex()}"


def identity_of(log: str) -> LogIdentity:
    """The identity that a ``StreamMessage.log`` says. Raises ``NotOurs``."""
    try:
        uuid, id_key = (bytes.fromhex(part) for part in log.split("."))
    except ValueError as error:
        raise NotOurs(f"{log!r} names no log") from error
    return LogIdentity(uuid, id_key)


class NotOurs(ValueError):
    """A message that no broker of this kind has written."""


_NUMBERS: Final = {
    "Sb-First": "first",
    "Sb-Last": "last",
    "Sb-Batch": "batch",
    "Sb-Generation": "generation",
}
_TEXTS: Final = {
    "Sb-Node": "node",
    "Sb-Url": "url",
    "Sb-Log": "log",
    "Sb-Listeners": "listeners",
    "Sb-Sealed": "sealed",
}


def headers_of(message: StreamMessage) -> dict[str, str]:
    """The headers; those that say nothing are left out."""
    headers = {"Sb-StreamKind": message.kind.value, "Sb-Epoch": str(message.epoch), "Sb-N": message.n}
    headers |= {name: str(value) for name, field in _NUMBERS.items() if (value := getattr(message, field))}
    headers |= {name: value for name, field in _TEXTS.items() if (value := getattr(message, field))}
    if message.pieces > 1:
        headers["Sb-Piece"] = f"{message.piece}/{message.pieces}"
    return headers


def message_of(headers: Mapping[str, str] | None, body: bytes, sequence: int) -> StreamMessage:
    """The message that stands at this place of the stream. Raises ``NotOurs``."""
    given = headers or {}
    try:
        more: dict[str, Any] = {field: int(given[name]) for name, field in _NUMBERS.items() if name in given}
        more |= {field: given[name] for name, field in _TEXTS.items() if name in given}
        piece, _, pieces = given.get("Sb-Piece", "1/1").partition("/")
        more |= {"piece": int(piece), "pieces": int(pieces), "sequence": sequence}
        return StreamMessage(StreamKind(given["Sb-StreamKind"]), int(given["Sb-Epoch"]), given["Sb-N"], body, **more)
    except (KeyError, ValueError) as error:
        what = f"message {sequence} of the stream is none of this Space ({type(error).__name__}: {error})"
        raise NotOurs(f"{what}; only Syncbrok may write to its stream") from error


def pieces_of(message: StreamMessage, names: "AppendNames") -> list[StreamMessage]:
    """The message, or what it is sent as where its body is too long for one. ``names`` makes ``n`` of each."""
    count = -(-len(message.body) // PIECE_BYTES)
    if count <= 1:
        return [message._replace(n=names.next())]
    return [
        message._replace(
            n=names.next(),
            body=message.body[at * PIECE_BYTES : (at + 1) * PIECE_BYTES],
            last=message.last if at == count - 1 else 0,
            piece=at + 1,
            pieces=count,
        )
        for at in range(count)
    ]


class AppendNames:
    """Names the appends of one run of a node's process. ``run`` must never have been used before by that node."""

    def __init__(self, node: str, run: str) -> None:
        self._prefix = f"{node}.{run}"
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return f"{self._prefix}.{self._count}"


class PieceBuffer:
    """Puts batches together again. ``add`` is told the messages of the stream in order."""

    def __init__(self) -> None:
        self._held: list[StreamMessage] = []

    def add(self, message: StreamMessage) -> StreamMessage | None:
        """The message, whole; None for a piece that is not the last. A message of another kind, of another epoch or of
        another append voids the pieces before: their writer died between two of them. Raises ``NotOurs`` where a piece
        does not follow the one before."""
        if message.pieces == 1:
            if message.kind in (StreamKind.CLAIM, StreamKind.BATCH, StreamKind.ROLL):
                self._held.clear()
            return message
        held = self._held
        if message.piece == 1:
            held.clear()
        elif len(held) != message.piece - 1 or (held[0].epoch, held[0].batch) != (message.epoch, message.batch):
            raise NotOurs(f"piece {message.piece} of {message.pieces} at {message.sequence} follows none before it")
        held.append(message)
        if message.piece < message.pieces:
            return None
        whole = message._replace(body=b"".join(one.body for one in held), piece=1, pieces=1)
        held.clear()
        return whole
