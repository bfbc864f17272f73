"""The first broker's three routes, wire-compatible for ever: requests are made of headers, the answer is text.

Its clients declare their queue and subscription each time they start, so an existing one is no error.
"""

from typing import Final, TypeVar

from aiohttp import web

from syncbrok.frontends.over_http.publishing import publish as v1
from syncbrok.frontends.over_http.publishing.headers import check_content_type, parse_hops
from syncbrok.frontends.over_http.requests.body import read_body
from syncbrok.frontends.over_http.requests.context import SYNC, HttpContext
from syncbrok.frontends.over_http.requests.parameters import TEXT, Parameter
from syncbrok.frontends.over_http.requests.reach import check_named, spoken_by
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.model import limits
from syncbrok.model.errors import Conflict, Malformed
from syncbrok.model.message import HOPS, Format, Message, SubscriberSettings
from syncbrok.model.names import MessageId, QueueName, id_text, parse_message_id, parse_queue_name
from syncbrok.model.tokens import ADMIN, PUBLISH
from syncbrok.model.units import parse_endpoint
from syncbrok.space.channels import DeclareQueue, Subscribe

T = TypeVar("T")


async def message(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """``POST /msg``: 200 and the id as text, nothing else."""
    queue = _queue(request)
    check_named(request, queue, PUBLISH)
    parents = _parents(request)
    content = await read_body(request, context.options.content_bytes_max, context.options.body_timeout_s)
    content_type = check_content_type(request.headers.get("Content-Type", ""))
    accepted = await v1.accept(context, request, queue, Message(content, content_type, parents, headers=_hops(request)))
    return web.Response(text=id_text(accepted.ids[0]), headers={SYNC: accepted.sync})


async def queue(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """``POST /queue``: 200 once it is there. This client states no settings, so whatever it has is right."""
    name = _queue(request)
    check_named(request, name, ADMIN)
    try:
        declared = DeclareQueue(name, context.options.queue_defaults, by=spoken_by(request))
        await context.channels.queues.put(declared)
    except Conflict:
        context.view.queue(name)
    return web.Response()


async def subscribe(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """``POST /subscrib``: 200 once the endpoint gets this queue's messages in the original's format.

    A subscription that an operator has changed since (paused, other retries) stays as it is and answers 200; one of
    another format is a ``Conflict``: the client would not understand what it gets.
    """
    name = _queue(request)
    check_named(request, name, ADMIN)
    endpoint = _needed(request, _ENDPOINT, "the URL to deliver to")
    item = Subscribe(name, SubscriberSettings(endpoint, format=Format.ORIGINAL), by=spoken_by(request))
    try:
        await context.channels.subscribers.put(item)
    except Conflict:
        if not _is_subscribed(context, name, endpoint):
            raise
    return web.Response()


def _parents(request: web.Request) -> tuple[MessageId, ...]:
    """The parents. Other headers that might name a parent are refused: ignored, they would lose the order that the
    publisher counts on."""
    for name in request.headers:
        if name.lower().startswith("syncbrok-parent"):
            raise Malformed(f"/msg has no header {name[:80]!r}; ParentId names the parent", header=name[:80])
    given = {one.strip() for one in request.headers.getall(_PARENT_ID.name, ())} - {""}
    if len(given) > 1:
        raise Malformed(
            "ParentId is given more than once: /msg takes one parent, /v1/queues/{queue}/messages many",
            header=_PARENT_ID.name,
        )
    return tuple(map(_PARENT_ID.read, given))


def _hops(request: web.Request) -> tuple[tuple[str, str], ...]:
    given = {one.strip() for one in request.headers.getall(HOPS, ())}
    if len(given) > 1:
        raise Malformed("Syncbrok-Hops is given twice, with different values", header=HOPS)
    return parse_hops(given.pop()) if given else ()


def _queue(request: web.Request) -> QueueName:
    return _needed(request, _QUEUE, "the name of the queue")


def _needed(request: web.Request, parameter: Parameter[T], what: str) -> T:
    """The value of a header. Raises ``Malformed``, saying ``what`` it is, where it is missing."""
    given = request.headers.get(parameter.name)
    if given is None:
        raise Malformed(f"the header {parameter.name!r} is missing: {what}", header=parameter.name)
    return parameter.read(given)


def _is_subscribed(context: HttpContext, queue: QueueName, endpoint: str) -> bool:
    after: str | None = None
    while True:
        page, after = context.view.subscribers(queue, after, limits.list_limit_max)
        for report in page:
            if report.settings.endpoint == endpoint and report.settings.format is Format.ORIGINAL:
                return True
        if after is None:
            return False


_QUEUE: Final = Parameter(
    "queue", "Name of the queue as it is, in UTF-8.", TEXT, parse_queue_name, QueueName(""), required=True
)
_ENDPOINT: Final = Parameter("endpoint", "URL to deliver to.", TEXT, parse_endpoint, "", required=True)
_PARENT_ID: Final = Parameter(
    "ParentId", "A message that must be complete first.", TEXT, parse_message_id, MessageId(b"")
)

ROUTES: Final = (
    Route(
        "POST",
        "/msg",
        message,
        "publish",
        "original",
        "Publish, as the original does",
        {200: Reply("The id, nothing else.", {"type": "string", "format": "uuid"}, "text/plain", (SYNC,))},
        v1.PROBLEMS,
        body=v1.ROUTES[0].body,
        headers=(_QUEUE, _PARENT_ID),
        bytes_max="content_bytes_max",
        narrowed=True,
        operation="publish_as_original",
    ),
    Route(
        "POST",
        "/queue",
        queue,
        "admin",
        "original",
        "Declare a queue, as the original does",
        {200: Reply("It is there.")},
        (429, 503, 507),
        headers=(_QUEUE,),
        narrowed=True,
        operation="declare_queue_as_original",
    ),
    Route(
        "POST",
        "/subscrib",
        subscribe,
        "admin",
        "original",
        "Subscribe an endpoint, as the original does",
        {200: Reply("It is subscribed.")},
        (404, 409, 429, 503, 507),
        headers=(_QUEUE, _ENDPOINT),
        narrowed=True,
        operation="subscribe_as_original",
    ),
)
