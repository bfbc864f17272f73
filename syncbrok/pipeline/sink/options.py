"""The options of the sink.

url             the broker's, or those of a cluster's nodes with commas between them
queue           where to publish, for rows without a column queue
token           where the broker asks for one
keyColumn       the column whose values are the idempotency keys (any name; else idempotency_key, or the row's place:
                log and sequence; topic, partition and offset)
keys            position: keys of rows without such a column are made of their positions
run             a name for this write, the same when it is repeated: part of keys made of places or positions
batchRows       1000; at most 10,000       rows of one request
batchBytes      4 MiB; at most 16 MiB      bytes of one request
retryTimeout    5m                         how long a request is tried again where no broker takes it
answerTimeout   60s                        how long to wait for one answer
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from syncbrok.model import limits
from syncbrok.model.errors import BadSetting
from syncbrok.model.limits import MIB
from syncbrok.model.units import parse_bytes, parse_duration_s
from syncbrok.pipeline.kafka_names import hint
from syncbrok.pipeline.sink.publisher import PublishTarget, check_url

_NAMES: Final = (
    "url", "queue", "token", "keyColumn", "keys", "run", "batchRows", "batchBytes", "retryTimeout", "answerTimeout",
)  # fmt: skip
_SPARKS_OWN: Final = frozenset({"path", "checkpointlocation", "queryname"})
_USUAL: Final = PublishTarget("")

_Value = TypeVar("_Value", int, float)


class SinkOptions(NamedTuple):
    """The options of a sink, read and checked."""

    target: PublishTarget
    queue: str | None
    key_column: str | None
    by_position: bool
    run: str | None
    batch_rows: int
    batch_bytes: int


def read_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of a sink from those of Spark; case does not matter. Raises ``BadSetting`` for one that is unknown,
    missing or has a value it cannot have."""
    given = {name.lower(): value for name, value in options.items() if value}
    unknown = sorted(given.keys() - {name.lower() for name in _NAMES} - _SPARKS_OWN)
    if unknown:
        told = ", ".join(f"{name}{hint(name)}" for name in unknown)
        raise BadSetting(f"unknown options {told}; the sink has {', '.join(_NAMES)}")
    if "url" not in given:
        raise BadSetting("the option url is missing: it says where the broker is, such as http://127.0.0.1:10000")
    check_url(given["url"])
    target = PublishTarget(
        given["url"],
        given.get("token"),
        _read(given, "retryTimeout", parse_duration_s, _USUAL.retry_timeout_s),
        _read(given, "answerTimeout", parse_duration_s, _USUAL.answer_timeout_s),
    )
    return SinkOptions(
        target,
        given.get("queue"),
        given.get("keycolumn"),
        _by_position(given.get("keys")),
        given.get("run"),
        _bounded("batchRows", _read(given, "batchRows", _parse_count, 1_000), limits.batch_lines_max),
        _bounded("batchBytes", _read(given, "batchBytes", parse_bytes, 4 * MIB), limits.batch_bytes_max),
    )


def _read(given: Mapping[str, str], name: str, parse: Callable[[str], _Value], usual: _Value) -> _Value:
    text = given.get(name.lower())
    if text is None:
        return usual
    try:
        return parse(text)
    except BadSetting as error:
        raise BadSetting(f"{name}: {error.detail}") from None


def _by_position(keys: str | None) -> bool:
    if keys is not None and keys.strip().lower() != "position":
        raise BadSetting(f"keys: expected position, found {keys!r}; a column of keys is named by keyColumn")
    return keys is not None


def _parse_count(text: str) -> int:
    if not text.strip().isdecimal():
        raise BadSetting(f"expected a whole number, found {text!r}")
    return int(text)


def _bounded(name: str, value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise BadSetting(f"{name}: expected 1 to {most}, found {value}")
    return value
