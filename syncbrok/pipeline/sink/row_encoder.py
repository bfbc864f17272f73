"""Makes NDJSON lines of rows; what the columns of the sink mean. Pure; no Spark, no network.

content           binary or string: the message's content; or
data              string of JSON: the same, as application/json; it arrives as it is, byte for byte
content_type      string: of the content, where it is not what its column suggests
parents           array<string>: ids that must be complete first
parent_keys       array<string>: the same, by idempotency keys of rows before it or of an earlier write
key               string: messages of one key go out in the order accepted
headers           map<string,string>: what subscribers get with it
idempotency_key   string: see ``row_keys``, which also says which columns are nothing but keys
parent_failure    string: fail, hold or deliver
delay             number of seconds, or string with a unit: not before
deliver_at        timestamp, or string (RFC 3339): not before
expires           the same: not after
erase_after       the same: its content is kept so long after its end
queue             string: which queue, else the option queue
"""

import base64
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampType,
)

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline.sink.publisher import BadRow, PreparedRow
from syncbrok.pipeline.sink.row_keys import KEY, KeyRule, choose_keys

COLUMNS: Final[Mapping[str, str]] = {
    "content": "binary or string",
    "data": "string",
    "content_type": "string",
    "parents": "array<string>",
    "parent_keys": "array<string>",
    "key": "string",
    "headers": "map<string,string>",
    "idempotency_key": "string",
    "parent_failure": "string",
    "delay": "number or string",
    "deliver_at": "timestamp or string",
    "expires": "timestamp or string",
    "erase_after": "number or string",
    "queue": "string",
}
_BYTES: Final = "application/octet-stream"
_JSON: Final = "application/json"
_DURATIONS: Final = ("delay", "erase_after")
_MOMENTS: Final = ("deliver_at", "expires")
_AS_THEY_ARE: Final = ("key", "parent_failure")


def check_schema(
    schema: StructType, queue: str | None, key_column: str | None, run: str | None = None, *, by_position: bool = False
) -> KeyRule:
    """The rule for the rows' keys. Raises ``BadSetting`` naming every column that is missing, unknown or of another
    type; nothing is sent before."""
    mistakes = []
    names = [field.name for field in schema.fields]
    if ("content" in names) == ("data" in names):
        mistakes.append("exactly one of the columns content (bytes or text) and data (text of JSON) must be there")
    if queue is None and "queue" not in names:
        mistakes.append("neither the option queue nor a column queue says where to publish")
    rule = KeyRule(())
    try:
        rule = choose_keys(names, key_column, run, by_position=by_position)
    except BadSetting as mistake:
        mistakes.append(mistake.detail)
    for field in schema.fields:
        is_key = field.name in rule.columns and (key_column is not None or field.name != KEY)
        if is_key and not isinstance(field.dataType, StringType | NumericType):
            mistakes.append(f"{field.name}, the key column, is {field.dataType.simpleString()}; cast it to string")
        elif is_key and (field.name not in COLUMNS or field.name == KEY):
            continue  # it is nothing but the key, and a number is made text then
        elif field.name not in COLUMNS:
            mistakes.append(f"unknown column {field.name!r}; known are {', '.join(COLUMNS)}: select those to publish")
        elif not _fits(field.name, field.dataType):
            mistakes.append(f"{field.name} must be {COLUMNS[field.name]}, not {field.dataType.simpleString()}")
    mistakes += [
        f"column {name!r} is there twice" for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if mistakes:
        raise BadSetting("these rows cannot be published: " + "; ".join(mistakes))
    return rule


def _fits(name: str, found: DataType) -> bool:
    match name:
        case "content":
            return isinstance(found, StringType | BinaryType)
        case "parents" | "parent_keys":
            return isinstance(found, ArrayType) and isinstance(found.elementType, StringType)
        case "headers":
            return (
                isinstance(found, MapType)
                and isinstance(found.keyType, StringType)
                and isinstance(found.valueType, StringType)
            )
        case "delay" | "erase_after":
            return isinstance(found, StringType | NumericType)
        case "deliver_at" | "expires":
            return isinstance(found, StringType | TimestampType)
    return isinstance(found, StringType)


class RowEncoder:
    """Makes lines of NDJSON from the rows of one partition, with keys by ``rule``. Keys from positions name the ``run``
    and the partition."""

    def __init__(self, queue: str | None, rule: KeyRule, run: str, partition: int) -> None:
        self._queue = queue
        self._rule = rule
        self._run = run
        self._partition = partition
        self.rows = 0
        """how many there were so far"""

    def of(self, batch: pa.RecordBatch) -> Iterator[PreparedRow]:
        """The lines of these rows, in their order. Raises ``BadRow``."""
        return map(self.one, rows_of(batch))

    def one(self, row: Mapping[str, Any]) -> PreparedRow:
        """The line of the next row, by the names of its columns. Raises ``BadRow``."""
        try:
            given = self._line(row)
            line = PreparedRow(self._queue_of(row), orjson.dumps(given), self.rows, given["idempotency_key"])
        except (BadRow, orjson.JSONEncodeError) as error:
            raise BadRow(f"row {self.rows} of partition {self._partition}: {error}") from None
        self.rows += 1
        return line

    def _queue_of(self, row: Mapping[str, Any]) -> str:
        queue = row.get("queue") or self._queue
        if not queue:
            raise BadRow("its column queue is empty and there is no option queue")
        return str(queue)

    def _line(self, row: Mapping[str, Any]) -> dict[str, Any]:
        headers = dict(row.get("headers") or ())
        if row.get("content_type"):
            headers = {name: value for name, value in headers.items() if name.lower() != "content-type"}
            headers["content-type"] = row["content_type"]
        line = _content(row, headers)
        if headers:
            line["headers"] = headers
        if row.get("parents"):
            line["parents"] = row["parents"]
        for name in _AS_THEY_ARE:
            if row.get(name) is not None:
                line[name] = row[name]
        for name in _DURATIONS:
            if row.get(name) is not None:
                line[name] = _duration(name, row[name])
        for name in _MOMENTS:
            if row.get(name) is not None:
                line[name] = _moment(row[name])
        line["idempotency_key"] = self._rule.key(row, f"{self._run}-{self._partition}-{self.rows}")
        return line


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch, by the names of its columns."""
    names = batch.schema.names
    for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield dict(zip(names, values, strict=True))


def _moment(value: datetime | str) -> str:
    """``value`` as RFC 3339. What Spark calls a timestamp is a moment, whatever the zone it is shown in."""
    return value if isinstance(value, str) else value.astimezone(UTC).isoformat()


def _duration(name: str, value: Any) -> int | float | str:
    """``value`` as JSON has it, which knows neither decimals nor what is no number (orjson makes null of that: no
    delay). Raises ``BadRow``."""
    if isinstance(value, int | str):
        return value
    seconds = float(value)
    if not math.isfinite(seconds):
        raise BadRow(f"its column {name} is {seconds}, which is no number of seconds")
    return seconds


def _content(row: Mapping[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    """The member of the line that holds the content. Bytes that are text travel as text, which is shorter than base64
    and cheaper at both ends; what they are is then said by their type."""
    if "data" in row:
        if row["data"] is None:
            raise BadRow("its column data is null")
        try:
            orjson.loads(row["data"])
        except orjson.JSONDecodeError as error:
            raise BadRow(f"its column data is not JSON: {error}") from None
        # The text and not what was read of it: that has other numbers where they have more digits than a double.
        _typed(headers, _JSON)
        return {"content": row["data"]}
    content = row["content"]
    if content is None:
        raise BadRow("its column content is null")
    if isinstance(content, str):
        return {"content": content}
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {"content_base64": base64.b64encode(content).decode()}
    if "\0" in text:  # each would become six characters
        return {"content_base64": base64.b64encode(content).decode()}
    _typed(headers, _BYTES)
    return {"content": text}


def _typed(headers: dict[str, str], content_type: str) -> None:
    """Set the content type, where the row names none."""
    if not any(name.lower() == "content-type" for name in headers):
        headers["content-type"] = content_type
