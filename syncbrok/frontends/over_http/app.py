"""The application: every route, behind the middleware, and those of others (the web page, the events)."""

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, cast

from aiohttp import web
from aiohttp.typedefs import Middleware

from syncbrok.delivery.leader_lease import SINGLE_NODE, LeaderLease
from syncbrok.frontends.over_http import openapi
from syncbrok.frontends.over_http.publishing import batch, original, publish
from syncbrok.frontends.over_http.requests.body import expectation
from syncbrok.frontends.over_http.requests.context import SYNC, HttpContext, HttpOptions
from syncbrok.frontends.over_http.requests.middleware import MIDDLEWARE, SERVER, HttpMiddleware
from syncbrok.frontends.over_http.requests.routes import Route
from syncbrok.frontends.over_http.resources import (
    actions,
    cancelling,
    dead_letters,
    erasing,
    health,
    history,
    jobs,
    messages,
    own_token,
    queues,
    standing,
    subscribers,
)
from syncbrok.model import limits
from syncbrok.model.tokens import PUBLISH
from syncbrok.space.channels import Channels
from syncbrok.space.queries.view import View

CONTEXT: Final = web.AppKey("context", HttpContext)

_VARIABLE: Final = re.compile(r"\{(\w+)\}")
"""part of a path that a client fills in; aiohttp's own pattern for it lets no braces pass"""

# aiohttp tries the resources below one prefix in this order: the way of every message comes first.
_ROUTES: Final = (
    *publish.ROUTES,
    *batch.ROUTES,
    *original.ROUTES,
    *messages.ROUTES,
    *queues.ROUTES,
    *subscribers.ROUTES,
    *standing.ROUTES,
    *dead_letters.ROUTES,
    *jobs.ROUTES,
    *cancelling.ROUTES,
    *history.ROUTES,
    *erasing.ROUTES,
    *own_token.ROUTES,
    *actions.ROUTES,
)


def make_app(
    channels: Channels,
    view: View,
    options: HttpOptions,
    extra_routes: Sequence[Route] = (),
    lease: LeaderLease = SINGLE_NODE,
) -> web.Application:
    """The whole HTTP API as an application. ``extra_routes`` are registered, guarded and described like the others.
    ``lease``: while it does not hold nothing of the log is read, since it may be old."""
    context = HttpContext(channels, view, options, lease)
    rows: dict[Callable[[web.Request], Awaitable[web.StreamResponse]], Route] = {}
    middleware = HttpMiddleware(options, rows, lease)
    routes = (*_ROUTES, *health.routes(middleware), *extra_routes)
    # Bodies are bounded where they are read; the largest any route takes is the bound for code that does not.
    app = web.Application(middlewares=[middleware.as_aiohttp()], client_max_size=options.batch_bytes_max)
    app[CONTEXT], app[MIDDLEWARE] = context, middleware
    # A signal costs every answer a little.
    if options.origins:
        app.on_response_prepare.append(middleware.allow_reading)
    if options.leader_url:
        app.on_response_prepare.append(middleware.name_leader)
    _register(app, rows, (*routes, openapi.route(routes)), context, options)
    return app


def make_node_app(routes: Sequence[Route], options: HttpOptions, middlewares: Sequence[Middleware]) -> web.Application:
    """The application of a node that follows: ``routes`` alone, which are given no context, guarded as they are where
    it leads. ``middlewares`` come before that."""
    rows: dict[Callable[[web.Request], Awaitable[web.StreamResponse]], Route] = {}
    middleware = HttpMiddleware(options, rows)
    app = web.Application(middlewares=[*middlewares, middleware.as_aiohttp()])
    app[MIDDLEWARE] = middleware
    _register(app, rows, routes, None, options)
    return app


def _register(
    app: web.Application,
    rows: dict[Callable[[web.Request], Awaitable[web.StreamResponse]], Route],
    routes: Sequence[Route],
    context: HttpContext | None,
    options: HttpOptions,
) -> None:
    for route in routes:
        handler = partial(route.handler, cast("HttpContext", context))
        rows[handler] = route
        headers = {"Server": SERVER, SYNC: options.sync} if route.scope == PUBLISH else {"Server": SERVER}
        bytes_max = getattr(options, route.bytes_max) if route.bytes_max else limits.json_bytes_max
        path = _VARIABLE.sub(r"{\1:[^/]+}", route.path)
        app.router.add_route(route.method, path, handler, expect_handler=expectation(bytes_max, headers))
        if route.method == "GET":
            app.router.add_route("HEAD", path, handler)
