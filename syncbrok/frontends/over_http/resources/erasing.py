"""Erasing many messages of a queue, and what an archive of the log must remove (RULES 32)."""

from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http.publishing.headers import check_key
from syncbrok.frontends.over_http.requests import parameters, render
from syncbrok.frontends.over_http.requests.body import read_object
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.paths import queue_of
from syncbrok.frontends.over_http.requests.reach import spoken_by
from syncbrok.frontends.over_http.requests.routes import JSON, Body, Reply, Route
from syncbrok.frontends.over_http.resources import jobs
from syncbrok.frontends.over_http.resources.queues import refuse_unknown, take_dry_run, take_switch
from syncbrok.frontends.over_http.shapes.bodies import EraseBody
from syncbrok.frontends.over_http.shapes.job_answers import (
    ErasedFactAnswer,
    ErasedFactsAnswer,
    JobAnswer,
    JobPlanAnswer,
)
from syncbrok.model.errors import BadSetting
from syncbrok.model.names import id_text, sequence_of
from syncbrok.model.tokens import ADMIN, READ
from syncbrok.model.units import render_time
from syncbrok.space.channels import EraseMessages


async def erase(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """202 with the job; 200 for a dry run, and where no message has the key."""
    queue = queue_of(request)
    given = await read_object(request, context.options.body_timeout_s)
    dry_run, force = take_dry_run(given, request), take_switch(given, "force", default=False)
    if len([one for one in ("key", "before", "ids") if given.get(one) is not None]) != 1:
        raise BadSetting('say which messages: one of "key", "before" and "ids"', setting="ids")
    key = given.pop("key", None)
    before = jobs.take_bound(given, "before")
    ids = [] if given.get("ids") is None else jobs.take_ids(given)
    given.pop("ids", None)
    refuse_unknown(given)
    context.view.queue(queue)
    await jobs.check_ids(context, request, queue, ids)
    if key is not None and not (isinstance(key, str) and key):
        raise BadSetting("key: expected the text of a key", setting="key")
    read = "" if key is None else check_key(key, "key")
    item = EraseMessages(queue, tuple(map(sequence_of, ids)), read, before, force, dry_run, spoken_by(request))
    return jobs.answer(context, request, await context.channels.messages.put(item), dry_run=dry_run)


async def erased(context: HttpContext, request: web.Request) -> web.StreamResponse:
    page = await context.view.erased(parameters.AFTER_SEQUENCE.in_query(request), parameters.LIMIT.in_query(request))
    shown = [
        ErasedFactAnswer(fact.sequence, render_time(fact.clock_us), [id_text(one) for one in fact.messages],
                         [sequence_of(one) for one in fact.messages])
        for fact in page.items
    ]  # fmt: skip
    return render.json(ErasedFactsAnswer(shown, page.next))


ROUTES: Final = (
    Route(
        "POST",
        "/v1/queues/{queue}/erase",
        erase,
        ADMIN,
        "erasing",
        "Erase messages of a queue, for good",
        {
            200: Reply("A dry run, or there are none: how many.", JobPlanAnswer),
            202: Reply("The job. It goes on over restarts.", JobAnswer, headers=("Location",)),
        },
        (404, 409, 413, 429, 503, 507),
        body=Body({JSON: EraseBody}),
        query=(parameters.DRY_RUN,),
        operation="erase_messages",
    ),
    Route(
        "GET",
        "/v1/log/erased",
        erased,
        READ,
        "erasing",
        "List what an archive of the log must remove",
        {200: Reply("As long as the log says so itself.", ErasedFactsAnswer)},
        query=(parameters.AFTER_SEQUENCE, parameters.LIMIT),
        operation="list_erased",
    ),
)
