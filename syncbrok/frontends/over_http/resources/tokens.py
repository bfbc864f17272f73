"""Tokens: list, create, revoke. One that was created is shown once, in the answer that creates it; kept is its hash.

Whoever may do this has the scope ``admin`` in all queues. A token counts, and one that was revoked opens nothing any
more, before this is answered: whoever asks for tokens hears of it from the store.
"""

import secrets
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http.requests import render
from syncbrok.frontends.over_http.requests.auth import now_us
from syncbrok.frontends.over_http.requests.body import read_object
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.middleware import MIDDLEWARE
from syncbrok.frontends.over_http.requests.reach import LOCAL, spoken_by
from syncbrok.frontends.over_http.requests.routes import JSON, Body, Reply, Route
from syncbrok.frontends.over_http.resources.queues import refuse_unknown
from syncbrok.frontends.over_http.shapes.answers import CreatedTokenAnswer, TokenAnswer, TokensAnswer
from syncbrok.frontends.over_http.shapes.bodies import NewTokenBody
from syncbrok.model.errors import Conflict, Malformed
from syncbrok.model.tokens import ADMIN, Token, parse_scopes, parse_token_name
from syncbrok.model.units import duration_between, read_setting, render_time
from syncbrok.space.channels import FROM_FILE, CreateToken, RevokeToken

PREFIX: Final = "sbt_"
"""by which a token is found where it should not be: in a log, in a repository"""
_TOKEN_BYTES: Final = 32
_EXPIRES_S: Final = (1.0, 10 * 365 * 86_400.0)


async def create(context: HttpContext, request: web.Request) -> web.StreamResponse:
    given = await read_object(request, context.options.body_timeout_s)
    if "name" not in given or "scopes" not in given:
        raise Malformed('the body must name the token and its scopes: {"name": "shop", "scopes": ["publish"]}')
    name = parse_token_name(given.pop("name"))
    scopes = parse_scopes(given.pop("scopes"), given.pop("queues", None))
    expires = given.pop("expires", None)
    lasts_s = None if expires is None else read_setting("expires", duration_between(*_EXPIRES_S), expires)
    refuse_unknown(given)
    middleware = request.app[MIDDLEWARE]
    if name in (LOCAL, FROM_FILE):
        raise Conflict(f"{name!r} is what facts name where no token did it; take another name", token=name)
    if any(one.name == name for one in middleware.configured):
        raise Conflict(f"the configuration has a token {name!r}; take another name", token=name)
    text = PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
    created_us = now_us()
    expires_us = 0 if lasts_s is None else created_us + int(lasts_s * 1e6)
    token = Token(name, sha256(text.encode()).hexdigest(), *scopes, created_us, expires_us)
    middleware.let_end(request)
    await context.channels.subscribers.put(CreateToken(token, middleware.configures_operator, spoken_by(request)))
    shown = _shown(token, is_configured=False)
    answer = CreatedTokenAnswer(token=text, **{one: getattr(shown, one) for one in TokenAnswer.__struct_fields__})
    return render.json(answer, 201)


async def revoke(context: HttpContext, request: web.Request) -> web.StreamResponse:
    name = request.match_info["token"]
    middleware = request.app[MIDDLEWARE]
    if any(one.name == name for one in middleware.configured):
        what = f"token {name[:80]!r} is one of the configuration; take it out of http.tokens there, then SIGHUP"
        raise Conflict(what, token=name[:80])
    may_be_open = context.options.may_be_open and not middleware.configured
    middleware.let_end(request)
    item = RevokeToken(name, middleware.configures_operator, may_be_open, spoken_by(request))
    await context.channels.subscribers.put(item)
    return web.Response(status=204)


def _shown(token: Token, *, is_configured: bool) -> TokenAnswer:
    return TokenAnswer(
        name=token.name,
        scopes=token.patterns,
        created_at=render_time(token.created_us) if token.created_us else None,
        expires_at=render_time(token.expires_us) if token.expires_us else None,
        expired=0 < token.expires_us <= now_us(),
        configured=is_configured,
    )


def routes(created: Callable[[], Iterable[Token]]) -> tuple[Route, ...]:
    """``created``: the tokens that were created."""

    async def index(_context: HttpContext, request: web.Request) -> web.StreamResponse:
        shown = [_shown(one, is_configured=True) for one in request.app[MIDDLEWARE].configured]
        shown += [_shown(one, is_configured=False) for one in created()]
        return render.json(TokensAnswer(sorted(shown, key=lambda one: one.name)))

    return (
        Route(
            "GET",
            "/v1/tokens",
            index,
            ADMIN,
            "tokens",
            "List tokens, without what they are",
            {200: Reply("All of them, by name.", TokensAnswer)},
            operation="list_tokens",
        ),
        Route(
            "POST",
            "/v1/tokens",
            create,
            ADMIN,
            "tokens",
            "Create a token",
            {201: Reply("Created; this answer alone shows it.", CreatedTokenAnswer)},
            (409, 429, 503, 507),
            body=Body({JSON: NewTokenBody}),
            operation="create_token",
        ),
        Route(
            "DELETE",
            "/v1/tokens/{token}",
            revoke,
            ADMIN,
            "tokens",
            "Revoke a token: it opens nothing any more, and what is under way with it ends",
            {204: Reply("It is gone.")},
            (404, 409, 429, 503, 507),
            operation="revoke_token",
        ),
    )
