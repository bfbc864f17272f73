"""The application: every route, behind the gate. And the way to add those of others (the web page, the events)."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http import openapi
from syncbrok.frontends.over_http.publishing import batch, original, publish
from syncbrok.frontends.over_http.requests.body import JSON_BYTES_MAX, expectation
from syncbrok.frontends.over_http.requests.gate import GATE, SERVER, Gate
from syncbrok.frontends.over_http.requests.routes import Route
from syncbrok.frontends.over_http.requests.surface import PUBLISH, SYNC, HttpOptions, Surface
from syncbrok.frontends.over_http.resources import dead_letters, health, messages, queues, subscribers
from syncbrok.space.channels import Channels
from syncbrok.space.queries.view import View

SURFACE: Final = web.AppKey("surface", Surface)

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
    """The whole surface as an application. ``extra_routes`` are registered, guarded and described like the others."""
    surface = Surface(channels, view, options)
    rows: dict[Callable[[web.Request], Awaitable[web.StreamResponse]], Route] = {}
    gate = Gate(options, rows)
    routes = (*_ROUTES, *health.routes(gate), *extra_routes)
    # Bodies are bounded where they are read; the largest any route takes is the bound for code that does not.
    app = web.Application(middlewares=[gate.middleware()], client_max_size=options.batch_bytes_max)
    app[SURFACE], app[GATE] = surface, gate
    if options.origins:  # the signal costs every answer a little
        app.on_response_prepare.append(gate.allow_reading)
    for route in (*routes, openapi.route(routes)):
        handler = partial(route.handler, surface)
        rows[handler] = route
        headers = {"Server": SERVER, SYNC: options.sync} if route.scope == PUBLISH else {"Server": SERVER}
        bytes_max = getattr(options, route.bytes_max) if route.bytes_max else JSON_BYTES_MAX
        path = route.path.replace("{queue}", _ANY_NAME)
        app.router.add_route(route.method, path, handler, expect_handler=expectation(bytes_max, headers))
        if route.method == "GET":
            app.router.add_route("HEAD", path, handler)
    return app
