"""What publishers write, read by itself: headers and NDJSON lines."""

import base64
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.frontends.over_http.publishing.headers import ParsedPublish, parse_publish
from syncbrok.frontends.over_http.publishing.ndjson import parse_lines
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting, ClientFault, Malformed, TooLarge
from syncbrok.model.message import Message, ParentFailure
from syncbrok.model.names import id_text, make_message_id

NOW_US = 1_700_000_000_000_000
KEY = bytes(range(16))
ID = make_message_id(1_700_000_000_000, 41, KEY)
OTHER = make_message_id(1_700_000_000_000, 42, KEY)


def asked(*headers: tuple[str, str], content: bytes = b"x") -> ParsedPublish:
    return parse_publish(headers, content, 64, NOW_US)


def message(*headers: tuple[str, str]) -> Message:
    return asked(*headers).message


def lines(*texts: Any) -> tuple[Message, ...]:
    body = b"\n".join(text if isinstance(text, bytes) else orjson.dumps(text) for text in texts)
    return parse_lines(body, limits.batch_lines_max, limits.content_bytes_max, limits.parents_max)


def mistake(*texts: Any) -> list[tuple[int, str]]:
    with pytest.raises(Malformed) as caught:
        lines(*texts)
    errors = caught.value.members["errors"]
    assert isinstance(errors, list)
    assert caught.value.members["line"] == errors[0]["line"]
    return [(error["line"], error["detail"]) for error in errors]


# -- headers ----------------------------------------------------------------------------------------------------------


def test_a_bare_message_is_content_and_its_type() -> None:
    """INTERFACES 3: the body is the content; of headers that mean nothing here nothing is kept."""
    found = asked(("Host", "x"), ("Content-Type", "text/plain"), ("User-Agent", "curl"), content=b"\x00\xff")
    assert found == ParsedPublish(Message(b"\x00\xff", "text/plain"))


def test_every_publish_header_is_read() -> None:
    """INTERFACES 3, the table of request headers."""
    found = asked(
        ("Syncbrok-Parent", id_text(ID)),
        ("syncbrok-parent", f" {id_text(OTHER)} , {id_text(ID).upper()}"),
        ("Syncbrok-Parent-Failure", "hold"),
        ("Syncbrok-Key", "customer 7"),
        ("Idempotency-Key", '"a \\"b\\" \\\\"'),
        ("Prefer", "respond-async, wait=10"),
        ("Syncbrok-Delay", "2m"),
        ("Syncbrok-Deliver-At", "2026-07-01T12:00:00Z"),
        ("Syncbrok-Expires", "90"),
        ("Syncbrok-Forward-X-Tenant", "north"),
        ("traceparent", "00-a-b-01"),
    )
    assert found.wait_s == 10
    assert found.message == Message(
        b"x",
        parents=(ID, OTHER),
        key="customer 7",
        idempotency_key='a "b" \\',
        parent_failure=ParentFailure.HOLD,
        due_us=1_782_907_200_000_000,
        delay_us=120_000_000,
        expires_us=NOW_US + 90_000_000,
        headers=(("x-tenant", "north"), ("traceparent", "00-a-b-01")),
    )


def test_an_idempotency_key_is_the_same_quoted_or_not() -> None:
    """INTERFACES 3: ``Idempotency-Key: KEY`` (quoted or not)."""
    assert message(("Idempotency-Key", '"k-1"')) == message(("Idempotency-Key", "k-1"))
    assert message(("Idempotency-Key", '"')).idempotency_key == '"'


def test_expires_is_a_moment_or_seconds_from_now() -> None:
    """INTERFACES 3: ``Syncbrok-Expires: RFC3339 or seconds``."""
    assert message(("Syncbrok-Expires", "2026-07-01T12:00:00+02:00")).expires_us == 1_782_900_000_000_000
    assert message(("Syncbrok-Expires", "1.5s")).expires_us == NOW_US + 1_500_000


def test_a_wait_is_bounded() -> None:
    """RULES 8: at most 60 s. And RFC 7240: preferences that are not known are passed over."""
    assert asked(("Prefer", "wait=3600")).wait_s == 60
    assert asked(("Prefer", 'handling=lenient; x=y, WAIT="5"')).wait_s == 5
    assert asked(("Prefer", "return=minimal")).wait_s is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Syncbrok-Parent", "not-an-id"),
        ("Syncbrok-Parent", "#1"),
        ("Syncbrok-Parent", " , "),
        ("Syncbrok-Parent", "6f1b7c1e00004000800000000000000x"),
        ("Syncbrok-Parent-Failure", "explode"),
        ("Syncbrok-Key", ""),
        ("Syncbrok-Key", "k" * 513),
        ("Syncbrok-Key", "ä" * 257),
        ("Syncbrok-Key", "a\udcff"),
        ("Idempotency-Key", '""'),
        ("Idempotency-Key", "a\x01b"),
        ("Syncbrok-Delay", "-1"),
        ("Syncbrok-Delay", "400d"),
        ("Syncbrok-Deliver-At", "tomorrow"),
        ("Syncbrok-Expires", "never"),
        ("Syncbrok-Parnet", "x"),
        ("Syncbrok-Parents", id_text(ID)),
        ("Syncbrok-Deliver-At", "30"),
        ("Syncbrok-Expires", f"{limits.delay_max_s + 1:.0f}s"),
        ("ce-causationid", id_text(ID)),
        ("ce-causationid", ""),
        ("Syncbrok-Forward-Host", "evil.example"),
        ("Syncbrok-Forward-Content-Length", "1"),
        ("Syncbrok-Forward-Webhook-Signature", "v1,x"),
        ("Syncbrok-Forward-Syncbrok-Queue", "x"),
        ("Syncbrok-Forward-", "x"),
        ("Syncbrok-Forward-X-Name", "caf\u00e9"),
        ("traceparent", "a\tb\x00"),
        ("Content-Type", "text/\x00plain"),
        ("ce-id", "1"),
        ("ce-type", "caf\u00e9"),
    ],
)
def test_a_header_that_cannot_be_read_is_refused(name: str, value: str) -> None:
    """Nothing a publisher asks for is passed over in silence: a misspelt parent would lose the order it counts on."""
    with pytest.raises((Malformed, BadSetting)):
        asked((name, value))


@pytest.mark.parametrize(
    ("name", "value", "other"),
    [
        ("Idempotency-Key", "a", "b"),
        ("Syncbrok-Key", "a", "b"),
        ("Syncbrok-Parent-Failure", "fail", "hold"),
        ("Syncbrok-Delay", "1s", "2s"),
        ("Syncbrok-Deliver-At", "2026-07-01T12:00:00Z", "2026-07-01T12:00:01Z"),
        ("Syncbrok-Expires", "1s", "2s"),
        ("ce-id", "1", "2"),
    ],
)
def test_headers_that_contradict_each_other_are_refused(name: str, value: str, other: str) -> None:
    """RULES 4 and the others hold for what was asked: of two different keys neither may silently win."""
    event = [("ce-specversion", "1.0"), ("ce-source", "/shop"), ("ce-type", "t")] if name == "ce-id" else []
    with pytest.raises(Malformed, match="given twice") as caught:
        asked(*event, (name, value), (name, other))
    assert caught.value.members["header"] == name.lower()
    once, twice = message(*event, (name, value)), message(*event, (name, value), (name, value))
    assert twice._replace(headers=once.headers) == once, "the same said twice is said once"


def test_parents_are_bounded() -> None:
    """INTERFACES 5: parents 64."""
    ids = [id_text(make_message_id(1, sequence, KEY)) for sequence in range(65)]
    assert len(message(("Syncbrok-Parent", ",".join(ids[:64]))).parents) == 64
    with pytest.raises(Malformed, match="64 parents"):
        message(("Syncbrok-Parent", ",".join(ids)))


def test_kept_headers_are_bounded() -> None:
    """What is kept with every message has a bound of its own: ``limits.header_bytes_max``."""
    with pytest.raises(Malformed, match=str(limits.header_bytes_max)):
        asked(*((f"Syncbrok-Forward-X-{n}", "v" * 1_000) for n in range(17)))


def test_what_a_broker_sends_can_be_published_to_another() -> None:
    """A delivery of a broker carries syncbrok- headers; a broker that receives it passes them over."""
    sent = [("syncbrok-queue", "a"), ("syncbrok-sequence", "7"), ("syncbrok-parents", "x"), ("syncbrok-attempt", "1")]
    assert message(("webhook-id", "y"), *sent) == message(*sent, ("Webhook-Id", "y")) == Message(b"x")


# -- NDJSON -----------------------------------------------------------------------------------------------------------


def test_lines_become_messages() -> None:
    """INTERFACES 3, an NDJSON line, every member of it."""
    found = lines(
        {"content": "caf\u00e9"},
        {"content_base64": base64.b64encode(b"\x00\xff").decode()},
        {"data": {"b": [1, None]}},
        {
            "content": "all",
            "parents": [id_text(ID), "#2", "#2", "#1"],
            "key": "k",
            "idempotency_key": "i",
            "parent_failure": "deliver",
            "delay": "1.5s",
            "deliver_at": "2026-07-01T12:00:00Z",
            "expires": "2026-07-01T14:00:00.5+02:00",
            "headers": {"X-Tenant": "north", "traceparent": "00", "content-type": "text/csv", "ce-type": "t"},
        },
        {"content": "", "parents": None, "delay": 2},
    )
    assert found == (
        Message("caf\u00e9".encode(), "text/plain; charset=utf-8"),
        Message(b"\x00\xff", "application/octet-stream"),
        Message(b'{"b":[1,null]}', "application/json"),
        Message(
            b"all",
            "text/csv",
            (ID, 1, 0),
            "k",
            "i",
            ParentFailure.DELIVER,
            delay_us=1_500_000,
            due_us=1_782_907_200_000_000,
            expires_us=1_782_907_200_500_000,
            headers=(("x-tenant", "north"), ("traceparent", "00"), ("ce-type", "t")),
        ),
        Message(b"", "text/plain; charset=utf-8", delay_us=2_000_000),
    )


def test_an_attribute_in_the_headers_of_a_line_is_as_in_a_header() -> None:
    """CloudEvents HTTP binding 3.1.3.2: escapes that are no UTF-8 are refused there too; a subscriber that is sent the
    JSON format read U+FFFD for them, and two ids were one."""
    (kept,) = lines({"content": "x", "headers": {"ce-id": '"%64 1"', "CE-Subject": "caf%c3%a9"}})
    assert kept.headers == (("ce-id", "d%201"), ("ce-subject", "caf%C3%A9"))
    for value in ("x%FF", '"%C3"'):
        with pytest.raises(Malformed, match="ce-id"):
            lines({"content": "x", "headers": {"ce-id": value}})


def test_the_last_newline_may_be_there_or_not() -> None:
    """Both are NDJSON; line ends of two bytes are white space to JSON."""
    assert lines(b'{"content":"a"}\r', b'{"content":"b"}\r', b"") == lines({"content": "a"}, {"content": "b"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"content": "x", "parnets": None},
        b"",
        b"   ",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b'{"content":"\xff"}',
        {},
        {"content": 7},
        {"content": "a", "data": 1},
        {"content_base64": "?"},
        {"content_base64": 7},
        {"content": "a", "Key": "k"},
        {"content": "a", "key": ""},
        {"content": "a", "key": 7},
        {"content": "a", "key": "a\nb"},
        {"content": "a", "idempotency_key": "k" * 513},
        {"content": "a", "parent_failure": "explode"},
        {"content": "a", "parent_failure": 7},
        {"content": "a", "delay": "soon"},
        {"content": "a", "delay": -1},
        {"content": "a", "delay": True},
        {"content": "a", "deliver_at": "tomorrow"},
        {"content": "a", "deliver_at": "30"},
        {"content": "a", "expires": "1h"},
        {"content": "a", "expires": 30},
        {"content": "a", "headers": []},
        {"content": "a", "headers": {"x": 7}},
        {"content": "a", "headers": {"x": "a\r\nevil: 1"}},
        {"content": "a", "headers": {"x\r\nevil": "1"}},
        {"content": "a", "headers": {"host": "evil"}},
        {"content": "a", "headers": {"content-type": "a\nb"}},
        {"content": "a", "headers": {"x": "v" * 20_000}},
        {"content": "a", "parents": id_text(ID)},
        {"content": "a", "parents": [7]},
        {"content": "a", "parents": ["not-an-id"]},
        {"content": "a", "parents": ["#0"]},
        {"content": "a", "parents": ["#-1"]},
        {"content": "a", "parents": ["#x"]},
        {"content": "a", "parents": ["#\u0661"]},
        {"content": "a", "parents": ["#2"]},
        {"content": "a", "parents": ["#3"]},
        {"content": "a", "parents": ["#9999999999"]},
        {"content": "a", "parents": [f"#{n}" for n in range(65)]},
    ],
)
def test_every_mistake_names_its_line(wrong: Any) -> None:
    """A batch of ten thousand lines with a mistake in one says which. RULES 5: ``#n`` may only point backwards."""
    assert [line for line, _ in mistake({"content": "ok"}, wrong, {"content": "ok"})] == [2]


def test_all_mistakes_are_told_at_once() -> None:
    """Mending a batch takes one round, not one for each mistake; a hundred are enough to see the pattern."""
    assert [line for line, _ in mistake({"content": 7}, {"content": "a"}, b"", {"data": 1, "x": 1})] == [1, 3, 4]
    assert len(mistake(*[b"{"] * 200)) == 100


def test_a_batch_is_bounded() -> None:
    """INTERFACES 5: 10,000 lines; each content at most 1 MiB. An empty batch is a mistake too."""
    with pytest.raises(TooLarge, match="2 lines"):
        parse_lines(b'{"data":1}\n' * 3, 2, 100, 64)
    with pytest.raises(TooLarge, match="line 2"):
        parse_lines(b'{"data":1}\n{"content":"12345"}', 2, 4, 64)
    with pytest.raises(Malformed, match="empty"):
        parse_lines(b"", 2, 4, 64)
    with pytest.raises(Malformed, match="line 1"):
        parse_lines(b"\n\n", 2, 4, 64)


@given(st.lists(st.binary(max_size=80), max_size=4).map(b"\n".join))
def test_whatever_is_sent_is_read_or_refused(body: bytes) -> None:
    """No bytes bring the reader of batches down."""
    try:
        found = parse_lines(body, 100, 100, 64)
    except ClientFault:
        return
    assert len(found) == len(body.removesuffix(b"\n").split(b"\n"))


@given(
    st.dictionaries(
        st.sampled_from(["content", "data", "parents", "key", "headers", "delay", "idempotency_key", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=9) | st.sampled_from(["#1", id_text(ID)]),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=5,
        ),
    )
)
def test_whatever_json_is_sent_is_read_or_refused(line: dict[str, Any]) -> None:
    """Any JSON object is a message or a mistake; what gets through can go into a header and into the log."""
    try:
        (found,) = lines(line)
    except ClientFault:
        return
    assert all(value.isascii() and value.isprintable() for _, value in found.headers)
    assert (found.key + found.idempotency_key).encode() is not None
