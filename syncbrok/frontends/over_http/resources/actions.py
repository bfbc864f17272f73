"""``GET /v1/actions``: who did what, as the log tells it, by person, kind, queue and time."""

from functools import partial
from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http.requests import parameters, render
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.reach import check_named, name_seen, narrowed
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.frontends.over_http.requests.time_slices import pauses_of
from syncbrok.frontends.over_http.shapes.job_answers import ActionAnswer, ActionsAnswer
from syncbrok.model.jobs import job_id
from syncbrok.model.names import id_text
from syncbrok.model.tokens import READ
from syncbrok.model.units import render_time
from syncbrok.space.queries.actions import ACTIONS, SoughtActions
from syncbrok.space.reports import ActionReport


async def index(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """A page of what was done. A name that the token may not know has done nothing."""
    queue, by, token = _QUEUE.in_query(request), _BY.in_query(request), narrowed(request)
    if queue is not None:
        check_named(request, queue, READ)
    sought = SoughtActions(
        by,
        _ACTION.in_query(request),
        queue,
        parameters.SINCE.in_query(request),
        parameters.UNTIL.in_query(request),
        _ORDER.in_query(request) == "desc",
    )
    if by is not None and name_seen(request, by) is None:
        return render.json(ActionsAnswer([], None))
    page = await context.view.actions(
        sought,
        parameters.AFTER_FOUND.in_query(request),
        parameters.LIMIT.in_query(request),
        None if token is None else partial(token.may, READ),
        pauses_of(request),
    )
    return render.json(ActionsAnswer([_shown(request, one) for one in page.items], page.next))


def _shown(request: web.Request, one: ActionReport) -> ActionAnswer:
    return ActionAnswer(
        sequence=one.sequence,
        time=render_time(one.time_us),
        by=name_seen(request, one.by),
        action=one.action,
        queue=one.queue or None,
        subscriber=one.subscriber or None,
        message=None if one.message is None else id_text(one.message),
        messages=one.messages,
        job=job_id(one.job) if one.job else None,
    )


_BY: Final = parameters.text("by", "Only what this token did; `local` without tokens, `file` for a bootstrap file.")
_ACTION: Final = parameters.choice("action", "Only what is of this kind.", ACTIONS)
_QUEUE: Final = parameters.text("queue", "Only what was done in this queue, which may be deleted since.")
_ORDER: Final = parameters.choice("order", "The newest first, or the oldest.", ("desc", "asc"), "desc")
ROUTES: Final = (
    Route(
        "GET",
        "/v1/actions",
        index,
        READ,
        "events",
        "Who did what",
        {200: Reply("A page; it may be short, or empty, though `next` says that more follow.", ActionsAnswer)},
        (503,),
        query=(
            _BY,
            _ACTION,
            _QUEUE,
            parameters.SINCE,
            parameters.UNTIL,
            _ORDER,
            parameters.AFTER_FOUND,
            parameters.LIMIT,
        ),
        narrowed=True,
        operation="list_actions",
    ),
)
"""The one route."""
