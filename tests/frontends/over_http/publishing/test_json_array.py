"""A batch that is an array is read as the lines that its elements are, whatever bytes it is made of.

Broken by hand to see these fail: backslashes of which each escapes; a string that ends with its window; newlines in
strings that become spaces; a bracket too many that is not looked for.
"""

import json

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from syncbrok.frontends.over_http.publishing.json_array import begins_array, lines_in_steps
from syncbrok.frontends.over_http.requests.time_slices import at_once
from syncbrok.model.errors import Malformed

_texts = st.text(st.sampled_from('ab"\\[]{},: \n\t\u20ac'), max_size=8)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)
_objects = st.dictionaries(_texts, _values, max_size=4)
_pieces = st.sampled_from(
    [b"[", b"]", b"{", b"}", b'"', b"\\", b'\\"', b",", b":", b" ", b"\n", b"\r", b"\t", b"\x01", b"1", b'"a"', b"{}",
     b'{"a":1}', b'{"a":[]}', b"},{", b"\xff", b"\xc3\xa9"]
)  # fmt: skip
_windows = st.integers(1, 9)


def objects_of(lines: bytes) -> list[object] | None:
    """The objects that the lines are; None where one is none."""
    try:
        found = [orjson.loads(line) for line in lines.split(b"\n")]
    except orjson.JSONDecodeError:
        return None
    return found if all(isinstance(one, dict) for one in found) else None


@given(st.lists(_objects, min_size=1, max_size=5), st.sampled_from([None, 2]), _windows, st.sampled_from(["", " \n"]))
def test_each_element_is_a_line(elements: list[object], indent: int | None, window: int, blank: str) -> None:
    """INTERFACES 3: however an array is written, and wherever it is cut, each element becomes one line."""
    body = (blank + json.dumps(elements, indent=indent) + blank).encode()
    assert begins_array(body)
    assert objects_of(at_once(lines_in_steps(body, window))) == elements


@settings(max_examples=500)
@given(st.lists(_pieces, max_size=14).map(b"".join), _windows)
@example(b'{"a":"\n"}', 9)
@example(b'{"a":"b\\\\"},{}', 1)
@example(b'{"a":1}},{"b":1}', 9)
@example(b'{"a":1}],[{"b":1}', 9)
@example(b'{"a":1},', 9)
@example(b'{"a":1},,{}', 9)
@example(b"{} {}", 9)
@example(b'{"a":\\"1"}', 9)
@example(b'{"a":1}\\', 9)
@example(b'"', 9)
def test_lines_are_read_where_an_array_is(inner: bytes, window: int) -> None:
    """RULES 5: bytes that are an array of objects become the lines of those; of any others some line is no object, or
    the array is refused as a whole."""
    body = b"[" + inner + b"]"
    try:
        elements = orjson.loads(body)
    except orjson.JSONDecodeError:
        elements = []
    objects = elements if all(isinstance(one, dict) for one in elements) and elements else None
    try:
        lines = at_once(lines_in_steps(body, window))
    except Malformed:
        assert objects is None
    else:
        assert objects_of(lines) == objects


@pytest.mark.parametrize("body", [b"[", b"[ ", b"[{}", b'[{}] "', b"[{}]]", b"[{}][{}]", b'["]', b"[[]", b"[{]"])
def test_what_is_no_array_as_a_whole_is_refused(body: bytes) -> None:
    """RULES 5: an array that does not end, or that something follows, is refused with what is wrong with it."""
    with pytest.raises(Malformed, match=r"does not end|follows"):
        at_once(lines_in_steps(body))


def test_an_empty_array_has_no_lines() -> None:
    """RULES 5: it is refused as an empty body is."""
    assert at_once(lines_in_steps(b" [ \r\n\t ]\n")) == b""
    assert not any(map(begins_array, (b"", b"{}", b"\n", b'"[', b"\xef\xbb\xbf[")))


def test_a_long_array_takes_many_short_steps() -> None:
    """DESIGN 1, bounded: no step reads more than a window, whatever stands in it."""
    body = b"[" + b"[]," * 100_000 + b"[]" + b" " * 100_000 + b"]"
    assert sum(1 for _ in lines_in_steps(body)) > 10
