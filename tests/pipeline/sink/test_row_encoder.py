"""Rows to lines, and what the sink says of what it cannot send: without Spark's JVM, without a broker."""

import json
import math
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from syncbrok.model.errors import BadSetting
from syncbrok.pipeline.sink.options import read_options
from syncbrok.pipeline.sink.publisher import BadRow
from syncbrok.pipeline.sink.row_encoder import RowEncoder, check_schema
from syncbrok.pipeline.sink.row_keys import choose_keys

OPTIONS = {"url": "http://127.0.0.1:10000"}


def schema(ddl: str) -> StructType:
    """A schema as ``name type, ...``; StructType.fromDDL would start a JVM."""
    kinds: dict[str, Any] = {
        "bytes[]": {"type": "array", "elementType": "binary", "containsNull": True},
        "text[]": {"type": "array", "elementType": "string", "containsNull": True},
        "map": {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True},
    }
    fields = [one.split() for one in ddl.split(",")]
    return StructType.fromJson(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kinds.get(kind, kind), "nullable": True, "metadata": {}} for name, kind in fields
            ],
        }
    )


def lines(batch: dict[str, list[Any]], **named: Any) -> list[dict[str, Any]]:
    rule = choose_keys(list(batch), named.pop("key_column", None), None, by_position=named.pop("by_position", True))
    given = {"queue": "orders", "rule": rule, "run": "run", "partition": 3, **named}
    return [json.loads(line.text) for line in RowEncoder(**given).of(pa.RecordBatch.from_pydict(batch))]


def test_content_arrives_as_it_is_whatever_its_bytes() -> None:
    """Text travels as text, bytes that are no text as base64; what bytes are is said by their type, not guessed."""
    found = lines({"content": [b"plain", b"\xff\x00", b"a\0b", b""]})
    assert [{name: value for name, value in line.items() if name != "idempotency_key"} for line in found] == [
        {"content": "plain", "headers": {"content-type": "application/octet-stream"}},
        {"content_base64": "/wA="},
        {"content_base64": "YQBi"},
        {"content": "", "headers": {"content-type": "application/octet-stream"}},
    ]
    assert lines({"content": ['"quoted"\n']})[0]["content"] == '"quoted"\n'


def test_json_arrives_with_every_digit() -> None:
    """The column data is sent as the text it is, however long its numbers are, and as JSON unless the row says
    otherwise."""
    text = '{"id": 12345678901234567890123, "amount": 0.1234567890123456789}'
    found = lines({"data": [text, text], "content_type": [None, "application/geo+json"]})
    assert [line["content"] for line in found] == [text, text]
    assert [line["headers"]["content-type"] for line in found] == ["application/json", "application/geo+json"]


def test_columns_become_members_and_nulls_are_left_out() -> None:
    """Every column of the sink reaches its member of the line; a null says nothing."""
    headers = pa.array([[("ce-type", "x"), ("Content-Type", "text/csv")], None], pa.map_(pa.string(), pa.string()))
    found = lines(
        {
            "content": ["a", "b"],
            "content_type": ["text/plain", None],
            "parents": [["one", "two"], None],
            "key": ["k", None],
            "headers": headers,  # type: ignore[dict-item]
            "parent_failure": ["hold", None],
            "delay": [1.5, None],
            "deliver_at": [datetime(2026, 7, 1, 14, tzinfo=timezone(timedelta(hours=2))), None],
            "expires": ["2026-07-02T00:00:00Z", None],
            "erase_after": ["30d", None],
            "idempotency_key": ["mine", None],
        }
    )
    assert found == [
        {
            "content": "a",
            "headers": {"ce-type": "x", "content-type": "text/plain"},
            "parents": ["one", "two"],
            "key": "k",
            "parent_failure": "hold",
            "delay": 1.5,
            "deliver_at": "2026-07-01T12:00:00+00:00",
            "expires": "2026-07-02T00:00:00Z",
            "erase_after": "30d",
            "idempotency_key": "mine",
        },
        {"content": "b", "idempotency_key": "run-3-1"},
    ]


@pytest.mark.parametrize("column", ["delay", "erase_after"])
def test_a_delay_is_any_number_of_seconds(column: str) -> None:
    """Decimals are what Spark makes of the literal 1.5; what is no number is told, not published without a delay, or to
    be kept for ever."""
    for delay, sent in ((Decimal("1.5"), 1.5), (2, 2), (0.25, 0.25), ("5m", "5m")):
        assert lines({"content": ["a"], column: [delay]})[0][column] == sent
    for wrong in (math.nan, math.inf):
        with pytest.raises(BadRow, match=rf"row 1 of partition 3: its column {column} is (nan|inf)"):
            lines({"content": ["a", "b"], column: [1.0, wrong]})


def test_keys_from_positions_are_the_same_each_time_and_in_no_other_place() -> None:
    """A repetition of the same rows makes the same keys; another run, partition or row makes others."""
    batch = {"content": ["a", "b"]}
    first = [line["idempotency_key"] for line in lines(batch)]
    assert first == [line["idempotency_key"] for line in lines(batch)] == ["run-3-0", "run-3-1"]
    others = {line["idempotency_key"] for given in ({"run": "r2"}, {"partition": 31}) for line in lines(batch, **given)}
    assert len(others) == 4
    assert not others & set(first)


def test_a_key_column_may_have_any_name_and_no_gaps() -> None:
    """Its values are the keys, numbers as text; a row without one is refused, not given a key that may change."""
    given: dict[str, Any] = {"key_column": "order", "by_position": False}
    assert [line["idempotency_key"] for line in lines({"content": ["a"], "order": [7]}, **given)] == ["7"]
    with pytest.raises(BadRow, match="row 1 of partition 3: its key column 'order' is empty"):
        lines({"content": ["a", "b"], "order": ["x", None]}, **given)
    with pytest.raises(BadRow, match="its key column 'idempotency_key' is empty"):
        lines({"content": ["a"], "idempotency_key": [None]}, by_position=False)


def test_a_row_of_a_known_place_has_its_place_as_key() -> None:
    """PIPELINE, sink: log and sequence, of a delivery its position too, or Kafka's three; a run before them. A place
    is the same whoever reads it, on any number of cores."""
    batch = {"content": ["a", "b"], "log": ["f0"] * 2, "sequence": [7, 8]}
    for more, key in (({}, "f0/7"), ({"position": [3, 4]}, "f0/7/3")):
        assert lines(batch | more, by_position=False, partition=9)[0]["idempotency_key"] == key
    kafka = {"content": ["a"], "topic": ["t"], "partition": [2], "offset": [5]}
    assert lines(kafka, by_position=False) == [{"content": "a", "idempotency_key": "t/2/5"}]
    assert (
        choose_keys(list(batch), None, "again", by_position=False).key({"log": "f0", "sequence": 7}, "") == "again/f0/7"
    )
    with pytest.raises(BadRow, match="its key column 'sequence' is empty"):
        lines({"content": ["a"], "log": ["f0"], "sequence": [None]}, by_position=False)


def test_rows_without_a_known_place_are_refused() -> None:
    """PIPELINE, sink: keys from positions change with the number of cores, so they are made only where that is said;
    the error has each way."""
    told = "nothing says which row is which.*keyColumn.*log and sequence; topic, partition and offset.*keys=position"
    for ddl in ("content string", "content string, sequence long", "content string, topic string, offset long"):
        with pytest.raises(BadSetting, match=told):
            check_schema(schema(ddl), "orders", None)
    check_schema(schema("content string"), "orders", None, by_position=True)
    check_schema(schema("content string, topic string, partition integer, offset long"), "orders", None)
    with pytest.raises(BadSetting, match="two ways to make keys: give one"):
        check_schema(schema("content string, any long"), "orders", "any", by_position=True)
    with pytest.raises(BadSetting, match="log, the key column, is binary; cast it to string"):
        check_schema(schema("content string, log binary, sequence long"), "orders", None)
    with pytest.raises(BadSetting, match="deliver_at must be timestamp or string, not bigint"):
        check_schema(schema("content string, deliver_at long, key string"), "orders", None, by_position=True)


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ({"content": [None]}, "content is null"),
        ({"data": [None]}, "data is null"),
        ({"data": ["{"]}, "data is not JSON"),
        ({"content": ["a"], "queue": [""]}, "queue is empty"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_named(batch: dict[str, list[Any]], told: str) -> None:
    """The error says which row of which partition, and what is wrong with it."""
    with pytest.raises(BadRow, match=f"row 0 of partition 3: .*{told}"):
        lines({"queue": ["orders"], **batch}, queue=None)


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("key string", "exactly one of the columns content"),
        ("content string, data string", "exactly one of the columns content"),
        ("content string, parent string", "unknown column 'parent'; known are content, data,"),
        ("content integer", "content must be binary or string, not int"),
        ("content string, parents bytes[]", "parents must be array<string>, not array<binary>"),
        ("content string, headers text[]", "headers must be map<string,string>"),
        ("content string, key string, key string", "column 'key' is there twice"),
    ],
)
def test_every_mistake_in_the_columns_is_named_before_anything_is_sent(ddl: str, told: str) -> None:
    """A column that would silently do nothing, such as ``parent``, is a mistake too."""
    with pytest.raises(BadSetting) as refused:
        check_schema(schema(ddl), "orders", None)
    assert told in str(refused.value)


def test_where_to_publish_and_the_key_column_must_be_there() -> None:
    """Neither a queue nor a column of queues, a key column that is none: all of it in one error."""
    with pytest.raises(BadSetting) as refused:
        check_schema(schema("content string, map map"), None, "nothing")
    assert "neither the option queue" in str(refused.value)
    assert "the option keyColumn names 'nothing'" in str(refused.value)
    check_schema(schema("content binary, queue string, any long, headers map, parents text[]"), None, "any")


def test_a_key_column_that_is_also_sent_has_the_type_it_is_sent_as() -> None:
    """Numbers as keys for idempotency are made text; a column with a meaning of its own, such as key, goes out as it is
    too, where a broker would refuse the first row."""
    with pytest.raises(BadSetting, match="key must be string, not int"):
        check_schema(schema("content string, key integer"), "orders", "key")
    with pytest.raises(BadSetting, match="content, the key column, is binary; cast it to string"):
        check_schema(schema("content binary"), "orders", "content")
    for name, kind in (("key", "string"), ("idempotency_key", "integer"), ("delay", "long")):
        check_schema(schema(f"content string, {name} {kind}"), "orders", name)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"keycolum": "x"}, "unknown options keycolum; the sink has url, queue"),
        ({"url": "127.0.0.1:10000"}, "url: expected the broker's"),
        ({"keys": "row"}, "keys: expected position, found 'row'"),
        ({"batchRows": "0"}, "batchRows: expected 1 to 10000"),
        ({"batchRows": "many"}, "batchRows: expected a whole number"),
        ({"batchBytes": "17MiB"}, "batchBytes: expected 1 to 16777216"),
        ({"retryTimeout": "soon"}, "retryTimeout: expected a duration"),
    ],
)
def test_options_are_checked(more: dict[str, str], told: str) -> None:
    """A misspelt option would be a key column that is not used: it is refused, as is a value out of bounds."""
    with pytest.raises(BadSetting) as refused:
        read_options(OPTIONS | more)
    assert told in str(refused.value)


def test_options_may_be_written_in_any_case_and_spark_may_add_its_own() -> None:
    """Spark hands options on in lower case, with its own among them."""
    read = read_options(OPTIONS | {"retrytimeout": "2m", "KEYCOLUMN": "k", "checkpointLocation": "/x", "path": ""})
    assert read.target.retry_timeout_s == 120
    assert read.key_column == "k"
    with pytest.raises(BadSetting, match="the option url is missing"):
        read_options({"queue": "orders"})
