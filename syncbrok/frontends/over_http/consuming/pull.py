"""Pulling over HTTP: for consumers that cannot be called. Messages are lent, and each lease is answered by its name."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import orjson
from aiohttp import web

from syncbrok.frontends.over_http.leases import LeaseHolder, LeaseOver, Leases, LentMessage, parse_lease
from syncbrok.frontends.over_http.requests import render
from syncbrok.frontends.over_http.requests.body import read_object
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.middleware import (
    MIDDLEWARE,
    Requester,
    check_lease,
    check_unread,
    client_of,
    unread,
)
from syncbrok.frontends.over_http.requests.paths import queue_of
from syncbrok.frontends.over_http.requests.payload import GuardedPayload
from syncbrok.frontends.over_http.requests.routes import JSON, Body, Reply, Route
from syncbrok.frontends.over_http.resources.queues import refuse_unknown
from syncbrok.frontends.over_http.shapes.answers import AnsweredAnswer, PulledAnswer, ReceivedAnswer
from syncbrok.frontends.over_http.shapes.bodies import (
    AnswerAckBody,
    AnswerExtendBody,
    AnswerNackBody,
    AnswersAckBody,
    AnswersExtendBody,
    AnswersNackBody,
    PullBody,
)
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting
from syncbrok.model.names import SubscriberId, parse_subscriber_id
from syncbrok.model.tokens import ADMIN, CONSUME
from syncbrok.model.units import duration_between, read_setting

GROUP: Final = "pull"
"""the group of pulls that name none"""
_MOST: Final = 100
_LEASE_S: Final = 30.0

LeaseVerb = Callable[[Leases, str, LeaseHolder, dict[str, Any]], None]


async def pull(leases: Leases, context: HttpContext, request: web.Request) -> web.StreamResponse:
    check_unread(request)
    given = await read_object(request, context.options.body_timeout_s)
    most = given.pop("max", _MOST)
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= limits.pull_messages_max:
        raise BadSetting(f"max: expected a whole number from 1 to {limits.pull_messages_max}", setting="max")
    wait_s = _duration(given, "wait", 0.0, 0.0, limits.wait_s_max)
    lease_s = _duration(given, "lease", _LEASE_S, limits.lease_min_s, limits.lease_max_s)
    name = given.pop("group", GROUP)
    start = given.pop("start", "beginning")
    if not isinstance(name, str) or not isinstance(start, str | int) or isinstance(start, bool):
        raise BadSetting('group: expected a name; start: "beginning", "now" or a sequence')
    refuse_unknown(given)
    queue = queue_of(request)
    leases.check(context.view, queue, name)
    if request.transport is not None:
        leases.attempt_guard.carries(request.transport)
    group = await leases.group(queue, SubscriberId(parse_subscriber_id(name)), str(start))
    lent = await group.pull(most, wait_s, lease_s, _holder(request).name)
    if request.transport is None or request.transport.is_closing():  # it went while it waited, and knows of none
        group.give_back([one.delivery for one in lent])
        lent = []
    elif not lent:
        leases.check_room(group)
        check_lease(context.lease)  # "none" is for another node to say
    elif not client_of(request).may_answer(_about_bytes(lent), refusable=True):  # and so much is made of it
        group.give_back([one.delivery for one in lent])
        raise unread()
    attempts = [one.delivery.attempt for one in lent]  # not the contents: they are in the answer
    asks = partial(_lets_begin, leases, client_of(request), len(lent))
    answer = GuardedPayload(JSON, asks, partial(group.take_back, attempts))
    answer.add(b'{"messages":[')
    for place, one in enumerate(lent):
        await client_of(request).turn(goes_on=True)
        if place:
            answer.add(b",")
        received: ReceivedAnswer = {"lease": one.lease, **render.received(one.delivery, context.lease.epoch)}
        answer.add(orjson.dumps(received))
    answer.add(b"]}")
    group.written(lent)
    return web.Response(body=answer)


async def _lets_begin(leases: Leases, client: Requester, messages: int) -> bool:
    """See ``attempt_guard``."""
    if leases.attempt_guard.looks:
        await client.until_sent()
    return leases.attempt_guard.lets_begin(messages)


def _about_bytes(lent: Sequence[LentMessage]) -> int:
    """The approximate size of an answer with all of these, in bytes."""
    return sum([len(one.delivery.message.content) for one in lent]) * 4 // 3


def _holder(request: web.Request) -> LeaseHolder:
    token = request.app[MIDDLEWARE].authorize(request.headers.get("Authorization", ""), CONSUME, ADMIN)
    return LeaseHolder(any=True) if token is None else LeaseHolder(token.name, token.is_operator)


def _duration(given: dict[str, Any], name: str, default: float, low: float, high: float) -> float:
    return read_setting(name, duration_between(low, high), given.pop(name)) if name in given else default


def _acknowledge(leases: Leases, lease: str, holder: LeaseHolder, _: dict[str, Any]) -> None:
    leases.acknowledge(lease, holder)


def _refuse(leases: Leases, lease: str, holder: LeaseHolder, given: dict[str, Any]) -> None:
    leases.refuse(lease, holder, given["reason"], given["delay"])


def _extend(leases: Leases, lease: str, holder: LeaseHolder, given: dict[str, Any]) -> None:
    leases.extend(lease, holder, given["lease"])


def _settings(given: dict[str, Any], verb: str) -> dict[str, Any]:
    """The fields of the answer apart from the leases."""
    found: dict[str, Any] = {}
    if verb == "extend":
        found["lease"] = _duration(given, "lease", _LEASE_S, limits.lease_min_s, limits.lease_max_s)
    elif verb == "nack":
        reason = given.pop("reason", "")
        if not isinstance(reason, str):
            raise BadSetting("reason: expected text", setting="reason")
        found["reason"] = reason.encode()
        found["delay"] = _duration(given, "delay", 0.0, 0.0, limits.retry_delay_max_s) if "delay" in given else None
    return found


async def answer_one(
    verb: str, act: LeaseVerb, leases: Leases, context: HttpContext, request: web.Request
) -> web.StreamResponse:
    given = await read_object(request, context.options.body_timeout_s)
    settings = _settings(given, verb)
    refuse_unknown(given)
    act(leases, request.match_info["lease"], _holder(request), settings)
    return render.json(AnsweredAnswer(1, []))


async def answer_many(
    verb: str, act: LeaseVerb, leases: Leases, context: HttpContext, request: web.Request
) -> web.StreamResponse:
    """Answer the leases that the request names, many at once. The response names those that were over."""
    given = await read_object(request, context.options.body_timeout_s)
    names = given.pop("leases", None)
    what = f'leases: expected a list of at most {limits.pull_messages_max} names, as in {{"leases": ["1-2-3"]}}'
    if not isinstance(names, list) or len(names) > limits.pull_messages_max:
        raise BadSetting(what, setting="leases")
    if not all(isinstance(name, str) for name in names):
        raise BadSetting(what, setting="leases")
    settings = _settings(given, verb)
    refuse_unknown(given)
    for name in names:
        parse_lease(name)  # a mistake is told before anything is answered
    over: list[str] = []
    holder = _holder(request)
    for name in names:
        try:
            act(leases, name, holder, settings)
        except LeaseOver:
            over.append(name)
    return render.json(AnsweredAnswer(len(names) - len(over), over))


_VERBS: Final[tuple[tuple[str, LeaseVerb, str, type, type], ...]] = (
    ("ack", _acknowledge, "Acknowledge", AnswerAckBody, AnswersAckBody),
    (
        "nack",
        _refuse,
        "Refuse: a failed attempt, tried again as the retry schedule says",
        AnswerNackBody,
        AnswersNackBody,
    ),
    ("extend", _extend, "Keep for another `lease`", AnswerExtendBody, AnswersExtendBody),
)
"""what is said, what it does, in words, and the bodies for one lease and for many"""


def routes(leases: Leases) -> tuple[Route, ...]:
    """The routes of pulling and of answering leases."""
    return (
        Route(
            "POST",
            "/v1/queues/{queue}/pull",
            partial(pull, leases),
            CONSUME,
            "pull",
            "Lend messages, in causal order, to a consumer of a group",
            {200: Reply("What there is, none where nothing came in time.", PulledAnswer)},
            (404, 409, 429, 503, 507),
            body=Body({JSON: PullBody}, required=False),
            lasts=True,
            operation="pull",
        ),
        *(
            Route(
                "POST",
                f"/v1/leases/{{lease}}:{verb}",
                partial(answer_one, verb, act, leases),
                CONSUME,
                "pull",
                f"{words}: one message",
                {200: Reply("Done.", AnsweredAnswer)},
                (410,),
                body=Body({JSON: body}, required=False),
                or_scope=ADMIN,
                narrowed=True,
                operation=f"{verb}_lease",
            )
            for verb, act, words, body, _ in _VERBS
        ),
        *(
            Route(
                "POST",
                f"/v1/leases:{verb}",
                partial(answer_many, verb, act, leases),
                CONSUME,
                "pull",
                f"{words}: many messages",
                {200: Reply("How many, and which were over already.", AnsweredAnswer)},
                body=Body({JSON: body}),
                or_scope=ADMIN,
                narrowed=True,
                operation=f"{verb}_leases",
            )
            for verb, act, words, _, body in _VERBS
        ),
    )
