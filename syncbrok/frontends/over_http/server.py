"""The listening socket and its lifetime. The application comes from ``app``, the deadlines from ``connection``."""

import asyncio
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http.app import make_app
from syncbrok.frontends.over_http.connection import Connection, Limits
from syncbrok.frontends.over_http.routes import Route
from syncbrok.frontends.over_http.surface import HttpOptions
from syncbrok.space.channels import Channels
from syncbrok.space.view import View

_LINE_BYTES_MAX: Final = 8_190
_HEADERS_MAX: Final = 128


class HttpServer:
    """The HTTP frontend: ``start`` binds and serves, ``stop`` lets answers under way finish."""

    def __init__(
        self, channels: Channels, view: View, options: HttpOptions, extra_routes: Sequence[Route] = ()
    ) -> None:
        self._options = options
        self._app = make_app(channels, view, options, extra_routes)
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._limits = Limits(options.headers_timeout_s, options.connections_max, options.connections_per_address_max)

    @property
    def port(self) -> int:
        """The port it listens on, also where port 0 was asked for."""
        assert self._listener is not None, "not started"
        return int(self._listener.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        host = self._options.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many there are now."""
        return self._limits.count

    async def start(self) -> None:
        """Bind and serve. Raises ``OSError`` where the address cannot be had."""
        options = self._options
        # The runner sees to start-up, shutdown and waiting for answers under way. It can only be made to build
        # aiohttp's own connections, so the listening socket is opened here.
        self._runner = web.AppRunner(self._app, access_log=None, shutdown_timeout=options.stop_timeout_s)
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        loop = asyncio.get_running_loop()

        def connect() -> Connection:
            return Connection(
                server,
                self._limits,
                loop=loop,
                access_log=None,
                keepalive_timeout=options.keepalive_timeout_s,
                max_line_size=_LINE_BYTES_MAX,
                max_field_size=_LINE_BYTES_MAX,
                max_headers=_HEADERS_MAX,
                lingering_time=options.linger_s,
                auto_decompress=False,  # the content is kept as it came; see ``body.refuse_early``
            )

        self._listener = await loop.create_server(connect, options.host, options.port, backlog=1_024)

    async def stop(self) -> None:
        """Listen no more, close what rests, give answers under way ``stop_timeout_s``."""
        if self._listener is not None:
            self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()
