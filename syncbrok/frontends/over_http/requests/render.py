"""Reports of the view -> what answers show. Times are RFC 3339, durations carry their unit in the name."""

from base64 import b64encode
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson
from aiohttp import web
from multidict import CIMultiDict

from syncbrok.delivery.handler import Delivery
from syncbrok.model.facts import Published, Row
from syncbrok.model.message import CONSUMER_SCHEME
from syncbrok.model.names import id_text
from syncbrok.model.settings import render_queue, render_subscriber
from syncbrok.model.units import endpoint_scheme, render_time
from syncbrok.space.channels import ReplayPlan
from syncbrok.space.reports import (
    DeadLetter,
    DeliveryReport,
    MessageReport,
    QueueReport,
    SubscriberReport,
    TreeNode,
)


def json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """``value`` as the JSON answer."""
    return web.Response(status=status, body=orjson.dumps(value), headers=_headers(headers))


def _headers(more: Mapping[str, str] | None) -> CIMultiDict[str]:
    headers = CIMultiDict({"Content-Type": "application/json"})
    if more:
        headers.update(more)
    return headers


def queue(report: QueueReport) -> dict[str, Any]:
    return {
        "name": report.name,
        **render_queue(report.settings),
        "statistics": {
            "subscribers": report.subscribers,
            "last_sequence": report.last_sequence,
            "waiting": report.waiting,
            "oldest_waiting": id_text(report.oldest_waiting) if report.oldest_waiting else None,
            "dead_letters": report.dead_letters,
            "accepted": report.accepted,
            "delivered": report.delivered,
            "failed": report.failed,
            "dead": report.dead,
        },
    }


def subscriber(report: SubscriberReport) -> dict[str, Any]:
    return {
        "id": report.id,
        "queue": report.queue,
        **render_subscriber(report.settings),
        "state": report.state,
        "since": report.since,
        "declared": report.settings.declared or endpoint_scheme(report.settings.endpoint) != CONSUMER_SCHEME,
        "counts_since": report.since if report.settings.counts else None,
        "statistics": {
            "cursor": report.cursor,
            "backlog": report.backlog,
            "blocked": report.blocked,
            "in_flight": report.in_flight,
            "retrying": report.retrying,
            "dead_letters": report.dead_letters,
            "delivered": report.delivered,
            "failed": report.failed,
            "last_status": report.last_status or None,
            "last_reason": report.last_reason or None,
            "last_attempt_at": _time(report.last_attempt_us),
            "failing_since": _time(report.failing_since_us),
        },
    }


def message(report: MessageReport) -> dict[str, Any]:
    return {
        "id": id_text(report.id),
        "queue": report.queue,
        "sequence": report.sequence,
        "state": report.state,
        "accepted_at": _time(report.time_us),
        "parents": [id_text(parent) for parent in report.parents],
        "blocked_by": [id_text(blocker) for blocker in report.blocked_by],
        "waits_for": report.waits_for or None,
        "key": report.key or None,
        "idempotency_key": report.idempotency_key or None,
        "scope": report.scope,
        "parent_failure": report.parent_failure,
        "deliver_at": _time(report.due_us),
        "expires_at": _time(report.expires_us),
        "root": report.root,
        "depth": report.depth,
        "content_type": report.content_type or None,
        "content_bytes": report.content_bytes,
        "headers": _pairs(report.headers),
        "deliveries": [delivery(one) for one in report.deliveries],
    }


def received(lent: Delivery) -> dict[str, Any]:
    """A message as a consumer receives it."""
    shown = stored(lent.message, lent.to.queue) | {"attempt": lent.attempt.number}
    if lent.attempt.replay:
        shown["replay"] = lent.attempt.replay
    return shown


def stored(message: Published, queue: str) -> dict[str, Any]:
    """A message with its content: text as ``content``, other bytes as ``content_base64``."""
    shown = {
        "id": id_text(message.id),
        "queue": queue,
        "sequence": message.sequence,
        "accepted_at": _time(message.time_us),
        "parents": [id_text(parent) for parent in message.parents],
        "key": message.key or None,
        "content_type": message.content_type or None,
        "headers": _pairs(message.headers),
    }
    try:
        shown["content"] = message.content.decode()
    except UnicodeDecodeError:
        shown["content_base64"] = b64encode(message.content).decode()
    return shown


def delivery(report: DeliveryReport) -> dict[str, Any]:
    return {
        "subscriber": report.subscriber,
        "endpoint": report.endpoint,
        "state": report.state,
        "counted": report.counted,
        "reason": report.reason or None,
        "next_attempt_at": _time(report.next_attempt_us),
        "blocked_by": [id_text(blocker) for blocker in report.blocked_by],
        "attempts": [attempt(row) for row in report.attempts],
    }


def attempt(row: Row) -> dict[str, Any]:
    """One attempt; ``attempt`` 0 is an end without one."""
    return {
        "attempt": row.attempt,
        "time": _time(row.time_us),
        "outcome": row.outcome.name.lower(),
        "status": row.status or None,
        "latency_ms": round(row.latency_us / 1_000, 3),
        "reason": row.reason.name.lower() if row.reason else None,
        "detail": _text(row.detail),
    }


def tree_node(node: TreeNode) -> dict[str, Any]:
    return {
        "id": id_text(node.id),
        "queue": node.queue,
        "sequence": node.sequence,
        "state": node.state,
        "distance": node.distance,
        "parents": [id_text(parent) for parent in node.parents],
    }


def dead_letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": None if letter.id is None else id_text(letter.id),
        "queue": letter.queue,
        "sequence": letter.sequence,
        "subscriber": letter.subscriber,
        "reason": letter.reason,
        "status": letter.status or None,
        "attempts": letter.attempts,
        "time": _time(letter.time_us),
        "detail": _text(letter.detail),
    }


def plan(replay: ReplayPlan, *, dry_run: bool) -> dict[str, Any]:
    return {
        "replay": replay.number or None,
        "dry_run": dry_run,
        "messages": replay.messages,
        "deliveries": replay.deliveries,
        "left": replay.left,
        "order": [{"id": id_text(id_), "subscribers": list(subscribers)} for id_, subscribers in replay.order],
    }


@lru_cache(256)
def _time(time_us: int) -> str | None:
    """What became durable together has one time, and writing it out is a third of showing a message."""
    return render_time(time_us) if time_us else None


def _text(detail: bytes) -> str | None:
    return detail.decode("utf-8", "replace") or None


def _pairs(headers: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Headers as an object; those of one name joined as HTTP allows."""
    joined: dict[str, str] = {}
    for name, value in headers:
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined
