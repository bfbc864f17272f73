"""The columns of the kinds of rows that a log is read as, typed for Arrow and for Spark. Pure: no Spark is needed here.

``messages``     a row for each accepted message
``deliveries``   a row for each row of an outcomes record: an attempt, or the end of a delivery without one
``facts``        a row for each record
``states``       a row for each delivery: how it stands at the end of the log
``queues``       a row for each queue, as it is declared at the end of the log
``subscribers``  a row for each subscriber, likewise

Times are Unix microseconds in UTC (``timestamp``). What may be null says so below. All others are declared never to be:
Spark asks twice for each value of a row whether it is null, and these questions were a tenth of a scan.
"""

from typing import NamedTuple

import pyarrow as pa

from syncbrok.model.errors import BadSetting

KINDS = ("messages", "deliveries", "facts")
"""those whose rows stand in records"""
DERIVED = ("states", "queues", "subscribers")
"""those that follow from all records together"""

LONG = pa.int64()
INT = pa.int32()
TEXT = pa.string()
TIME = pa.timestamp("us", tz="UTC")
BINARY = pa.binary()
FLAG = pa.bool_()
REAL = pa.float64()
TEXTS = pa.list_(pa.string())
LONGS = pa.list_(pa.int64())
HEADERS = pa.map_(pa.string(), pa.string())


class Column(NamedTuple):
    """A column: its name, its Arrow type, Spark's word for the same type, and whether a row may have no value."""

    name: str
    arrow: pa.DataType
    spark: str
    nullable: bool


_SPARK: dict[pa.DataType, str] = {
    LONG: "bigint",
    INT: "int",
    TEXT: "string",
    TIME: "timestamp",
    BINARY: "binary",
    FLAG: "boolean",
    REAL: "double",
    TEXTS: "array<string>",
    LONGS: "array<bigint>",
    HEADERS: "map<string,string>",
}


def _columns(*pairs: tuple[str, pa.DataType], null: str) -> tuple[Column, ...]:
    """Columns from pairs of name and type. ``null``: the names of those that may be null."""
    return tuple(Column(name, kind, _SPARK[kind], name in null.split()) for name, kind in pairs)


MESSAGES = _columns(
    ("sequence", LONG),
    ("time", TIME),  # accepted
    ("queue", TEXT),  # null: not declared any more
    ("id", TEXT),
    ("parents", TEXTS),
    ("parent_sequences", LONGS),
    ("root", LONG),
    ("depth", INT),
    ("key", TEXT),  # null: none
    ("idempotency_key", TEXT),  # null: none
    ("headers", HEADERS),  # a name that comes more than once has its values joined with ", "
    ("content_type", TEXT),
    ("content", BINARY),  # null: erased
    ("scope", TEXT),  # all, same
    ("parent_failure", TEXT),  # fail, hold, deliver
    ("not_before", TIME),  # null: at once
    ("expires", TIME),  # null: never
    ("only_subscriber", INT),  # a test message's one subscriber, by its number; null: for all
    ("carried", FLAG),  # read from where retention carried it to: its own record is no longer in the log
    ("batch", LONG),
    ("erased", FLAG),  # content and headers are gone; a digest stands in the place of each key, or nothing
    ("erase_after_us", LONG),  # its content is kept so long after its end; null: as its queue says
    null="queue key idempotency_key content not_before expires only_subscriber erase_after_us",
)
DELIVERIES = _columns(
    ("sequence", LONG),  # of the record
    ("position", INT),  # of the row in it
    ("recorded", TIME),
    ("message", LONG),
    ("subscriber_number", LONG),  # 4294967295: all that had not ended
    ("subscriber", TEXT),  # null: all, or not declared any more
    ("queue", TEXT),  # of the subscriber; null as above
    ("attempt", INT),  # 0: ended without one
    ("outcome", TEXT),  # model.facts.Outcome in lower case; null: one that this version does not know
    ("reason", TEXT),  # model.facts.Reason in lower case; null as above
    ("status", INT),
    ("time", TIME),  # the attempt began, or the delivery was ended
    ("due", TIME),  # of the next attempt; null: none
    ("after", LONG),
    ("latency_us", LONG),
    ("detail", BINARY),
    null="subscriber queue outcome reason due",
)
FACTS = _columns(
    ("sequence", LONG),
    ("time", TIME),
    ("kind", TEXT),  # layout.Kind in lower case; carried_message for a carried one; null: not known to this version
    ("batch", LONG),
    ("synced_through", LONG),
    ("unit_end", FLAG),
    ("queue_number", LONG),
    ("queue", TEXT),  # null: none, or not declared any more
    ("id", TEXT),  # of the message; null: none
    ("root", LONG),
    ("depth", INT),
    ("items", INT),
    ("segment", LONG),  # its base
    ("offset", LONG),
    ("bytes", LONG),
    ("detail", TEXT),  # JSON of what the fact says; null for messages and outcomes, which have rows of their own
    null="kind queue id detail",
)
STATES = _columns(
    ("message", LONG),
    ("queue", TEXT),  # null: not declared any more
    ("subscriber_number", LONG),  # 0: one that was deleted before the log begins
    ("subscriber", TEXT),  # null: as above
    ("counted", FLAG),  # the completion of the message waits for it
    ("state", TEXT),  # open, retrying, paused; delivered, skipped, dead, expired, dropped
    ("since", TIME),
    ("ended", TIME),  # null: not yet, or not any more
    ("attempts", INT),  # the number of the last one; 0: none
    ("reason", TEXT),  # of a bad end, or of what was skipped; null: none
    ("accepted", TIME),
    null="queue subscriber ended reason",
)
QUEUES = _columns(
    ("queue_number", LONG),
    ("queue", TEXT),
    ("declared", TIME),  # null: before the log begins
    ("deleted", TIME),  # null: it is there
    ("settings", TEXT),  # JSON, as the last fact says them
    null="declared deleted",
)
SUBSCRIBERS = _columns(
    ("subscriber_number", LONG),
    ("subscriber", TEXT),
    ("queue_number", LONG),
    ("queue", TEXT),  # null: not known any more
    ("since", LONG),  # messages behind this sequence count it, if it counts
    ("counts", FLAG),
    ("state", TEXT),  # active, paused, disabled, deleted
    ("declared", TIME),  # null: before the log begins
    ("deleted", TIME),  # null: it is there
    ("settings", TEXT),  # JSON, as the last fact says them; no secrets are in facts
    null="queue declared deleted",
)
LOG = Column("log", TEXT, _SPARK[TEXT], False)
"""of which log a row is, its uuid in hexadecimal: behind the others, where several are read together"""
_OF_KIND = {
    "messages": MESSAGES,
    "deliveries": DELIVERIES,
    "facts": FACTS,
    "states": STATES,
    "queues": QUEUES,
    "subscribers": SUBSCRIBERS,
}
_MOST_WANTED = {"messages": "sequence,queue,id,parents,key,headers,time,content"}


def columns_of(kind: str, wanted: str | None = None) -> tuple[Column, ...]:
    """The columns of ``kind``, in their order, or those of the comma-separated list ``wanted``, in its order. Raises
    ``BadSetting`` naming what there is."""
    if kind not in _OF_KIND:
        raise BadSetting(f"kind is {kind!r}; it must be one of {', '.join(_OF_KIND)}", kind=kind)
    known = {column.name: column for column in _OF_KIND[kind]}
    if wanted is None:
        return tuple(known.values())
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        what = f"{', '.join(unknown)} is no column" if unknown else "columns is empty"
        raise BadSetting(f"{what} of kind {kind}; there are {', '.join(known)}", columns=wanted)
    if len(set(names)) < len(names):
        raise BadSetting(f"columns names one more than once: {wanted}", columns=wanted)
    return tuple(known[name] for name in names)


def chosen(kind: str, option: str | None) -> tuple[Column, ...]:
    """The columns that a reader's option ``columns`` asks for: those of a comma-separated list, ``all`` there are, or,
    where nothing is said (None), those that most want. Spark prunes no columns of a source in Python, and the other
    thirteen of a message make reading it half as slow again. Raises ``BadSetting``."""
    if option is None:
        return columns_of(kind, _MOST_WANTED.get(kind))
    return columns_of(kind, None if option.strip().lower() == "all" else option)


def arrow_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """The Arrow schema that Spark expects of a batch with these columns."""
    return pa.schema([pa.field(column.name, column.arrow, column.nullable) for column in columns])


def ddl_of(arrow: pa.Schema) -> str:
    """A schema as text that Spark reads; of the types that a column may have here, and numbers with a fraction."""
    return ", ".join(f"{one.name} {_SPARK[one.type]}" for one in arrow)


def ddl(columns: tuple[Column, ...]) -> str:
    """The columns as text from which Spark reads a schema."""
    return ", ".join(f"`{column.name}` {column.spark}{'' if column.nullable else ' not null'}" for column in columns)
