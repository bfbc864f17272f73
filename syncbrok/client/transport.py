"""One request to the broker, repeated while the broker says "later" or cannot be reached."""

import asyncio
import io
import ssl
from typing import Any, BinaryIO, Final, Self

import aiohttp
import orjson
from yarl import URL

from syncbrok.client.answers import LATER, Repeats, problem_of, retry_after_s
from syncbrok.client.errors import Refused, Unreachable

_PAUSE_MAX_S: Final = 5.0
_IN_ONE_PIECE_BYTES: Final = 512 * 1024


class Transport:
    """Connections to one broker. ``give_up_s``: for how long a request is tried. ``tls``: see ``Client``."""

    def __init__(self, url: str, token: str | None, give_up_s: float, tls: ssl.SSLContext | None = None) -> None:
        self.url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._give_up_s = give_up_s
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=90)
        connector = aiohttp.TCPConnector(ssl=True if self._tls is None else self._tls)
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout, connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("use the client as a context manager: async with Client(...) as broker")
        return self._session

    def address(self, path: str) -> URL:
        """The URL of ``path``, byte for byte: nothing in it is decoded, encoded again, or taken for a step up."""
        return URL(str(URL(self.url)).rstrip("/") + path, encoded=True)

    async def request(
        self, method: str, path: str, body: bytes | None = None, *, kind: str = "application/json", again: bool = True
    ) -> Any:
        """The answer's JSON. ``again``: repeat it also where it is not known whether the broker has seen it. Raises
        ``Refused`` and ``Unreachable``."""
        repeats = Repeats(self._give_up_s, _PAUSE_MAX_S)
        while True:
            why, found = await self._once(method, path, body, kind, again=again)
            if why is None:
                return found
            pause_s = repeats.pause_s(found)
            if pause_s is None:
                raise Unreachable(f"{self.url} did not take it within {self._give_up_s:g} s: {why}")
            await asyncio.sleep(pause_s)

    async def _once(self, method: str, path: str, body: bytes | None, kind: str, *, again: bool) -> tuple[Any, Any]:
        """(None, the answer), or (why it is to be repeated, after how many seconds at least)."""
        headers = {} if body is None else {"Content-Type": kind}
        try:
            async with self.session.request(method, self.address(path), data=_data(body), headers=headers) as answer:
                written = await answer.read()
        except aiohttp.ClientConnectorError as error:
            return str(error), 0.0
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if not again:
                what = "it is not known whether the broker has it"
                raise Unreachable(f"{method} {path}: {type(error).__name__}: {error}; {what}") from error
            return f"{type(error).__name__}: {error}", 0.0
        if answer.status < 300:
            return None, self._document(answer.status, written)
        problem = problem_of(written) or {"detail": written[:200].decode("utf-8", "replace")}
        if answer.status in LATER:
            return problem.get("detail", answer.reason), retry_after_s(answer.headers.get("Retry-After"))
        raise Refused(answer.status, problem)

    def _document(self, status: int, written: bytes) -> dict[str, Any]:
        try:
            found = orjson.loads(written)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            detail = f"what answers at {self.url} is not Syncbrok; is the address right?"
            raise Refused(status, {"detail": detail})
        return found


def _data(body: bytes | None) -> bytes | BinaryIO | None:
    """``body`` as aiohttp takes it: it warns of large bytes, which it would write in one piece."""
    return body if body is None or len(body) < _IN_ONE_PIECE_BYTES else io.BytesIO(body)
