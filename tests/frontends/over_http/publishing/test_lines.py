"""Batches that are read without a JSON parser, or without an object for each line, are what the parser reads.

Broken by hand to see these fail: quotes not counted; borders of lines and keys that need not take turns; a control
character let through.
"""

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from syncbrok.frontends.over_http.publishing.batch import ids_document
from syncbrok.frontends.over_http.publishing.ndjson import (
    BYTES,
    JSON,
    TEXT,
    columns_in_steps,
    parse_lines,
    unit_in_steps,
)
from syncbrok.frontends.over_http.requests.time_slices import at_once
from syncbrok.model import limits
from syncbrok.model.errors import TooLarge
from syncbrok.model.names import MessageId, QueueName, id_text
from syncbrok.space.channels import Publish
from tests.support.space.fake_space import messages_of

Q = QueueName("q")

_pieces = st.sampled_from(
    [b'{"content":"', b'{"content": "', b'{"data":', b'"}\n', b'"}', b"\n", b'"', b"\\", b"}", b"{", b",", b"a", b" ",
     b"\x00", b"\x1f", b"\x7f", "\u00e9\u20ac\U0001f600".encode(), b"\xff", b"\xed\xa0\x80",
     b"\xc0\x80", b"]", b"[", b"\r", b":", b"content", b"\1", b"\2",
     b'","idempotency_key":"', b'", "idempotency_key": "', b'","key":"']
)  # fmt: skip
_bare_bodies = st.tuples(
    st.lists(st.lists(_pieces, max_size=4).map(b"".join), max_size=5),
    st.sampled_from([b'{"content":"', b'{"content": "']),
).map(lambda told: b"".join(told[1] + content + b'"}\n' for content in told[0]))

_keyed_bodies = st.lists(
    st.tuples(
        st.lists(_pieces, max_size=2).map(b"".join),
        st.sampled_from([b'","idempotency_key":"'] * 3 + [b'", "idempotency_key": "']),
        st.lists(_pieces, max_size=2).map(b"".join),
    ).map(lambda told: b'{"content":"' + b"".join(told) + b'"}\n'),
    max_size=5,
).map(b"".join)


def columns(body: bytes, lines_max: int, content_bytes_max: int) -> Publish | None:
    return at_once(columns_in_steps(Q, body, lines_max, content_bytes_max))


def told(body: bytes, lines_max: int, content_bytes_max: int) -> tuple[str, list[bytes], list[str]]:
    """Type, contents and keys of a body that is read as columns."""
    unit = columns(body, lines_max, content_bytes_max)
    assert unit is not None
    return unit.content_type, list(unit.contents), list(unit.keys)


@settings(max_examples=500)
@given(st.lists(_pieces, max_size=12).map(b"".join) | _bare_bodies | _keyed_bodies, st.booleans())
@example(b'{"content":"}', False)
@example(b'{"content":"a","idempotency_key":"k","idempotency_key":"l"}\n{"content":"b"}\n', False)
@example(b'{"content":"","idempotency_key":""}\n', False)
@example(b'{"content":"a","idempotency_key":"k"}\n{"content":"a", "idempotency_key": "k"}\n', False)
@example(b'{"data":[],"idempotency_key":"k"}\n{"idempotency_key":"l","data":{}}', False)
@example(b'{"data":[],"idempotency_key":null}', False)
@example(b'{"content_base64":"/w=="}\n{"content_base64":""}', False)
@example(b'{"content_base64":"/w==","idempotency_key":"k"}', False)
@example(b'{"content_base64":"/w"}', False)
@example(b'{"content_base64":"/w =="}', False)
@example(b'{"content_base64":"\xc3\xa9"}', False)
@example(b'{"content_base64":7}', False)
@example(b'{"data":[],"idempotency_key":1}', False)
@example(b'{"content":"a","idempotency_key":"\x7f"}', False)
@example(b'{"data":1}\n{"content":"a"}', False)
@example(b'{"data":[1.0,"\\u00e9"]}\n{"data":{"a":{}}}\n', False)
@example(b'["data"]', False)
@example(b'{"content":""}', False)
@example(b'{"content":"a"},{"content":"b"}\n', False)
@example(b'{"content":"a"}\n\n{"content":"b"}\n', False)
@example(b'{"content":"a","content":"b"}\n', False)
def test_the_short_way_reads_what_the_parser_does(body: bytes, cut: bool) -> None:
    """A batch that is read without a JSON parser is one that it reads just so; any other body is left to it."""
    if cut:
        body = body.removesuffix(b"\n")
    unit = columns(body, 4, 40)
    if unit is not None:
        assert (unit.queue, unit.extras) == (Q, {})
        assert unit.size_bytes >= sum(map(len, unit.contents))
        assert parse_lines(body, 4, 40, 1) == tuple(messages_of(unit))


@pytest.mark.parametrize("shift", [0, 1])
def test_a_large_batch_is_cut_in_steps(shift: int) -> None:
    """INTERFACES 5: others have their turn while 15 MB are read: no step looks at more than a MiB, also where a border
    between two parts a character; half a character at the end is none."""
    contents = [b"x" * shift + "\u00e9".encode() * 150_000] * 10
    body = b"".join(b'{"content":"%s"}\n' % one for one in contents)
    steps = columns_in_steps(Q, body, 10, len(body))
    assert sum(1 for _ in steps) >= len(body) / limits.MIB
    assert told(body, 10, len(body))[1] == contents
    assert columns(body.replace('\u00e9"'.encode(), b'\xc3"'), 10, len(body)) is None


@given(st.lists(st.sampled_from([b'"content":"a"', b'"content_base64":"YQ=="', b'"data":"a"']), min_size=1, max_size=5),
       st.sets(st.integers(0, 4)))  # fmt: skip
def test_a_unit_has_the_messages_of_its_lines(contents: list[bytes], keyed: set[int]) -> None:
    """Whichever way a body is read, the unit has the messages of its lines, in their order."""
    body = b"\n".join(
        b"{%s%s}" % (content, b',"key":"k"' if at in keyed else b"") for at, content in enumerate(contents)
    )
    unit = at_once(unit_in_steps(Q, body, 5, 9, 1))
    assert tuple(messages_of(unit)) == parse_lines(body, 5, 9, 1)
    assert {at for at, message in unit.extras.items() if message.key} == {at for at in keyed if at < len(contents)}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0, 1, 300, 60_000, 262_100, 262_120, 262_130, 600_000]), min_size=1, max_size=8),
    st.booleans(),
)
def test_a_long_body_is_cut_at_its_lines(lengths: list[int], ends_with_newline: bool) -> None:
    """Bodies are cut apart piece by piece; wherever a piece ends, no line is lost, cut in two or read twice."""
    contents = [b"%d" % number + b"x" * length for number, length in enumerate(lengths)]
    body = b"\n".join(b'{"content": "%s", "key": "k"}' % content for content in contents)
    messages = parse_lines(body + b"\n" * ends_with_newline, len(contents), limits.MIB, 1)
    assert [message.content for message in messages] == contents
    with pytest.raises(TooLarge):
        parse_lines(body, len(contents) - 1, limits.MIB, 1)


def test_the_short_way_is_taken() -> None:
    """Lines as programs write them go the short way, with and without a space and a last newline."""
    for line in (b'{"content":"%s"}', b'{"content": "%s"}'):
        for end in (b"", b"\n"):
            body = b"\n".join(line % content for content in (b"one", b"", "zw\u00f6lf".encode())) + end
            assert told(body, 3, 6) == (TEXT, [b"one", b"", "zw\u00f6lf".encode()], [])
            assert columns(body, 2, 6) is columns(body, 3, 4) is None
    escaped = b'{ "content" : "\\"\\u00e9" }\n{"content":"\\\\"}'
    assert told(escaped, 2, 3) == (TEXT, ['"\u00e9'.encode(), b"\\"], [])
    assert told(b'{"data": {"a": 1}}\n{"data":null}\n', 2, 7) == (JSON, [b'{"a":1}', b"null"], [])


def test_keys_go_the_short_way_too() -> None:
    """Lines that have an idempotency key each, as the Python client and other programs write them."""
    for line in (b'{"content":"%s","idempotency_key":"%s"}', b'{"content": "%s", "idempotency_key": "%s"}'):
        for end in (b"", b"\n"):
            body = b"\n".join(line % pair for pair in ((b"one", b"k-1"), (b"", "\u00e9".encode()))) + end
            assert told(body, 2, 3) == (TEXT, [b"one", b""], ["k-1", "\u00e9"])
            assert columns(body, 1, 3) is columns(body, 2, 2) is None
    data = b'{"data":{"a":1},"idempotency_key":"x"}\n{"idempotency_key": "y", "data": "\\n"}'
    assert told(data, 2, 9) == (JSON, [b'{"a":1}', b'"\\n"'], ["x", "y"])
    written = b'{"content_base64":"/w==","idempotency_key":"x"}\n{"content_base64":"","idempotency_key":"y"}\n'
    assert told(written, 2, 9) == (BYTES, [b"\xff", b""], ["x", "y"])
    for wrong in (b"", b"\x7f", b"k" * (limits.key_bytes_max + 1)):
        assert columns(b'{"content":"a","idempotency_key":"%s"}' % wrong, 2, 9) is None


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"[]", b"1", b'"c"', b"{}", b"null", b'{"content":1}', b'{"content":["a"]}', b'{"data":1,"key":""}'),
        *(b'{"content":"a","b":1}', b'{"content":"\\ud800"}'),
    ],
)
def test_what_is_more_or_less_than_content_goes_the_long_way(line: bytes) -> None:
    """One such line is enough."""
    for body in (line, b'{"content":"a"}\n' + line + b'\n{"content":"b"}', line + b"\n" + b'{"content":"a"}\n'):
        assert columns(body, 9, 9) is None
    for other in (b"", b'{"data":1}'):
        assert columns(b'{"content":"a"}\n' + other + b'\n{"content":"b"}', 9, 9) is None


@given(st.lists(st.binary(min_size=16, max_size=16).map(MessageId)))
def test_ids_of_a_batch_are_written_like_any_other(ids: list[MessageId]) -> None:
    """The quick way to write ten thousand ids writes what ``id_text`` does."""
    assert orjson.loads(ids_document(b"".join(ids))) == {"ids": [id_text(one) for one in ids]}
