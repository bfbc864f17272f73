"""Bodies of the rare facts: queues, subscribers, replays, snapshots. Pure; JSON, since they are few and grow.

A settings object is written with every field and read with defaults for what is missing, so that a field added later
needs no new version of the record.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from syncbrok.log.format.records import Gap, Record, SegmentOpened
from syncbrok.model.facts import (
    Action,
    Erased,
    Fact,
    FileApplied,
    JobChanged,
    Managed,
    Outcome,
    QueueDeleted,
    QueueSet,
    Rearmed,
    RearmedEntry,
    Snapshot,
    SubscriberDeleted,
    SubscriberSet,
)
from syncbrok.model.jobs import Choice, JobKind, JobState, JobWish
from syncbrok.model.message import (
    BacklogBound,
    BatchPolicy,
    BreakerPolicy,
    DisabledBy,
    EndpointAuth,
    Format,
    ParentFailure,
    QueueSettings,
    RetryPolicy,
    Scope,
    Signature,
    SubscriberSettings,
)
from syncbrok.model.names import MessageId, QueueName, SubscriberId, id_text


class DeclarationBody(NamedTuple):
    """The parts of a declaration's record: ``queue`` and ``items`` of the header, and the body."""

    queue: int
    items: int
    body: bytes


# -- settings ---------------------------------------------------------------------------------------------------------


def _retry_out(retry: RetryPolicy | None) -> list[Any] | None:
    return None if retry is None else [retry.delays_s, retry.jitter]


def _retry_in(value: list[Any]) -> RetryPolicy:
    return RetryPolicy(tuple(float(delay) for delay in value[0]), float(value[1]))


def _breaker_out(breaker: BreakerPolicy | None) -> list[Any] | bool:
    return False if breaker is None else [breaker.failures, breaker.share, breaker.of, breaker.probe_s]


def _breaker_in(value: list[Any] | bool) -> BreakerPolicy | None:
    if not isinstance(value, list):
        return None
    return BreakerPolicy(int(value[0]), float(value[1]), int(value[2]), (float(value[3][0]), float(value[3][1])))


def queue_settings_out(settings: QueueSettings) -> dict[str, Any]:
    return {
        "scope": int(settings.scope),
        "parent_failure": int(settings.parent_failure),
        "retry": _retry_out(settings.retry),
        "timeout_s": settings.timeout_s,
        "window": settings.window,
        "idempotency_window_s": settings.idempotency_window_s,
        "max_backlog": None if settings.max_backlog is None else list(settings.max_backlog),
        "retention_s": settings.retention_s,
        "erase_after_s": settings.erase_after_s,
    }


_QUEUE_FIELDS: dict[str, Callable[[Any], Any]] = {
    "scope": Scope,
    "parent_failure": ParentFailure,
    "retry": _retry_in,
    "timeout_s": float,
    "window": int,
    "idempotency_window_s": float,
    "max_backlog": lambda value: None if value is None else BacklogBound(*value),
    "retention_s": lambda value: None if value is None else float(value),
    "erase_after_s": lambda value: None if value is None else float(value),
}


def queue_settings_in(value: dict[str, Any]) -> QueueSettings:
    return QueueSettings(**{name: read(value[name]) for name, read in _QUEUE_FIELDS.items() if name in value})


def subscriber_settings_out(settings: SubscriberSettings) -> dict[str, Any]:
    return {
        "endpoint": settings.endpoint,
        "name": settings.name,
        "format": int(settings.format),
        "retry": _retry_out(settings.retry),
        "timeout_s": settings.timeout_s,
        "window": settings.window,
        "start": settings.start,
        "paused": settings.paused,
        "disabled_us": settings.disabled_us,
        "disabled_by": int(settings.disabled_by),
        "disable_after_s": settings.disable_after_s,
        "types": settings.types,
        "secret_count": settings.secret_count,
        "headers": settings.headers,
        "filter": settings.filter,
        "rate": settings.rate,
        "counts": settings.counts,
        "breaker": _breaker_out(settings.breaker),
        "declared": settings.declared,
        "signatures": [one._asdict() for one in settings.signatures],
        "auth": None if settings.auth is None else settings.auth._asdict(),
        "forward": settings.forward,
        "verdicts": settings.verdicts,
        **({} if settings.batch is None else {"batch": list(settings.batch)}),
        "credentials": settings.credentials,
    }


_SUBSCRIBER_FIELDS: dict[str, Callable[[Any], Any]] = {
    "endpoint": str,
    "name": str,
    "format": Format,
    "retry": _retry_in,
    "timeout_s": float,
    "window": int,
    "start": int,
    "paused": bool,
    "disabled_us": int,
    "disabled_by": DisabledBy,  # an older version disabled after a 410 alone, and wrote neither this nor the next
    "disable_after_s": float,
    "types": lambda names: tuple(str(name) for name in names),
    "secret_count": int,
    "headers": lambda pairs: tuple((str(name), str(value)) for name, value in pairs),
    "filter": str,
    "rate": str,
    "breaker": _breaker_in,  # an older version had none and wrote none: its subscribers have the default
    "counts": bool,  # an older version wrote none: whoever was there counted
    "declared": bool,
    "signatures": lambda listed: tuple(Signature(**{name: str(one) for name, one in each.items()}) for each in listed),
    "auth": lambda members: EndpointAuth(**members),
    "verdicts": bool,
    "batch": lambda parts: BatchPolicy(int(parts[0]), float(parts[1])),
    "forward": lambda names: tuple(str(name) for name in names),
    "credentials": int,
}


def subscriber_settings_in(value: dict[str, Any]) -> SubscriberSettings:
    known = {name: read(value[name]) for name, read in _SUBSCRIBER_FIELDS.items() if value.get(name) is not None}
    return SubscriberSettings(**known)


# -- facts as lists ---------------------------------------------------------------------------------------------------


def _by_out(by: str) -> list[str]:
    """The last value of a list: nothing for nobody, as an older version writes it."""
    return [by] if by else []


def _by_in(value: list[Any], at: int) -> str:
    return str(value[at]) if len(value) > at else ""


def _queue_out(fact: QueueSet) -> list[Any]:
    settings = queue_settings_out(fact.settings)
    return [fact.sequence, fact.time_us, fact.number, fact.name, settings, *_by_out(fact.by)]


def _queue_in(value: list[Any]) -> QueueSet:
    name, settings = QueueName(str(value[3])), queue_settings_in(value[4])
    return QueueSet(int(value[0]), int(value[1]), int(value[2]), name, settings, _by_in(value, 5))


def _subscriber_out(fact: SubscriberSet) -> list[Any]:
    settings = subscriber_settings_out(fact.settings)
    return [fact.sequence, fact.time_us, fact.number, fact.queue, fact.id, fact.since, settings, *_by_out(fact.by)]


def _subscriber_in(value: list[Any]) -> SubscriberSet:
    sequence, time_us, number, queue, subscriber, since = value[:6]
    settings = subscriber_settings_in(value[6])
    return SubscriberSet(
        int(sequence),
        int(time_us),
        int(number),
        int(queue),
        SubscriberId(str(subscriber)),
        int(since),
        settings,
        _by_in(value, 7),
    )


def _entry_in(value: list[Any]) -> RearmedEntry:
    message, queue, subscribers, parents, attempts, parent_failure = value[:6]
    return RearmedEntry(
        int(message),
        int(queue),
        tuple(int(number) for number in subscribers),
        tuple(int(number) for number in parents),
        tuple(int(number) for number in attempts),
        ParentFailure(parent_failure),
        str(value[6]) if len(value) > 6 else "",
    )


def _entry_out(entry: RearmedEntry) -> list[Any]:
    """The entry as a list; one without a key as an older version writes it: that one reads six values and no more, and
    would take a record that it cannot read for a torn write."""
    return list(entry if entry.key else entry[:-1])


def _applied_out(fact: FileApplied) -> list[Any]:
    return [fact.entry, fact.hash, *(() if fact.keys is None else (dict(fact.keys),))]


def _applied_in(sequence: int, time_us: int, value: list[Any]) -> FileApplied:
    """An older version wrote no hash a key."""
    keys = tuple((str(name), str(one)) for name, one in value[2].items()) if len(value) > 2 else None
    return FileApplied(sequence, time_us, str(value[0]), str(value[1]), keys)


def _snapshot_out(fact: SegmentOpened | Snapshot) -> dict[str, Any]:
    return {
        "queues": [_queue_out(queue) for queue in fact.queues],
        "subscribers": [_subscriber_out(subscriber) for subscriber in fact.subscribers],
        "applied": [[one.sequence, one.time_us, *_applied_out(one)] for one in fact.applied],
        "bad": [[sequence, int(outcome)] for sequence, outcome in fact.bad],
        "rules": fact.rules,
        **({"lost": fact.lost} if fact.lost else {}),
        **({"jobs": [[job.sequence, job.time_us, _job_out(job)] for job in fact.jobs]} if fact.jobs else {}),
    }


def _snapshot_in(sequence: int, time_us: int, value: dict[str, Any]) -> Snapshot:
    return Snapshot(
        sequence,
        time_us,
        tuple(_queue_in(queue) for queue in value["queues"]),
        tuple(_subscriber_in(subscriber) for subscriber in value["subscribers"]),
        tuple(_applied_in(int(one[0]), int(one[1]), one[2:]) for one in value["applied"]),
        tuple((int(number), Outcome(outcome)) for number, outcome in value["bad"]),
        rules=int(value.get("rules", 1)),
        lost=tuple((int(message), int(subscriber)) for message, subscriber in value.get("lost", ())),
        jobs=tuple(_job_in(int(job_sequence), int(at_us), job) for job_sequence, at_us, job in value.get("jobs", ())),
    )


def _rearmed_out(fact: Rearmed) -> list[Any]:
    narrowed = [fact.subscriber] if fact.subscriber else []
    return [fact.replay, [_entry_out(entry) for entry in fact.entries], *narrowed]


def _rearmed_in(sequence: int, time_us: int, value: list[Any]) -> Rearmed:
    entries = tuple(_entry_in(entry) for entry in value[1])
    return Rearmed(sequence, time_us, int(value[0]), entries, int(value[2]) if len(value) > 2 else 0)


def _erased_out(fact: Erased) -> list[Any]:
    """Its third and fourth value stand there only where they say something: as records were before there was one."""
    more = [fact.past_retention, fact.by] if fact.by else [True] if fact.past_retention else []
    return [fact.clock_us, [id_text(one) for one in fact.messages], *more]


def _erased_in(sequence: int, time_us: int, value: list[Any]) -> Erased:
    messages = tuple(_id_in(one) for one in value[1])
    past_retention = len(value) > 2 and bool(value[2])
    return Erased(sequence, time_us, int(value[0]), messages, past_retention, _by_in(value, 3))


def _segment_out(fact: SegmentOpened) -> dict[str, Any]:
    return {"sealed_us": fact.sealed_us, **_snapshot_out(fact)}


def _job_out(fact: JobChanged) -> dict[str, Any]:
    """Without its sequence and time."""
    return {**dict(zip(fact._fields[2:], fact[2:], strict=True)), "wish": fact.wish._asdict()}


def _job_in(sequence: int, time_us: int, value: dict[str, Any]) -> JobChanged:
    wish = value["wish"]
    return JobChanged(
        sequence,
        time_us,
        int(value["number"]),
        JobKind(value["kind"]),
        JobState(value["state"]),
        str(value["by"]),
        int(value["created_us"]),
        int(value["changed_us"]),
        int(value["replay"]),
        bool(value["armed"]),
        int(value["total"]),
        int(value["done"]),
        int(value["failed"]),
        JobWish(
            int(wish["queue"]),
            int(wish["subscriber"]),
            int(wish["since"]),
            int(wish["until"]),
            Choice(wish["choice"]),
            tuple(map(str, wish["reasons"])),
            tuple(map(int, wish["messages"])),
            bool(wish["descendants"]),
            bool(wish["force"]),
        ),
        str(value["why"]),
    )


def _id_in(value: Any) -> MessageId:
    """Raises ``ValueError`` for what is no id."""
    digits = str(value).replace("-", "")
    if len(digits) != 32:
        raise ValueError(f"{value!r} is not a message id")
    return MessageId(bytes.fromhex(digits))


# -- bodies -----------------------------------------------------------------------------------------------------------


_Encoder = Callable[[Any], DeclarationBody]
_ENCODERS: dict[type, _Encoder] = {
    QueueSet: lambda fact: DeclarationBody(fact.number, 0, orjson.dumps(_queue_out(fact))),
    SubscriberSet: lambda fact: DeclarationBody(fact.queue, 0, orjson.dumps(_subscriber_out(fact))),
    QueueDeleted: lambda fact: DeclarationBody(fact.number, 0, orjson.dumps([fact.number, *_by_out(fact.by)])),
    SubscriberDeleted: lambda fact: DeclarationBody(0, 0, orjson.dumps([fact.number, *_by_out(fact.by)])),
    FileApplied: lambda fact: DeclarationBody(0, 0, orjson.dumps(_applied_out(fact))),
    Rearmed: lambda fact: DeclarationBody(0, len(fact.entries), orjson.dumps(_rearmed_out(fact))),
    Erased: lambda fact: DeclarationBody(0, len(fact.messages), orjson.dumps(_erased_out(fact))),
    Managed: lambda fact: DeclarationBody(
        fact.queue, 0, orjson.dumps([fact.by, fact.action, fact.queue, fact.message])
    ),
    JobChanged: lambda fact: DeclarationBody(fact.wish.queue, 0, orjson.dumps(_job_out(fact))),
    SegmentOpened: lambda fact: DeclarationBody(0, 0, orjson.dumps(_segment_out(fact))),
    Snapshot: lambda fact: DeclarationBody(0, 0, orjson.dumps(_snapshot_out(fact))),
    Gap: lambda fact: DeclarationBody(0, 0, orjson.dumps([fact.first, fact.last, fact.why])),
}
_Decoder = Callable[[int, int, Any], Record]
_DECODERS: dict[type, _Decoder] = {
    QueueSet: lambda _sequence, _time_us, value: _queue_in(value),
    SubscriberSet: lambda _sequence, _time_us, value: _subscriber_in(value),
    QueueDeleted: lambda sequence, time_us, value: QueueDeleted(sequence, time_us, int(value[0]), _by_in(value, 1)),
    SubscriberDeleted: lambda sequence, time_us, value: SubscriberDeleted(
        sequence, time_us, int(value[0]), _by_in(value, 1)
    ),
    FileApplied: _applied_in,
    Rearmed: _rearmed_in,
    Erased: _erased_in,
    Managed: lambda sequence, time_us, value: Managed(
        sequence, time_us, str(value[0]), Action(value[1]), int(value[2]), int(value[3])
    ),
    JobChanged: _job_in,
    SegmentOpened: lambda sequence, time_us, value: SegmentOpened.of(
        _snapshot_in(sequence, time_us, value), int(value.get("sealed_us", 0))
    ),
    Gap: lambda sequence, time_us, value: Gap(sequence, time_us, int(value[0]), int(value[1]), str(value[2])),
}


def encode_body(fact: Fact | Record) -> DeclarationBody:
    """Header fields and body of any fact but those whose bodies are binary (see ``codec``)."""
    encoder = _ENCODERS.get(type(fact))
    if encoder is None:
        raise TypeError(f"{type(fact).__name__} has no body of JSON")
    return encoder(fact)


def decode_body(kind: type, sequence: int, time_us: int, body: bytes) -> Record:
    """The fact of class ``kind``. Raises ``ValueError``, ``TypeError``, ``KeyError`` or ``IndexError`` where the body
    is not one that ``encode_body`` makes."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise TypeError(f"{kind.__name__} has no body of JSON")
    return decoder(sequence, time_us, orjson.loads(body))


def decode_snapshot(sequence: int, time_us: int, body: bytes) -> Snapshot:
    """The snapshot that ``encode_body`` made a body of, or the one in the body of a ``SegmentOpened``. Raises as
    ``decode_body`` does."""
    return _snapshot_in(sequence, time_us, orjson.loads(body))
