"""JSON of publishers, integers of any size included."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.frontends.over_http.consuming import socket_frames
from syncbrok.frontends.over_http.publishing import cloud_events, ndjson
from syncbrok.frontends.over_http.requests.exact_json import dumps, has_long_number, loads
from syncbrok.frontends.over_http.requests.time_slices import at_once
from syncbrok.model import limits
from syncbrok.model.errors import Malformed
from syncbrok.model.names import QueueName

LARGE = 99999999999999999999991
texts = st.text(st.characters(codec="utf-8"))
numbers = st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_nothing_is_changed(value: Any) -> None:
    """INTERFACES 3: ``data`` is any JSON. What was written comes out as the same values, to the last digit."""
    assert json.loads(dumps(loads(json.dumps(value).encode()))) == value


@pytest.mark.parametrize("before", range(8))
def test_long_numbers_are_found_wherever_they_stand(before: int) -> None:
    """The glance that looks at every fourth character misses none of nineteen digits or more."""
    found = [has_long_number(b"x" * before + b"7" * digits + b"}") for digits in range(60)]
    assert found == [digits >= 19 for digits in range(60)]


@pytest.mark.parametrize("more", [{}, {"idempotency_key": "k"}, {"key": "k"}])
def test_two_large_numbers_are_two_contents(more: dict[str, str]) -> None:
    """RULES 4: with one key they are a conflict, so none may be taken for the other: in lines of a batch, the short way
    or the long one."""
    body = b"".join(json.dumps({"data": {"amount": amount}, **more}).encode() + b"\n" for amount in (LARGE, LARGE + 1))
    assert at_once(ndjson.columns_in_steps(QueueName("q"), body, 10, 1_000)) is None
    first, second = ndjson.parse_lines(body, 10, 1_000, 64)
    assert first.content == b'{"amount":%d}' % LARGE
    assert second.content == b'{"amount":%d}' % (LARGE + 1)


def test_large_numbers_in_frames_and_events() -> None:
    """The same on a WebSocket and in CloudEvents, whose attributes may be integers too."""
    frame = socket_frames.open_frame(json.dumps({"type": "publish", "data": LARGE}))
    published = socket_frames.read(frame, limits.content_bytes_max, limits.parents_max)
    assert isinstance(published, socket_frames.PublishOne)
    assert published.message.content == b"%d" % LARGE
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "number": LARGE, "data": [LARGE]}
    message, _ = cloud_events.from_json(loads(json.dumps(event).encode()))
    assert message.content == b"[%d]" % LARGE
    assert dict(message.headers)["ce-number"] == str(LARGE)


def test_what_is_nested_too_deeply_is_refused() -> None:
    """CONTRIBUTING, errors: bad input is the client's fault, however it is bad."""
    with pytest.raises(Malformed, match="deep"):
        dumps(loads(b"[" * 1_020 + b"%d" % LARGE + b"]" * 1_020))
