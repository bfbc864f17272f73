"""The options of a reader (``.option(...)``) and their meaning. No Spark."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

import orjson

from syncbrok.model.errors import BadName, BadSetting
from syncbrok.model.tokens import parse_name
from syncbrok.model.units import parse_bytes, parse_duration_s, parse_time_us
from syncbrok.pipeline import schema
from syncbrok.pipeline.broker_log import ANSWER_TIMEOUT_S, RETRY_TIMEOUT_S
from syncbrok.pipeline.decode.facts import KIND_NAMES
from syncbrok.pipeline.decode.query import TIME_MAX_US, TIME_MIN_US, Condition, Query
from syncbrok.pipeline.kafka_names import hint
from syncbrok.pipeline.log_snapshot import PARTITION_BYTES, Place, is_url, place_at
from syncbrok.pipeline.object_store import PREFIX, ArchivePlace, place_in
from syncbrok.pipeline.tables.table_place import is_archive

_Value = TypeVar("_Value", int, float)

TRIGGER_BYTES = PARTITION_BYTES
_NAMES: Final = (
    "kind", "columns", "queue", "factKinds", "since", "until", "verify", "pushdown", "partitionBytes", "minPartitions",
    "startingSequence", "startingTime", "endingSequence", "maxBytesPerTrigger", "maxRecordsPerTrigger",
    "failOnDataLoss", "reader", "hold",
    "url", "token", "ca", "retryTimeout", "answerTimeout",
)  # fmt: skip
_SPARKS_OWN: Final = frozenset({"path", "paths", "location", "owner", "provider"})


class SchemaField(Protocol):
    """A column of a schema, as Spark has it."""

    name: str
    nullable: bool


class ReadOptions(NamedTuple):
    """Options for reading the logs in ``places`` and the tables of ``archives``: the rows of ``query``, in partitions
    of about ``partition_bytes``, at least ``least`` of them if there is enough to read. ``with_log``: each row says of
    which log it is, in a last column."""

    places: tuple[Place, ...]
    archives: tuple[ArchivePlace, ...]
    query: Query
    partition_bytes: int
    least: int
    with_log: bool

    @property
    def columns(self) -> tuple[schema.Column, ...]:
        """The columns of a row."""
        return (*self.query.columns, schema.LOG) if self.with_log else self.query.columns

    @property
    def place(self) -> Place:
        """The one place of a log. Raises ``BadSetting`` where there are several, or an archive."""
        if self.archives:
            raise BadSetting(
                f"{self.archives[0]} is an archive, whose tables are read as a batch: a stream follows a log, so give "
                "the broker's storage directory or its URL"
            )
        if len(self.places) > 1:
            raise BadSetting("several logs make one frame and no stream: follow each by a stream of its own")
        return self.places[0]


def read_options(options: Mapping[str, str], given: Sequence[SchemaField] | None = None) -> ReadOptions:
    """The options of a reader, batch or stream, from those of Spark. ``given``: a schema that Spark has already; it
    decides which columns may be null. Raises ``BadSetting``."""
    _refuse_unknown(options)
    if flag(options, "pushdown", default=False):
        raise BadSetting(
            "pushdown is not there any more: Spark keeps filters that were handed down with the frame, not with the "
            "query, and the next query counts wrong. startingSequence, endingSequence, since, until and queue bound "
            "what is read",
            option="pushdown",
        )
    places, archives = _places(options)
    kind = options.get("kind", "messages")
    if archives and kind in schema.DERIVED:
        raise BadSetting(
            f"kind {kind} follows from a log as a whole, and {archives[0]} is an archive: there are "
            f"{', '.join(schema.KINDS)}; the states of a log with an archive are in LogAndArchive"
        )
    if given is None:
        names, with_log = _without_log(options.get("columns"))
        columns, with_log = schema.chosen(kind, names), with_log or len(places) + len(archives) > 1
    else:
        with_log = any(one.name == schema.LOG.name for one in given)
        given = [one for one in given if one.name != schema.LOG.name]
        columns = schema.columns_of(kind, ",".join(one.name for one in given))
        columns = tuple(one._replace(nullable=told.nullable) for one, told in zip(columns, given, strict=True))
    query = Query(
        kind,
        columns,
        _queues(options),
        parsed(parse_time_us, options, "since", TIME_MIN_US),
        parsed(parse_time_us, options, "until", TIME_MAX_US),
        (),
        flag(options, "verify", default=True),
        _fact_kinds(options, kind),
    )
    return ReadOptions(
        places,
        archives,
        query,
        max(1, size(options, "partitionBytes", PARTITION_BYTES)),
        _count(options, "minPartitions") or os.cpu_count() or 1,
        with_log,
    )


def batch_options(options: Mapping[str, str], given: Sequence[SchemaField] | None = None) -> ReadOptions:
    """As ``read_options``, of a batch, with its first and last sequence. Raises ``BadSetting``."""
    if options.get("startingTime") is not None:
        raise BadSetting("startingTime is for a stream; since bounds the times of a batch", option="startingTime")
    if options.get("reader") is not None:
        raise BadSetting("reader is for a stream: a batch has no place to go on from", option="reader")
    read = read_options(options, given)
    bounds = (">=", _starting(options)), ("<=", _count(options, "endingSequence"))
    conditions = tuple(Condition("sequence", than, (one,)) for than, one in bounds if isinstance(one, int))
    if conditions and read.query.kind in schema.DERIVED:
        raise BadSetting(
            f"kind {read.query.kind} follows from all of the log: startingSequence and endingSequence are for "
            f"{', '.join(schema.KINDS)}"
        )
    if _starting(options) == "latest":
        raise BadSetting("startingSequence is 'latest', which is for a stream: a batch behind the log's end is empty")
    return read._replace(query=read.query._replace(conditions=conditions))


def _starting(options: Mapping[str, str]) -> str | int:
    """The option ``startingSequence``: earliest, latest, or a sequence. Raises ``BadSetting``."""
    starting = options.get("startingSequence", "earliest").strip().lower()
    if starting in ("earliest", "latest"):
        return starting
    if not (starting.isdecimal() and int(starting) > 0):
        raise BadSetting(f"startingSequence is {starting!r}; it must be earliest, latest or a sequence from 1 on")
    return int(starting)


def _without_log(wanted: str | None) -> tuple[str | None, bool]:
    """The option ``columns`` without the column ``log``, and whether it names that. One named twice stays once, to be
    refused."""
    names = (wanted or "").split(",")
    at = next((number for number, name in enumerate(names) if name.strip() == schema.LOG.name), None)
    if at is None:
        return wanted, False
    return ",".join(names[:at] + names[at + 1 :]), True


def _places(options: Mapping[str, str]) -> tuple[tuple[Place, ...], tuple[ArchivePlace, ...]]:
    """The logs and the archives that ``load(...)`` and the option ``url`` name. Raises ``BadSetting``."""
    several = options.get("paths")
    paths = [str(one) for one in orjson.loads(several)] if several else []
    paths += [one for one in (options.get("path"), options.get("url")) if one]
    if not paths:
        raise BadSetting(
            "no path: give the broker's storage directory, as in .load('storage/'), or its URL, as in "
            ".load('https://broker:10000'). Of what CREATE TABLE says Spark hands nothing to a source in Python; a "
            "view has it: CREATE TEMPORARY VIEW name USING syncbrok OPTIONS (path 'storage/')"
        )
    token, ca = options.get("token"), options.get("ca")
    if (token or ca) and not any(is_url(one) for one in paths):
        raise BadSetting(f"token and ca are for a log over the network, and {paths[0]} is no URL")
    retry_timeout_s = parsed(parse_duration_s, options, "retryTimeout", RETRY_TIMEOUT_S)
    answer_timeout_s = parsed(parse_duration_s, options, "answerTimeout", ANSWER_TIMEOUT_S)
    of_store = {name: value for name, value in options.items() if _is_of_store(name)}
    archives = [one for one in paths if is_archive(one)]
    if of_store and not archives:
        raise BadSetting(f"{', '.join(sorted(of_store))} is for an archive in a bucket of S3, and {paths[0]} is none")
    logs = tuple(
        place_at(one, token, ca, retry_timeout_s=retry_timeout_s, answer_timeout_s=answer_timeout_s)
        for one in paths
        if one not in archives
    )
    return logs, tuple(place_in(one, of_store) for one in archives)


def _is_of_store(name: str) -> bool:
    return name.upper().startswith(PREFIX)


def _refuse_unknown(options: Mapping[str, str]) -> None:
    """Raise ``BadSetting`` for options that there are not: a mistyped ``until`` would be told nowhere, and everything
    read. Case does not matter."""
    known = {name.lower() for name in _NAMES} | _SPARKS_OWN
    named = [name for name in options if not name.lower().startswith("option.") and not _is_of_store(name)]
    unknown = sorted(name for name in named if name.lower() not in known)
    if unknown:
        told = ", ".join(f"{name}{hint(name)}" for name in unknown)
        raise BadSetting(f"unknown options {told}; the source has path, {', '.join(_NAMES)}")


def _fact_kinds(options: Mapping[str, str], kind: str) -> frozenset[str] | None:
    wanted = _names(options, "factKinds")
    if wanted is None:
        return None
    if kind != "facts":
        raise BadSetting(f"factKinds is for kind facts, and the kind is {kind}", option="factKinds")
    unknown = wanted - set(KIND_NAMES.values())
    if unknown:
        known = ", ".join(KIND_NAMES.values())
        raise BadSetting(f"factKinds has {', '.join(sorted(unknown))}; there are {known}", option="factKinds")
    return wanted


def _count(options: Mapping[str, str], name: str) -> int | None:
    """An option that is a number from 1 on; None where nothing is said."""
    value = options.get(name)
    if value is None:
        return None
    if not value.strip().isdecimal() or int(value) < 1:
        raise BadSetting(f"{name} is {value!r}; it must be a whole number from 1 on", option=name)
    return int(value)


def _queues(options: Mapping[str, str]) -> frozenset[str] | None:
    """The queues that the option ``queue`` names: one name, a comma list, or where a name holds a comma or begins with
    ``[``, a JSON list. None: all. Raises ``BadSetting``."""
    given = options.get("queue", "").strip()
    if not given.startswith("["):
        return _names(options, "queue")
    try:
        listed = orjson.loads(given)
    except ValueError:
        listed = None
    if not isinstance(listed, list) or not listed or not all(isinstance(one, str) for one in listed):
        raise BadSetting(
            'queue begins with "[" and is no JSON list of names; write a name that begins so in one: ["[c]", "a,b"]',
            option="queue",
        )
    return frozenset(listed)


def _names(options: Mapping[str, str], name: str) -> frozenset[str] | None:
    """The names in a comma list; None where nothing is said. Raises ``BadSetting`` where it names nothing."""
    given = options.get(name)
    if given is None:
        return None
    found = frozenset(one.strip() for one in given.split(",") if one.strip())
    if not found:
        raise BadSetting(f"{name} is empty; leave it out for all", option=name)
    return found


class StreamOptions(NamedTuple):
    """Options for following a log: the rows of ``read``, from ``starting`` on (earliest, latest, or a sequence) or from
    the first record since ``starting_us``, through ``ending``, at most ``bytes_max`` and ``records_max`` (None: any
    number) in each trigger. ``reader``: the name under which the broker is told how far it has come, empty for none;
    ``hold``: whether its retention is to wait for that, None: as it was."""

    read: ReadOptions
    starting: str | int
    starting_us: int | None
    ending: int | None
    bytes_max: int
    records_max: int | None
    fail_on_data_loss: bool
    reader: str = ""
    hold: bool | None = None


def stream_options(options: Mapping[str, str], given: Sequence[SchemaField] | None = None) -> StreamOptions:
    """The options of a stream from those of Spark. Raises ``BadSetting``."""
    starting_us = parsed(parse_time_us, options, "startingTime", -1)
    if starting_us >= 0 and options.get("startingSequence") is not None:
        raise BadSetting("startingSequence and startingTime both say where to begin: give one", option="startingTime")
    read, reader = read_options(options, given), _reader(options)
    hold = flag(options, "hold", default=False) if options.get("hold") is not None else None
    if reader and not is_url(str(read.places[0])):
        raise BadSetting("reader is for a log over the network: give url in place of the path", option="reader")
    if hold is not None and not reader:
        raise BadSetting("hold says what retention does for a reader: name it with reader", option="hold")
    return StreamOptions(
        read,
        _starting(options),
        starting_us if starting_us >= 0 else None,
        _count(options, "endingSequence"),
        max(1, size(options, "maxBytesPerTrigger", TRIGGER_BYTES)),
        _count(options, "maxRecordsPerTrigger"),
        flag(options, "failOnDataLoss", default=True),
        reader,
        hold,
    )


def _reader(options: Mapping[str, str]) -> str:
    """The option ``reader``: a name as a broker takes it; empty where nothing is said. Raises ``BadSetting``."""
    given = options.get("reader")
    if given is None:
        return ""
    try:
        return parse_name("reader", given.strip())
    except BadName as problem:
        raise BadSetting(f"reader: {problem.detail}", option="reader") from None


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """An option that is true or false."""
    value = options.get(name)
    if value is None:
        return default
    if value.strip().lower() not in ("true", "false"):
        raise BadSetting(f"{name} is {value!r}; it must be true or false", option=name)
    return value.strip().lower() == "true"


def size(options: Mapping[str, str], name: str, default: int) -> int:
    """An option that is a number, or bytes with a unit."""
    return parsed(lambda value: parse_bytes(int(value) if value.isdecimal() else value), options, name, default)


def parsed(parse: Callable[[str], _Value], options: Mapping[str, str], name: str, default: _Value) -> _Value:
    """The option ``name`` through ``parse``. Raises ``BadSetting`` naming it."""
    value = options.get(name)
    if value is None:
        return default
    try:
        return parse(value.strip())
    except BadSetting as problem:
        raise BadSetting(f"{name}: {problem.detail}", option=name) from problem
