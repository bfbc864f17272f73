"""What every request passes: no page of another site may act for the browser's user, the token must fit, nothing may be
asked that the route does not know, and whatever goes wrong becomes a problem document."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from syncbrok.frontends.over_http import problems, query
from syncbrok.frontends.over_http.auth import Tokens
from syncbrok.frontends.over_http.routes import Route
from syncbrok.frontends.over_http.surface import PUBLISH, SYNC
from syncbrok.model.errors import Forbidden, SyncbrokError

SERVER = "Syncbrok"
"""instead of the names and versions of what it is built with"""

_OTHER_SITES = ("cross-site", "same-site")
_READING = ("GET", "HEAD")
_STRICT = "/v1/"
"""The routes of ours. The original's never looked at a query, and what asks for the page or the health may add one."""


class Gate:
    """``routes``: handler -> its row of the table, for what it is guarded by. ``sync``: the log's policy, named in
    refusals of publishes too (RULES 1). ``answers`` counts by status."""

    def __init__(self, tokens: Tokens, routes: Mapping[Handler, Route], sync: str) -> None:
        self.answers: Counter[int] = Counter()
        self._tokens = tokens
        self._routes = routes
        self._sync = sync

    def middleware(self) -> Middleware:
        @web.middleware
        async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
            response = await self._answer(request, handler)
            self.answers[response.status] += 1
            if not response.prepared:  # an event stream is under way already
                response.headers["Server"] = SERVER
            return response

        return gate

    def check(self, authorization: str, scope: str) -> None:
        """Raises ``Unauthorized`` or ``Forbidden`` where tokens are configured and this one does not do."""
        if self._tokens:
            self._tokens.check(authorization, scope)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        route = self._routes.get(request.match_info.handler)
        try:
            # Browsers name where a request comes from. Without this any web page could publish to, or empty, a broker
            # that listens on its reader's loopback. Programs do not send the header.
            site = request.headers.get("Sec-Fetch-Site")
            if site in _OTHER_SITES and request.method not in _READING:
                raise Forbidden("a page of another site may not act here")  # noqa: TRY301
            if route is not None:
                if self._tokens and route.scope is not None:
                    self.check(request.headers.get("Authorization", ""), route.scope)
                if request.query_string and route.path.startswith(_STRICT):
                    query.check(request, [one.name for one in route.query])
            return await handler(request)
        except SyncbrokError as error:
            response = problems.answer(error)
        except web.HTTPException as error:
            return problems.from_aiohttp(error, request)
        except Exception as error:  # noqa: BLE001 (whatever it is, the client gets an answer and the log the trace)
            response = problems.answer(problems.unforeseen(request.method, request.path, error))
        if route is not None and route.scope == PUBLISH:
            response.headers[SYNC] = self._sync
        return response


GATE: Final = web.AppKey("gate", Gate)
