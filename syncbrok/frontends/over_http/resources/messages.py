"""Messages: read a queue, show one and why it waits, its content, its tree; find, cancel, replay, retry now."""

from functools import partial
from typing import Any, Final, Literal

from aiohttp import web

from syncbrok.frontends.over_http.requests import parameters, render
from syncbrok.frontends.over_http.requests.body import read_object
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.paths import queue_of
from syncbrok.frontends.over_http.requests.reach import (
    as_seen,
    check_message,
    check_named,
    check_report,
    hidden,
    narrowed,
    spoken_by,
)
from syncbrok.frontends.over_http.requests.routes import ANY, BYTES, CONTENT, JSON, Body, Reply, Route
from syncbrok.frontends.over_http.requests.time_slices import in_slices, pauses_of
from syncbrok.frontends.over_http.resources.queues import refuse_unknown, take_dry_run, take_switch
from syncbrok.frontends.over_http.shapes.answers import (
    DroppedAnswer,
    MessageAnswer,
    MessagesAnswer,
    ReplayPlanAnswer,
    RetriedAnswer,
)
from syncbrok.frontends.over_http.shapes.bodies import ReplayBody, RetryBody
from syncbrok.frontends.over_http.shapes.delivery_answers import CriticalPathAnswer, TreeAnswer
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting, Forbidden, Malformed
from syncbrok.model.names import MessageId, SubscriberId, id_text, parse_message_id, parse_subscriber_id
from syncbrok.model.tokens import ADMIN, READ
from syncbrok.space.channels import Cancel, EraseMessage, Replay, ReplayPlan, RetryMessage
from syncbrok.space.queries.search import DELIVERY_STATES, MESSAGE_STATES, REASONS, Sought

_STATE: Final = parameters.choice("state", "Only those in this state.", MESSAGE_STATES)
_KEY: Final = parameters.text("key", "Its Syncbrok-Key.")
_IDEMPOTENCY_KEY: Final = parameters.text("idempotency_key", "Its idempotency key.")
_QUEUE: Final = parameters.text("queue", "Only those of this queue.")
_AT: Final = parameters.text("subscriber", "Only those for this subscriber of the queue, which is named too.")
_ANY_STATE: Final = parameters.choice(
    "state",
    "Only those in this state: with `subscriber` that of the delivery there, else that of the message.",
    tuple(dict.fromkeys((*MESSAGE_STATES, *DELIVERY_STATES))),
)
_REASON: Final = parameters.choice(
    "reason", "Only those of which the delivery to `subscriber`, else any delivery, ended with this reason.", REASONS
)
_TEXT: Final = parameters.text(
    "text", "Only those with this in the id, key, content type, a header or the content; ASCII letters in either case."
)
_ORDER: Final = parameters.choice("order", "The newest first, or the oldest.", ("desc", "asc"), "desc")
_SOUGHT: Final = (
    _KEY, _IDEMPOTENCY_KEY, _QUEUE, _AT, _ANY_STATE, _REASON, _TEXT, parameters.SINCE, parameters.UNTIL
)  # fmt: skip
_DIRECTION: Final = parameters.choice("direction", "Parents or children.", ("up", "down"), "down")
_FORCE: Final = parameters.switch("force", "Also where it has not ended: its deliveries are dropped.")
_DEPTH: Final = parameters.number("depth", "How many edges away.", 16, 1, 10_000)

_CONTENT_HEADERS: Final = {
    # The content is whatever a publisher sent: a browser must neither guess at it nor run it in this origin.
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
}


def message_id(request: web.Request) -> MessageId:
    """The id in the path; raises ``Malformed``."""
    return parse_message_id(request.match_info["id"])


async def of_queue(context: HttpContext, request: web.Request) -> web.StreamResponse:
    page = await context.view.messages(
        queue_of(request),
        parameters.AFTER_SEQUENCE.in_query(request),
        parameters.LIMIT.in_query(request),
        _STATE.in_query(request),
        pauses_of(request),
    )
    shown = as_seen(request, READ, page.items)
    return render.json(MessagesAnswer(await in_slices(request, render.messages_in_steps(shown)), page.next))


async def show(context: HttpContext, request: web.Request) -> web.StreamResponse:
    report = check_report(request, READ, await context.view.message(message_id(request), pauses_of(request)))
    return render.json(await in_slices(request, render.message_in_steps(report)))


async def content(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """The bytes as they were published, under their own media type."""
    id_ = message_id(request)
    await check_message(context, request, id_, READ)
    found = await context.view.content(id_)
    headers = {
        "Content-Type": found.content_type or "application/octet-stream",
        "Content-Disposition": f'attachment; filename="{id_text(id_)}"',
        **_CONTENT_HEADERS,
    }
    return web.Response(body=found.content, headers=headers)


async def tree(context: HttpContext, request: web.Request) -> web.StreamResponse:
    id_ = message_id(request)
    direction: Literal["up", "down"] = "up" if _DIRECTION.in_query(request) == "up" else "down"
    depth = _DEPTH.in_query(request)
    await check_message(context, request, id_, READ)
    found = await context.view.tree(id_, direction, depth, pauses_of(request))
    shown = partial(render.tree_node, token=narrowed(request))
    nodes = await in_slices(request, render.list_in_steps(found.nodes, shown))
    return render.json(TreeAnswer(id_text(id_), direction, depth, nodes, found.truncated))


async def critical_path(context: HttpContext, request: web.Request) -> web.StreamResponse:
    id_ = message_id(request)
    await check_message(context, request, id_, READ)
    path = await context.view.critical_path(id_, pauses_of(request))
    shown = partial(render.path_step, took_us=path.took_us, token=narrowed(request))
    steps = await in_slices(request, render.list_in_steps(path.steps, shown))
    return render.json(render.critical_path(id_, path, steps))


async def find(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """A page of messages, newest first unless ``order`` says otherwise; what was looked at is behind ``next``."""
    position, limit = parameters.AFTER_FOUND.in_query(request), parameters.LIMIT.in_query(request)
    sought = _sought(request)
    if sought == Sought(newest_first=sought.newest_first):
        raise Malformed(f"say what to look for: ?{'=... or ?'.join(one.name for one in _SOUGHT)}=...")
    if sought == Sought(key=sought.key, idempotency_key=sought.idempotency_key):
        page = await context.view.find_page(
            sought.key, sought.idempotency_key, position or None, limit, pauses_of(request)
        )
    else:
        if sought.queue is not None:
            check_named(request, sought.queue, READ)
        token = narrowed(request)
        may_see = None if token is None else partial(token.may, READ)
        page = await context.view.search(sought, position, limit, may_see, pauses_of(request))
    shown = as_seen(request, READ, page.items)
    return render.json(MessagesAnswer(await in_slices(request, render.messages_in_steps(shown)), page.next))


def _sought(request: web.Request) -> Sought:
    """Raises ``Malformed`` and ``BadSetting``."""
    subscriber, text = _AT.in_query(request), _TEXT.in_query(request)
    if text is not None and len(text.encode("utf-8", "surrogatepass")) > limits.search_text_bytes_max:
        raise Malformed(f"text: at most {limits.search_text_bytes_max} bytes are looked for", parameter="text")
    return Sought(
        queue=_QUEUE.in_query(request) or None,
        subscriber=parse_subscriber_id(subscriber) if subscriber else None,
        state=_ANY_STATE.in_query(request),
        reason=_REASON.in_query(request),
        text=text or None,
        key=_KEY.in_query(request) or None,
        idempotency_key=_IDEMPOTENCY_KEY.in_query(request) or None,
        since=parameters.SINCE.in_query(request),
        until=parameters.UNTIL.in_query(request),
        newest_first=_ORDER.in_query(request) == "desc",
    )


async def cancel(context: HttpContext, request: web.Request) -> web.StreamResponse:
    id_ = message_id(request)
    await check_message(context, request, id_, ADMIN)
    dropped = await context.channels.messages.put(Cancel(id_, spoken_by(request)))
    return render.json(DroppedAnswer(id=id_text(id_), dropped=dropped))


async def erase(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """Take its content away, for good: 409 where it has not ended, unless ``?force=true`` (RULES 32)."""
    id_ = message_id(request)
    await check_message(context, request, id_, ADMIN)
    item = EraseMessage(id_, _FORCE.in_query(request), spoken_by(request))
    dropped = await context.channels.messages.put(item)
    return render.json(DroppedAnswer(id=id_text(id_), dropped=dropped))


async def replay(context: HttpContext, request: web.Request) -> web.StreamResponse:
    id_ = message_id(request)
    await check_message(context, request, id_, ADMIN)
    return await replay_of(context, request, Replay(id=id_))


async def replay_of(context: HttpContext, request: web.Request, asked: Replay) -> web.StreamResponse:
    """The result of replay ``asked``, narrowed by the body; only planned with ``dry_run``."""
    given = await read_object(request, context.options.body_timeout_s)
    asked = asked._replace(
        subscriber=take_subscriber(given),
        descendants=take_descendants(given, request),
        dry_run=take_dry_run(given, request),
        by=spoken_by(request),
    )
    refuse_unknown(given)
    plan: ReplayPlan = await context.channels.messages.put(asked)
    if others := await hidden(context, request, ADMIN, [id_ for id_, _ in plan.order]):
        plan = plan._replace(order=tuple((id_, () if id_ in others else to) for id_, to in plan.order))
    return render.json(await in_slices(request, render.plan_in_steps(plan, dry_run=asked.dry_run)))


async def retry(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """Try this message now where it waits for another attempt, everywhere or at one subscriber (RULES 26)."""
    id_ = message_id(request)
    await check_message(context, request, id_, ADMIN)
    given = await read_object(request, context.options.body_timeout_s)
    asked = RetryMessage(id_, take_subscriber(given), take_dry_run(given, request))
    refuse_unknown(given)
    return render.retried(await context.channels.messages.put(asked), dry_run=asked.dry_run)


def take_descendants(given: dict[str, Any], request: web.Request) -> bool:
    """``descendants``, taken out. Raises ``BadSetting``, and ``Forbidden`` where the token is for some queues only."""
    descendants = take_switch(given, "descendants", default=False)
    if descendants and narrowed(request) is not None:
        what = "descendants may stand in other queues than those of this token; leave them out"
        raise Forbidden(what, scope=ADMIN)
    return descendants


def take_subscriber(given: dict[str, Any]) -> SubscriberId | None:
    """``subscriber``, taken out; None for all. Raises ``BadSetting`` and ``Malformed``."""
    value = given.pop("subscriber", None)
    if value is None:
        return None
    if not isinstance(value, str):
        raise BadSetting("subscriber: expected the id of a subscriber, or null for all", setting="subscriber")
    return parse_subscriber_id(value)


_ONE: Final = "/v1/messages/{id}"

REPLAY_BODY: Final = Body({JSON: ReplayBody}, required=False)
REPLAY_PROBLEMS: Final = (404, 409, 410, 429, 503, 507)

ROUTES: Final = (
    Route(
        "GET",
        "/v1/queues/{queue}/messages",
        of_queue,
        "read",
        "messages",
        "Read a queue from any point",
        {200: Reply("A page in the order accepted.", MessagesAnswer)},
        (404,),
        query=(
            parameters.AFTER_SEQUENCE,
            parameters.LIMIT,
            _STATE,
        ),
        operation="list_messages",
    ),
    Route(
        "GET",
        "/v1/messages",
        find,
        "read",
        "messages",
        "Find by key, queue, state, reason, text and time",
        {
            200: Reply(
                "A page of what was found. It may have fewer than `limit`, or none, though more follow: only `next` "
                "says whether there is more to look at.",
                MessagesAnswer,
            )
        },
        (404,),
        query=(*_SOUGHT, _ORDER, parameters.AFTER_FOUND, parameters.LIMIT),
        narrowed=True,
        operation="find_messages",
    ),
    Route(
        "GET",
        _ONE,
        show,
        "read",
        "messages",
        "State, attempts, and why it waits",
        {200: Reply("The message.", MessageAnswer)},
        (404, 410),
        narrowed=True,
        operation="get_message",
    ),
    Route(
        "GET",
        _ONE + "/content",
        content,
        "read",
        "messages",
        "The content, byte for byte",
        {200: Reply("Under the media type it was published with.", CONTENT, BYTES, also={ANY: CONTENT})},
        (404, 410),
        narrowed=True,
        operation="get_content",
    ),
    Route(
        "DELETE",
        _ONE + "/content",
        erase,
        "admin",
        "messages",
        "Erase the content, the headers and the keys",
        {200: Reply("It is erased; how many deliveries that dropped.", DroppedAnswer)},
        (404, 409, 410, 429, 503, 507),
        query=(_FORCE,),
        narrowed=True,
        operation="erase_content",
    ),
    Route(
        "GET",
        _ONE + "/tree",
        tree,
        "read",
        "messages",
        "The causal graph above or below it",
        {200: Reply("Nearest first.", TreeAnswer)},
        (404, 410),
        query=(_DIRECTION, _DEPTH),
        narrowed=True,
        operation="get_tree",
    ),
    Route(
        "GET",
        _ONE + "/critical-path",
        critical_path,
        "read",
        "messages",
        "The chain of waits that made it late",
        {200: Reply("From where it begins.", CriticalPathAnswer)},
        (404, 410),
        narrowed=True,
        operation="get_critical_path",
    ),
    Route(
        "DELETE",
        _ONE,
        cancel,
        "admin",
        "messages",
        "Cancel what has not been delivered",
        {200: Reply("How many deliveries were dropped.", DroppedAnswer)},
        (404, 409, 410, 429, 503, 507),
        narrowed=True,
        operation="cancel_message",
    ),
    Route(
        "POST",
        _ONE + "/replay",
        replay,
        "admin",
        "messages",
        "Deliver again, in causal order",
        {200: Reply("What goes out again.", ReplayPlanAnswer)},
        REPLAY_PROBLEMS,
        body=REPLAY_BODY,
        query=(parameters.DRY_RUN,),
        narrowed=True,
        operation="replay_message",
    ),
    Route(
        "POST",
        _ONE + "/retry",
        retry,
        "admin",
        "messages",
        "Try a message again now where it waits for another attempt",
        {200: Reply("At how many subscribers it is, or with dry_run would be, due now.", RetriedAnswer)},
        REPLAY_PROBLEMS,
        body=Body({JSON: RetryBody}, required=False),
        query=(parameters.DRY_RUN,),
        narrowed=True,
        operation="retry_message",
    ),
)
