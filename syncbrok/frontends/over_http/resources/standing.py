"""``GET /v1/subscribers``: subscribers of all queues by how they stand: whom a breaker holds back, who is disabled."""

from typing import Final
from urllib.parse import quote, unquote

from aiohttp import web

from syncbrok.frontends.over_http.requests import parameters, render
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.reach import name_seen, those_seen
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.frontends.over_http.requests.time_slices import in_slices
from syncbrok.frontends.over_http.shapes.answers import SubscribersAnswer
from syncbrok.model.errors import Malformed
from syncbrok.model.tokens import READ
from syncbrok.space.reports import STANDINGS, SubscriberReport


async def index(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """A page of them, by queue and id."""
    standing, after = _STANDING.in_query(request), _AFTER.in_query(request)
    text, limit = (_TEXT.in_query(request) or "").casefold(), parameters.LIMIT.in_query(request)
    report = await in_slices(request, context.view.statistics_in_steps())
    found = [
        one
        for one in those_seen(request, READ, report.subscribers)
        if (standing is None or one.stands(standing))
        and (not text or text in one.queue.casefold() or text in one.id.casefold())
        and (after is None or _place(one) > after)
    ]
    found.sort(key=_place)
    page = found[:limit]
    following = _cursor(page[-1]) if len(found) > limit else None
    shown = await in_slices(
        request, render.list_in_steps(page, lambda one: render.subscriber(one, name_seen(request, one.changed_by)))
    )
    return render.json(SubscribersAnswer(shown, following))


def _place(one: SubscriberReport) -> tuple[str, str]:
    return one.queue, one.id


def _cursor(one: SubscriberReport) -> str:
    return f"{quote(one.queue, safe='')}/{quote(one.id, safe='')}"


def _behind(text: str) -> tuple[str, str]:
    """The place that a cursor names. Raises ``Malformed``."""
    queue, slash, subscriber = text.partition("/")
    if not slash:
        raise Malformed(f"after is the `next` of the page before, not {text[:80]!r}", parameter="after")
    return unquote(queue), unquote(subscriber)


_STANDING: Final = parameters.choice(
    "state",
    "Only those that stand so. failing: active, and the last attempt failed; open, probing: a circuit breaker holds "
    "them back; ill: any of these, or stopped.",
    STANDINGS,
)
_TEXT: Final = parameters.text("text", "Only those with this in their name or in their queue's, in either case.")
_AFTER: Final[parameters.Parameter[tuple[str, str] | None]] = parameters.Parameter(
    "after", parameters.AFTER_NAME.doc, parameters.TEXT, _behind, None
)
ROUTES: Final = (
    Route(
        "GET",
        "/v1/subscribers",
        index,
        READ,
        "subscribers",
        "List subscribers of all queues, by how they stand",
        {200: Reply("A page of them, by queue and id.", SubscribersAnswer)},
        query=(_STANDING, _TEXT, _AFTER, parameters.LIMIT),
        narrowed=True,
        operation="list_all_subscribers",
    ),
)
