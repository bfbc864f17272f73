"""Publishing one message: the body is the content, byte for byte; everything else is in headers (INTERFACES 3)."""

import time
from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http.publishing import cloud_events
from syncbrok.frontends.over_http.publishing.headers import (
    HEADERS,
    ParsedPublish,
    check_parents_count,
    parse_event,
    parse_publish,
)
from syncbrok.frontends.over_http.requests import render
from syncbrok.frontends.over_http.requests.body import read_body
from syncbrok.frontends.over_http.requests.context import SYNC, HttpContext
from syncbrok.frontends.over_http.requests.paths import queue_of
from syncbrok.frontends.over_http.requests.reach import check_parents
from syncbrok.frontends.over_http.requests.routes import ANY, BYTES, CONTENT, JSON, Body, Reply, Route
from syncbrok.frontends.over_http.shapes.answers import PublishedAnswer, ResultAnswer
from syncbrok.model.errors import SyncbrokError
from syncbrok.model.message import Message
from syncbrok.model.names import MessageId, QueueName, id_text
from syncbrok.space.channels import Accepted, Publish
from syncbrok.space.reports import MessageReport

_UNSYNCED: Final = "interval:"
_ID_BYTES: Final = 16


async def publish(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """``POST /v1/queues/{queue}/messages``."""
    queue = queue_of(request)
    options = context.options
    content = await read_body(request, options.content_bytes_max, options.body_timeout_s)
    parse = parse_event if request.content_type == cloud_events.STRUCTURED else parse_publish
    asked = parse(request.headers.items(), content, options.parents_max, now_us())
    asked = await with_cause(asked, context)
    return await answer_of(context, queue, asked, await accept(context, request, queue, asked.message))


async def accept(context: HttpContext, request: web.Request, queue: QueueName, message: Message) -> Accepted:
    """Publish one message."""
    unit = Publish.one(queue, message)
    try:
        await check_parents(context, request, unit)
        accepted: Accepted = await context.channels.messages.put(unit)
    except SyncbrokError as error:
        raise without_line(error) from None
    return accepted


def without_line(error: SyncbrokError) -> SyncbrokError:
    """``error`` without the line: the Space counts those of a unit, and here there is but one."""
    error.members.pop("line", None)
    return error


async def answer_of(context: HttpContext, queue: QueueName, asked: ParsedPublish, accepted: Accepted) -> web.Response:
    """The answer to a publisher of one message: 201, 200 for a known one, 202 under a weaker policy; with ``Prefer:
    wait`` 200 once its deliveries have ended and 202 when the time is over (RULES 8)."""
    status = status_of(accepted)
    message_id, sequence = id_text(accepted.ids[0]), accepted.sequences[0]
    answer = PublishedAnswer(
        id=message_id,
        queue=queue,
        sequence=sequence,
        state=context.view.message_state(sequence),
        parents=[id_text(parent) for parent in accepted.parents.get(0, ())],
    )
    headers = {"Location": f"/v1/messages/{message_id}", SYNC: accepted.sync}
    report = None
    if asked.wait_s is not None:
        headers["Preference-Applied"] = f"wait={asked.wait_s:g}"
        report = await _ended(context, accepted.ids[0], asked.wait_s)
        status = 202 if report is None else 200
        answer.state = context.view.message_state(sequence)
    if report is not None:
        answer.deliveries = results(report)
    return render.json(answer, status, headers)


def status_of(receipt: Accepted) -> int:
    """Status of the answer to a publish, of one message or of many (RULES 1, 4): 200 where nothing of it is new, 201
    where it is as safe as the policy wants it, 202 where it is less."""
    if len(receipt.known) * _ID_BYTES == len(receipt.id_bytes):
        return 200
    return 202 if receipt.weaker or receipt.sync.startswith(_UNSYNCED) else 201


def results(report: MessageReport) -> list[ResultAnswer]:
    """The result at each subscriber, for a publisher that waited: the delivery with its last attempt only."""
    shown = []
    for one in report.deliveries:
        last = render.attempt(one.attempts[-1]) if one.attempts else None
        shown.append(
            ResultAnswer(
                subscriber=one.subscriber,
                state=one.state,
                attempts=max((row.attempt for row in one.attempts), default=0),
                status=None if last is None else last.status,
                latency_ms=None if last is None else last.latency_ms,
                reason=one.reason or None,
                detail=None if last is None else last.detail,
            )
        )
    return shown


def now_us() -> int:
    return time.time_ns() // 1_000


async def with_cause(asked: ParsedPublish, context: HttpContext) -> ParsedPublish:
    """``asked`` with the parents that ``ce-causationid`` names. Raises ``UnknownParent`` and ``Malformed``."""
    if asked.cause is None:
        return asked
    parents = dict.fromkeys((*asked.message.parents, *await cloud_events.resolve(asked.cause, context.view)))
    check_parents_count(len(parents), context.options.parents_max)
    return asked._replace(message=asked.message._replace(parents=tuple(parents)), cause=None)


async def _ended(context: HttpContext, message_id: MessageId, wait_s: float) -> MessageReport | None:
    """The report of the message once it has ended; None when ``wait_s`` is over first, or waiting fails. Errors are not
    raised: the message is durable by now, so a failed wait must not look like a failed publish."""
    try:
        if await context.view.wait((message_id,), wait_s):
            return await context.view.message(message_id)
    except SyncbrokError:
        pass
    return None


_SENT: Final = ("Location", SYNC)
REPLIES: Final = {
    200: Reply("The idempotency key was known, or the wait has seen every delivery end.", PublishedAnswer, JSON, _SENT),
    201: Reply("Written and fsynced.", PublishedAnswer, JSON, _SENT),
    202: Reply("Accepted under a weaker policy, or the wait is over.", PublishedAnswer, JSON, _SENT),
}
PROBLEMS: Final = (403, 404, 409, 422, 429, 503, 507)

ROUTES: Final = (
    Route(
        "POST",
        "/v1/queues/{queue}/messages",
        publish,
        "publish",
        "messages",
        "Publish a message",
        REPLIES,
        PROBLEMS,
        body=Body(
            {BYTES: CONTENT},
            required=False,
            doc="The content, byte for byte, under any media type, which subscribers get with it. "
            f"{cloud_events.STRUCTURED}: one event, whose data is the content.",
            also={ANY: CONTENT},
        ),
        headers=HEADERS,
        bytes_max="content_bytes_max",
        operation="publish",
    ),
)
