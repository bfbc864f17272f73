"""Dead letters of a queue: what could not be delivered, to whom and why (RULES 20), and sending it again."""

from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http.requests import parameters, render
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.paths import queue_of
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.frontends.over_http.requests.time_slices import in_slices
from syncbrok.frontends.over_http.resources.messages import REPLAY_BODY, REPLAY_PROBLEMS, replay_of
from syncbrok.frontends.over_http.shapes.answers import DeadLettersAnswer, ReplayPlanAnswer
from syncbrok.space.channels import Replay


async def index(context: HttpContext, request: web.Request) -> web.StreamResponse:
    queue, after, newest_first = queue_of(request), _AFTER.in_query(request), _ORDER.in_query(request) == "desc"
    page = await context.view.dead_letters(queue, after, parameters.LIMIT.in_query(request), newest_first=newest_first)
    letters = await in_slices(request, render.list_in_steps(page.items, render.dead_letter))
    return render.json(DeadLettersAnswer(letters, page.next))


async def replay(context: HttpContext, request: web.Request) -> web.StreamResponse:
    return await replay_of(context, request, Replay(queue=queue_of(request)))


_ORDER: Final = parameters.choice("order", "In the order accepted, or the newest first.", ("asc", "desc"), "asc")
_AFTER: Final = parameters.sequence(
    "after", "Only those behind this sequence in that order; the `next` of the page before."
)
ROUTES: Final = (
    Route(
        "GET",
        "/v1/queues/{queue}/dead-letters",
        index,
        "read",
        "dead letters",
        "List dead letters of a queue",
        {200: Reply("A page of them.", DeadLettersAnswer)},
        (404,),
        query=(_ORDER, _AFTER, parameters.LIMIT),
        operation="list_dead_letters",
    ),
    Route(
        "POST",
        "/v1/queues/{queue}/dead-letters/replay",
        replay,
        "admin",
        "dead letters",
        "Deliver the dead letters of a queue again, in causal order",
        {200: Reply("What goes out again.", ReplayPlanAnswer)},
        REPLAY_PROBLEMS,
        body=REPLAY_BODY,
        query=(parameters.DRY_RUN,),
        operation="replay_dead_letters",
    ),
)
