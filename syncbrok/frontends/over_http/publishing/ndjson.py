"""NDJSON lines -> the unit of messages that they are. One line is one message; lines count from 1, as ``#n`` and errors
do.

Every mistake is found before anything is refused, and each names its line. An empty line is a mistake too (only the
newline after the last line may be there or not): passed over, it would shift what ``#n`` means.
"""

import base64
import binascii
import codecs
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import orjson

from syncbrok.frontends.over_http.publishing import cloud_events
from syncbrok.frontends.over_http.publishing.headers import (
    check_content_type,
    check_headers_size,
    check_key,
    check_parents_count,
    parse_delay_us,
    parse_erase_after_us,
    parse_forward,
    parse_hops,
    parse_moment_us,
    parse_parent_failure,
)
from syncbrok.frontends.over_http.requests import exact_json
from syncbrok.frontends.over_http.requests.time_slices import at_once
from syncbrok.frontends.over_http.shapes.answers import MistakeAnswer
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting, ClientFault, Loop, Malformed, TooLarge
from syncbrok.model.message import HOPS, Message
from syncbrok.model.names import MessageId, QueueName, parse_message_id
from syncbrok.model.units import parse_header_value
from syncbrok.space.channels import Publish

TEXT: Final = "text/plain; charset=utf-8"
BYTES: Final = "application/octet-stream"
JSON: Final = "application/json"

_mistakes_max: Final = 100
_TOGETHER: Final = 256
_TOGETHER_BYTES: Final = 256 * limits.KIB
_CONTENTS: Final = ("content", "content_base64", "data")
_OPENINGS: Final = (b'{"content":"', b'{"content": "')
_ENDING: Final = b'"}\n'
_KEY_OPENINGS: Final = (b'","idempotency_key":"', b'", "idempotency_key": "')
_QUOTE: Final = ord('"')
_NEWLINE: Final = ord("\n")
_FIRST_PRINTABLE: Final = 0x20
_DECODER: Final = codecs.getincrementaldecoder("utf-8")
_CONTROLS: Final = bytes(range(_FIRST_PRINTABLE))
_FEW_BYTES: Final = 2 * limits.KIB
"""in so many characters are counted sooner than an array is made"""

_Columns = tuple[str, list[bytes], Sequence[str]]
"""of messages that are bare, or have an idempotency key each: their type, their contents, their keys or none"""


def unit_in_steps(
    queue: QueueName, body: bytes, lines_max: int, content_bytes_max: int, parents_max: int
) -> Generator[None, None, Publish]:
    """The unit that a batch is, in steps of some milliseconds. Raises as ``parse_lines``."""
    unit = yield from columns_in_steps(queue, body, lines_max, content_bytes_max)
    if unit is None:
        unit = Publish.of(queue, (yield from lines_in_steps(body, lines_max, content_bytes_max, parents_max)))
    return unit


def columns_in_steps(
    queue: QueueName, body: bytes, lines_max: int, content_bytes_max: int
) -> Generator[None, None, Publish | None]:
    """Parse a batch without an object for each line. That works if all lines have ``content``, or all
    ``content_base64``, or all ``data``, and nothing else but an ``idempotency_key`` where all have one. None for any
    other body, right or wrong: then ``lines_in_steps`` decides."""
    columns = yield from _cut(body)
    if columns is None:
        columns = yield from _loaded(body, lines_max)
    if columns is None:
        return None
    content_type, contents, keys = columns
    if len(contents) > lines_max or max(map(len, contents)) > content_bytes_max or (keys and not _are_keys(keys)):
        return None
    return Publish(queue, content_type, contents, len(body), keys=keys)


def _are_keys(keys: Sequence[str]) -> bool:
    """Whether ``check_key`` takes each of them."""
    return all(keys) and "".join(keys).isprintable() and max(map(len, keys)) * 4 <= limits.key_bytes_max


def _cut(body: bytes) -> Generator[None, None, _Columns | None]:
    """The columns of lines that all have one usual form; None for any other. Needs no JSON parser.

    Why it reads the same as a parser: the lines begin and end with the same characters and are cut apart at newlines,
    which no string of JSON may hold. No quote is left over for a string to end at, no backslash for an escape, no
    control character but the newlines, and all of it is UTF-8. So each line is one object with one string; or with two
    strings, if the border between two stands in each line once."""
    opening = next((one for one in _OPENINGS if body.startswith(one)), None)
    if opening is None or b"\\" in body:
        return None
    ending = _ENDING if body.endswith(_ENDING) else _ENDING[:-1]
    if not body.endswith(ending):
        return None
    yield
    try:
        quotes, controls = yield from _counted(body)
    except UnicodeDecodeError:
        return None
    inner, border = body[len(opening) : -len(ending)], _ENDING + opening
    count = inner.count(border) + 1
    newlines = count if ending is _ENDING else count - 1
    if quotes not in (4 * count, 8 * count) or controls != newlines:
        return None
    yield
    columns = (TEXT, inner.split(border), ()) if quotes == 4 * count else _cut_keys(inner, border, count)
    yield
    return columns


def _counted(body: bytes) -> Generator[None, None, tuple[int, int]]:
    """The number of quotes and that of control characters, a step for each MiB. Raises ``UnicodeDecodeError`` for what
    is no UTF-8."""
    if len(body) <= _FEW_BYTES:
        body.decode()
        return body.count(b'"'), len(body) - len(body.translate(None, _CONTROLS))
    decoder = _DECODER()
    quotes = controls = 0
    for at in range(0, len(body), limits.MIB):
        window = body[at : at + limits.MIB]
        decoder.decode(window, final=at + limits.MIB >= len(body))
        characters = np.frombuffer(window, np.uint8)
        quotes += int(np.count_nonzero(characters == _QUOTE))
        controls += int(np.count_nonzero(characters < _FIRST_PRINTABLE))
        yield
    return quotes, controls


def _cut_keys(inner: bytes, border: bytes, count: int) -> _Columns | None:
    """Split ``count`` lines with four quotes each, if all four stand between content and key. Both kinds of border
    become a character that cannot be there, and those must take turns."""
    between = next((one for one in _KEY_OPENINGS if one in inner), None)
    if between is None:
        return None
    marked = inner.replace(between, b"\1").replace(border, b"\2")
    characters = np.frombuffer(marked, np.uint8)
    marks = characters[characters < _FIRST_PRINTABLE]
    if len(marks) != 2 * count - 1 or (marks[0::2] != 1).any() or (marks[1::2] != 2).any():
        return None
    strings = marked.replace(b"\2", b"\1").split(b"\1")
    return TEXT, strings[0::2], b"\n".join(strings[1::2]).decode().split("\n")


def _loaded(body: bytes, lines_max: int) -> Generator[None, None, _Columns | None]:
    """The columns by a JSON parser, where there are escapes or other spaces, bytes or data: 0.8 us a line."""
    count = yield from _count(body)
    if not 0 < count <= lines_max:
        return None
    try:
        kind, keyed, media = _kind(orjson.loads(next(_pieces(body))[0]))
        contents: list[bytes] = []
        keys: list[str] = []
        for some in _pieces(body):
            if kind == "data" and exact_json.has_long_number(b"\n".join(some)):
                return None
            found = list(map(orjson.loads, some))
            if set(map(len, found)) != {1 + keyed}:
                return None
            if keyed:
                keys += [given["idempotency_key"] for given in found]
            contents += _CONTENT_OF[kind](found)
            yield
        return None if set(map(type, keys)) - {str} else (media, contents, keys)
    except (ValueError, KeyError, TypeError, AttributeError):  # no JSON, or not that object, or not that string
        return None


def _kind(first: dict[str, Any]) -> tuple[str, bool, str]:
    """Which member has the content of all lines, whether they have keys, and the content's type, by the first line."""
    kind = next((name for name in _CONTENT_OF if name in first), "")  # none: a ``KeyError`` below
    return kind, "idempotency_key" in first, _TYPE_OF[kind]


_CONTENT_OF: Final[dict[str, Callable[[list[dict[str, Any]]], list[bytes]]]] = {
    "data": lambda found: [orjson.dumps(given["data"]) for given in found],
    "content_base64": lambda found: [base64.b64decode(given["content_base64"], validate=True) for given in found],
    "content": lambda found: [given["content"].encode() for given in found],
}
_TYPE_OF: Final = {"data": JSON, "content_base64": BYTES, "content": TEXT}


def _count(body: bytes) -> Generator[None, None, int]:
    """The number of lines, counted in a step for each MiB. A newline at the end begins no further line."""
    count = bool(body) - body.endswith(b"\n")
    for at in range(0, len(body), limits.MIB):
        yield
        window = np.frombuffer(body, np.uint8, min(limits.MIB, len(body) - at), at)
        count += int(np.count_nonzero(window == _NEWLINE))
    return count


def _pieces(body: bytes) -> Iterator[list[bytes]]:
    """Lines that are read together: at most ``_TOGETHER``, and no more than a few when they are long. Cut apart all at
    once, a body of 15 MiB would be in memory twice, and hold the loop up for 20 ms."""
    at = 0
    while at < len(body):
        end = body.find(b"\n", at + _TOGETHER_BYTES)
        if end < 0:
            end = len(body) - body.endswith(b"\n")
        lines = body[at:end].split(b"\n")
        for first in range(0, len(lines), _TOGETHER):
            yield lines[first : first + _TOGETHER]
        at = end + 1


def parse_lines(body: bytes, lines_max: int, content_bytes_max: int, parents_max: int) -> tuple[Message, ...]:
    """The messages of a batch. Raises ``TooLarge`` for too many lines or one too long, ``Loop`` for one that has gone
    round, ``Malformed`` with ``errors``: [{"line", "detail"}] for everything else, the first hundred mistakes in it."""
    return at_once(lines_in_steps(body, lines_max, content_bytes_max, parents_max))


def lines_in_steps(
    body: bytes, lines_max: int, content_bytes_max: int, parents_max: int
) -> Generator[None, None, tuple[Message, ...]]:
    """As ``parse_lines``, a step for each line: with 64 parents in each line all of them take half a second."""
    count = yield from _count(body)
    if not count:
        raise Malformed("the batch is empty: one JSON object on each line")
    if count > lines_max:
        raise TooLarge(f"a batch may have {lines_max} lines, this one has {count}", lines_max=lines_max)
    messages: list[Message] = []
    mistakes: list[MistakeAnswer] = []
    position = 0
    for some in _pieces(body):
        yield
        load = exact_json.loads if exact_json.has_long_number(b"\n".join(some)) else orjson.loads
        for line in some:
            yield
            try:
                messages.append(_parse(load, line, position, content_bytes_max, parents_max))
            except TooLarge:
                raise
            except Loop as error:  # no mistake of its line: who relays a batch must see that it goes round
                raise Loop(f"line {position + 1}: {error.detail}", line=position + 1, **error.members) from None
            except ClientFault as error:
                mistakes.append({"line": position + 1, "detail": error.detail})
                if len(mistakes) == _mistakes_max:
                    raise refused(mistakes) from None
            position += 1
    if mistakes:
        raise refused(mistakes)
    return tuple(messages)


def refused(mistakes: list[MistakeAnswer]) -> Malformed:
    """The error for a batch in which these lines cannot be read."""
    first = mistakes[0]
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return Malformed(f"line {first['line']}: {first['detail']}{more}", line=first["line"], errors=mistakes)


def _parse(
    load: Callable[[bytes], Any], line: bytes, position: int, content_bytes_max: int, parents_max: int
) -> Message:
    try:
        given = load(line)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"not JSON: {error.msg}" if line.strip() else "an empty line; leave it out") from None
    if given.__class__ is not dict:
        raise Malformed("not a JSON object")
    return parse_one(given, position, content_bytes_max, parents_max)


def parse_one(given: dict[str, Any], position: int, content_bytes_max: int, parents_max: int) -> Message:
    """The message of a line that is an object, the ``position``-th (from 0) of its unit. Raises ``ClientFault``."""
    content = given.get("content")
    if content.__class__ is str and len(given) == 1:  # the commonest line by far has nothing more
        message = Message(content.encode(), TEXT)
    else:
        message = _parse_fields(given, position, parents_max)
    if len(message.content) > content_bytes_max:
        raise TooLarge(
            f"line {position + 1}: content may have {content_bytes_max} bytes, this has {len(message.content)}",
            line=position + 1,
            bytes_max=content_bytes_max,
        )
    return message


def _parse_fields(given: dict[str, Any], position: int, parents_max: int) -> Message:
    """A line with more than its content."""
    content, content_type = _content(given)
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name in _CONTENTS or (value is None and name in _MEMBERS):
            continue
        parse = _FIELDS.get(name)
        if parse is not None:
            field, read = parse
            try:
                fields[field] = read(value)
            except BadSetting as error:
                raise BadSetting(f"{name}: {error.detail}") from None
        elif name == "parents":
            fields["parents"] = _parents(value, position, parents_max)
        elif name == "headers":
            content_type, fields["headers"] = _headers(value, content_type)
        else:
            raise Malformed(f"unknown member {name[:40]!r}; known are {', '.join((*_CONTENTS, *_MEMBERS))}")
    return Message(content, content_type, **fields)


def _content(given: dict[str, Any]) -> tuple[bytes, str]:
    found = [name for name in _CONTENTS if name in given]
    if len(found) != 1:
        raise Malformed("a line has exactly one of content (text), content_base64 and data (any JSON)")
    value = given[found[0]]
    match found[0]:
        case "data":
            return exact_json.dumps(value), JSON
        case "content" if isinstance(value, str):
            return value.encode(), TEXT
        case "content_base64" if isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True), BYTES
            except (binascii.Error, ValueError):
                raise Malformed("content_base64 is not base64") from None
    raise Malformed(f"{found[0]} must be a string; use data for other JSON")


def _parents(value: Any, position: int, parents_max: int) -> tuple[MessageId | int, ...]:
    if not isinstance(value, list):
        raise Malformed('parents must be a list of ids, or of "#n" for line n of this batch')
    check_parents_count(len(value), parents_max)
    return tuple(dict.fromkeys(_parent(one, position) for one in value))


def _parent(value: Any, position: int) -> MessageId | int:
    if not isinstance(value, str):
        raise Malformed("a parent is an id or #n, a string")
    if not value.startswith("#"):
        return parse_message_id(value)
    digits = value[1:]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 6 and int(digits) > 0):
        raise Malformed(f"{value[:40]!r} is no line of this batch: they count from #1", parent=value[:40])
    if int(digits) > position:
        raise Malformed(
            f"{value} does not stand before this line; a parent must (so no cycle can be written)", parent=value
        )
    return int(digits) - 1


def _headers(value: Any, content_type: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Content type and headers for subscribers. A ``content-type`` among the headers replaces that of the content."""
    if not isinstance(value, dict):
        raise Malformed("headers must be an object of names and values")
    headers: list[tuple[str, str]] = []
    for name, text in value.items():
        low = name.lower()
        try:
            if low == "content-type":
                content_type = check_content_type(parse_header_value(text))
            elif low == HOPS:  # of a message that was pulled, and is published again
                headers += parse_hops(text)
            elif low in ("traceparent", "tracestate"):
                headers.append((low, parse_header_value(text)))
            elif low.startswith("ce-"):
                headers.append((low, cloud_events.one_form(parse_header_value(text), low)))
            else:
                headers.append(parse_forward(name, text))
        except BadSetting as error:
            raise BadSetting(f"headers: {error.detail}") from None
    check_headers_size(headers)
    return content_type, tuple(headers)


def _text(what: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise Malformed(f"{what} must be a string")
        return check_key(value, what)

    return read


_FIELDS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "key": ("key", _text("key")),
    "idempotency_key": ("idempotency_key", _text("idempotency_key")),
    "parent_failure": ("parent_failure", parse_parent_failure),
    "delay": ("delay_us", parse_delay_us),
    "deliver_at": ("due_us", partial(parse_moment_us, hint="; delay counts from now")),
    "expires": ("expires_us", partial(parse_moment_us, hint="; in a batch it is a moment")),
    "erase_after": ("erase_after_us", parse_erase_after_us),
}
_MEMBERS: Final = ("parents", "headers", *_FIELDS)
"""what a line may have besides its content; null is as if it were not there"""
assert limits.batch_lines_max < 10**6, "six digits of #n reach every line"
