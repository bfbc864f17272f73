"""Reading answers and judging them. No socket, no clock: bytes go in, an ``AttemptResult`` comes out.

Bodies are read up to ``limits.response_bytes_max``; a longer one is cut there, its answer is judged by the status and
the connection is given up. Bytes that the strict parser refuses are read again from the first one by ``odd_response``;
if that refuses them too they are no answer and end in ``GarbledAnswer``.
"""

from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

import httptools
import orjson

from syncbrok.delivery.handler import NEVER, SKIP, AttemptResult
from syncbrok.delivery.webhook.odd_response import BODILESS, GarbledAnswer, OddAnswer
from syncbrok.model import limits
from syncbrok.model.facts import Reason
from syncbrok.model.message import Format

HEAD_BYTES_MAX = 64 * limits.KIB
"""status line and headers, interim answers (1xx) included"""
_ANSWER_BYTES_MAX = HEAD_BYTES_MAX + 8 * limits.response_bytes_max  # chunks of one byte take seven times as much
LOOP_TYPE = "urn:syncbrok:problem:loop"
"""of the problem document that a broker answers to a publish with too many hops (``errors.Loop``)"""
_RETRY_AFTER_STATUSES = frozenset((429, 502, 503, 504))


_EPOCH_DIGITS_MAX = 20


class AnswerReader:
    """Reads the answers of one connection, one after the other. ``feed`` until it says that one is complete, take
    ``status``, ``body``, ``retry_after``, then ``clear`` before the next request."""

    __slots__ = (
        "_announces_body",
        "_bounded",
        "_chunked",
        "_codings",
        "_head_done",
        "_odd",
        "_parser",
        "_raw",
        "body",
        "complete",
        "epoch",
        "keep_alive",
        "oversized",
        "received",
        "retry_after",
        "status",
        "surplus",
    )

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.clear()

    def clear(self) -> None:
        """Forget the last answer."""
        self.received = 0
        self.complete = False
        self.surplus = False
        """bytes came after the end of the answer: the connection is out of step"""
        self.oversized = False
        self.keep_alive = False
        self._raw = bytearray()
        """as much of it as has come: to be read again where the strict parser gives up"""
        self._odd: OddAnswer | None = None
        self._clear_head()

    def _clear_head(self) -> None:
        self._head_done = False
        self._bounded = False
        self._chunked = False
        self._codings = b""
        """of all headers that name some"""
        self._announces_body = False
        self.status = 0
        self.retry_after = b""
        self.epoch = 0
        """``Syncbrok-Epoch``: the latest leader that the endpoint knows of"""
        self.body = bytearray()

    @property
    def reusable(self) -> bool:
        """The connection may carry another request."""
        return self.keep_alive and not self.surplus and not self.oversized

    def feed(self, data: bytes) -> bool:
        """Whether the answer is complete (or cut, see ``oversized``); raises ``GarbledAnswer``."""
        self.received += len(data)
        if self._odd is not None:
            self._feed_odd(self._odd, data)
        else:
            self._raw += data
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade:
                raise GarbledAnswer("it wants to switch protocols") from None
            except httptools.HttpParserError:
                if self.complete:
                    self.surplus = True
                else:
                    self._odd = OddAnswer()
                    self._feed_odd(self._odd, self._raw)
        if self.complete:
            return True
        if self._head_done and (self.oversized or self.received > _ANSWER_BYTES_MAX):
            self.oversized = True
            return True
        if not self._head_done and self.received > HEAD_BYTES_MAX:
            raise GarbledAnswer(f"its headers are longer than {HEAD_BYTES_MAX} bytes")
        return False

    def _feed_odd(self, odd: OddAnswer, data: bytes | bytearray) -> None:
        """``keep_alive`` stays False: the connection is given up, whatever the answer says about it."""
        odd.feed(data)
        self._head_done = odd.head_done
        self.status, self.retry_after, self.body = odd.status, odd.retry_after, odd.body
        self.complete, self.oversized = odd.complete, odd.oversized

    def end(self) -> bool:
        """The endpoint closed the connection: whether that completes an answer without a length."""
        if self._odd is not None:
            self._odd.end()
            self.complete = self._odd.complete
        elif self._head_done and not self._bounded and not self._chunked:
            self.complete = True
        return self.complete

    # -- called by the parser -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.complete:
            self.surplus = True
        else:
            self._clear_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.complete:
            return
        lowered = name.lower()
        if lowered == b"content-length":
            self._bounded = True
            self._announces_body = value.strip() != b"0"
        elif lowered == b"transfer-encoding":
            self._announces_body = True
            self._codings += b"," + value.lower()
            self._chunked = value.rpartition(b",")[2].strip().lower() == b"chunked"
        elif lowered == b"retry-after":
            self.retry_after = value
        elif lowered == b"syncbrok-epoch" and value.isdigit() and len(value) <= _EPOCH_DIGITS_MAX:
            self.epoch = int(value)

    def on_headers_complete(self) -> None:
        if not self.complete:
            self.status = self._parser.get_status_code()
            self._head_done = self.status >= 200  # after an interim answer (1xx) another one follows

    def on_body(self, data: bytes) -> None:
        if self.complete or self.oversized:
            return
        room = limits.response_bytes_max - len(self.body)
        self.body += data[:room]
        self.oversized = len(data) > room

    def on_message_complete(self) -> None:
        if self._head_done and not self.complete:
            self.complete = True
            # Some endpoints send a body with an answer that has none, perhaps in a moment: it would be taken for the
            # beginning of the next answer.
            lies = self.status in BODILESS and self._announces_body
            # The strict parser takes these too, but another reader may disagree about where they end.
            odd = self._raw.startswith((b"\r", b"\n")) or self._codings.count(b"chunked") > 1
            self.keep_alive = self._parser.should_keep_alive() and not lies and not odd


def evaluate_response(
    reader: AnswerReader, kind: Format, latency_us: int, now_s: float, *, verdicts: bool = False
) -> AttemptResult:
    """The ``AttemptResult`` that the response in ``reader`` means for an attempt in format ``kind``. A date in
    ``Retry-After`` is compared with ``now_s`` (Unix). ``verdicts``: the body of a 2xx may say more."""
    status = reader.status
    if 200 <= status < 300:
        verdict = _verdict(reader) if verdicts else None
        if verdict is not None:
            return AttemptResult(Reason.RECEIVER, status, _VERDICTS[verdict], latency_us, kept(reader.body))
        if kind != Format.ORIGINAL or reader.body.strip() == b"true":
            return AttemptResult(Reason.NONE, status, None, latency_us)
        return AttemptResult(Reason.NOT_TRUE, status, None, latency_us, kept(reader.body))
    if status == 410:
        return AttemptResult(Reason.GONE, status, None, latency_us, kept(reader.body))
    if status == 409 and _is_loop(reader.body):
        return AttemptResult(Reason.STATUS, status, NEVER, latency_us, kept(reader.body))
    wait_s = retry_after_s(reader.retry_after, now_s) if status in _RETRY_AFTER_STATUSES else None
    return AttemptResult(Reason.STATUS, status, wait_s, latency_us, kept(reader.body))


_VERDICTS: Final[dict[str, float | None]] = {"RETRY": None, "DROP": SKIP, "DEAD": NEVER}


def _verdict(reader: AnswerReader) -> str | None:
    """The word of a body such as ``{"status": "RETRY"}``; None for any other."""
    try:
        said = orjson.loads(reader.body)
    except orjson.JSONDecodeError:
        return None
    word = said.get("status") if isinstance(said, dict) else None
    return word if isinstance(word, str) and word in _VERDICTS else None


def _is_loop(body: bytearray) -> bool:
    """Whether a broker says that the message goes round: then each further attempt would send it round once more."""
    try:
        problem = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(problem, dict) and problem.get("type") == LOOP_TYPE


def kept(body: bytes | bytearray) -> bytes:
    """The part of a body, or of words about a failure, that is kept."""
    return bytes(body[: limits.response_bytes_kept])


def retry_after_s(value: bytes, now_s: float) -> float | None:
    """Seconds to wait from ``Retry-After`` (seconds or an HTTP date), None where it says nothing usable."""
    text = value.decode("latin-1").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return min(float(text), limits.retry_after_max_s)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)  # an HTTP date is in GMT; "-0000" leaves it out
    return min(max(moment.timestamp() - now_s, 0.0), limits.retry_after_max_s)
