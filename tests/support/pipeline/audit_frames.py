"""Facts as the data frames the source gives, without a file; and several stories as one log, one behind the other."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from syncbrok.log.format.records import Gap, SegmentOpened
from syncbrok.log.offline import order
from syncbrok.model.facts import (
    ALL_SUBSCRIBERS,
    RULES,
    Carried,
    Fact,
    Outcomes,
    QueueDeleted,
    QueueSet,
    Rearmed,
    RearmedEntry,
    StoredMessage,
    SubscriberDeleted,
    SubscriberSet,
)
from syncbrok.model.names import MessageId, id_text, make_message_id, sequence_of, time_ms_of
from syncbrok.pipeline import schema
from syncbrok.pipeline.decode.facts import said

KEY = bytes(range(16))
_KINDS = {"StoredMessage": "message", "Outcomes": "outcomes", "Carried": "carried_message"}


class Frames(NamedTuple):
    messages: DataFrame
    deliveries: DataFrame
    facts: DataFrame


class Rows(NamedTuple):
    """The same as dictionaries."""

    messages: list[dict[str, Any]]
    deliveries: list[dict[str, Any]]
    facts: list[dict[str, Any]]


def frames(spark: SparkSession, facts: Sequence[Fact]) -> Frames:
    """What the source would read from a log of these facts."""
    rows = rows_of(facts)
    return Frames(*(_frame(spark, kind, some) for kind, some in rows._asdict().items()))


def rows_of(facts: Sequence[Fact]) -> Rows:
    queues = {one.number: one.name for fact in facts for one in _queues(fact)}
    known = {fact.sequence for fact in facts if isinstance(fact, StoredMessage)}
    messages: list[dict[str, Any]] = []
    deliveries: list[dict[str, Any]] = []
    carried: set[int] = set()
    for fact in facts:
        if isinstance(fact, StoredMessage):
            messages.append(_message(fact, queues, carried=False))
        elif isinstance(fact, Carried) and fact.message.sequence not in known | carried:
            carried.add(fact.message.sequence)
            messages.append(_message(fact.message, queues, carried=True))
        elif isinstance(fact, Outcomes):
            deliveries += [_delivery(fact, position) for position in range(len(fact.rows))]
    return Rows(messages, deliveries, [_fact(fact) for fact in facts])


def _frame(spark: SparkSession, kind: str, rows: list[dict[str, Any]]) -> DataFrame:
    columns = schema.columns_of(kind)
    data = [tuple(row.get(column.name) for column in columns) for row in rows]
    # A doctored log may lack what a log always has.
    return spark.createDataFrame(data, schema.ddl(tuple(one._replace(nullable=True) for one in columns)))


def _message(fact: StoredMessage, queues: dict[int, str], *, carried: bool) -> dict[str, Any]:
    return {
        "sequence": fact.sequence,
        "time": _time(fact.time_us),
        "queue": queues.get(fact.queue),
        "id": id_text(fact.id),
        "parents": [id_text(parent) for parent in fact.parents],
        "parent_sequences": [sequence_of(parent) for parent in fact.parents],
        "root": fact.root,
        "depth": fact.depth,
        "key": fact.key or None,
        "scope": fact.scope.name.lower(),
        "parent_failure": fact.parent_failure.name.lower(),
        "not_before": _time(fact.due_us) if fact.due_us else None,
        "expires": _time(fact.expires_us) if fact.expires_us else None,
        "only_subscriber": fact.only or None,
        "carried": carried,
        "batch": 0,
    }


def _delivery(fact: Outcomes, position: int) -> dict[str, Any]:
    row = fact.rows[position]
    return {
        "sequence": fact.sequence,
        "position": position,
        "recorded": _time(fact.time_us),
        "message": row.message,
        "subscriber_number": row.subscriber,
        "attempt": row.attempt,
        "outcome": row.outcome.name.lower(),
        "reason": row.reason.name.lower(),
        "status": row.status,
        "time": _time(row.time_us),
        "due": _time(row.due_us) if row.due_us else None,
        "after": row.after,
        "latency_us": row.latency_us,
    }


def _fact(fact: Fact) -> dict[str, Any]:
    name = type(fact).__name__
    kind = _KINDS.get(name) or "".join(f"_{one.lower()}" if one.isupper() else one for one in name).lstrip("_")
    has_rows = isinstance(fact, StoredMessage | Outcomes)
    return {
        "sequence": fact.sequence,
        "time": _time(fact.time_us),
        "kind": kind,
        "detail": None if has_rows else said(fact).decode(),
    }


def _queues(fact: Fact) -> Iterable[QueueSet]:
    if isinstance(fact, QueueSet):
        return (fact,)
    return fact.queues if isinstance(fact, SegmentOpened) else ()


def _time(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


# -- many stories, one log --------------------------------------------------------------------------------------------


def moved(facts: Sequence[Fact], by: int, numbers_by: int) -> list[Fact]:
    """The same story ``by`` sequences later, with queues, subscribers and replays of other numbers. Names of queues say
    which story they are of."""
    return [_moved(fact, by, numbers_by) for fact in facts]


def _moved(fact: Fact, by: int, numbers: int) -> Fact:  # noqa: C901  # a case for each kind
    own = fact.sequence + by
    match fact:
        case StoredMessage():
            return _moved_message(fact, by, numbers)
        case Outcomes():
            rows = tuple(
                row._replace(
                    message=row.message + by,
                    after=row.after + by,
                    subscriber=row.subscriber if row.subscriber == ALL_SUBSCRIBERS else row.subscriber + numbers,
                )
                for row in fact.rows
            )
            return fact._replace(sequence=own, rows=rows)
        case Rearmed():
            entries = tuple(_moved_entry(entry, by, numbers) for entry in fact.entries)
            only = fact.subscriber + numbers if fact.subscriber else 0
            return fact._replace(sequence=own, replay=fact.replay + numbers, entries=entries, subscriber=only)
        case Carried():
            return fact._replace(
                sequence=own,
                message=_moved_message(fact.message, by, numbers),
                ended=tuple((number and number + numbers, outcome) for number, outcome in fact.ended),
                tried=tuple(tried._replace(subscriber=tried.subscriber + numbers) for tried in fact.tried),
            )
        case QueueSet():
            name = f"{fact.name}.{numbers}"
            return fact._replace(sequence=own, number=fact.number + numbers, name=name)  # type: ignore[arg-type]
        case SubscriberSet():
            settings = fact.settings
            if settings.start:
                settings = type(settings)(**{**_fields(settings), "start": settings.start + by})
            return fact._replace(
                sequence=own,
                number=fact.number + numbers,
                queue=fact.queue + numbers,
                since=fact.since + by,
                settings=settings,
            )
        case QueueDeleted() | SubscriberDeleted():
            return fact._replace(sequence=own, number=fact.number + numbers)
        case SegmentOpened():
            return fact._replace(
                sequence=own,
                queues=tuple(_moved(one, by, numbers) for one in fact.queues),  # type: ignore[misc]
                subscribers=tuple(_moved(one, by, numbers) for one in fact.subscribers),  # type: ignore[misc]
                bad=tuple((message + by, outcome) for message, outcome in fact.bad),
            )
        case Gap():
            return fact._replace(sequence=own, first=fact.first + by, last=fact.last + by)
        case _:
            return fact._replace(sequence=own)


def _fields(settings: Any) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def _moved_entry(entry: RearmedEntry, by: int, numbers: int) -> RearmedEntry:
    return entry._replace(
        message=entry.message + by,
        queue=entry.queue + numbers,
        subscribers=tuple(number + numbers for number in entry.subscribers),
        parents=tuple(parent + by for parent in entry.parents),
    )


def _moved_message(fact: StoredMessage, by: int, numbers: int) -> StoredMessage:
    return fact._replace(
        sequence=fact.sequence + by,
        id=_moved_id(fact.id, by),
        queue=fact.queue + numbers,
        root=fact.root + by,
        parents=tuple(_moved_id(parent, by) for parent in fact.parents),
        only=fact.only + numbers if fact.only else 0,
    )


def _moved_id(own: MessageId, by: int) -> MessageId:
    return make_message_id(time_ms_of(own), sequence_of(own) + by, KEY)


class OneLog(NamedTuple):
    """Many stories as one log; ``shifts`` says by how much the sequences of each went up."""

    facts: list[Fact]
    shifts: list[int]


def one_log(stories: Iterable[Sequence[Fact]]) -> OneLog:
    """All stories, one behind the other; the first may be what retention has left of one. After each comes a snapshot
    of all that stands, so that what a story did to the declarations (a gap, a snapshot that lies) ends with it."""
    facts: list[Fact] = []
    queues: dict[int, QueueSet] = {}
    subscribers: dict[int, SubscriberSet] = {}
    shifts: list[int] = []
    last = -1
    for number, story in enumerate(stories):
        last = _first(story[0]) - 1 if last < 0 else last
        shifts.append(last + 1 - _first(story[0]))
        added = moved(story, shifts[-1], number * 1_000)
        facts += [_with_others(fact, queues, subscribers) for fact in added]
        for fact in added:
            _declare(fact, queues, subscribers)
        last = facts[-1].sequence + 1
        everything = (tuple(queues.values()), tuple(subscribers.values()))
        facts.append(SegmentOpened(last, facts[-1].time_us, *everything, (), (), rules=RULES))
    return OneLog(facts, shifts)


def _first(fact: Fact) -> int:
    return min(fact.sequence, fact.first) if isinstance(fact, Gap) else fact.sequence


def _with_others(fact: Fact, queues: dict[int, QueueSet], subscribers: dict[int, SubscriberSet]) -> Fact:
    """A snapshot inside a story names what other stories have declared, too."""
    if not isinstance(fact, SegmentOpened):
        return fact
    return fact._replace(
        queues=(*queues.values(), *fact.queues), subscribers=(*subscribers.values(), *fact.subscribers)
    )


def _declare(fact: Fact, queues: dict[int, QueueSet], subscribers: dict[int, SubscriberSet]) -> None:
    match fact:
        case QueueSet():
            queues[fact.number] = fact
        case SubscriberSet():
            subscribers[fact.number] = fact
        case SubscriberDeleted():
            subscribers.pop(fact.number, None)
        case QueueDeleted():
            queues.pop(fact.number, None)
            for one in [one.number for one in subscribers.values() if one.queue == fact.number]:
                del subscribers[one]
        case _:
            pass


def judged(facts: Sequence[Fact]) -> list[tuple[str, int, int, int]]:
    """What ``OrderChecker`` says of them, sorted, without words."""
    return sorted((one.rule, one.sequence, one.message, one.subscriber) for one in order.check(facts))
