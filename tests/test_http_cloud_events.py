"""CloudEvents 1.0 as publishers write them: binary mode and the JSON batch format."""

from typing import Any

import pytest

from syncbrok.frontends.over_http.cloud_events import Cause, from_json
from syncbrok.model.errors import Malformed
from tests.test_http_parsing import asked, message


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
