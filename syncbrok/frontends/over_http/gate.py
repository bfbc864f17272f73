"""What every request passes: no page of another site may act for the browser's user, the token must fit, and whatever
goes wrong becomes a problem document."""

from collections import Counter
from collections.abc import Mapping

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from syncbrok.frontends.over_http import problems
from syncbrok.frontends.over_http.auth import Tokens
from syncbrok.frontends.over_http.surface import PUBLISH, SYNC
from syncbrok.model.errors import Forbidden, SyncbrokError

SERVER = "Syncbrok"
"""instead of the names and versions of what it is built with"""

_OTHER_SITES = ("cross-site", "same-site")
_READING = ("GET", "HEAD")


class Gate:
    """``scopes``: handler -> the scope it needs; a handler that is not in it is open. ``sync``: the log's policy,
    named in refusals of publishes too (RULES 1). ``answers`` counts by status."""

    def __init__(self, tokens: Tokens, scopes: Mapping[Handler, str], sync: str) -> None:
        self.answers: Counter[int] = Counter()
        self._tokens = tokens
        self._scopes = scopes
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
        try:
            # Browsers name where a request comes from. Without this any web page could publish to, or empty, a broker
            # that listens on its reader's loopback. Programs do not send the header.
            site = request.headers.get("Sec-Fetch-Site")
            if site in _OTHER_SITES and request.method not in _READING:
                raise Forbidden("a page of another site may not act here")  # noqa: TRY301
            if self._tokens:
                scope = self._scopes.get(request.match_info.handler)
                if scope is not None:
                    self.check(request.headers.get("Authorization", ""), scope)
            return await handler(request)
        except SyncbrokError as error:
            response = problems.answer(error)
        except web.HTTPException as error:
            return problems.from_aiohttp(error, request)
        except Exception as error:  # noqa: BLE001 (whatever it is, the client gets an answer and the log the trace)
            response = problems.answer(problems.unforeseen(request.method, request.path, error))
        if self._scopes.get(request.match_info.handler) == PUBLISH:
            response.headers[SYNC] = self._sync
        return response
