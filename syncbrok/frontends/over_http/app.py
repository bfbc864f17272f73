"""The application: every route, behind the middleware, and those of others (the web page, the events)."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http import openapi
from syncbrok.frontends.over_http.publishing import batch, original, publish
from syncbrok.frontends.over_http.requests.body import expectation
from syncbrok.frontends.over_http.requests.context import PUBLISH, SYNC, HttpContext, HttpOptions
from syncbrok.frontends.over_http.requests.middleware import MIDDLEWARE, SERVER, HttpMiddleware
from syncbrok.frontends.over_http.requests.routes import Route
from syncbrok.frontends.over_http.resources import dead_letters, health, messages, queues, subscribers
from syncbrok.model import limits
from syncbrok.space.channels import Channels
from syncbrok.space.queries.view import View

CONTEXT: Final = web.AppKey("context", HttpContext)

_ANY_NAME: Final = "{queue:[^/]+}"
"""aiohttp's own pattern lets no braces pass"""

# aiohttp tries the resources below one prefix in this order: the way of every message comes first.
_ROUTES: Final = (
    *publish.ROUTES,
    *batch.ROUTES,
    *original.ROUTES,
    *messages.ROUTES,
    *queues.ROUTES,
    *subscribers.ROUTES,
    *dead_letters.ROUTES,
)


def make_app(
    channels: Channels, view: View, options: HttpOptions, extra_routes: Sequence[Route] = ()
) -> web.Application:
    """The whole HTTP API as an application. ``extra_routes`` are registered, guarded and described like the others."""
    context = HttpContext(channels, view, options)
    rows: dict[Callable[[web.Request], Awaitable[web.StreamResponse]], Route] = {}
    middleware = HttpMiddleware(options, rows)
    routes = (*_ROUTES, *health.routes(middleware), *extra_routes)
    # Bodies are bounded where they are read; the largest any route takes is the bound for code that does not.
    app = web.Application(middlewares=[middleware.as_aiohttp()], client_max_size=options.batch_bytes_max)
    app[CONTEXT], app[MIDDLEWARE] = context, middleware
    if options.origins:  # the signal costs every answer a little
        app.on_response_prepare.append(middleware.allow_reading)
    for route in (*routes, openapi.route(routes)):
        handler = partial(route.handler, context)
        rows[handler] = route
        headers = {"Server": SERVER, SYNC: options.sync} if route.scope == PUBLISH else {"Server": SERVER}
        bytes_max = getattr(options, route.bytes_max) if route.bytes_max else limits.json_bytes_max
        path = route.path.replace("{queue}", _ANY_NAME)
        app.router.add_route(route.method, path, handler, expect_handler=expectation(bytes_max, headers))
        if route.method == "GET":
            app.router.add_route("HEAD", path, handler)
    return app
