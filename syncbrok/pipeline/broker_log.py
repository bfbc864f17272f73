"""A log that is read over the network, from the broker that writes it or from any node of its cluster
(``/v1/log/segments``). No Spark.

What is asked for again: an answer that did not come, one that was cut short, and whatever the broker asks to repeat
(429, 503), within ``retry_timeout_s``; then it is ``LogUnreachable``. All pieces that are read of one segment are of
one version of it: erasing writes sealed segments anew (RULES 32), and ``If-Match`` tells.
"""

import ssl
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote, urlsplit

import orjson

from syncbrok.client import Answer, Connection
from syncbrok.client.answers import LATER, Repeats
from syncbrok.client.connection import Broken
from syncbrok.client.paths import broker_address, split_urls
from syncbrok.log.index import sidecar
from syncbrok.log.index.segment_index import SegmentIndex
from syncbrok.model.errors import BadSetting, BrokerFault
from syncbrok.model.limits import KIB, MIB
from syncbrok.model.units import parse_time_us

RETRY_TIMEOUT_S: Final = 120.0
ANSWER_TIMEOUT_S: Final = 60.0
_PATH: Final = "/v1/log/segments"
_READERS: Final = "/v1/log/readers"
_AGAIN: Final = LATER | {502, 504}
_REFUSED: Final = (401, 403)
_NO_SUCH: Final = (404, 410)
_REWRITTEN: Final = 412
_PIECE_BYTES_MIN: Final = 256 * KIB
_PIECE_BYTES_MAX: Final = 4 * MIB
_INDEX_HEAD_BYTES: Final = 4_096
_PAUSE_MAX_S: Final = 5.0
_FIRST_ANSWER_S: Final = 10.0
"""a wrong address should not take as long to find out as a broker may take to come back in the middle of a read"""
_BEHIND_PAUSE_S: Final = 0.5
_TOLD_WITHIN_S: Final = 5.0
"""a stream waits no longer for the broker to note its place"""
_PEM: Final = "-----BEGIN"


class LogUnreachable(BrokerFault):
    """The log was not to be had over the network within the time given for it, or not as it must be."""

    slug = "log-unreachable"


class SegmentRewritten(LogUnreachable):
    """The broker has written the segment anew while it was read, without what was erased: read it again."""

    slug = "segment-rewritten"


class SegmentDropped(Exception):
    """Retention took the segment away while it was read."""


class ListedSegment(NamedTuple):
    """A segment as the broker lists it. ``crc`` and ``records`` are 0 and ``last_time_us`` is None where that is not
    known."""

    name: str
    first: int
    last: int
    bytes: int
    sealed: bool
    crc: int
    records: int
    first_time_us: int
    last_time_us: int | None


class ListedLog(NamedTuple):
    """The log as the broker lists it: its uuid, the last sequence that may be read, its segments, oldest first."""

    uuid: bytes
    durable: int
    segments: Sequence[ListedSegment]


class BrokerLog(NamedTuple):
    """A ``LogPlace``: the log of the broker at ``url``, or of a cluster at those of several nodes with commas between
    them. ``ca``: certificates in PEM that a broker with https is believed by, None: as this system does. Neither
    ``str()`` nor ``repr()`` shows the token."""

    url: str
    token: str | None = None
    ca: str | None = None
    retry_timeout_s: float = RETRY_TIMEOUT_S
    answer_timeout_s: float = ANSWER_TIMEOUT_S

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"BrokerLog({self.url})"

    def options(self) -> dict[str, str]:
        """See ``LogPlace``."""
        times = {"retryTimeout": f"{self.retry_timeout_s:g}s", "answerTimeout": f"{self.answer_timeout_s:g}s"}
        given = {"url": self.url, "token": self.token, "ca": self.ca}
        return times | {name: value for name, value in given.items() if value is not None}

    def listed(self, *, patient: bool = False, through: int = 0) -> ListedLog:
        """The segments as they are now. ``patient``: the broker was there before, and may be starting again.
        ``through``: a sequence that was durable before; a node of a cluster that is behind is waited for a moment."""
        repeats = Repeats(min(_FIRST_ANSWER_S, self.retry_timeout_s), _BEHIND_PAUSE_S)
        with _Requests(self) as requests:
            while True:
                found = self._list_of(requests.get("", {}, self.retry_timeout_s if patient else _FIRST_ANSWER_S))
                pause_s = None if found.durable >= through else repeats.pause_s(0.0)
                if pause_s is None:
                    return found
                time.sleep(pause_s)

    def tell_reader(self, name: str, sequence: int, hold: bool | None) -> bool:
        """Tell the broker that the reader ``name`` has read through ``sequence``, and whether retention is to keep the
        rest (None: as it was). False where it did not answer, or cannot note it now. Raises ``BadSetting`` where it
        refuses."""
        tls = None if self.ca is None else _tls(self.ca)
        body = {"sequence": sequence} | ({} if hold is None else {"hold": hold})
        path, said = f"{_READERS}/{quote(name, safe='')}", {"Content-Type": "application/json"}
        try:
            with Connection(split_urls(self.url), self.token, timeout_s=_TOLD_WITHIN_S, tls=tls) as connection:
                answer = connection.request("PUT", path, orjson.dumps(body), said, again=True)
        except Broken:
            return False
        if answer.status in LATER or answer.status >= 500:
            return False
        if answer.status != 200:
            told = answer.problem.get("detail", f"it answers {answer.status}")
            raise BadSetting(f"{self.url} does not note the place of reader {name}: {told}", option="reader")
        return True

    def _list_of(self, answer: Answer) -> ListedLog:
        if answer.status != 200:
            raise self._odd(answer)
        try:
            told = orjson.loads(answer.body)
            segments = [_listed(one) for one in told["segments"]]
            return ListedLog(bytes.fromhex(told["log"]), int(told["durable"]), segments)
        except (ValueError, KeyError, TypeError):
            raise self._odd(answer) from None

    def open(self, path: str, base: int, end: int) -> "BrokerSegment | None":
        """See ``LogPlace``."""
        try:
            return BrokerSegment(self, path, base, end)
        except SegmentDropped:
            return None

    def index_of(self, path: str, sealed: sidecar.Sealed) -> SegmentIndex | None:
        """See ``LogPlace``."""
        data = self._index_bytes(path, sealed.base, {})
        return None if data is None else sidecar.decode(data, sealed)

    def index_rows(self, path: str, sealed: sidecar.Sealed, table: str) -> int | None:
        """See ``LogPlace``."""
        data = self._index_bytes(path, sealed.base, {"Range": f"bytes=0-{_INDEX_HEAD_BYTES - 1}"})
        return None if data is None else sidecar.rows_in(data, sealed, table)

    def may_be_closed(self, path: str) -> bool:
        """See ``LogPlace``: whoever answers has it open."""
        del path
        return False

    def _index_bytes(self, path: str, base: int, headers: Mapping[str, str]) -> bytes | None:
        del path
        with _Requests(self) as requests:
            answer = requests.get(f"/{base}/index", headers, self.retry_timeout_s)
        return answer.body if answer.status in (200, 206) else None

    def _odd(self, answer: Answer) -> LogUnreachable:
        what = answer.problem.get("detail") or "is that a broker of this version?"
        return LogUnreachable(f"{self.url} answers {answer.status} to GET {_PATH}: {what}")


def broker_log(
    url: str,
    token: str | None = None,
    ca: str | None = None,
    retry_timeout_s: float = RETRY_TIMEOUT_S,
    answer_timeout_s: float = ANSWER_TIMEOUT_S,
) -> BrokerLog:
    """The log at ``url``. ``ca``: see ``BrokerLog``, or the file that has them; it is read now, since tasks elsewhere
    do not see it. Raises ``BadSetting``."""
    try:
        for one in split_urls(url):
            broker_address(one)
    except ValueError:
        raise BadSetting(f"url: expected the broker's, such as https://broker:10000, found {url!r}") from None
    if any(urlsplit(one).username is not None for one in split_urls(url)):
        raise BadSetting("url: a broker knows no users and passwords, and a URL is shown; give a token")
    if ca is not None and not ca.lstrip().startswith(_PEM):
        try:
            ca = Path(ca).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as problem:
            raise BadSetting(f"ca: {ca} cannot be read as certificates in PEM: {problem}", option="ca") from None
    if ca is not None:
        try:
            _tls(ca)
        except ssl.SSLError as problem:
            raise BadSetting(f"ca: no certificates in PEM: {problem}", option="ca") from None
    return BrokerLog(url, token or None, ca, retry_timeout_s, answer_timeout_s)


@lru_cache(maxsize=4)
def _tls(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca)


def _listed(one: Mapping[str, Any]) -> ListedSegment:
    last_at = one["last_at"]
    return ListedSegment(
        str(one["name"]),
        int(one["first"]),
        int(one["last"]),
        int(one["bytes"]),
        bool(one["sealed"]),
        int(one["checksum"] or "0", 16),
        int(one["records"] or 0),
        parse_time_us(one["first_at"]),
        None if last_at is None else parse_time_us(last_at),
    )


class _Requests:
    """One connection to a broker, for requests one after the other."""

    def __init__(self, place: BrokerLog) -> None:
        tls = None if place.ca is None else _tls(place.ca)
        self._place = place
        self._connection = Connection(split_urls(place.url), place.token, timeout_s=place.answer_timeout_s, tls=tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def get(self, path: str, headers: Mapping[str, str], within_s: float, method: str = "GET") -> Answer:
        """The answer, once it is one that asking again would not change. Raises ``LogUnreachable``, and ``BadSetting``
        where the token does not do."""
        repeats = Repeats(min(within_s, self._place.retry_timeout_s), _PAUSE_MAX_S)
        while True:
            at_least_s = 0.0
            try:
                answer = self._connection.request(method, _PATH + path, None, headers)
            except ssl.SSLCertVerificationError as error:
                what = f"{self._place.url}: its certificate is not believed: {error.verify_message}"
                raise LogUnreachable(f"{what}; the option ca (--log-ca) names the authority's") from None
            except Broken as error:
                told = f"{type(error).__name__}: {error}"
            else:
                if answer.status in _REFUSED:
                    raise self._refused(answer)
                if answer.status not in _AGAIN:
                    return answer
                told, at_least_s = f"{answer.status} {answer.problem.get('detail', '')}", answer.retry_after_s
            self.pause(repeats, told, at_least_s)

    def pause(self, repeats: Repeats, told: str, at_least_s: float = 0.0) -> None:
        """Wait before the next request. Raises ``LogUnreachable`` where there is no time left for one."""
        pause_s = repeats.pause_s(at_least_s)
        if pause_s is None:
            what = f"{self._place.url} does not give the log: {told.strip()}"
            raise LogUnreachable(f"{what}. Read again when the broker is there; retryTimeout says how long to try")
        time.sleep(pause_s)

    def _refused(self, answer: Answer) -> BadSetting:
        told = answer.problem.get("detail", "no reason given")
        mend = "The option token (--log-token) gives one with the scope read in all queues"
        return BadSetting(
            f"{self._place.url} does not let this read the log: {told}. {mend}",
            option="token",
        )


class BrokerSegment:
    """See ``SegmentFile``. Read in pieces that grow while one follows the other; the last one is kept."""

    def __init__(self, place: BrokerLog, path: str, base: int, end: int) -> None:
        """Raises ``SegmentDropped`` and ``LogUnreachable``."""
        self._path = f"/{base}"
        self._name = path
        self._place = place
        self._requests = _Requests(place)
        self._piece, self._at, self._next_bytes = b"", 0, _PIECE_BYTES_MIN
        try:
            self.size, self._tag = self._look(end)
        except BaseException:
            self.close()
            raise

    def _look(self, end: int) -> tuple[int, str]:
        """Its size and its ETag. A node that follows may be a moment behind the one that was asked for the list."""
        repeats = Repeats(self._place.retry_timeout_s, _PAUSE_MAX_S)
        while True:
            answer = self._requests.get(self._path, {}, self._place.retry_timeout_s, "HEAD")
            if answer.status in _NO_SUCH:
                raise SegmentDropped
            size, tag = int(answer.headers.get("content-length", "0")), answer.headers.get("etag", "")
            if answer.status != 200 or (size < end and not tag):
                told = f"{self._name} has {size} bytes there, and {end} are durable ({answer.status})"
                self._requests.pause(repeats, told)
                continue
            return size, tag

    def read(self, length: int, offset: int) -> bytes:
        """See ``SegmentFile``."""
        data = bytearray(max(0, min(length, self.size - offset)))
        self._fill(memoryview(data), offset)
        return bytes(data)

    def read_into(self, view: memoryview, offset: int, *, unreadable_as_zeros: bool) -> int:
        """See ``SegmentFile``. What cannot be had is never taken for damage."""
        del unreadable_as_zeros
        wanted = view[: max(0, self.size - offset)]
        self._fill(wanted, offset)
        return len(wanted)

    def whole(self) -> memoryview:
        """See ``SegmentFile``."""
        return memoryview(self.read(self.size, 0))

    def close(self) -> None:
        self._requests.close()

    def _fill(self, view: memoryview, offset: int) -> None:
        done = 0
        while done < len(view):
            at = offset + done - self._at
            if not 0 <= at < len(self._piece):
                self._fetch(offset + done)
                at = 0
            some = self._piece[at : at + len(view) - done]
            view[done : done + len(some)] = some
            done += len(some)

    def _fetch(self, offset: int) -> None:
        """The piece from ``offset`` on. Raises ``SegmentDropped``, ``SegmentRewritten`` and ``LogUnreachable``."""
        follows = bool(self._piece) and offset == self._at + len(self._piece)
        self._next_bytes = min(2 * self._next_bytes, _PIECE_BYTES_MAX) if follows else _PIECE_BYTES_MIN
        end = min(offset + self._next_bytes, self.size)
        headers = {"Range": f"bytes={offset}-{end - 1}"} | ({"If-Match": self._tag} if self._tag else {})
        answer = self._requests.get(self._path, headers, self._place.retry_timeout_s)
        if answer.status in _NO_SUCH:
            raise SegmentDropped
        if answer.status == _REWRITTEN:
            raise SegmentRewritten(f"{self._name} was written anew while it was read; read it again")
        if answer.status not in (200, 206) or len(answer.body) != end - offset:
            got = f"{answer.status} with {len(answer.body)} bytes"
            raise LogUnreachable(f"{self._name}: bytes {offset} to {end - 1} were asked for, and {got} came")
        self._piece, self._at = answer.body, offset
