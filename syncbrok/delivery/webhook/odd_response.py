"""Reading answers that are HTTP, though not as RFC 9112 has it written. No socket, no clock: bytes go in.

``http_response`` reads strictly and passes answers that it refuses on to here, from the first byte. A server that sends
such an answer has the message and has said so: calling it a failure would send the message again, nine times. So all
that RFC 9112 lets a client accept is accepted: lines that end in a line feed alone (2.2), folded lines (5.2), blanks
before a colon (5.1) and behind the size of a chunk, the same length several times (6.3), a length beside ``chunked``,
which wins (6.3), ``identity``, which once meant nothing done, and a later version 1.x. Answers that contradict
themselves are refused: two lengths, chunks within chunks, a header without a name. Two readers may disagree about
where an odd answer ends, so its connection carries nothing more.
"""

import re
from enum import Enum, auto
from typing import Final

from syncbrok.model import limits

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[0-9][ \t]+([1-9][0-9]{2})(?:[ \t].*)?", re.DOTALL)
_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_CHUNK_SIZE: Final = re.compile(rb"[0-9a-fA-F]{1,15}")
_BLANKS: Final = b" \t"
BODILESS: Final = frozenset((204, 304))


class GarbledAnswer(Exception):
    """The bytes are not an HTTP answer; ``str()`` says why."""


class _At(Enum):
    """The part of the answer that is read next."""

    STATUS = auto()
    HEADERS = auto()
    BODY = auto()
    """of a stated length"""
    CHUNK_SIZE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    TRAILERS = auto()
    CLOSE = auto()
    """a body until the connection is closed"""
    END = auto()


class OddAnswer:
    """One answer. ``feed`` until it is ``complete`` or ``oversized``; the fields are those of ``AnswerReader``."""

    __slots__ = ("_at", "_headers", "_held", "_left", "_status", "body", "head_done", "oversized", "retry_after")

    def __init__(self) -> None:
        self._at = _At.STATUS
        self._held = bytearray()
        self._headers: list[tuple[bytes, bytes]] = []
        self._left = 0
        """bytes of the body, or of its present chunk, still to come"""
        self._status = 0
        self.head_done = False
        self.oversized = False
        self.retry_after = b""
        self.body = bytearray()

    @property
    def status(self) -> int:
        """0 until the head, interim answers apart, is there."""
        return self._status if self.head_done else 0

    @property
    def complete(self) -> bool:
        return self._at is _At.END

    def feed(self, data: bytes | bytearray) -> None:
        """Raises ``GarbledAnswer``."""
        self._held += data
        while not (self.complete or self.oversized) and self._advance():
            pass

    def end(self) -> None:
        """The endpoint closed the connection."""
        if self._at is _At.CLOSE:
            self._at = _At.END

    def _advance(self) -> bool:
        """Take one line, or what there is of a body; False where more has to come first."""
        if self._at in (_At.BODY, _At.CHUNK, _At.CLOSE):
            return self._take_body()
        line = self._line()
        if line is None:
            return False
        match self._at:
            case _At.STATUS:
                self._read_status(line)
            case _At.HEADERS if line:
                self._read_header(line)
            case _At.HEADERS:
                self._end_head()
            case _At.CHUNK_SIZE:
                self._read_chunk_size(line)
            case _At.CHUNK_END:
                if line:
                    raise GarbledAnswer("not an HTTP answer: a chunk is longer than it says")
                self._at = _At.CHUNK_SIZE
            case _At.TRAILERS if not line:
                self._at = _At.END
        return True

    def _line(self) -> bytes | None:
        """The next line without its end; None where it has not ended yet."""
        end = self._held.find(b"\n")
        if end < 0:
            return None
        line = bytes(self._held[:end]).removesuffix(b"\r")
        del self._held[: end + 1]
        return line

    def _read_status(self, line: bytes) -> None:
        if not line and not self._status:
            return  # what is left over of an answer before, as some servers send it
        matched = _STATUS_LINE.fullmatch(line)
        if matched is None:
            raise GarbledAnswer(f"not an HTTP answer: it begins with {line[:40]!r}")
        self._status = int(matched[1])
        self._headers = []
        self._at = _At.HEADERS

    def _read_header(self, line: bytes) -> None:
        if b"\0" in line:
            raise GarbledAnswer("not an HTTP answer: a zero byte in its headers")
        if line[:1] in (b" ", b"\t"):
            if self._headers:  # a folded line; before the first header there is nothing that it could belong to
                name, value = self._headers[-1]
                self._headers[-1] = name, value + b" " + line.strip(_BLANKS)
            return
        name, colon, value = line.partition(b":")
        name = name.rstrip(_BLANKS)
        if not colon or not _NAME.fullmatch(name):
            raise GarbledAnswer(f"not an HTTP answer: {line[:40]!r} is not a header")
        self._headers.append((name.lower(), value.replace(b"\r", b" ").strip(_BLANKS)))

    def _values(self, wanted: bytes) -> list[bytes]:
        """The values of all headers of this name, split at commas."""
        lists = [value.split(b",") for name, value in self._headers if name == wanted]
        return [part.strip(_BLANKS).lower() for parts in lists for part in parts]

    def _end_head(self) -> None:
        """Find where the body ends: RFC 9112, section 6.3."""
        if self._status < 200:
            if self._status == 101:
                raise GarbledAnswer("it wants to switch protocols")
            self._at = _At.STATUS
            return
        self.head_done = True
        self.retry_after = next((value for name, value in self._headers if name == b"retry-after"), b"")
        codings = [coding for coding in self._values(b"transfer-encoding") if coding not in (b"", b"identity")]
        lengths = self._values(b"content-length")
        if self._status in BODILESS:
            self._at = _At.END
        elif codings:
            if codings.count(b"chunked") > 1:
                raise GarbledAnswer("not an HTTP answer: chunked more than once")
            self._at = _At.CHUNK_SIZE if codings[-1] == b"chunked" else _At.CLOSE
        elif lengths:
            said = [length for length in lengths if length]  # an empty place in a list says nothing (RFC 9110, 5.6.1)
            if not said or not all(map(_LENGTH.fullmatch, said)) or len(set(map(int, said))) > 1:
                raise GarbledAnswer(f"not an HTTP answer: its lengths are {b', '.join(lengths)[:80]!r}")
            self._left = int(said[0])
            self._at = _At.BODY if self._left else _At.END
        else:
            self._at = _At.CLOSE

    def _read_chunk_size(self, line: bytes) -> None:
        size = line.partition(b";")[0].strip(_BLANKS)
        if not _CHUNK_SIZE.fullmatch(size):
            raise GarbledAnswer(f"not an HTTP answer: {size[:20]!r} is not the size of a chunk")
        self._left = int(size, 16)
        self._at = _At.CHUNK if self._left else _At.TRAILERS

    def _take_body(self) -> bool:
        if not self._held:
            return False
        size = len(self._held) if self._at is _At.CLOSE else min(self._left, len(self._held))
        room = limits.response_bytes_max - len(self.body)
        self.body += self._held[: min(size, room)]
        self.oversized = size > room
        del self._held[:size]
        if self._at is not _At.CLOSE:
            self._left -= size
            if not self._left:
                self._at = _At.END if self._at is _At.BODY else _At.CHUNK_END
        return True
