"""The one table from errors to HTTP: error class -> status and title, as RFC 9457 problem documents.

A problem's ``type`` is ``urn:syncbrok:problem:SLUG`` with the slug of the error class and never changes; ``detail``
says what happened to this request; ``mend`` says what to do about it. Other members are those of the error.
"""

import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, NamedTuple, NotRequired, TypedDict

import orjson
from aiohttp import web
from msgspec import Meta

from syncbrok.frontends.over_http.leases import LeaseOver
from syncbrok.frontends.over_http.requests.authorities import Misdirected
from syncbrok.frontends.over_http.shapes.answers import MistakeAnswer
from syncbrok.model import errors

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:syncbrok:problem:"


class UnsupportedMedia(errors.ClientFault):
    """A media type or content coding this route does not take."""

    slug = "unsupported-media-type"


class TooSlow(errors.ClientFault):
    """The request was not there in time."""

    slug = "request-timeout"


class HeadersTooLarge(errors.ClientFault):
    """Its URL, or a header, or all of them together are beyond what a request may have."""

    slug = "headers-too-large"


class UnknownRoute(errors.ClientFault):
    slug = "unknown-route"


class MethodNotAllowed(errors.ClientFault):
    slug = "method-not-allowed"


class ProblemAnswer(TypedDict):
    """RFC 9457. Other members say what to mend."""

    type: Annotated[str, Meta(description=f"Stable: {TYPE_PREFIX}SLUG.")]
    title: str
    status: int
    detail: NotRequired[str]
    mend: NotRequired[Annotated[str, Meta(description="What to do about it.")]]
    line: NotRequired[Annotated[int, Meta(description="Of the batch, from 1.")]]
    errors: NotRequired[list[MistakeAnswer]]


class ProblemRow(NamedTuple):
    status: int
    title: str
    mend: str = ""


TABLE: dict[type[errors.SyncbrokError], ProblemRow] = {
    errors.ClientFault: ProblemRow(400, "The request is wrong"),
    errors.Malformed: ProblemRow(400, "The request cannot be read"),
    errors.BadSetting: ProblemRow(400, "A setting is unknown or has a value it cannot have"),
    errors.BadName: ProblemRow(400, "A name breaks the rules for names"),
    errors.Unauthorized: ProblemRow(401, "A token is needed", "send Authorization: Bearer TOKEN"),
    errors.WrongToken: ProblemRow(401, "A token is needed", "send Authorization: Bearer TOKEN"),
    errors.Forbidden: ProblemRow(403, "This is not allowed"),
    errors.UnknownQueue: ProblemRow(404, "There is no such queue", 'POST /v1/queues {"name": "..."} declares one'),
    errors.UnknownSubscriber: ProblemRow(
        404, "There is no such subscriber", "GET /v1/queues/{queue}/subscribers lists those of the queue"
    ),
    errors.UnknownMessage: ProblemRow(
        404, "There is no such message", "use an id that a publish to this broker answered"
    ),
    errors.UnknownJob: ProblemRow(404, "There is no such job", "GET /v1/jobs lists those of the last seven days"),
    errors.UnknownToken: ProblemRow(404, "There is no such token", "GET /v1/tokens lists those there are"),
    errors.UnknownReader: ProblemRow(404, "There is no such reader", "GET /v1/log/readers lists those there are"),
    errors.UnknownSegment: ProblemRow(404, "There is no such segment here"),
    UnknownRoute: ProblemRow(404, "There is nothing here", "GET /openapi.json lists every route"),
    MethodNotAllowed: ProblemRow(405, "This method is not for this route", "GET /openapi.json lists every route"),
    TooSlow: ProblemRow(408, "The request took too long to arrive", "send it again, faster"),
    errors.Conflict: ProblemRow(409, "It exists already and differs, or it is in use"),
    errors.IdempotencyConflict: ProblemRow(
        409,
        "The idempotency key was used for something else",
        "give each message a key of its own; repeat a publish with the same content, parents and settings",
    ),
    errors.FirstLost: ProblemRow(
        409,
        "The message that has the idempotency key is damaged",
        "it was accepted: do not send it again; if it must go out once more, publish it with a new key",
    ),
    errors.Loop: ProblemRow(
        409,
        "It goes round in a loop",
        "take out the subscriber that publishes it again; whoever means to pass messages on that far may drop the "
        "header Syncbrok-Hops, and answers for their end",
    ),
    errors.SubscriberStopped: ProblemRow(
        409, "The subscriber is paused or disabled", 'PATCH {"paused": false} resumes it, and makes what has failed due'
    ),
    LeaseOver: ProblemRow(410, "The lease is over", "pull again: the message is, or was, lent to another"),
    errors.Gone: ProblemRow(410, "Retention has dropped it"),
    errors.ContentErased: ProblemRow(410, "It was erased"),
    errors.PastRetention: ProblemRow(410, "The retention of its queue is over"),
    errors.Lost: ProblemRow(410, "The log is damaged where it stood", "a backup of the log may still have it"),
    errors.TooLarge: ProblemRow(413, "It is too large"),
    UnsupportedMedia: ProblemRow(415, "The body has a form this route does not take"),
    Misdirected: ProblemRow(
        421,
        "The request is for another host",
        "call the broker by its address or by localhost, or add the name to http.hosts in config/broker.yml",
    ),
    HeadersTooLarge: ProblemRow(431, "The request's headers are too large", "what is long belongs into the body"),
    errors.UnknownParent: ProblemRow(
        422,
        "A parent was never accepted",
        "publish the parent first and name it by the id that publish answered",
    ),
    errors.Overloaded: ProblemRow(429, "The broker has too much in hand", "send it again after Retry-After seconds"),
    errors.BacklogFull: ProblemRow(
        429,
        "The queue's backlog is full",
        "nothing was kept: send it again after Retry-After seconds; GET /v1/queues/{queue} shows what waits, and PATCH "
        "changes max_backlog",
    ),
    errors.Crowded: ProblemRow(503, "There is no room for another connection", "try again after Retry-After seconds"),
    errors.BrokerFault: ProblemRow(503, "The broker cannot do it now", "send it again later"),
    errors.Draining: ProblemRow(
        503, "The broker is starting or stopping", "send it again when GET /readyz answers 200"
    ),
    errors.NoLeader: ProblemRow(
        503, "No node of the cluster leads now", "nothing was kept: send it again later, here or to another node"
    ),
    errors.NoQuorum: ProblemRow(
        503, "The cluster does not answer now", "ask again later, here or at another node; look at GET /v1/cluster"
    ),
    errors.LogUnreadable: ProblemRow(
        503, "The disk reads nothing of the log now", "ask again later; look at the disk of the broker"
    ),
    errors.LogUnavailable: ProblemRow(
        503,
        "The log has failed",
        "whether it was kept is unknown: send it again later, a message with the same Idempotency-Key",
    ),
    errors.NoDescriptors: ProblemRow(
        503, "No file can be opened now", "nothing was kept: send it again later; raise the limit of open files"
    ),
    errors.LogFull: ProblemRow(507, "The disk is full", "nothing was kept: send it again when there is room"),
    errors.LogFailed: ProblemRow(
        503,
        "The log has failed",
        "whether it was kept is unknown: send it again later, a message with the same Idempotency-Key",
    ),
    errors.SyncbrokError: ProblemRow(500, "The broker failed"),
}


class Internal(errors.SyncbrokError):
    """An unforeseen error. The log has the trace; the answer never does."""

    slug = "internal"


def row_of(kind: type[errors.SyncbrokError]) -> ProblemRow:
    """The row of ``kind``, or of the nearest class above it that has one."""
    return next(TABLE[ancestor] for ancestor in kind.__mro__ if ancestor in TABLE)


def document(error: errors.SyncbrokError) -> tuple[int, bytes]:
    """Status and JSON text of the problem document for ``error``."""
    row = row_of(type(error))
    members = {name: value for name, value in error.members.items() if value is not None}
    if row.mend:
        members.setdefault("mend", row.mend)
    always: ProblemAnswer = {
        "type": TYPE_PREFIX + error.slug,
        "title": row.title,
        "status": row.status,
        "detail": error.detail,
    }
    return row.status, _written({**members, **always})


def _written(problem: Mapping[str, object]) -> bytes:
    try:
        return orjson.dumps(problem, default=str, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # a header that is no UTF-8 has a surrogate for each of its bytes, and JSON has none
        legible = {name: _legible(value) for name, value in problem.items()}
        return orjson.dumps(legible, default=str, option=orjson.OPT_NON_STR_KEYS)


def _legible(value: object) -> object:
    """``value`` with ``?`` for each code unit that is no text (a lone surrogate)."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return [_legible(one) for one in value] if isinstance(value, list | tuple) else value


def headers_of(status: int, error: errors.SyncbrokError) -> dict[str, str]:
    """Headers that belong to some statuses."""
    if status in (429, 503):
        wait_s = error.members.get("retry_after_s", 1)
        return {"Retry-After": str(max(1, math.ceil(wait_s if isinstance(wait_s, int | float) else 1)))}
    return {"WWW-Authenticate": 'Bearer realm="syncbrok"'} if status == 401 else {}


def answer(error: errors.SyncbrokError, headers: Mapping[str, str] | None = None) -> web.Response:
    """The answer to a request that ended in ``error``."""
    status, body = document(error)
    more = {"Content-Type": CONTENT_TYPE, **(headers or {}), **headers_of(status, error)}
    response = web.Response(status=status, body=body, headers=more)
    if status in (408, 413):
        # The rest of the body is still on its way: the connection cannot be used again.
        response.force_close()
    return response


def comes_again_if_cut_off(request: web.BaseRequest, status: int) -> bool:
    """Whether a request that is to be refused with ``status`` is better cut off without an answer: one for an event
    stream that would be let in a little later. Browsers (WHATWG HTML, 9.2.3) try again after a
    connection that broke, with the id they have, and after an answer other than 200 never."""
    asks_for_events = request.method == "GET" and "text/event-stream" in request.headers.get("Accept", "")
    return asks_for_events and status in (429, 503)


def from_aiohttp(error: web.HTTPException, request: web.BaseRequest) -> web.StreamResponse:
    """The answer to what aiohttp itself refused: no route, wrong method, a body over its own limit."""
    if error.status < 400:
        return error
    text = f"{request.method} {request.path[:200]}"
    match error:
        case web.HTTPMethodNotAllowed():
            allowed = sorted(error.allowed_methods)
            refusal = MethodNotAllowed(f"{text}: this route takes {', '.join(allowed)}", allowed=allowed)
            return answer(refusal, {"Allow": ", ".join(allowed)})
        case web.HTTPNotFound():
            return answer(UnknownRoute(f"{text}: there is no such route"))
        case web.HTTPRequestEntityTooLarge():
            return answer(errors.TooLarge(f"{text}: the body is too large"))
    return answer_status(error.status, f"{text}: {error.reason}")


def answer_status(status: int, detail: str) -> web.Response:
    """A problem that has no class of ours: ``type`` is ``about:blank``, the title is the status's own (RFC 9457)."""
    problem: ProblemAnswer = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    return web.Response(status=status, body=orjson.dumps(problem), content_type=CONTENT_TYPE)


def unforeseen(method: str, path: str, error: BaseException) -> Internal:
    """Log an unforeseen error; the returned problem says nothing of it."""
    log.error("syncbrok.http.failed", extra={"method": method, "path": path[:200]}, exc_info=error)
    return Internal("an error in the broker; its log says more")
