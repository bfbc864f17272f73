"""Reports of the view -> what answers show. Times are RFC 3339, durations carry their unit in the name."""

from base64 import b64encode
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import msgspec
from aiohttp import web
from multidict import CIMultiDict

from syncbrok.delivery.handler import Delivery
from syncbrok.frontends.over_http.shapes.answers import (
    AttemptAnswer,
    BacklogAnswer,
    DeadLetterAnswer,
    DeliveredAnswer,
    DeliveryAnswer,
    MessageAnswer,
    QueueAnswer,
    QueueStatisticsAnswer,
    ReplayedAnswer,
    ReplayPlanAnswer,
    RetriedAnswer,
    StoredAnswer,
    SubscriberAnswer,
    SubscriberStatisticsAnswer,
)
from syncbrok.frontends.over_http.shapes.delivery_answers import (
    CriticalPathAnswer,
    PathStepAnswer,
    SubscribersDeliveryAnswer,
    TreeNodeAnswer,
)
from syncbrok.model.facts import Row, StoredMessage
from syncbrok.model.jobs import job_id
from syncbrok.model.message import CONSUMER_SCHEME
from syncbrok.model.names import MessageId, QueueName, SubscriberId, id_text
from syncbrok.model.settings import render_queue, render_subscriber
from syncbrok.model.tokens import READ, Token
from syncbrok.model.units import endpoint_scheme, render_duration, render_time
from syncbrok.space.channels import Declared, ReplayPlan
from syncbrok.space.reports import (
    CriticalPathReport,
    DeadLetter,
    DeliveryReport,
    MessageReport,
    PathStep,
    QueueReport,
    SubscriberReport,
    SubscribersDelivery,
    TreeNode,
)

T = TypeVar("T")

_encode: Final = msgspec.json.Encoder().encode
_AT_ONCE: Final = 32
"""deliveries that are shown without a pause"""


def json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """``value``, a type of ``shapes.answers``, as the JSON answer."""
    return web.Response(status=status, body=_encode(value), headers=_headers(headers))


def list_in_steps(items: Iterable[T], shown: Callable[[T], Any]) -> Generator[None, None, list[Any]]:
    """A list of each item as ``shown`` makes it, as JSON already. It stands in an answer for a list of those, which
    encoded in one piece would hold up the event loop."""
    written: list[Any] = []
    for item in items:
        written.append(msgspec.Raw(_encode(shown(item))))
        yield
    return written


def messages_in_steps(reports: Iterable[MessageReport]) -> Generator[None, None, list[Any]]:
    """As ``list_in_steps``, of ``message``, where one may have thousands of deliveries."""
    written: list[Any] = []
    for report in reports:
        answer = yield from message_in_steps(report)
        written.append(msgspec.Raw(_encode(answer)))
        yield
    return written


def message_in_steps(report: MessageReport) -> Generator[None, None, MessageAnswer]:
    """As ``message``, where it may have thousands of deliveries."""
    if len(report.deliveries) <= _AT_ONCE:
        return message(report)
    answer = message(replace(report, deliveries=()))
    answer.deliveries = yield from list_in_steps(report.deliveries, delivery)
    return answer


def retried(count: int, *, dry_run: bool) -> web.Response:
    """How many deliveries are due now, or with ``dry_run`` would be."""
    return json(RetriedAnswer(count, dry_run or msgspec.UNSET))


def declaration(value: Any, declared: Declared, location: str) -> web.Response:
    """The answer to who declared what ``value`` shows and ``location`` leads to: 201 where that made it, 200 where it
    was there alike."""
    return json(value, 201 if declared.what == "created" else 200, {"Location": location})


def _headers(more: Mapping[str, str] | None) -> CIMultiDict[str]:
    headers = CIMultiDict({"Content-Type": "application/json"})
    if more:
        headers.update(more)
    return headers


def queue(report: QueueReport, oldest_waiting: MessageId | None, changed_by: str | None = None) -> QueueAnswer:
    """``changed_by``: as far as the request may know it."""
    return QueueAnswer(
        name=report.name,
        **render_queue(report.settings),
        statistics=QueueStatisticsAnswer(
            subscribers=report.subscribers,
            last_sequence=report.last_sequence,
            waiting=report.waiting,
            oldest_waiting=id_text(oldest_waiting) if oldest_waiting else None,
            dead_letters=report.dead_letters,
            accepted=report.accepted,
            delivered=report.delivered,
            failed=report.failed,
            dead=report.dead,
            backlog=BacklogAnswer(report.backlog, report.backlog_bytes),
            changed_by=changed_by,
        ),
    )


def subscriber(report: SubscriberReport, changed_by: str | None = None) -> SubscriberAnswer:
    """``changed_by``: as far as the request may know it."""
    return SubscriberAnswer(
        id=report.id,
        queue=report.queue,
        **render_subscriber(report.settings),
        state=report.state,
        disabled_reason=report.settings.disabled_by.name.lower() if report.settings.disabled_us else None,
        disabled_at=_time(report.settings.disabled_us),
        since=report.since,
        declared=report.settings.declared or endpoint_scheme(report.settings.endpoint) != CONSUMER_SCHEME,
        counts_since=report.since if report.settings.counts else None,
        statistics=SubscriberStatisticsAnswer(
            cursor=report.cursor,
            backlog=report.backlog,
            blocked=report.blocked,
            in_flight=report.in_flight,
            retrying=report.retrying,
            dead_letters=report.dead_letters,
            delivered=report.delivered,
            failed=report.failed,
            last_status=report.last_status or None,
            last_reason=report.last_reason or None,
            last_attempt_at=_time(report.last_attempt_us),
            failing_since=_time(report.failing_since_us),
            breaker=report.breaker,
            next_probe_at=_time(report.probe_us),
            breaker_since=_time(report.breaker_since_us),
            breaker_failing=report.breaker_failing,
            breaker_origin=report.breaker_origin or None,
            changed_by=changed_by,
        ),
    )


def message(report: MessageReport) -> MessageAnswer:
    """The answer that shows a message. Its fields go by position: twenty names would cost a seventh of it."""
    return MessageAnswer(
        id_text(report.id),
        report.queue,
        report.sequence,
        report.state,
        _moment(report.time_us),
        list(map(id_text, report.parents)),
        list(map(id_text, report.blocked_by)),
        report.waits_for or None,
        report.key or None,
        report.idempotency_key or None,
        report.scope,
        report.parent_failure,
        _time(report.due_us),
        _time(report.expires_us),
        report.root,
        report.depth,
        report.content_type or None,
        report.content_bytes,
        _pairs(report.headers),
        list(map(delivery, report.deliveries)),
        report.erased,
        render_duration(report.erase_after_us / 1e6) if report.erase_after_us else None,
    )


def received(lent: Delivery, epoch: int) -> DeliveredAnswer:
    """A message as a consumer receives it. ``epoch``: of the leader, 0 where there is no cluster."""
    shown = cast("DeliveredAnswer", stored(lent.message, lent.to.queue))
    shown["attempt"] = lent.attempt.number
    if lent.attempt.replay:
        shown["replay"] = lent.attempt.replay
    previous, complete_through = lent.attempt.confirmed
    if previous:
        shown["previous"] = previous
    if complete_through:
        shown["complete_through"] = complete_through
    if epoch:
        shown["epoch"] = epoch
    return shown


def stored(message: StoredMessage, queue: str) -> StoredAnswer:
    """A message with its content: text as ``content``, other bytes as ``content_base64``."""
    shown: StoredAnswer = {
        "id": id_text(message.id),
        "queue": queue,
        "sequence": message.sequence,
        "accepted_at": _moment(message.time_us),
        "parents": list(map(id_text, message.parents)),
        "key": message.key or None,
        "content_type": message.content_type or None,
        "headers": _pairs(message.headers),
    }
    try:
        shown["content"] = message.content.decode()
    except UnicodeDecodeError:
        shown["content_base64"] = b64encode(message.content).decode()
    return shown


def delivery(report: DeliveryReport) -> DeliveryAnswer:
    return DeliveryAnswer(
        subscriber=report.subscriber,
        endpoint=report.endpoint,
        state=report.state,
        counted=report.counted,
        reason=report.reason or None,
        next_attempt_at=_time(report.next_attempt_us),
        blocked_by=list(map(id_text, report.blocked_by)),
        attempts=list(map(attempt, report.attempts)),
    )


def delivery_of(one: SubscribersDelivery) -> SubscribersDeliveryAnswer:
    last = next((row for row in reversed(one.report.attempts) if row.attempt), None)
    return SubscribersDeliveryAnswer(
        id=id_text(one.id),
        sequence=one.sequence,
        state=one.report.state,
        reason=one.report.reason or None,
        attempts=0 if last is None else last.attempt,
        tried_at=None if last is None else _time(last.time_us),
    )


def attempt(row: Row) -> AttemptAnswer:
    """One attempt; ``attempt`` 0 is an end without one."""
    return AttemptAnswer(
        attempt=row.attempt,
        time=_time(row.time_us),
        outcome=row.outcome.name.lower(),
        status=row.status or None,
        latency_ms=round(row.latency_us / 1_000, 3),
        reason=row.reason.name.lower() if row.reason else None,
        detail=_text(row.detail),
    )


def tree_node(node: TreeNode, token: Token | None = None) -> TreeNodeAnswer:
    """``token``: one for some queues only; of a message in another one it is told the id and the state. (Its place is
    part of its id.)"""
    if token is not None and not token.may(READ, node.queue):
        return TreeNodeAnswer(id_text(node.id), "", node.sequence, node.state, node.distance, [])
    return TreeNodeAnswer(
        id=id_text(node.id),
        queue=node.queue,
        sequence=node.sequence,
        state=node.state,
        distance=node.distance,
        parents=list(map(id_text, node.parents)),
    )


def path_step(step: PathStep, took_us: int, token: Token | None = None) -> PathStepAnswer:
    """``token``: as of ``tree_node``; of a message in another queue it is told, besides, how long that took."""
    if token is not None and not token.may(READ, step.queue):
        step = replace(
            step,
            queue=QueueName(""),
            subscriber=None,
            endpoint="",
            attempts=0,
            published_us=0,
            waited_us=0,
            scheduled_us=0,
            queued_us=0,
            attempts_us=step.own_us,
        )
    return PathStepAnswer(
        id=id_text(step.id),
        queue=step.queue,
        sequence=step.sequence,
        state=step.state,
        subscriber=step.subscriber,
        endpoint=step.endpoint,
        attempts=step.attempts,
        accepted_at=render_time(step.accepted_us),
        ended_at=_time(step.ended_us),
        published_ms=_ms(step.published_us),
        waited_ms=_ms(step.waited_us),
        scheduled_ms=_ms(step.scheduled_us),
        queued_ms=_ms(step.queued_us),
        attempts_ms=_ms(step.attempts_us),
        own_ms=_ms(step.own_us),
        share=round(step.own_us / took_us, 4) if took_us else None,
    )


def critical_path(id_: MessageId, path: CriticalPathReport, steps: list[PathStepAnswer]) -> CriticalPathAnswer:
    return CriticalPathAnswer(
        id=id_text(id_),
        began_at=render_time(path.began_us),
        ended_at=_time(path.ended_us),
        took_ms=_ms(path.took_us),
        steps=steps,
        truncated=path.truncated,
    )


def _ms(time_us: int) -> float:
    return round(time_us / 1_000, 3)


def dead_letter(letter: DeadLetter) -> DeadLetterAnswer:
    return DeadLetterAnswer(
        id=None if letter.id is None else id_text(letter.id),
        queue=letter.queue,
        sequence=letter.sequence,
        subscriber=letter.subscriber,
        reason=letter.reason,
        status=letter.status or None,
        attempts=letter.attempts,
        time=_time(letter.time_us),
        detail=_text(letter.detail),
    )


def plan_in_steps(replay: ReplayPlan, *, dry_run: bool) -> Generator[None, None, ReplayPlanAnswer]:
    """The answer that says what is replayed: each of many messages may go to thousands of subscribers."""
    order = yield from list_in_steps(replay.order, _replayed)
    return ReplayPlanAnswer(
        replay=replay.number or None,
        dry_run=dry_run,
        messages=replay.messages,
        deliveries=replay.deliveries,
        left=replay.left,
        erased=replay.erased,
        job=job_id(replay.job) if replay.job else None,
        order=order,
    )


def _replayed(planned: tuple[MessageId, tuple[SubscriberId, ...]]) -> ReplayedAnswer:
    id_, subscribers = planned
    return ReplayedAnswer(id_text(id_), list(subscribers))


@lru_cache(256)
def _moment(time_us: int) -> str:
    """A time as RFC 3339. Cached: what became durable together has one, and writing it is a third of showing a
    message."""
    return render_time(time_us)


@lru_cache(256)
def _time(time_us: int) -> str | None:
    """A time as RFC 3339; None for 0."""
    return _moment(time_us) if time_us else None


def _text(detail: bytes) -> str | None:
    return detail.decode("utf-8", "replace") or None


def _pairs(headers: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Headers as an object; those of one name joined as HTTP allows."""
    joined: dict[str, str] = {}
    for name, value in headers:
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined
