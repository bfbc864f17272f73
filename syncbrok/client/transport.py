"""One request to the broker, repeated while the broker says "later" or cannot be reached: at another address, where it
has several, and after a pause, where each of them was asked."""

import asyncio
import io
import ssl
from collections.abc import Sequence
from typing import Any, BinaryIO, Final, Self

import aiohttp
import orjson
from yarl import URL

from syncbrok.client.addresses import LEADER, BrokerAddresses
from syncbrok.client.answers import LATER, Repeats, is_elsewhere, is_unknown, problem_of, retry_after_s
from syncbrok.client.errors import Refused, Unreachable

_PAUSE_MAX_S: Final = 5.0
_CONNECT_S: Final = 10.0
_SILENCE_S: Final = 90.0
_ANSWER_S: Final = 10.0
_IN_ONE_PIECE_BYTES: Final = 512 * 1024
_NOT_SENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
"""what is raised before anything of a request has gone out"""
_UNKNOWN: Final = "it is not known whether the broker has it"


class Transport:
    """Connections to one broker, or to the nodes of a cluster (``urls``: see ``BrokerAddresses``). ``give_up_s``: for
    how long a request is tried, at all of them. ``tls``: see ``Client``."""

    def __init__(
        self, urls: str | Sequence[str], token: str | None, give_up_s: float, tls: ssl.SSLContext | None = None
    ) -> None:
        self.addresses = BrokerAddresses(urls)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._give_up_s = give_up_s
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S)
        connector = aiohttp.TCPConnector(ssl=True if self._tls is None else self._tls)
        heard = aiohttp.TraceConfig()
        heard.on_request_end.append(self._hear)
        heard.on_request_redirect.append(_refuse_redirect)
        self._session = aiohttp.ClientSession(
            headers=self._headers, timeout=timeout, connector=connector, trace_configs=[heard]
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def _hear(self, _: aiohttp.ClientSession, __: object, ended: aiohttp.TraceRequestEndParams) -> None:
        """Note the leader that an answer names, that to the opening of a socket too, which aiohttp shows to nobody
        else."""
        self.addresses.named(str(ended.url.origin()), ended.response.headers.get(LEADER))

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use the client as a context manager: async with Client(...) as broker")
        return self._session

    @property
    def answer_s(self) -> float:
        """For how long one address is waited for. Where there are others, each has its turn before the time is over."""
        known = self.addresses.known
        return _SILENCE_S if known == 1 else min(_ANSWER_S, self._give_up_s / known)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        kind: str = "application/json",
        again: bool = True,
        wait_s: float = 0.0,
    ) -> Any:
        """The answer's JSON. ``again``: repeat it also where it is not known whether the broker has seen it.
        ``wait_s``: for how long the broker is asked to wait with it. Raises ``Refused`` and ``Unreachable``."""
        repeats = Repeats(self._give_up_s, _PAUSE_MAX_S)
        tried: set[str] = set()
        while True:
            url = self.addresses.next(tried)
            assert url is not None
            try:
                return await self._once(url, method, path, body, kind, again=again, wait_s=wait_s)
            except _Later as later:
                if later.elsewhere:
                    tried.add(url)
                    self.addresses.failed(url)
                    if self.addresses.next(tried) is not None and not repeats.are_over:
                        continue
                pause_s = repeats.pause_s(later.at_least_s)
                if pause_s is None:
                    what = f"{self.addresses} did not take it within {self._give_up_s:g} s: {later}"
                    raise Unreachable(what) from later
            tried.clear()
            await asyncio.sleep(pause_s)

    async def _once(
        self, url: str, method: str, path: str, body: bytes | None, kind: str, *, again: bool, wait_s: float
    ) -> Any:
        """The answer's JSON. Raises ``_Later`` where it is to be repeated, and as ``request``."""
        headers = {} if body is None else {"Content-Type": kind}
        try:
            async with self.session.request(
                method,
                address(url, path),
                data=_data(body),
                headers=headers,
                timeout=self._timeout(wait_s if again else _SILENCE_S),
                allow_redirects=False,  # with the token, to wherever it says
            ) as answer:
                written = await answer.read()
        except _NOT_SENT as error:
            raise _Later(str(error), elsewhere=True) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            told = f"{type(error).__name__}: {error}"
            if not again:
                raise Unreachable(f"{method} {path}: {told}; {_UNKNOWN}") from error
            raise _Later(told, elsewhere=True) from error
        if answer.status < 300:
            self.addresses.answered(url)
            return self._document(url, answer.status, written)
        problem = problem_of(written) or {"detail": written[:200].decode("utf-8", "replace")}
        if answer.status not in LATER:
            self.addresses.answered(url)
            raise Refused(answer.status, problem)
        told = str(problem.get("detail", answer.reason))
        if not again and is_unknown(answer.status, problem):
            raise Unreachable(f"{method} {path}: {told}; {_UNKNOWN}")
        at_least_s = retry_after_s(answer.headers.get("Retry-After"))
        raise _Later(told, at_least_s, elsewhere=is_elsewhere(answer.status, problem))

    def _timeout(self, wait_s: float) -> aiohttp.ClientTimeout:
        answer_s = self.answer_s
        silence_s = min(answer_s + wait_s, _SILENCE_S)
        return aiohttp.ClientTimeout(total=None, sock_connect=min(_CONNECT_S, answer_s), sock_read=silence_s)

    @staticmethod
    def _document(url: str, status: int, written: bytes) -> dict[str, Any]:
        try:
            found = orjson.loads(written)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            detail = f"what answers at {url} is not Syncbrok; is the address right?"
            raise Refused(status, {"detail": detail})
        return found


def address(url: str, path: str) -> URL:
    """The URL of ``path`` at the broker ``url``, byte for byte: nothing in it is decoded, encoded again, or taken for a
    step up."""
    return URL(str(URL(url)).rstrip("/") + path, encoded=True)


async def _refuse_redirect(_: aiohttp.ClientSession, __: object, asked: aiohttp.TraceRequestRedirectParams) -> None:
    """For sockets, which cannot be opened without following."""
    raise aiohttp.ClientError(f"{asked.url.origin()} redirects to another address, which is not followed")


class _Later(Exception):
    """Why it is to be repeated: after so many seconds at least, or ``elsewhere`` at once."""

    def __init__(self, why: str, at_least_s: float = 0.0, *, elsewhere: bool) -> None:
        super().__init__(why)
        self.at_least_s = at_least_s
        self.elsewhere = elsewhere


def _data(body: bytes | None) -> bytes | BinaryIO | None:
    """``body`` as aiohttp takes it: it warns of large bytes, which it would write in one piece."""
    return body if body is None or len(body) < _IN_ONE_PIECE_BYTES else io.BytesIO(body)
