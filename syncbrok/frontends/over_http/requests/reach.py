"""How far a request reaches whose token is for some queues only (INTERFACES 1). A queue that the path names was looked
at before; here is what names queues otherwise, or none: lists, ids of messages, parents."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from aiohttp import web

from syncbrok.frontends.over_http.requests.auth import check_queue
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.model.errors import UnknownMessage, UnknownParent
from syncbrok.model.message import Message
from syncbrok.model.names import MessageId, QueueName, id_text
from syncbrok.model.tokens import Token
from syncbrok.space.channels import FROM_FILE, Publish
from syncbrok.space.reports import MessageReport

NARROWED: Final = web.RequestKey("narrowed", Token)
"""the token of a request, where its scope for the route is for some queues only"""


SPOKEN_BY: Final = web.RequestKey("spoken_by", str)
LOCAL: Final = "local"
"""who speaks where no tokens are set"""
LOOKED_ONLY: Final = web.RequestKey("looked_only", bool)
"""the request only asked what it would do"""


def spoken_by(request: web.Request) -> str:
    """The name of the request's token, ``local`` where it needs none."""
    return str(request.get(SPOKEN_BY, LOCAL))


def name_seen(request: web.Request, by: str) -> str | None:
    """The name of whoever did something, None where its token, which is for some queues, may not know it."""
    token = request.get(NARROWED)
    return by or None if token is None or by in (LOCAL, FROM_FILE, token.name) else None


class OfQueue(Protocol):
    """A report about something in a queue."""

    @property
    def queue(self) -> QueueName: ...


T = TypeVar("T", bound=OfQueue)


def narrowed(request: web.Request) -> Token | None:
    """The request's token, where that is for some queues only."""
    return request.get(NARROWED)


def check_named(request: web.Request, queue: str, scope: str) -> None:
    """Raises ``Forbidden`` where the token is not for ``queue``, which the request names elsewhere than in its path."""
    token = narrowed(request)
    if token is not None:
        check_queue(token, queue, scope)


def those_seen(request: web.Request, scope: str, reports: Iterable[T]) -> list[T]:
    """The reports about queues in which the token has the scope."""
    token = narrowed(request)
    return [one for one in reports if token is None or token.may(scope, one.queue)]


def as_seen(request: web.Request, scope: str, reports: Iterable[MessageReport]) -> list[MessageReport]:
    """As ``those_seen``, without words about what they wait for: that may stand in other queues."""
    seen = those_seen(request, scope, reports)
    return seen if narrowed(request) is None else [_without_others(one) for one in seen]


def check_report(request: web.Request, scope: str, report: MessageReport) -> MessageReport:
    """``report`` as a token for some queues may see it. Raises ``UnknownMessage`` where it may not."""
    token = narrowed(request)
    if token is None:
        return report
    if not token.may(scope, report.queue):
        raise _unknown(report.id)
    return _without_others(report)


def _unknown(id_: MessageId) -> UnknownMessage:
    text = id_text(id_)
    return UnknownMessage(f"this broker never issued the id {text}", id=text)


def _without_others(report: MessageReport) -> MessageReport:
    if not report.blocked_by:
        return report
    more = f" (and for {len(report.blocked_by) - 1} more)" if len(report.blocked_by) > 1 else ""
    return replace(report, waits_for=f"waits for {id_text(report.blocked_by[0])}{more}")


async def check_message(context: HttpContext, request: web.Request, id_: MessageId, scope: str) -> None:
    """Raises ``UnknownMessage`` for a message of a queue in which the token has not the scope. One that the log has no
    more is nobody's."""
    token = narrowed(request)
    if token is None:
        return
    (queue,) = await context.view.queues_of((id_,))
    if queue is not None and not token.may(scope, queue):
        raise _unknown(id_)


async def check_parents(context: HttpContext, request: web.Request, unit: Publish) -> None:
    """Raises ``UnknownParent`` where a message of the unit names one that the token may not know of, with the position
    of the message as ``line``."""
    token = narrowed(request)
    if token is not None and unit.extras:
        await check_parents_of(context, token, unit.extras.items())


async def check_parents_of(context: HttpContext, token: Token, messages: Iterable[tuple[int, Message]]) -> None:
    """As ``check_parents``, of messages with their positions."""
    named = [(at, one) for at, message in messages for one in message.parents if not isinstance(one, int)]
    if not named:
        return
    queues = await context.view.queues_of([parent for _, parent in named])
    for (at, parent), queue in zip(named, queues, strict=True):
        if queue is not None and not token.sees(queue):
            text = id_text(parent)
            raise UnknownParent(f"parent {text} was never accepted; publish it first", parent=text, line=at)


async def hidden(context: HttpContext, request: web.Request, scope: str, ids: Sequence[MessageId]) -> set[MessageId]:
    """The messages of these that stand in queues in which the token has not the scope."""
    token = narrowed(request)
    if token is None:
        return set()
    queues = await context.view.queues_of(ids)
    return {id_ for id_, queue in zip(ids, queues, strict=True) if queue is not None and not token.may(scope, queue)}
