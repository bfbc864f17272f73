"""The last hours, minute by minute: of the broker, or of one queue."""

from functools import partial
from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http.requests import parameters, render
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.reach import check_named, narrowed
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.frontends.over_http.requests.time_slices import in_slices
from syncbrok.frontends.over_http.shapes.answers import HistoryAnswer, MinuteAnswer
from syncbrok.model.names import parse_queue_name
from syncbrok.model.tokens import READ
from syncbrok.model.units import render_time
from syncbrok.space.reports import MinuteReport

_QUEUE: Final = parameters.text("queue", "Of this queue alone.")
_HOURS: Final = parameters.number("hours", "How far back.", 24, 1, 24)


async def show(context: HttpContext, request: web.Request) -> web.StreamResponse:
    queue, hours = _QUEUE.in_query(request), _HOURS.in_query(request)
    token = narrowed(request)
    if queue is not None:
        check_named(request, parse_queue_name(queue), READ)
    minutes = await context.view.history(queue, hours, None if token is None else partial(token.may, READ))
    return render.json(HistoryAnswer(queue, await in_slices(request, render.list_in_steps(minutes, _shown))))


def _shown(minute: MinuteReport) -> MinuteAnswer:
    return MinuteAnswer(
        at=render_time(minute.at_us),
        accepted=minute.accepted,
        delivered=minute.delivered,
        failed=minute.failed,
        dead=minute.dead,
        backlog=minute.backlog,
        oldest_age_s=minute.oldest_ms / 1_000,
        p50_ms=minute.p50_ms,
        p99_ms=minute.p99_ms,
    )


ROUTES: Final = (
    Route(
        "GET",
        "/v1/history",
        show,
        "read",
        "events",
        "A day, minute by minute",
        {200: Reply("The oldest minute first; those in which the broker did not run are left out.", HistoryAnswer)},
        (404,),
        query=(_QUEUE, _HOURS),
        narrowed=True,
        operation="get_history",
    ),
)
