"""Answers HTTP while the broker reads its log: alive, not ready, come back. Gone once the broker itself listens."""

from types import TracebackType
from typing import Final, Self

from aiohttp import web

from syncbrok.frontends.over_http.problems import answer
from syncbrok.model.errors import Draining

_RETRY_AFTER: Final = {"Retry-After": "1"}


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    if request.path == "/healthz":
        return web.json_response({"status": "ok"})
    return answer(Draining("the broker is reading its log", state="starting"), _RETRY_AFTER)


class WaitingRoom:
    """As a context manager it listens on ``host`` and ``port``. Raises ``OSError`` where it cannot: better before a
    long recovery than after it. With port 0 nobody can know where to ask, so it does not listen."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._runner = web.ServerRunner(web.Server(_answer, access_log=None), shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        if self._port:
            try:
                await web.TCPSite(self._runner, self._host, self._port).start()
            except OSError:
                await self._runner.cleanup()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()
