"""Liveness, readiness and metrics, for what watches the broker."""

import asyncio
from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http.requests import render
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.middleware import HttpMiddleware, check_lease
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.frontends.over_http.requests.time_slices import in_slices
from syncbrok.frontends.over_http.resources import metrics
from syncbrok.frontends.over_http.shapes.answers import StatusAnswer
from syncbrok.model.errors import Draining

EXPOSITION: Final = "text/plain; version=0.0.4; charset=utf-8"


async def alive(_context: HttpContext, _request: web.Request) -> web.StreamResponse:
    """Answer 200: the process runs and its event loop turns. It means no more than that."""
    return render.json(StatusAnswer("ok"))


async def ready(context: HttpContext, _request: web.Request) -> web.StreamResponse:
    """Answer 200 while publishes are taken, 503 while the Space recovers, drains or has failed, or nobody can say
    whether it still leads."""
    state = context.view.state
    if not context.view.ready:
        raise Draining(f"not ready: {state}", state=state, retry_after_s=1)
    check_lease(context.lease)
    return render.json(StatusAnswer(state))


LIVENESS: Final = Route(
    "GET",
    "/healthz",
    alive,
    None,
    "health",
    "Liveness",
    {200: Reply("The process runs.", StatusAnswer)},
    of_node=True,
    operation="get_healthz",
)


def routes(middleware: HttpMiddleware) -> tuple[Route, ...]:
    """The three routes. ``middleware`` counts the answers that ``/metrics`` shows."""
    labels = metrics.MetricLabels()

    async def measured(context: HttpContext, request: web.Request) -> web.StreamResponse:
        report = await in_slices(request, context.view.statistics_in_steps())
        await asyncio.sleep(0)  # the slice before this one has taken all of its time
        oldest_us = await context.view.oldest_us(report.queues)
        await asyncio.sleep(0)
        refused = middleware.refused_tokens.counts
        text = await in_slices(request, metrics.exposition(report, middleware.answers, labels, refused, oldest_us))
        middleware.scrapes.answered()
        return web.Response(body=text + context.options.node_metrics(), headers={"Content-Type": EXPOSITION})

    return (
        LIVENESS,
        Route(
            "GET",
            "/readyz",
            ready,
            None,
            "health",
            "Readiness",
            {200: Reply("It takes messages.", StatusAnswer)},
            (503,),
            of_node=True,
            operation="get_readyz",
        ),
        Route(
            "GET",
            "/metrics",
            measured,
            "read",
            "health",
            "Prometheus metrics",
            {200: Reply("The text format.", {"type": "string"}, "text/plain")},
            of_node=True,
            operation="get_metrics",
        ),
    )
