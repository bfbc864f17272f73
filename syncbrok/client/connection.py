"""One connection to a broker for programs that ask one thing at a time and wait: the commands, Spark's tasks.

With one address nothing is repeated, and nothing is read into the answer, whatever its status. With several a request
is asked of the others where one cannot do it. It stands beside ``transport`` because a
command is over before aiohttp is imported, and a task of Spark has no event loop.
"""

import http.client
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Self

from syncbrok.client.addresses import LEADER, BrokerAddresses
from syncbrok.client.answers import Repeats, is_elsewhere, is_unknown, problem_of, retry_after_s
from syncbrok.client.paths import BrokerAddress, broker_address

_ERROR_BYTES_MAX: Final = 64 * 1024
_PAUSE_MAX_S: Final = 1.0

Broken: Final = (OSError, http.client.HTTPException)
"""what a request raises where there is no whole answer; whether the broker has seen it is not known"""


class Answer(NamedTuple):
    """Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, object]:
        """Its problem document; empty where it has none."""
        return problem_of(self.body)

    @property
    def is_elsewhere(self) -> bool:
        """Another node of the same cluster may do what this one cannot now."""
        return self.status == 503 and is_elsewhere(self.status, self.problem)

    @property
    def retry_after_s(self) -> float:
        """How long the broker asks to wait; 0 where it does not say."""
        return retry_after_s(self.headers.get("retry-after"))


class Connection:
    """Kept alive from request to request, opened by the first and again by the one after a failure. ``tls`` is for a
    URL with https, None for the authorities that this system trusts. Raises ``ValueError`` for a URL that is none.

    ``url`` may be several, those of the nodes of a cluster (see ``addresses``). Then a request goes on to the next
    where a node cannot be reached, or says that it cannot now (503 ``no-leader``, ``no-quorum``, ``draining``); where
    it is not known whether the node has seen it, only if it may be sent ``again``. While nodes answer and none leads,
    all are asked again until the time is over."""

    def __init__(
        self,
        url: str | Sequence[str],
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._addresses = BrokerAddresses(url)
        for one in self._addresses.given:
            broker_address(one)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout_s = timeout_s
        self._tls = tls
        self._open: http.client.HTTPConnection | None = None
        self._open_to = ""
        self._sent = False
        """whether any of the request in hand may have gone out"""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """A later request opens it again."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
        wait_s: float = 0.0,
        again: bool | None = None,
    ) -> Answer:
        """The answer, whatever its status; of one that is no success the first 64 KiB. ``path`` goes out as it stands.
        ``timeout_s`` is for all addresses together, ``wait_s`` what the broker is asked to wait besides. ``again``: it
        may be sent to another address where it is not known whether one has seen it; unless given, a GET may, and what
        has an idempotency key. Raises what ``Broken`` names."""
        sent = headers or {}
        if again is None:
            again = method == "GET" or any(name.lower() == "idempotency-key" for name in sent)

        def ask(url: str, silence_s: float) -> Answer:
            response = self._ask(url, method, path, body, sent, silence_s + wait_s)
            answer = _answer(response, None if response.status < 300 else _ERROR_BYTES_MAX)
            if response.will_close or not response.isclosed():
                self.close()
            return answer

        return self._reach(ask, self._timeout_s if timeout_s is None else timeout_s, again=again)

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of a streamed answer, without line ends, until the broker ends it. Raises ``NoStream`` with
        the answer where its status is not 200, and what ``Broken`` names."""
        began: http.client.HTTPResponse

        def ask(url: str, silence_s: float) -> Answer:
            nonlocal began
            began = self._ask(url, "GET", path, None, {}, silence_s)
            if began.status == 200:
                return _answer(began, 0)
            answer = _answer(began, _ERROR_BYTES_MAX)
            self.close()
            return answer

        try:
            answer = self._reach(ask, self._timeout_s, again=True)
            if answer.status != 200:
                raise NoStream(answer)
            yield from self._lines_of(began)
        finally:
            self.close()

    def _lines_of(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        try:
            if self._open is not None and self._open.sock is not None:
                self._open.sock.settimeout(self._timeout_s)
            while line := response.readline():
                yield line.rstrip(b"\r\n")
        except Broken:
            self._addresses.failed(self._open_to)
            raise

    def _reach(self, ask: Callable[[str, float], Answer], timeout_s: float, *, again: bool) -> Answer:
        """The first answer that no other address can better. ``ask`` is given an address, and for how long it may be
        silent: its part of the time that is left, so that each has its turn. Where none has answered, but one was there
        and broke off, as a node does whose leader has gone, all are asked again while there is time."""
        addresses = self._addresses
        until_s, repeats = time.monotonic() + timeout_s, Repeats(timeout_s, _PAUSE_MAX_S)
        tried: set[str] = set()
        away: Answer | None = None
        lost: BaseException | None = None
        there = False
        while True:
            url = addresses.next(tried)
            assert url is not None
            part_s = (until_s - time.monotonic()) / max(addresses.known - len(tried), 1)
            silence_s = max(part_s, timeout_s / addresses.known / 2)  # the last ones too are given time to answer
            tried.add(url)
            try:
                answer = ask(url, silence_s)
            except Broken as error:
                self.close()
                addresses.failed(url)
                if self._sent and not again:
                    raise
                lost, there = error, there or self._sent
            except BaseException:
                self.close()
                raise
            else:
                addresses.named(url, answer.headers.get(LEADER.lower()))
                if not answer.is_elsewhere or (is_unknown(answer.status, answer.problem) and not again):
                    addresses.answered(url)
                    return answer
                addresses.failed(url)
                away, there = answer, True
            if addresses.next(tried) is not None:
                continue
            asked_s = away.retry_after_s if away is not None else 0.0
            pause_s = repeats.pause_s(asked_s) if there and addresses.known > 1 else None
            if pause_s is None:
                return _last(away, lost)
            time.sleep(pause_s)
            away, there = None, False
            tried.clear()

    def _ask(
        self, url: str, method: str, path: str, body: bytes | None, headers: Mapping[str, str], silence_s: float
    ) -> http.client.HTTPResponse:
        self._sent = False
        if self._open_to != url:
            self.close()
        address = broker_address(url)
        if self._open is None:
            self._open, self._open_to = self._made(address), url
        self._open.timeout = silence_s
        if self._open.sock is None:
            self._open.connect()
        self._open.sock.settimeout(silence_s)
        self._sent = True
        self._open.request(method, address.path + path, body, {**self._headers, **headers})
        return self._open.getresponse()

    def _made(self, address: BrokerAddress) -> http.client.HTTPConnection:
        _, host, port, _ = address
        if address.scheme == "https":
            return http.client.HTTPSConnection(host, port, context=self._tls or ssl.create_default_context())
        return http.client.HTTPConnection(host, port)


def _answer(response: http.client.HTTPResponse, most: int | None) -> Answer:
    """The answer with its body, or at most the first ``most`` bytes of it."""
    content = response.read(most)
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, content)


class NoStream(Exception):
    """``answer`` is what came instead of lines."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"the broker answered {answer.status}")
        self.answer = answer


def _last(away: Answer | None, lost: BaseException | None) -> Answer:
    """The last answer; raises ``lost`` where there was none."""
    if away is None:
        assert lost is not None
        raise lost
    return away
