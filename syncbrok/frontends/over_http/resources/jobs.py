"""Jobs of operators: recover a subscriber, replay a selection, drop dead letters; list, show and cancel them (RULES
34). What begins one is answered 202 with its ``Location``, a dry run 200."""

from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web
from msgspec import UNSET

from syncbrok.frontends.over_http.requests import parameters, render
from syncbrok.frontends.over_http.requests.body import read_object
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.paths import queue_of
from syncbrok.frontends.over_http.requests.reach import check_message, name_seen, spoken_by, those_seen
from syncbrok.frontends.over_http.requests.routes import JSON, Body, Reply, Route
from syncbrok.frontends.over_http.resources.messages import take_descendants, take_subscriber
from syncbrok.frontends.over_http.resources.queues import refuse_unknown, take_dry_run
from syncbrok.frontends.over_http.shapes.bodies import DropDeadLettersBody, RecoverBody, ReplayMessagesBody
from syncbrok.frontends.over_http.shapes.job_answers import JobAnswer, JobPlanAnswer, JobsAnswer
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting, UnknownJob
from syncbrok.model.facts import JobChanged, Reason
from syncbrok.model.jobs import Choice, job_id, job_number
from syncbrok.model.names import MessageId, id_text, parse_message_id, parse_subscriber_id, sequence_of
from syncbrok.model.tokens import ADMIN, READ
from syncbrok.model.units import expected, read_setting, render_time
from syncbrok.space.channels import (
    BEGINNING,
    Bound,
    CancelJob,
    DropDeadLetters,
    Planned,
    Recover,
    ReplayMessages,
)
from syncbrok.space.reports import JobReport

PATH: Final = "/v1/jobs"


async def index(context: HttpContext, request: web.Request) -> web.StreamResponse:
    page = context.view.jobs(AFTER_JOB.in_query(request), parameters.LIMIT.in_query(request))
    jobs = [shown(request, one) for one in those_seen(request, READ, page.items)]
    return render.json(JobsAnswer(jobs, None if page.next is None else job_id(page.next)))


async def show(context: HttpContext, request: web.Request) -> web.StreamResponse:
    return render.json(shown(request, _job(context, request, READ)))


async def cancel(context: HttpContext, request: web.Request) -> web.StreamResponse:
    """Take back what was not sent."""
    job = _job(context, request, ADMIN)
    over: JobChanged = await context.channels.messages.put(CancelJob(job.number, spoken_by(request)))
    return render.json(shown(request, context.view.job(over.number)))


async def recover(context: HttpContext, request: web.Request) -> web.StreamResponse:
    given = await read_object(request, context.options.body_timeout_s)
    dry_run = take_dry_run(given, request)
    item = Recover(
        queue_of(request),
        parse_subscriber_id(request.match_info["subscriber"]),
        take_bound(given, "since"),
        take_bound(given, "until"),
        read_setting("state", _parse_choice, given.pop("state", Choice.DEAD)),
        _take_reasons(given),
        dry_run,
        spoken_by(request),
    )
    if item.reasons and item.choice is not Choice.DEAD:
        raise BadSetting("reason: only dead letters are chosen by it; leave it out, or state too", setting="reason")
    refuse_unknown(given)
    return answer(context, request, await context.channels.subscribers.put(item))


async def replay(context: HttpContext, request: web.Request) -> web.StreamResponse:
    queue = queue_of(request)
    given = await read_object(request, context.options.body_timeout_s)
    ids = take_ids(given)
    only = take_subscriber(given)
    descendants = take_descendants(given, request)
    dry_run = take_dry_run(given, request)
    refuse_unknown(given)
    context.view.queue(queue)  # or it is the queue that is unknown
    await check_ids(context, request, queue, ids)
    item = ReplayMessages(queue, tuple(map(sequence_of, ids)), only, descendants, dry_run, spoken_by(request))
    return answer(context, request, await context.channels.messages.put(item))


async def check_ids(context: HttpContext, request: web.Request, queue: str, ids: Sequence[MessageId]) -> None:
    """Raises ``BadSetting`` for a message that the log does not have in the queue, and what ``check_message`` does."""
    for id_ in ids:
        await check_message(context, request, id_, ADMIN)
    for id_, found in zip(ids, await context.view.queues_of(ids), strict=True):
        if found != queue:
            raise BadSetting(f"ids: the log has no message {id_text(id_)} of queue {queue!r}", setting="ids")


async def drop_dead_letters(context: HttpContext, request: web.Request) -> web.StreamResponse:
    given = await read_object(request, context.options.body_timeout_s)
    dry_run = take_dry_run(given, request)
    only = take_subscriber(given)
    before, reasons = take_bound(given, "before"), _take_reasons(given)
    queue, ids = queue_of(request), take_ids(given) if "ids" in given else []
    refuse_unknown(given)
    if ids:
        context.view.queue(queue)
        await check_ids(context, request, queue, ids)
    sequences = tuple(map(sequence_of, ids))
    item = DropDeadLetters(queue, only, before, reasons, sequences, dry_run, spoken_by(request))
    return answer(context, request, await context.channels.messages.put(item))


def answer(context: HttpContext, request: web.Request, planned: Planned, *, dry_run: bool = True) -> web.StreamResponse:
    """202 and where the job is; 200 and its size where there is none: for a dry run, or where it would do nothing."""
    if planned.job is None:
        waiting = UNSET if planned.waiting is None else planned.waiting
        return render.json(JobPlanAnswer(dry_run=dry_run, total=planned.total, first=planned.first, waiting=waiting))
    id_ = job_id(planned.job.number)
    job = shown(request, context.view.job(planned.job.number), planned.first)
    return render.json(job, 202, {"Location": f"{PATH}/{id_}"})


def shown(request: web.Request, job: JobReport, first: int | None = None) -> JobAnswer:
    wish = job.wish
    return JobAnswer(
        id=job_id(job.number),
        kind=job.kind,
        state=job.state,
        by=name_seen(request, job.by),
        queue=job.queue,
        subscriber=job.subscriber,
        choice=wish.choice if not wish.messages else None,
        since=wish.since or None,
        until=wish.until or None,
        reasons=list(wish.reasons),
        created_at=render_time(job.created_us),
        ended_at=render_time(job.changed_us) if job.state.is_over else None,
        replay=job.replay or None,
        total=job.total,
        done=job.done,
        failed=job.failed,
        why=job.why or None,
        first=first,
    )


def take_bound(given: dict[str, Any], name: str) -> Bound:
    """A sequence, or a time as RFC 3339 writes it, taken out; the beginning where there is none. Raises
    ``BadSetting``."""
    value = given.pop(name, None)
    return BEGINNING if value is None else read_setting(name, parameters.parse_bound, value)


def _parse_choice(value: Any) -> Choice:
    if value not in list(Choice):
        raise expected(" or ".join(Choice), value)
    return Choice(value)


def _take_reasons(given: dict[str, Any]) -> tuple[str, ...]:
    value = given.pop("reason", None)
    if value is None:
        return ()
    names = [value] if isinstance(value, str) else value
    known = {one.name.lower() for one in Reason if one}
    if not isinstance(names, list) or not all(isinstance(one, str) and one in known for one in names):
        what = f"reason: expected one of these, or a list of them: {', '.join(sorted(known))}"
        raise BadSetting(what, setting="reason")
    return tuple(dict.fromkeys(names))


def take_ids(given: dict[str, Any]) -> list[MessageId]:
    """``ids``, taken out, each once. Raises ``BadSetting`` and ``Malformed``."""
    value = given.pop("ids", None)
    most = limits.replay_ids_max
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        raise BadSetting(f"ids: expected a list of 1 to {most} message ids", setting="ids")
    if not all(isinstance(one, str) for one in value):
        raise BadSetting("ids: expected message ids as text", setting="ids")
    return list(dict.fromkeys(map(parse_message_id, value)))


def _job(context: HttpContext, request: web.Request, scope: str) -> JobReport:
    text = request.match_info["job"]
    found = context.view.job(job_number(text)) if job_number(text) else None
    if found is None or not those_seen(request, scope, (found,)):
        raise UnknownJob(f"there is no job {text[:80]!r}", job=text[:80])
    return found


def _older_than(text: str) -> int | None:
    number = job_number(text)
    if not number:
        raise BadSetting(f"after: expected the id of a job, not {text[:80]!r}", setting="after")
    return number


AFTER_JOB: Final[parameters.Parameter[int | None]] = parameters.Parameter(
    "after", "Only jobs older than this one: the `next` of the page before.", parameters.TEXT, _older_than, None
)
_BEGUN: Final = {
    200: Reply("A dry run: how many it is about.", JobPlanAnswer),
    202: Reply("The job. It goes on over restarts.", JobAnswer, headers=("Location",)),
}
_PROBLEMS: Final = (404, 429, 503, 507)
ROUTES: Final = (
    Route(
        "GET",
        PATH,
        index,
        READ,
        "jobs",
        "List jobs, the newest first",
        {200: Reply("Those that are not over, and those of seven days.", JobsAnswer)},
        query=(parameters.LIMIT, AFTER_JOB),
        narrowed=True,
        operation="list_jobs",
    ),
    Route(
        "GET",
        PATH + "/{job}",
        show,
        READ,
        "jobs",
        "How far a job is",
        {200: Reply("The job.", JobAnswer)},
        (404,),
        narrowed=True,
        operation="get_job",
    ),
    Route(
        "DELETE",
        PATH + "/{job}",
        cancel,
        ADMIN,
        "jobs",
        "Cancel a job: what was sent stays sent, the rest is taken back",
        {200: Reply("The job as it ended.", JobAnswer)},
        (*_PROBLEMS, 409),
        narrowed=True,
        operation="cancel_job",
    ),
    Route(
        "POST",
        "/v1/queues/{queue}/subscribers/{subscriber}/recover",
        recover,
        ADMIN,
        "jobs",
        "Send a part of its past again to one subscriber",
        _BEGUN,
        _PROBLEMS,
        body=Body({JSON: RecoverBody}, required=False),
        query=(parameters.DRY_RUN,),
        operation="recover",
    ),
    Route(
        "POST",
        "/v1/queues/{queue}/replay",
        replay,
        ADMIN,
        "jobs",
        "Deliver a selection of messages again, in causal order",
        _BEGUN,
        _PROBLEMS,
        body=Body({JSON: ReplayMessagesBody}),
        query=(parameters.DRY_RUN,),
        operation="replay_messages",
    ),
    Route(
        "DELETE",
        "/v1/queues/{queue}/dead-letters",
        drop_dead_letters,
        ADMIN,
        "jobs",
        "Drop dead letters for good",
        _BEGUN,
        _PROBLEMS,
        body=Body({JSON: DropDeadLettersBody}, required=False),
        query=(parameters.DRY_RUN,),
        operation="drop_dead_letters",
    ),
)
