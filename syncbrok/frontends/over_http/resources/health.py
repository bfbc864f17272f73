"""For what watches the broker: is it alive, is it ready, how does it do."""

from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http.requests import render
from syncbrok.frontends.over_http.requests.gate import Gate
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.frontends.over_http.requests.slices import in_slices
from syncbrok.frontends.over_http.requests.surface import Surface
from syncbrok.frontends.over_http.resources import metrics
from syncbrok.frontends.over_http.shapes.answers import StatusAnswer
from syncbrok.model.errors import Draining

EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"


async def alive(_surface: Surface, _request: web.Request) -> web.StreamResponse:
    """Answer 200: the process runs and its event loop turns. It means no more than that."""
    return render.json(StatusAnswer("ok"))


async def ready(surface: Surface, _request: web.Request) -> web.StreamResponse:
    """200 while publishes are taken; 503 while it recovers, drains or has failed."""
    state = surface.view.state
    if not surface.view.ready:
        raise Draining(f"not ready: {state}", state=state, retry_after_s=1)
    return render.json(StatusAnswer(state))


def routes(gate: Gate) -> tuple[Route, ...]:
    """``gate`` counts the answers that ``/metrics`` shows."""

    async def measured(surface: Surface, request: web.Request) -> web.StreamResponse:
        report = await in_slices(request, surface.view.statistics_in_steps())
        text = await in_slices(request, metrics.exposition(report, gate.answers))
        return web.Response(body=text, headers={"Content-Type": EXPOSITION})

    return (
        Route("GET", "/healthz", alive, None, "health", "Liveness", {200: Reply("The process runs.", StatusAnswer)}),
        Route(
            "GET",
            "/readyz",
            ready,
            None,
            "health",
            "Readiness",
            {200: Reply("It takes messages.", StatusAnswer)},
            (503,),
        ),
        Route(
            "GET",
            "/metrics",
            measured,
            "read",
            "health",
            "Prometheus metrics",
            {200: Reply("The text format.", {"type": "string"}, "text/plain")},
        ),
    )
