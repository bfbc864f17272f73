"""Subscribers of a queue: subscribe, list, show, change, unsubscribe, test, retry now, rotate the secret."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from syncbrok.frontends.over_http.publishing import publish
from syncbrok.frontends.over_http.publishing.headers import WAIT, parse_publish
from syncbrok.frontends.over_http.requests import parameters, render
from syncbrok.frontends.over_http.requests.body import read_body, read_object
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.paths import queue_of, queue_url
from syncbrok.frontends.over_http.requests.reach import check_parents, name_seen, spoken_by
from syncbrok.frontends.over_http.requests.routes import ANY, BYTES, CONTENT, JSON, Body, Reply, Route
from syncbrok.frontends.over_http.requests.time_slices import in_slices, pauses_of
from syncbrok.frontends.over_http.resources import jobs
from syncbrok.frontends.over_http.resources.queues import refuse_unknown, take_dry_run, take_switch
from syncbrok.frontends.over_http.shapes.answers import (
    DroppedAnswer,
    RetriedAnswer,
    SecretAnswer,
    SubscriberAnswer,
    SubscribersAnswer,
    TriedFilterAnswer,
    TriedMessageAnswer,
)
from syncbrok.frontends.over_http.shapes.bodies import (
    DryRunBody,
    NewSecretBody,
    NewSubscriberBody,
    SubscriberSettingsBody,
    TryFilterBody,
)
from syncbrok.frontends.over_http.shapes.delivery_answers import DeliveriesAnswer
from syncbrok.model import limits
from syncbrok.model.credentials import setting_of
from syncbrok.model.errors import BadSetting, SyncbrokError
from syncbrok.model.file_entry import PAUSED, key_hashes
from syncbrok.model.jobs import job_id
from syncbrok.model.message import SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId, id_text, parse_subscriber_id
from syncbrok.model.settings import (
    parse_start,
    parse_subscriber,
    parse_subscriber_changes,
    take_credentials,
)
from syncbrok.model.signature_settings import V1, V1A
from syncbrok.model.tokens import CONSUME
from syncbrok.model.units import duration_between, expected, parse_secret, read_setting
from syncbrok.space.channels import (
    BEGINNING,
    ChangeSubscriber,
    Declared,
    FromFile,
    Planned,
    Publish,
    RetrySubscriber,
    RotateSecret,
    Seek,
    Subscribe,
    Unsubscribe,
)
from syncbrok.space.queries.deliveries import SoughtDeliveries
from syncbrok.space.queries.search import DELIVERY_STATES
from syncbrok.space.reports import SubscriberReport

_TRIED_DEFAULT: Final = 100
_STATE: Final = parameters.choice("state", "Only those in this state there.", DELIVERY_STATES)
_THROUGH: Final = parameters.sequence("through", "Only those up to this sequence.")
TEST_CONTENT: Final = b'{"type":"syncbrok.test"}'


async def create(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """Declare a subscriber: 201 with its id; 200 if it exists with the same settings; 409 if a setting differs."""
    queue = queue_of(request)
    given = await read_object(request, context.options.body_timeout_s)
    secret, is_from_file = _take_secret(given), take_switch(given, "from_file", default=False)
    credentials = take_credentials(given)
    start = read_setting("start", parse_start, given.pop("start")) if "start" in given else None
    changes = parse_subscriber(given)
    if "endpoint" not in changes:
        what = (
            'the body must say where to deliver, {"endpoint": "https://..."}, or name a group: {"name", "pull": true}'
        )
        raise BadSetting(what, setting="endpoint")
    settings, said = SubscriberSettings(**changes), _from_file(given, secret, credentials) if is_from_file else None
    declared: Declared = await context.channels.subscribers.put(
        Subscribe(queue, settings, secret, start, said, credentials=credentials, by=spoken_by(request))
    )
    shown = _shown(request, context.view.subscriber(queue, declared.id))
    return render.declaration(shown, declared, f"{queue_url(queue)}/subscribers/{declared.id}")


def _shown(request: web.Request, report: SubscriberReport) -> SubscriberAnswer:
    return render.subscriber(report, name_seen(request, report.changed_by))


async def index(context: HttpContext, request: web.Request) -> web.StreamResponse:
    queue, after = queue_of(request), parameters.AFTER_NAME.in_query(request)
    page, following = context.view.subscribers(
        queue,
        after and parse_subscriber_id(after),
        parameters.LIMIT.in_query(request),
        parameters.NAME_TEXT.in_query(request) or "",
    )
    return render.json(SubscribersAnswer([_shown(request, one) for one in page], following))


async def show(context: HttpContext, request: web.Request) -> web.StreamResponse:
    return render.json(_shown(request, context.view.subscriber(queue_of(request), _subscriber_id(request))))


async def deliveries(context: HttpContext, request: web.Request) -> web.StreamResponse:
    sought = SoughtDeliveries(
        queue_of(request),
        _subscriber_id(request),
        parameters.AFTER_SEQUENCE.in_query(request),
        _THROUGH.in_query(request) or None,
        _STATE.in_query(request),
    )
    page = await context.view.deliveries(sought, parameters.LIMIT.in_query(request), pauses_of(request))
    shown = await in_slices(request, render.list_in_steps(page.items, render.delivery_of))
    return render.json(DeliveriesAnswer(shown, page.next))


async def change(context: HttpContext, request: web.Request) -> web.StreamResponse:
    queue, subscriber = queue_of(request), _subscriber_id(request)
    given = await read_object(request, context.options.body_timeout_s)
    without_secret = "secret" in given and given["secret"] is None
    secret, is_from_file = _take_secret(given), take_switch(given, "from_file", default=False)
    credentials = take_credentials(given)
    by = spoken_by(request)
    seek = _take_seek(given, queue, subscriber, by)
    changes = parse_subscriber_changes(given)
    if changes or secret is not None or without_secret:
        said = _from_file(given, secret, credentials) if is_from_file else None
        if seek is not None:  # refused as a whole, or done as a whole
            await context.channels.subscribers.put(seek._replace(dry_run=True))
        changed = ChangeSubscriber(queue, subscriber, changes, secret, without_secret, said, credentials, by)
        await context.channels.subscribers.put(changed)
    planned: Planned | None = None if seek is None else await context.channels.subscribers.put(seek)
    shown = _shown(request, context.view.subscriber(queue, subscriber))
    if planned is None or planned.job is None:
        return render.json(shown)
    shown.job = job_id(planned.job.number)
    return render.json(shown, headers={"Location": f"{jobs.PATH}/{shown.job}"})


def _take_seek(given: dict[str, Any], queue: QueueName, subscriber: SubscriberId, by: str) -> Seek | None:
    """``start``, taken out: where it is to go on. Raises ``BadSetting``."""
    if "start" not in given:
        return None
    start = given.pop("start")
    if start == "now":
        return Seek(queue, subscriber, None, by)
    bound = BEGINNING if start == "beginning" else read_setting("start", parameters.parse_bound, start)
    return Seek(queue, subscriber, bound, by)


async def delete(context: HttpContext, request: web.Request) -> web.StreamResponse:
    item = Unsubscribe(queue_of(request), _subscriber_id(request), spoken_by(request))
    dropped = await context.channels.subscribers.put(item)
    return render.json(DroppedAnswer(dropped=dropped))


async def rotate_secret(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """Answer with the new secret: the one answer that shows one, once. Of a key pair, with the public key."""
    queue, subscriber = queue_of(request), _subscriber_id(request)
    given = await read_object(request, context.options.body_timeout_s)
    secret = _take_secret(given)
    grace_s = read_setting("grace", _parse_grace, given.pop("grace", limits.secret_grace_default_s))
    scheme = read_setting("scheme", _parse_scheme, given.pop("scheme", V1))
    refuse_unknown(given)
    item = RotateSecret(queue, subscriber, secret, grace_s, scheme, spoken_by(request))
    new: str = await context.channels.subscribers.put(item)
    answer = SecretAnswer(subscriber, secret=new) if scheme == V1 else SecretAnswer(subscriber, public_key=new)
    return render.json(answer)


async def test(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """Publish to this subscriber alone, with the body as content; ``Prefer: wait`` tells how it went."""
    queue, subscriber = queue_of(request), _subscriber_id(request)
    options = context.options
    content = await read_body(request, options.content_bytes_max, options.body_timeout_s)
    asked = parse_publish(request.headers.items(), content, options.parents_max, publish.now_us())
    asked = await publish.with_cause(asked, context)
    if not content:
        asked = asked._replace(message=asked.message._replace(content=TEST_CONTENT, content_type=JSON))
    unit = Publish.of(queue, (asked.message,), subscriber)
    try:
        await check_parents(context, request, unit)
        accepted = await context.channels.messages.put(unit)
    except SyncbrokError as error:
        raise publish.without_line(error) from None
    return await publish.answer_of(context, queue, asked, accepted)


async def retry(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """Try all messages now that wait for another attempt at this subscriber, as its window has room (RULES 26)."""
    given = await read_object(request, context.options.body_timeout_s)
    asked = RetrySubscriber(queue_of(request), _subscriber_id(request), take_dry_run(given, request))
    refuse_unknown(given)
    return render.retried(await context.channels.subscribers.put(asked), dry_run=asked.dry_run)


async def try_filter(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """Say of the newest messages of the queue which of them a filter would let through (RULES 31)."""
    given = await read_object(request, context.options.body_timeout_s)
    queue = queue_of(request)
    subscriber = context.view.subscriber(queue, _subscriber_id(request))
    text = given.pop("filter", None) or subscriber.settings.filter
    last = given.pop("last", _TRIED_DEFAULT)
    refuse_unknown(given)
    if not isinstance(text, str):
        raise BadSetting("filter: expected a CEL expression; this subscriber has none to try", setting="filter")
    if isinstance(last, bool) or not isinstance(last, int) or not 1 <= last <= limits.filter_trial_messages_max:
        raise BadSetting(f"last: expected a whole number from 1 to {limits.filter_trial_messages_max}", setting="last")
    tried = await context.view.try_filter(queue, text, last)
    counts = Counter(one.result for one in tried)
    shown = [TriedMessageAnswer(id_text(one.id), one.sequence, one.result, one.detail or None) for one in tried]
    return render.json(
        TriedFilterAnswer(text, len(tried), counts["delivered"], counts["filtered"], counts["filter_error"], shown)
    )


def _subscriber_id(request: web.Request) -> SubscriberId:
    return parse_subscriber_id(request.match_info["subscriber"])


def _from_file(given: dict[str, Any], secret: str | None, credentials: Mapping[str, str]) -> FromFile:
    """Hashes of the settings in which a file does not overrule an operator: ``paused``, the secret, and what has
    credentials (RULES 18)."""
    names = {PAUSED}.union(map(setting_of, credentials))
    return FromFile("", key_hashes({name: given[name] for name in names if name in given}, secret))


def _parse_scheme(value: Any) -> str:
    if value not in (V1, V1A):
        raise expected(f"{V1} or {V1A}", value)
    return str(value)


def _take_secret(given: dict[str, Any]) -> str | None:
    """``secret``, taken out so that it can get into no settings; null is none."""
    value = given.pop("secret", None)
    return None if value is None else read_setting("secret", parse_secret, value)


_parse_grace: Final = duration_between(0.0, limits.secret_grace_max_s)
_CHANGED: Final = (404, 429, 503, 507)
_PATH: Final = "/v1/queues/{queue}/subscribers"
_ONE: Final = _PATH + "/{subscriber}"

ROUTES: Final = (
    Route(
        "POST",
        _PATH,
        create,
        "admin",
        "subscribers",
        "Subscribe an endpoint",
        {
            200: Reply("It is subscribed alike.", SubscriberAnswer, headers=("Location",)),
            201: Reply("Subscribed.", SubscriberAnswer, headers=("Location",)),
        },
        (*_CHANGED, 409),
        body=Body({JSON: NewSubscriberBody}),
        operation="subscribe",
    ),
    Route(
        "GET",
        _PATH,
        index,
        "read",
        "subscribers",
        "List subscribers of a queue",
        {200: Reply("A page of them.", SubscribersAnswer)},
        (404,),
        query=(parameters.LIMIT, parameters.AFTER_NAME, parameters.NAME_TEXT),
        operation="list_subscribers",
    ),
    Route(
        "GET",
        _ONE,
        show,
        "read",
        "subscribers",
        "Settings and health of a subscriber",
        {200: Reply("The subscriber.", SubscriberAnswer)},
        (404,),
        operation="get_subscriber",
    ),
    Route(
        "GET",
        _ONE + "/deliveries",
        deliveries,
        "read",
        "subscribers",
        "What became of each message at a subscriber",
        {200: Reply("A page of them, in the order accepted.", DeliveriesAnswer)},
        (404,),
        query=(parameters.AFTER_SEQUENCE, _THROUGH, _STATE, parameters.LIMIT),
        or_scope=CONSUME,
        operation="list_deliveries",
    ),
    Route(
        "PATCH",
        _ONE,
        change,
        "admin",
        "subscribers",
        "Change a subscriber",
        {
            200: Reply(
                "As it is now; where start was changed, with the job that does it.",
                SubscriberAnswer,
                headers=("Location",),
            )
        },
        (*_CHANGED, 409),
        body=Body({JSON: SubscriberSettingsBody}),
        operation="change_subscriber",
    ),
    Route(
        "DELETE",
        _ONE,
        delete,
        "admin",
        "subscribers",
        "Unsubscribe",
        {200: Reply("Deleted; how many deliveries were dropped.", DroppedAnswer)},
        _CHANGED,
        operation="unsubscribe",
    ),
    Route(
        "POST",
        _ONE + "/test",
        test,
        "admin",
        "subscribers",
        "Send a message to one subscriber alone",
        publish.REPLIES,
        publish.PROBLEMS,
        body=Body(
            {BYTES: CONTENT}, required=False, doc="The content; without one a small JSON object.", also={ANY: CONTENT}
        ),
        headers=(WAIT,),
        bytes_max="content_bytes_max",
        operation="send_test_message",
    ),
    Route(
        "POST",
        _ONE + "/retry",
        retry,
        "admin",
        "subscribers",
        "Try again now what waits for another attempt",
        {200: Reply("How many messages are, or with dry_run would be, due now.", RetriedAnswer)},
        (*_CHANGED, 409),
        body=Body({JSON: DryRunBody}, required=False),
        query=(parameters.DRY_RUN,),
        operation="retry_subscriber",
    ),
    Route(
        "POST",
        _ONE + "/filter",
        try_filter,
        "admin",
        "subscribers",
        "Try a filter on the newest messages of the queue",
        {200: Reply("What it says of each. Nothing is changed.", TriedFilterAnswer)},
        (404,),
        body=Body({JSON: TryFilterBody}, required=False),
        operation="try_filter",
    ),
    Route(
        "POST",
        _ONE + "/rotate-secret",
        rotate_secret,
        "admin",
        "subscribers",
        "Sign with a new secret, and with the old one for a while",
        {200: Reply("The new secret, shown this once; of a key pair the public key.", SecretAnswer)},
        (*_CHANGED, 409),
        body=Body({JSON: NewSecretBody}, required=False),
        operation="rotate_secret",
    ),
)
