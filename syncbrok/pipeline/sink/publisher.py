"""Publishes batches of NDJSON lines to a broker over one kept-alive connection. No Spark, no threads: each task of the
sink has one of its own, and waits for each answer before it sends the next batch.

``Publisher`` sends a batch, ``RequestBatcher`` makes them of lines, for the sink and for a replay alike.

A batch is sent again whenever it is not known whether it was accepted (no answer, a broken connection) or the broker
asks for it (429, 502, 503, 504, 507). That is safe if each line has an idempotency key (RULES 4), for then the broker
answers a line it has with its first id. Anything else the broker refuses is the asker's to mend: ``BatchRefused`` at
once.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Self
from urllib.parse import quote

import orjson

from syncbrok.client import Answer, Connection
from syncbrok.client.answers import LATER, Repeats
from syncbrok.client.connection import Broken
from syncbrok.client.paths import broker_address, queue_path, split_urls
from syncbrok.model.errors import BadSetting, BrokerFault, ClientFault
from syncbrok.model.limits import MIB

log = logging.getLogger(__name__)

NDJSON: Final = "application/x-ndjson"

_AGAIN: Final = LATER | {502, 504}
"""those of a proxy that cannot say whether the broker has it: each line has a key, so that is no matter"""
_FORBIDDEN: Final = 403
_TOO_LARGE: Final = 413
_BYTES_WAITING_MAX: Final = 32 * MIB
_CHECK_EVERY_S: Final = 0.1
_PAUSE_MAX_S: Final = 10.0
_MENDS: Final = {
    "unauthorized": "give a token with the option token",
    "unknown-queue": "declare the queue first: syncbrok queues create NAME",
    "idempotency-conflict": "each key stands for one content, parents and settings. Keys from a column: is the column "
    "unique? Keys from positions: the rows came in another order than the first time; use a key column",
    "first-lost": "the broker has it already, and its log is damaged there: leave this row out",
}


class BatchRefused(ClientFault):
    """The broker refuses a batch. ``line`` is which one, counted from 0, where it names one."""

    slug = "refused"

    def __init__(self, detail: str, status: int, line: int | None = None) -> None:
        super().__init__(detail, status=status, line=line)
        self.status = status
        self.line = line


class BrokerGone(BrokerFault):
    """No broker has taken the batch within the time given for it."""

    slug = "broker-gone"


class BadRow(ClientFault):
    """Raised for a row that cannot be a message; ``str()`` says which row and why."""

    slug = "bad-row"


class PreparedRow(NamedTuple):
    """A row, ready to be sent. ``position`` counts the rows of its partition from 0; ``key`` is for idempotency."""

    queue: str
    text: bytes
    position: int
    key: str


class PublishTarget(NamedTuple):
    """The broker and queue to publish to, and for how long to try."""

    url: str
    """or several, with commas between them: the nodes of a cluster"""
    token: str | None = None
    retry_timeout_s: float = 300.0
    """from the first attempt of a batch to giving up"""
    answer_timeout_s: float = 60.0
    """for one answer; a batch waits for its fsync"""

    @property
    def urls(self) -> list[str]:
        return split_urls(self.url)


class PublishedBatch(NamedTuple):
    """The broker's answer to a batch. ``ids`` as text, one for each line. ``was_known``: the broker had every line
    already, this published nothing."""

    ids: list[str]
    was_known: bool


class FoundMessage(NamedTuple):
    """A message that the broker has under an idempotency key."""

    id: str
    queue: str
    sequence: int


class Publisher:
    """A connection to the broker of ``target``. ``retries`` counts the batches that were sent again."""

    def __init__(self, target: PublishTarget, sleep: Callable[[float], None] = time.sleep) -> None:
        check_url(target.url)
        self._target = target
        self._connection = Connection(target.urls, target.token, timeout_s=target.answer_timeout_s)
        self._sleep = sleep
        self.retries = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def check_queue(self, queue: str, within_s: float = 10.0) -> None:
        """Raises ``BatchRefused`` where the broker says that there is no such queue or that it takes nothing from us,
        and ``BrokerGone`` where none answers ``within_s``: a wrong address should not take as long to find out as a
        broker may take to come back in the middle of a write."""
        give_up_at = time.monotonic() + min(within_s, self._target.retry_timeout_s)
        while True:
            try:
                answer = self._connection.request("GET", queue_path(queue))
            except Broken as error:
                if time.monotonic() + _CHECK_EVERY_S > give_up_at:
                    raise BrokerGone(
                        f"no broker answers at {self._target.url}: {type(error).__name__}: {error}"
                    ) from None
                self._sleep(_CHECK_EVERY_S)
                continue
            if 400 <= answer.status < 500 and answer.status not in _AGAIN and answer.status != _FORBIDDEN:
                raise _refusal(answer, queue)
            return  # a token that may publish need not be one that may read

    def find(self, key: str) -> list[FoundMessage]:
        """The messages with the idempotency key ``key``, in all queues that may be read. Raises ``BatchRefused``, and
        ``BrokerGone`` where no broker answers within ``retry_timeout_s``."""
        answer = self._answer(
            lambda: self._connection.request("GET", f"/v1/messages?idempotency_key={quote(key, safe='')}"),
            f"did not say which message has the key {key!r}",
        )
        if answer.status == 200:
            return _found(answer.body, self._target.url)
        raise BatchRefused(
            f"looking for the parent {key!r} was answered {answer.status}: {answer.problem.get('detail', '')} "
            "(a token that may read is needed)",
            answer.status,
        )

    def log_id(self) -> str | None:
        """The uuid of the broker's log; None where it does not say, as to a token that may not read all queues. Raises
        ``BrokerGone``."""
        answer = self._answer(
            lambda: self._connection.request("GET", "/v1/log/segments"), "did not say which log it has"
        )
        try:
            return str(orjson.loads(answer.body)["log"]) if answer.status == 200 else None
        except (ValueError, TypeError, KeyError):
            raise BrokerGone(f"what answers at {self._target.url} is no broker: it said {answer.body[:60]!r}") from None

    def publish(self, queue: str, lines: Sequence[bytes]) -> PublishedBatch:
        """Publish the lines, each an NDJSON object without its newline, as one batch: all are accepted or none.

        Raises ``BatchRefused``, and ``BrokerGone`` where ``retry_timeout_s`` has passed."""
        path = f"{queue_path(queue)}/messages:batch"
        body = b"\n".join(lines)
        answer = self._answer(
            lambda: self._connection.request("POST", path, body, {"Content-Type": NDJSON}, again=True),
            f"did not take a batch of {len(lines)} messages for {queue!r}",
            ", and whether it has it is not known",
        )
        if 200 <= answer.status < 300:
            return PublishedBatch(_ids(answer.body, len(lines), self._target.url), answer.status == 200)
        raise _refusal(answer, queue)

    def _answer(self, ask: Callable[[], Answer], failed: str, unknown: str = "") -> Answer:
        """The first answer that asking again would not better. Raises ``BrokerGone``, which says what ``failed`` and is
        ``unknown`` then."""
        repeats = Repeats(self._target.retry_timeout_s, _PAUSE_MAX_S)
        while True:
            at_least_s = 0.0
            try:
                answer = ask()
            except Broken as error:
                told = f"{type(error).__name__}: {error}"
            else:
                if answer.status not in _AGAIN:
                    return answer
                told, at_least_s = f"{answer.status} {answer.problem.get('detail', '')}", answer.retry_after_s
            pause_s = repeats.pause_s(at_least_s)
            if pause_s is None:
                raise BrokerGone(
                    f"{self._target.url} {failed} within {self._target.retry_timeout_s:g} s{unknown}: {told.strip()}. "
                    "Run it again with the same keys when the broker is there; the option retryTimeout says how long "
                    "to try"
                )
            self.retries += 1
            log.warning("syncbrok.pipeline.publish_retried", extra={"pause_s": pause_s, "told": told})
            self._sleep(pause_s)


class AcceptedRequest(NamedTuple):
    """A request that the broker took, ``ids`` one for each of its ``lines``. ``was_known``: it had every line before,
    this published nothing."""

    queue: str
    lines: Sequence[PreparedRow]
    ids: list[str]
    was_known: bool


class RequestBatcher:
    """Takes lines and sends requests: a batch for each queue is filled, up to ``rows_max`` and ``bytes_max``.

    A broker may take less (413), which is no mistake in a row: then the batch goes out in halves. A line may name a
    waiting line of the same queue as its parent, ``#n`` by its number from 1; if that one has gone out in an earlier
    request, its id replaces the number.

    Raises ``BadRow`` for a line that the broker refuses: ``name`` says which row it was, ``again`` what to do.
    """

    def __init__(
        self, publisher: Publisher, rows_max: int, bytes_max: int, name: Callable[[PreparedRow], str], again: str
    ) -> None:
        self._publisher = publisher
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._name = name
        self._again = again
        self._waiting: dict[str, list[PreparedRow]] = {}
        self._bytes_waiting: dict[str, int] = {}
        self._rows_accepted = 0

    def waiting(self, queue: str) -> int:
        """The number of lines waiting for the queue, which is the number of the last of them, as in ``#n``."""
        return len(self._waiting.get(queue, ()))

    def add(self, line: PreparedRow) -> Iterator[AcceptedRequest]:
        """Take a line, and yield the requests that were sent for it, with it or without."""
        if self._bytes_waiting.get(line.queue, 0) + len(line.text) + 1 > self._bytes_max:
            ids: list[str] = []
            for accepted in self.send(line.queue):
                ids += accepted.ids
                yield accepted
            line = _behind(line, ids)
        waiting = self._waiting.setdefault(line.queue, [])
        waiting.append(line)
        self._bytes_waiting[line.queue] = self._bytes_waiting.get(line.queue, 0) + len(line.text) + 1
        if len(waiting) >= self._rows_max:
            yield from self.send(line.queue)
        elif sum(self._bytes_waiting.values()) > _BYTES_WAITING_MAX:
            yield from self.flush()

    def flush(self) -> Iterator[AcceptedRequest]:
        """Send all that waits."""
        for queue in list(self._waiting):
            yield from self.send(queue)

    def send(self, queue: str) -> Iterator[AcceptedRequest]:
        """Send what waits for this queue."""
        lines = self._waiting.pop(queue, [])
        self._bytes_waiting.pop(queue, None)
        if lines:
            yield from self._request(queue, lines)

    def _request(self, queue: str, lines: list[PreparedRow]) -> Iterator[AcceptedRequest]:
        try:
            published = self._publisher.publish(queue, [line.text for line in lines])
        except BatchRefused as refused:
            if refused.status != _TOO_LARGE or refused.line is not None or len(lines) == 1:
                raise self._bad_row(refused, lines) from None
        else:
            self._rows_accepted += len(lines)
            yield AcceptedRequest(queue, lines, published.ids, published.was_known)
            return
        half = len(lines) // 2
        ids: list[str] = []
        for accepted in self._request(queue, lines[:half]):
            ids += accepted.ids
            yield accepted
        yield from self._request(queue, [_behind(line, ids) for line in lines[half:]])

    def _bad_row(self, refused: BatchRefused, lines: list[PreparedRow]) -> BadRow:
        """The refusal, naming the row."""
        number = 0 if len(lines) == 1 else refused.line
        if number is not None and number < len(lines):
            where = self._name(lines[number])
        else:
            where = f"a batch of {len(lines)}, from {self._name(lines[0])} on,"
        return BadRow(
            f"{where} is refused: {refused.detail}. {self._rows_accepted} were accepted before it; {self._again}"
        )


def _behind(line: PreparedRow, ids: Sequence[str]) -> PreparedRow:
    """``line`` as it must be when those that stood first in its batch have gone out in another, and were given
    ``ids``."""
    if b'"#' not in line.text:
        return line
    given = orjson.loads(line.text)
    if not ids or not given.get("parents"):
        return line
    given["parents"] = [_parent(parent, ids) for parent in given["parents"]]
    return line._replace(text=orjson.dumps(given))


def _parent(parent: str, ids: Sequence[str]) -> str:
    digits = parent.removeprefix("#")
    if digits == parent or not (digits.isascii() and digits.isdecimal()) or int(digits) == 0:
        return parent  # an id, or a mistake for the broker to name
    number = int(digits)
    return ids[number - 1] if number <= len(ids) else f"#{number - len(ids)}"


def check_url(url: str) -> None:
    """Raises ``BadSetting`` for what is no broker's, nor those of several with commas between them."""
    try:
        for one in split_urls(url):
            broker_address(one)
    except ValueError:
        raise BadSetting(f"url: expected the broker's, such as http://127.0.0.1:10000, found {url!r}") from None


def _ids(answer: bytes, count: int, url: str) -> list[str]:
    try:
        ids = json.loads(answer)["ids"]
    except (ValueError, TypeError, KeyError):
        ids = None
    if not isinstance(ids, list) or len(ids) != count:
        raise BrokerGone(f"what answers at {url} is no broker: a batch of {count} got {answer[:60]!r}")
    return ids


def _found(answer: bytes, url: str) -> list[FoundMessage]:
    try:
        return [FoundMessage(one["id"], one["queue"], int(one["sequence"])) for one in orjson.loads(answer)["messages"]]
    except (ValueError, TypeError, KeyError):
        raise BrokerGone(
            f"what answers at {url} is no broker: it was asked for messages and said {answer[:60]!r}"
        ) from None


def _refusal(answer: Answer, queue: str) -> BatchRefused:
    status, problem = answer.status, answer.problem
    told = problem.get("detail") or problem.get("title") or "no reason given; is that a broker, or something else?"
    mend = _MENDS.get(str(problem.get("type")).rpartition(":")[2], problem.get("mend", ""))
    line = problem.get("line")
    where = line - 1 if isinstance(line, int) else None
    detail = str(told).removeprefix(f"line {line}: ")
    return BatchRefused(f"queue {queue!r}: {status}: {detail}" + (f" ({mend})" if mend else ""), status, where)
