"""``POST /v1/queues/{queue}/cancel``: ends what has not been delivered of a selection of messages (RULES 22)."""

from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http.requests import parameters, render
from syncbrok.frontends.over_http.requests.body import read_object
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.paths import queue_of
from syncbrok.frontends.over_http.requests.reach import spoken_by
from syncbrok.frontends.over_http.requests.routes import JSON, Body, Reply, Route
from syncbrok.frontends.over_http.resources.jobs import check_ids, take_ids
from syncbrok.frontends.over_http.resources.queues import refuse_unknown, take_dry_run
from syncbrok.frontends.over_http.shapes.answers import CancelledAnswer
from syncbrok.frontends.over_http.shapes.bodies import CancelMessagesBody
from syncbrok.model.names import sequence_of
from syncbrok.model.tokens import ADMIN
from syncbrok.space.channels import Cancelled, CancelMessages


async def cancel(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """Cancel the messages that ``ids`` names, or say how many that would be."""
    queue = queue_of(request)
    given = await read_object(request, context.options.body_timeout_s)
    ids = take_ids(given)
    dry_run = take_dry_run(given, request)
    refuse_unknown(given)
    context.view.queue(queue)  # or it is the queue that is unknown
    await check_ids(context, request, queue, ids)
    item = CancelMessages(queue, tuple(map(sequence_of, ids)), dry_run, spoken_by(request))
    done: Cancelled = await context.channels.messages.put(item)
    return render.json(CancelledAnswer(messages=done.messages, dropped=done.deliveries, dry_run=dry_run))


ROUTES: Final = (
    Route(
        "POST",
        "/v1/queues/{queue}/cancel",
        cancel,
        ADMIN,
        "messages",
        "Cancel what has not been delivered of a selection of messages",
        {
            200: Reply(
                "How many are, or with dry_run would be, cancelled; those that had ended are not.", CancelledAnswer
            )
        },
        (404, 429, 503, 507),
        body=Body({JSON: CancelMessagesBody}),
        query=(parameters.DRY_RUN,),
        operation="cancel_messages",
    ),
)
"""The one route."""
