"""One connection to a broker for programs that ask one thing at a time and wait: the commands, Spark's tasks.

Nothing is repeated and nothing is read into the answer, whatever its status. It stands beside ``transport`` because a
command is over before aiohttp is imported, and a task of Spark has no event loop.
"""

import http.client
import ssl
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, Self

from syncbrok.client.answers import problem_of, retry_after_s
from syncbrok.client.paths import broker_address

_ERROR_BYTES_MAX: Final = 64 * 1024

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
    def retry_after_s(self) -> float:
        """How long the broker asks to wait; 0 where it does not say."""
        return retry_after_s(self.headers.get("retry-after"))


class Connection:
    """Kept alive from request to request, opened by the first and again by the one after a failure. ``tls`` is for a
    URL with https, None for the authorities that this system trusts. Raises ``ValueError`` for a URL that is none."""

    def __init__(
        self, url: str, token: str | None = None, *, timeout_s: float = 30.0, tls: ssl.SSLContext | None = None
    ) -> None:
        self._address = broker_address(url)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout_s = timeout_s
        self._tls = tls
        self._open: http.client.HTTPConnection | None = None

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
    ) -> Answer:
        """The answer, whatever its status; of one that is no success the first 64 KiB. ``path`` goes out as it stands.
        Raises what ``Broken`` names."""
        try:
            response = self._ask(method, path, body, headers, self._timeout_s if timeout_s is None else timeout_s)
            content = response.read() if response.status < 300 else response.read(_ERROR_BYTES_MAX)
            if response.will_close or not response.isclosed():
                self.close()
        except BaseException:
            self.close()
            raise
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, content)

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of a streamed answer, without line ends, until the broker ends it. Raises ``NoStream`` with
        the answer where its status is not 200, and what ``Broken`` names."""
        try:
            response = self._ask("GET", path, None, None, self._timeout_s)
            if response.status != 200:
                raise NoStream(Answer(response.status, {}, response.read(_ERROR_BYTES_MAX)))
            while line := response.readline():
                yield line.rstrip(b"\r\n")
        finally:
            self.close()

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None, timeout_s: float
    ) -> http.client.HTTPResponse:
        if self._open is None:
            self._open = self._made()
        self._open.timeout = timeout_s
        if self._open.sock is not None:
            self._open.sock.settimeout(timeout_s)
        self._open.request(method, self._address.path + path, body, {**self._headers, **(headers or {})})
        return self._open.getresponse()

    def _made(self) -> http.client.HTTPConnection:
        _, host, port, _ = self._address
        if self._address.scheme == "https":
            return http.client.HTTPSConnection(host, port, context=self._tls or ssl.create_default_context())
        return http.client.HTTPConnection(host, port)


class NoStream(Exception):
    """``answer`` is what came instead of lines."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"the broker answered {answer.status}")
        self.answer = answer
