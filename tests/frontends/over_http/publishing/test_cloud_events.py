"""CloudEvents 1.0 as publishers write them: binary mode and the JSON batch format."""

from typing import Any

import orjson
import pytest

from syncbrok.frontends.over_http.publishing.cloud_events import STRUCTURED, Cause, decode, from_json
from syncbrok.frontends.over_http.publishing.headers import parse_event
from syncbrok.model.errors import Malformed
from tests.frontends.over_http.publishing.test_parsing import asked, message


def test_a_cloud_event_in_binary_mode() -> None:
    """INTERFACES 3: source + id is its idempotency key; ce-causationid names a parent; ce-* reach subscribers."""
    headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "a%20b"),
        ("ce-source", "/orders"),
        ("ce-type", "t"),
        ("CE-CausationId", "c-1"),
        ("ce-comment", "%E2%82%AC"),
    ]
    found = asked(*headers)
    assert found.message.idempotency_key == "/orders a b"
    assert found.cause == Cause("/orders", "c-1")
    assert found.message.headers == tuple((name.lower(), value) for name, value in headers)


def test_a_stated_idempotency_key_goes_before_that_of_the_event() -> None:
    """Whoever writes the header means it."""
    event = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "/s"), ("ce-type", "t")]
    assert message(*event, ("Idempotency-Key", "mine")).idempotency_key == "mine"
    assert message(("Idempotency-Key", "mine"), *event).idempotency_key == "mine"


@pytest.mark.parametrize("missing", ["id", "source", "specversion", "type"])
def test_an_event_without_what_it_needs_is_refused(missing: str) -> None:
    """CloudEvents 1.0: id, source, specversion and type are required."""
    event = {"id": "1", "source": "/s", "specversion": "1.0", "type": "t"}
    del event[missing]
    with pytest.raises(Malformed, match=missing):
        asked(*((f"ce-{name}", value) for name, value in event.items()))
    with pytest.raises(Malformed, match=missing):
        from_json(event)


def test_json_events_become_what_the_binary_mode_would_have_sent() -> None:
    """The batch format and the binary mode are two spellings of one event: same key, same headers, same content."""
    event = {
        "specversion": "1.0",
        "id": "a b",
        "source": "/s",
        "type": "t",
        "subject": 'caf\u00e9 "1"',
        "n": 7,
        "b": True,
    }
    found, identity = from_json({**event, "data": {"a": 1}})
    assert found.idempotency_key == identity.key == "/s a b"
    assert (found.content, found.content_type) == (b'{"a":1}', "application/json")
    assert dict(found.headers)["ce-subject"] == "caf%C3%A9%20%221%22"
    assert (dict(found.headers)["ce-n"], dict(found.headers)["ce-b"]) == ("7", "true")
    binary = asked(*found.headers)
    assert binary.message.idempotency_key == found.idempotency_key


@pytest.mark.parametrize(
    ("data", "content", "content_type"),
    [
        ({"data": "text", "datacontenttype": "text/plain"}, b"text", "text/plain"),
        ({"data": "text", "datacontenttype": "application/vnd.x+json"}, b'"text"', "application/vnd.x+json"),
        ({"data": "text"}, b'"text"', "application/json"),
        ({"data": None}, b"null", "application/json"),
        ({"data_base64": "AP8="}, b"\x00\xff", ""),
        ({}, b"", ""),
    ],
)
def test_the_data_of_an_event_is_its_content(data: dict[str, Any], content: bytes, content_type: str) -> None:
    """CloudEvents JSON format 1.0, 3.1: what data is depends on datacontenttype."""
    found, _ = from_json({"specversion": "1.0", "id": "1", "source": "/s", "type": "t", **data})
    assert (found.content, found.content_type) == (content, content_type)


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        {"Upper": "x"},
        {"object": {}},
        {"data": 1, "data_base64": "AA=="},
        {"data_base64": "?"},
        {"data_base64": 7},
        {"specversion": "0.3"},
        {"source": "a b"},
        {"id": "x" * 600},
        {"datacontenttype": "a\r\nb: c"},
    ],
)
def test_an_event_that_breaks_the_format_is_refused(wrong: Any) -> None:
    """Malformed events are told what is wrong with them, one by one."""
    good = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    with pytest.raises(Malformed):
        from_json(good | wrong if isinstance(wrong, dict) else wrong)


# -- what other producers write ---------------------------------------------------------------------------------------

BINARY = (("ce-specversion", "1.0"), ("ce-source", "/s"), ("ce-type", "t"))


def test_null_is_as_if_it_were_not_there() -> None:
    """CloudEvents JSON format 2.2, of attributes; data that is null is JSON's null."""
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
    found, identity = from_json({**event, "subject": None, "causationid": None, "data": {"a": 1}, "data_base64": None})
    assert (found, identity) == from_json({**event, "data": {"a": 1}})
    assert from_json({**event, "data": None, "data_base64": "eA=="})[0].content == b"x"
    assert from_json({**event, "data": None})[0].content == b"null"
    with pytest.raises(Malformed, match="needs 'type'"):
        from_json({**event, "type": None})


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ('"d"', "d"),
        ('"a \\"b\\" c"', 'a "b" c'),
        ('"caf%C3%A9"', "caf\u00e9"),
        ("caf%C3%A9", "caf\u00e9"),
        ('a"b', 'a"b'),
        ('"open', '"open'),
        ("100%", "100%"),
    ],
)
def test_quotes_around_a_value_are_not_of_it(value: str, meant: str) -> None:
    """CloudEvents HTTP binding 3.1.3.2: quotes are taken off, then escapes decoded; what travels on means the same."""
    found = asked(*BINARY, ("ce-id", value)).message
    assert found.idempotency_key == f"/s {meant}"
    assert decode(dict(found.headers)["ce-id"], "ce-id") == meant


@pytest.mark.parametrize("value", ["d 1%", '"d 1%"', "d%201%25", "%64 %31%", '"%64%201%"'])
def test_one_value_travels_in_one_form(value: str) -> None:
    """CloudEvents HTTP binding 3.1.3.2, RULES 4: what is the same when decoded is the same event, however it was
    written: a second spelling was another content under the same key."""
    found = asked(*BINARY, ("ce-id", value)).message
    assert found.headers == asked(*BINARY, ("ce-id", '"d 1%"')).message.headers
    assert dict(found.headers)["ce-id"] == "d%201%25"


@pytest.mark.parametrize("value", ["x%FF", '"%C3"', "%ED%A0%80"])
def test_escapes_that_are_no_text_are_refused(value: str) -> None:
    """CloudEvents HTTP binding 3.1.3.2; replaced, events of different ids would be one (RULES 4)."""
    with pytest.raises(Malformed, match="ce-id"):
        asked(*BINARY, ("ce-id", value))


def test_a_structured_event_alone_is_one_event() -> None:
    """INTERFACES 3: source and id are its key, its data is the content; what a publish says in headers of the broker
    counts as on any other."""
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"a": 1}, "causationid": "0"}
    headers = [("Content-Type", STRUCTURED), ("Syncbrok-Key", "k"), ("ce-id", "of nobody"), ("tracestate", "a=1")]
    found = parse_event(headers, orjson.dumps(event), 64, 0)
    assert (found.message.content, found.message.content_type) == (b'{"a":1}', "application/json")
    assert (found.message.idempotency_key, found.message.key, found.cause) == ("/s 1", "k", Cause("/s", "0"))
    assert dict(found.message.headers)["ce-id"] == "1"
    assert dict(found.message.headers)["tracestate"] == "a=1"
    assert parse_event([("Idempotency-Key", "mine")], orjson.dumps(event), 64, 0).message.idempotency_key == "mine"
    for wrong in (b"", b"[]", b"{", b'"a"', orjson.dumps({**event, "id": None})):
        with pytest.raises(Malformed):
            parse_event(headers, wrong, 64, 0)
    with pytest.raises(Malformed, match="parents"):
        parse_event(headers, orjson.dumps(event), 0, 0)
