"""``GET /v1/token``: what the token of a request lets its bearer do. The page offers no more than that."""

from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http.requests import render
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.middleware import MIDDLEWARE
from syncbrok.frontends.over_http.requests.reach import LOCAL
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.frontends.over_http.shapes.answers import OwnTokenAnswer
from syncbrok.model.tokens import ANY_SCOPE, EVERYWHERE, SCOPES
from syncbrok.model.units import render_time


async def show(_context: HttpContext, request: web.Request) -> web.StreamResponse:
    """Its name and scopes; all of them where no token is needed."""
    token = request.app[MIDDLEWARE].authorize(request.headers.get("Authorization", ""), ANY_SCOPE)
    if token is None:
        return render.json(OwnTokenAnswer(LOCAL, {scope: [EVERYWHERE] for scope in SCOPES}, None))
    expires_at = render_time(token.expires_us) if token.expires_us else None
    return render.json(OwnTokenAnswer(token.name, token.patterns, expires_at))


ROUTES: Final = (
    Route(
        "GET",
        "/v1/token",
        show,
        ANY_SCOPE,
        "tokens",
        "What the token of this request may do",
        {200: Reply("Its name, its scopes and their queues. Any token may ask.", OwnTokenAnswer)},
        narrowed=True,
        operation="get_own_token",
    ),
)
