"""Facts as JSON: what ``syncbrok log cat`` prints. Queues and subscribers go by name as soon as their fact was seen."""

import base64
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

from syncbrok.log.format.records import Gap, Record, SegmentOpened, SegmentSealed
from syncbrok.model.facts import (
    ALL_SUBSCRIBERS,
    Action,
    Carried,
    Erased,
    FileApplied,
    JobChanged,
    Managed,
    Outcomes,
    QueueDeleted,
    QueueSet,
    Rearmed,
    Row,
    StoredMessage,
    SubscriberDeleted,
    SubscriberSet,
)
from syncbrok.model.message import QueueSettings, SubscriberSettings
from syncbrok.model.names import id_text, sequence_of
from syncbrok.model.settings import render_queue, render_subscriber
from syncbrok.model.units import render_time

_TIMES: Final = {
    "time_us": "time",
    "changed_us": "changed",
    "clock_us": "clock",
    "created_us": "created",
    "due_us": "due",
    "expires_us": "expires",
    "sealed_us": "sealed",
}


_KINDS: Final[Mapping[type[Record], str]] = {
    QueueSet: "queue_set",
    QueueDeleted: "queue_deleted",
    SubscriberSet: "subscriber_set",
    SubscriberDeleted: "subscriber_deleted",
    FileApplied: "file_applied",
    StoredMessage: "published",
    Outcomes: "outcomes",
    Rearmed: "rearmed",
    Carried: "carried",
    Erased: "erased",
    JobChanged: "job",
    Managed: "managed",
    SegmentOpened: "segment_opened",
    SegmentSealed: "segment_sealed",
    Gap: "gap",
}
"""Scripts read these names: none follows from what a class is called."""
KINDS: Final = tuple(_KINDS.values())
"""what ``kind`` may be"""


class FactNames:
    """Shows facts, in the order of the log."""

    def __init__(self) -> None:
        self._queues: dict[int, str] = {}
        self._subscribers: dict[int, str] = {}

    def shown(self, fact: Record) -> dict[str, Any]:
        """``fact`` as JSON knows values, ``kind`` in front."""
        self._learn(fact)
        return {"sequence": fact.sequence, "kind": _KINDS[type(fact)], **self._fields(fact)}

    def _learn(self, fact: Record) -> None:
        if isinstance(fact, SegmentOpened):
            self._queues |= {one.number: one.name for one in fact.queues}
            self._subscribers |= {one.number: one.id for one in fact.subscribers}
        elif isinstance(fact, QueueSet):
            self._queues[fact.number] = fact.name
        elif isinstance(fact, SubscriberSet):
            self._subscribers[fact.number] = fact.id

    def _fields(self, value: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for name, content in value._asdict().items():
            if name in _TIMES:
                fields[_TIMES[name]] = render_time(content) if content else None
            elif name == "queue":
                fields[name] = self._queues.get(content, content)
            elif name in ("subscriber", "only"):
                fields[name] = self._subscriber(content)
            elif name == "subscribers" and content and isinstance(content[0], int):
                fields[name] = [self._subscriber(number) for number in content]
            elif name == "content":
                fields |= content_of(content)
            elif name == "fingerprint":
                fields[name] = content.hex()
            elif name == "id":
                fields[name] = _id(content)
            elif name in ("parents", "messages"):
                fields[name] = [_id(parent) for parent in content]
            else:
                fields[name] = self._plain(content)
        return fields

    def _subscriber(self, number: int) -> int | str | None:
        if number == ALL_SUBSCRIBERS:
            return "all"
        return self._subscribers.get(number, number) or None

    def _plain(self, value: Any) -> Any:
        match value:
            case IntEnum():
                return value.name.lower()
            case bytes():
                return value.decode("utf-8", "backslashreplace")
            case QueueSettings():
                return render_queue(value)
            case SubscriberSettings():
                return render_subscriber(value)
            case tuple() if hasattr(value, "_asdict"):
                return self._fields(value)
            case tuple() | list():
                return [self._plain(one) for one in value]
        return value


def _id(value: Any) -> Any:
    """A message's id as text; other ids as they are (a subscriber's is text already, and a replay names messages by
    sequence)."""
    return id_text(value) if isinstance(value, bytes) else value


def content_of(content: bytes) -> dict[str, Any]:
    """``content`` where it is text, else ``content_base64``: the members of a line of a batch."""
    if not content:
        return {}
    try:
        return {"content": content.decode()}
    except UnicodeDecodeError:
        return {"content_base64": base64.b64encode(content).decode()}


def concerns(fact: Record, message: int) -> bool:
    """Whether ``fact`` says something about the message of this sequence."""
    match fact:
        case StoredMessage():
            return fact.sequence == message
        case Carried():
            return fact.message.sequence == message
        case Outcomes():
            return any(row.message == message for row in fact.rows)
        case Erased():
            return any(sequence_of(one) == message for one in fact.messages)
        case Managed():
            return fact.action is Action.CANCEL and fact.message == message
    entries = getattr(fact, "entries", ())
    return any(entry.message == message for entry in entries)


def narrowed(fact: Record, message: int) -> Record:
    """``fact`` with only the rows of one message."""
    if isinstance(fact, Outcomes):
        rows: tuple[Row, ...] = tuple(row for row in fact.rows if row.message == message)
        return fact._replace(rows=rows)
    return fact
