"""``GET /``: the web page, its files, and the one answer its front is drawn from; ``GET /docs``: the API, to read.

The page is open to everybody who can connect; what it shows is not: it asks with the reader's token. It loads nothing
from elsewhere, and the policy sent with it forbids it to.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import Final

from aiohttp import hdrs, web

from syncbrok.frontends.over_http.requests import parameters, render
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.reach import as_seen, name_seen, narrowed
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.frontends.over_http.requests.time_slices import in_slices, pauses_of
from syncbrok.frontends.over_http.shapes.answers import (
    BudgetAnswer,
    LogAnswer,
    OverviewAnswer,
    QueueGlanceAnswer,
    TotalsAnswer,
)
from syncbrok.model import limits
from syncbrok.model.tokens import READ, Token
from syncbrok.model.units import render_time
from syncbrok.space.reports import DeliveryTotals, QueueReport, SpaceReport, SubscriberReport

_STUCK_MAX: Final = 20
_ILL_MAX: Final = 100
_LIMIT: Final = parameters.number(
    "limit", "How many queues at most; the busiest where there are more.", 200, 1, limits.list_limit_max
)
_MEDIA: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_PAGES: Final = {"index.html": ("/", "get_page"), "docs.html": ("/docs", "get_docs")}
"""path and name in the description; of other files there is none"""
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked for again each time, answered 304 while it is the same
}


async def overview(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """The Space at a glance: figures, queues (the busiest of many), failing subscribers, and stuck messages."""
    report = _seen(await in_slices(request, context.view.statistics_in_steps()), narrowed(request))
    queues = _LIMIT.in_query(request)
    stuck = await context.view.stuck(_STUCK_MAX, pauses_of(request))
    shown = await in_slices(request, render.messages_in_steps(as_seen(request, READ, stuck)))
    ill = [one for one in report.subscribers if one.stands("ill")]
    return render.json(
        OverviewAnswer(
            state=report.state,
            version=report.process.version,
            time=render_time(report.time_us),
            in_cluster=bool(context.options.leader_url),
            log=_log(report),
            deliveries=TotalsAnswer(
                accepted=sum(queue.accepted for queue in report.queues),
                delivered=report.deliveries.delivered,
                failed=report.deliveries.failed,
                dead=report.deliveries.dead,
                in_flight=report.deliveries.in_flight,
                retrying=report.deliveries.retrying,
                waiting=report.deliveries.waiting,
                dead_letters=report.deliveries.dead_letters,
            ),
            budgets=[BudgetAnswer(one.name, one.used, one.total) for one in report.budgets],
            queues=_queues(report, ill, queues),
            queues_in_all=len(report.queues),
            subscribers_in_all=len(report.subscribers),
            ill=[render.subscriber(one, name_seen(request, one.changed_by)) for one in ill[:_ILL_MAX]],
            ill_in_all=len(ill),
            stuck=shown,
        )
    )


def _seen(report: SpaceReport, token: Token | None) -> SpaceReport:
    """``report`` as far as a token for some queues may know it: their figures, and nothing of what all share."""
    if token is None:
        return report
    queues = tuple(one for one in report.queues if token.may(READ, one.name))
    subscribers = tuple(one for one in report.subscribers if token.may(READ, one.queue))
    deliveries = DeliveryTotals.of(queues, subscribers)
    return replace(report, queues=queues, subscribers=subscribers, deliveries=deliveries, budgets=())


def _log(report: SpaceReport) -> LogAnswer:
    log = report.log
    return LogAnswer(
        sync=log.sync,
        sequence=log.sequence,
        durable_sequence=log.durable_sequence,
        segments=log.segments,
        bytes=log.bytes,
        commits=log.commits.count,
        commit_seconds_sum=log.commits.sum_s,
        full=log.full,
        damaged_records=log.damaged_records,
        damage=log.damage,
    )


def _queues(report: SpaceReport, ill: Iterable[SubscriberReport], limit: int) -> list[QueueGlanceAnswer]:
    ill_of = Counter(subscriber.queue for subscriber in ill)
    chosen = report.queues
    if len(chosen) > limit:
        chosen = tuple(sorted(chosen, key=_busy, reverse=True)[:limit])
    return [
        QueueGlanceAnswer(
            name=queue.name,
            subscribers=queue.subscribers,
            ill=ill_of[queue.name],
            waiting=queue.waiting,
            dead_letters=queue.dead_letters,
            accepted=queue.accepted,
            delivered=queue.delivered,
            failed=queue.failed,
        )
        for queue in sorted(chosen, key=lambda queue: queue.name)
    ]


def _busy(queue: QueueReport) -> tuple[int, int]:
    return queue.waiting + queue.dead_letters, queue.accepted


async def _file(body: bytes, media: str, tag: str, _context: HttpContext, request: web.Request) -> web.StreamResponse:
    headers = {**_HEADERS, "ETag": tag}
    if request.headers.get(hdrs.IF_NONE_MATCH) == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, headers={**headers, "Content-Type": media})


def _route(name: str) -> Route:
    path, operation = _PAGES.get(name, (f"/web/{name}", ""))
    body = (files("syncbrok.web") / name).read_bytes()
    media = _MEDIA[name[name.rindex(".") :]]
    tag = f'"{hashlib.blake2s(body, digest_size=12).hexdigest()}"'
    reply = Reply(f"The file {name}.", {"type": "string"}, media.partition(";")[0], headers=("ETag",))
    summary = f"The web page: {name}"
    return Route(
        "GET", path, partial(_file, body, media, tag), None, "page", summary, {200: reply}, operation=operation
    )


def file_routes() -> tuple[Route, ...]:
    """Every file of the page, read once."""
    names = sorted(entry.name for entry in files("syncbrok.web").iterdir() if entry.name.endswith(tuple(_MEDIA)))
    return tuple(map(_route, names))


def routes() -> tuple[Route, ...]:
    """The files, and the overview."""
    return (
        *file_routes(),
        Route(
            "GET",
            "/v1/overview",
            overview,
            "read",
            "page",
            "The Space at a glance",
            {200: Reply("Figures, queues, subscribers that are ill, messages that wait longest.", OverviewAnswer)},
            query=(_LIMIT,),
            narrowed=True,
            operation="get_overview",
        ),
    )
