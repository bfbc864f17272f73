"""Queues: declare, list, show, change, delete, purge."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from aiohttp import web

from syncbrok.frontends.over_http.requests import parameters, render
from syncbrok.frontends.over_http.requests.body import read_object
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.paths import queue_of, queue_url
from syncbrok.frontends.over_http.requests.reach import LOOKED_ONLY, check_named, name_seen, narrowed, spoken_by
from syncbrok.frontends.over_http.requests.routes import JSON, Body, Reply, Route
from syncbrok.frontends.over_http.shapes.answers import DroppedAnswer, QueueAnswer, QueuesAnswer
from syncbrok.frontends.over_http.shapes.bodies import DryRunBody, NewQueueBody, QueueSettingsBody
from syncbrok.model.errors import BadSetting, Malformed
from syncbrok.model.names import parse_queue_name
from syncbrok.model.settings import parse_queue_changes
from syncbrok.model.tokens import ADMIN, READ
from syncbrok.space.channels import ChangeQueue, Declared, DeclareQueue, DeleteQueue, PurgeQueue
from syncbrok.space.reports import QueueReport


async def create(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """Declare a queue: 201; 200 if it exists with the same settings; 409 if a setting differs."""
    given = await read_object(request, context.options.body_timeout_s)
    name = given.pop("name", None)
    if not isinstance(name, str):
        raise Malformed('the body must name the queue: {"name": "orders"}', setting="name")
    check_named(request, name, ADMIN)
    settings = replace(context.options.queue_defaults, **parse_queue_changes(given, ("name",)))
    item = DeclareQueue(parse_queue_name(name), settings, by=spoken_by(request))
    declared: Declared = await context.channels.queues.put(item)
    (shown,) = await _shown(context, request, [context.view.queue(name)])
    return render.declaration(shown, declared, queue_url(name))


async def _shown(context: HttpContext, request: web.Request, reports: Sequence[QueueReport]) -> list[QueueAnswer]:
    oldest = await context.view.oldest_waiting(reports)
    return [render.queue(one, oldest.get(one.name), name_seen(request, one.changed_by)) for one in reports]


async def index(context: HttpContext, request: web.Request) -> web.StreamResponse:
    after = parameters.AFTER_NAME.in_query(request)
    token = narrowed(request)
    page, following = context.view.queues(
        after and parse_queue_name(after),
        parameters.LIMIT.in_query(request),
        parameters.NAME_TEXT.in_query(request) or "",
        None if token is None else partial(token.may, READ),
    )
    return render.json(QueuesAnswer(await _shown(context, request, page), following))


async def show(context: HttpContext, request: web.Request) -> web.StreamResponse:
    (shown,) = await _shown(context, request, [context.view.queue(queue_of(request))])
    return render.json(shown)


async def change(context: HttpContext, request: web.Request) -> web.StreamResponse:
    name = queue_of(request)
    changes = parse_queue_changes(await read_object(request, context.options.body_timeout_s))
    if changes:
        await context.channels.queues.put(ChangeQueue(name, changes, spoken_by(request)))
    (shown,) = await _shown(context, request, [context.view.queue(name)])
    return render.json(shown)


async def delete(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """Delete a queue: 409 while anything waits, unless ``?force=true`` (RULES 16)."""
    item = DeleteQueue(queue_of(request), _FORCE.in_query(request), spoken_by(request))
    dropped = await context.channels.queues.put(item)
    return render.json(DroppedAnswer(dropped=dropped))


async def purge(context: HttpContext, request: web.Request) -> web.StreamResponse:
    given = await read_object(request, context.options.body_timeout_s)
    dry_run = take_dry_run(given, request)
    refuse_unknown(given)
    dropped = await context.channels.queues.put(PurgeQueue(queue_of(request), dry_run, spoken_by(request)))
    return render.json(DroppedAnswer(dropped=dropped, dry_run=dry_run))


def take_switch(given: dict[str, Any], name: str, *, default: bool) -> bool:
    """``given[name]``, taken out; raises ``BadSetting`` for what is neither true nor false."""
    value = given.pop(name, default)
    if not isinstance(value, bool):
        raise BadSetting(f"{name}: expected true or false, found {str(value)[:40]!r}", setting=name)
    return value


def take_dry_run(given: dict[str, Any], request: web.Request) -> bool:
    """``dry_run`` of the body or the query. A contradiction is refused, or a request that was meant as a look would
    act. Raises ``Malformed`` and ``BadSetting``."""
    asked = parameters.DRY_RUN.in_query(request)
    dry_run = take_switch(given, "dry_run", default=asked)
    if parameters.DRY_RUN.name in request.query and dry_run != asked:
        raise Malformed(
            f"dry_run is {str(asked).lower()} in the query and {str(dry_run).lower()} in the body; say it once",
            parameter="dry_run",
        )
    request[LOOKED_ONLY] = dry_run
    return dry_run


def refuse_unknown(given: dict[str, Any]) -> None:
    """Refuse what is left of a body after all known members were taken out."""
    for name in given:
        raise BadSetting(f"unknown member {name[:80]!r}", setting=name[:80])


_FORCE: Final = parameters.switch("force", "Drop what waits in it.")
_CHANGED: Final = (404, 429, 503, 507)

ROUTES: Final = (
    Route(
        "POST",
        "/v1/queues",
        create,
        "admin",
        "queues",
        "Declare a queue",
        {
            200: Reply("It exists alike.", QueueAnswer, headers=("Location",)),
            201: Reply("Declared.", QueueAnswer, headers=("Location",)),
        },
        (409, 429, 503, 507),
        body=Body({JSON: NewQueueBody}),
        narrowed=True,
        operation="declare_queue",
    ),
    Route(
        "GET",
        "/v1/queues",
        index,
        "read",
        "queues",
        "List queues by name",
        {200: Reply("A page of them.", QueuesAnswer)},
        query=(parameters.LIMIT, parameters.AFTER_NAME, parameters.NAME_TEXT),
        narrowed=True,
        operation="list_queues",
    ),
    Route(
        "GET",
        "/v1/queues/{queue}",
        show,
        "read",
        "queues",
        "Settings and live statistics of a queue",
        {200: Reply("The queue.", QueueAnswer)},
        (404,),
        operation="get_queue",
    ),
    Route(
        "PATCH",
        "/v1/queues/{queue}",
        change,
        "admin",
        "queues",
        "Change settings of a queue",
        {200: Reply("As it is now.", QueueAnswer)},
        _CHANGED,
        body=Body({JSON: QueueSettingsBody}),
        operation="change_queue",
    ),
    Route(
        "DELETE",
        "/v1/queues/{queue}",
        delete,
        "admin",
        "queues",
        "Delete a queue",
        {200: Reply("Deleted; how many deliveries were dropped.", DroppedAnswer)},
        (*_CHANGED, 409),
        query=(_FORCE,),
        operation="delete_queue",
    ),
    Route(
        "POST",
        "/v1/queues/{queue}/purge",
        purge,
        "admin",
        "queues",
        "Drop what waits in a queue",
        {200: Reply("How many messages were, or with dry_run would be, dropped.", DroppedAnswer)},
        _CHANGED,
        body=Body({JSON: DryRunBody}, required=False),
        query=(parameters.DRY_RUN,),
        operation="purge_queue",
    ),
)
