"""Durations, sizes, times, endpoints, secrets: what is read, what is refused, and that what is shown is read back."""

import base64
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from syncbrok.model import limits
from syncbrok.model.errors import BadSetting
from syncbrok.model.units import (
    has_hidden,
    many,
    parse_bytes,
    parse_duration_s,
    parse_endpoint,
    parse_header_name,
    parse_header_value,
    parse_secret,
    parse_time_us,
    render_bytes,
    render_duration,
    render_time,
    shown_endpoint,
)

TIME_US_MAX = 253_402_300_799_999_999


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("50ms", 0.05),
        ("15s", 15.0),
        ("5m", 300.0),
        ("2h", 7_200.0),
        ("30d", 2_592_000.0),
        ("1.5h", 5_400.0),
        ("0s", 0.0),
        ("15", 15.0),
        (" 15 s ", 15.0),
        (15, 15.0),
        (0.25, 0.25),
        (0, 0.0),
    ],
)
def test_durations_have_a_unit_or_are_seconds(text: Any, seconds: float) -> None:
    """Numbers with a unit and numbers of seconds, both accepted everywhere (INTERFACES 1 and 3)."""
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "s",
        "5 minutes",
        "5M",
        "-5s",
        "+5s",
        "1e3s",
        "5s5s",
        "५s",
        "1h30m",
        ".5s",
        "5.s",
        "inf",
        "nan",
        "0x5",
        "5\n5",
        True,
        None,
        [],
        {},
        -1,
        -0.001,
        math.inf,
        math.nan,
        10**400,
        "9" * 400,
    ],
)
def test_what_is_no_duration_is_refused(wrong: Any) -> None:
    """Nothing is guessed: the error says what was expected."""
    with pytest.raises(BadSetting, match="expected a duration such as 50ms, 15s, 5m, 2h or 30d"):
        parse_duration_s(wrong)


@given(st.floats(0, 1e9, allow_nan=False))
@example(0.1)
@example(1e-9)
@example(5e-324)
@example(0.0015)
@example(86_400.000_001)
def test_durations_are_read_back(seconds: float) -> None:
    """What is rendered is parsed to the same number; nothing is finer than a nanosecond."""
    assert parse_duration_s(render_duration(seconds)) == parse_duration_s(seconds) == pytest.approx(seconds, abs=1e-9)


@given(st.integers(0, 10**9))
def test_whole_milliseconds_are_read_back_exactly(milliseconds: int) -> None:
    """Settings in milliseconds survive any number of round trips bit for bit: a hash over them does not change."""
    assert parse_duration_s(render_duration(milliseconds / 1_000)) == milliseconds / 1_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.05, "50ms"), (1.5, "1500ms"), (15, "15s"), (90, "90s"), (300, "5m"), (7_200, "2h"), (86_400, "1d")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    """The largest unit that leaves a whole number."""
    assert render_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MiB", 64 << 20),
        ("1GiB", 1 << 30),
        ("1TiB", 1 << 40),
        ("512KiB", 512 << 10),
        ("10MB", 10**7),
        ("1kB", 1_000),
        ("4096", 4_096),
        ("4096B", 4_096),
        ("1.5MiB", 3 << 19),
        (4_096, 4_096),
        (0, 0),
    ],
)
def test_sizes(text: Any, size: int) -> None:
    """Binary units, decimal units, and bytes."""
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "wrong", ["", "MiB", "64M", "64m", "64 mib", "-1", "0.3B", "1.0001KiB", 1.5, -1, True, None, []]
)
def test_what_is_no_size_is_refused(wrong: Any) -> None:
    """64M may mean two things, and half a byte means nothing."""
    with pytest.raises(BadSetting, match="expected a size such as 4096, 512KiB, 64MiB or 1GiB"):
        parse_bytes(wrong)


@given(st.integers(0, 1 << 60))
def test_sizes_are_read_back(size: int) -> None:
    """What is rendered is parsed to the same number."""
    shown = render_bytes(size)
    assert parse_bytes(shown) == size if len(shown) <= 16 else True


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-07-01T12:00:00Z", 1_782_907_200_000_000),
        ("2026-07-01t14:00:00.5+02:00", 1_782_907_200_500_000),
        ("2026-07-01 11:30:00.123456789-00:30", 1_782_907_200_123_456),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000_000),
        (1_782_907_200, 1_782_907_200_000_000),
        (0.25, 250_000),
        ("1782907200.5", 1_782_907_200_500_000),
    ],
)
def test_times_are_rfc_3339_or_unix_seconds(text: Any, time_us: int) -> None:
    """Any offset, any fraction (cut to microseconds), the leap second."""
    assert parse_time_us(text) == time_us


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "now",
        "2026-07-01",
        "2026-07-01T12:00:00",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "1969-12-31T23:59:59Z",
        "2026-07-01T24:00:00Z",
        "2026-07-01T12:00:00+25:00",
        "2026-07-01T12:00:00+01:60",
        "1970-01-01T00:00:00+00:01",
        "1e999999",
        "-1",
        "nan",
        "Infinity",
        -1,
        1e300,
        math.nan,
        math.inf,
        True,
        None,
        [],
        10**30,
        "9" * 5_000,
    ],
)
def test_what_is_no_time_is_refused(wrong: Any) -> None:
    """A time without an offset is no point in time; a number too large for a date is answered at once."""
    with pytest.raises(BadSetting, match="expected a time"):
        parse_time_us(wrong)


@given(st.integers(0, TIME_US_MAX))
@example(TIME_US_MAX)
def test_times_are_read_back(time_us: int) -> None:
    """What is rendered is the same microsecond, as the standard library sees it too, and sorts as text."""
    text = render_time(time_us)
    assert parse_time_us(text) == time_us
    assert len(text) == 27
    assert datetime.fromisoformat(text) == datetime.fromtimestamp(time_us // 10**6, UTC).replace(
        microsecond=time_us % 10**6
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:20000/",
        "https://billing.example/hooks?a=b&c=%20",
        "http://[::1]:8080/",
        "http://a_b.c-d.example.",
        "https://xn--bcher-kva.example",
        "HTTP://Host",
        "http://h:65535",
        "http://10.1.2.3",
    ],
)
def test_endpoints_stay_as_they_are(url: str) -> None:
    """An endpoint is checked, not rewritten: it is the identity of an unnamed subscriber (RULES 18)."""
    assert parse_endpoint(url) == url


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "billing.example",
        "ftp://a/",
        "http://",
        "http:///path",
        "//a/",
        "http://a:0/",
        "http://a:65536/",
        "http://a:x/",
        "http://user@a/",
        "http://user:pw@a/",
        "http://a/#top",
        "http://a/#",
        "http://a b/",
        "http://a/\n",
        "http://a/\r\nX: y",
        "http://bücher.example/",
        "http://a/ü",
        "http://[::1",
        "http://[::1%25eth0]/",
        "http://[1.2.3.4]/",
        "http://-a/",
        "http://a..b/",
        "http://a/\x00",
        "http://" + "a" * 64 + ".b/",
        f"http://a/{'x' * limits.endpoint_chars_max}",
        None,
        5,
        b"http://a/",
    ],
)
def test_what_is_no_endpoint_is_refused(wrong: Any) -> None:
    """No other schemes, no user info, no fragment, nothing that could break out of a request line."""
    with pytest.raises(BadSetting, match="expected an http or https URL"):
        parse_endpoint(wrong)


def test_a_password_in_an_endpoint_is_not_repeated() -> None:
    """The error must not carry the password into a log."""
    with pytest.raises(BadSetting) as raised:
        parse_endpoint("https://user:hunter2@a.example/")
    assert "hunter2" not in f"{raised.value}{raised.value.members}"


@given(st.binary(min_size=24, max_size=64))
def test_secrets_of_24_to_64_bytes(key: bytes) -> None:
    """Standard Webhooks: ``whsec_`` and base64."""
    secret = "whsec_" + base64.b64encode(key).decode()
    assert parse_secret(f" {secret}\n") == secret


@pytest.mark.parametrize("key", [b"", bytes(23), bytes(65)])
def test_secrets_of_other_lengths_are_refused(key: bytes) -> None:
    """Too short is guessed, too long is a mistake."""
    with pytest.raises(BadSetting, match="expected whsec_ followed by base64 of 24 to 64 bytes"):
        parse_secret("whsec_" + base64.b64encode(key).decode())


@pytest.mark.parametrize(
    "wrong", ["", "x" * 40, "whsec_", "whsec_" + "*" * 40, "whsec_" + "A" * 33, None, 5, "whsec_é"]
)
def test_what_is_no_secret_is_refused_and_not_repeated(wrong: Any) -> None:
    """RULES 19: whatever was given may be a secret mistyped, and is in no error."""
    with pytest.raises(BadSetting) as raised:
        parse_secret(wrong)
    assert not wrong or len(str(wrong)) < 8 or str(wrong) not in f"{raised.value}{raised.value.members}"


@pytest.mark.parametrize("name", ["X-Tenant", "authorization", "a", "x!#$%&'*+.^_`|~-9"])
def test_header_names_are_lowered(name: str) -> None:
    """Header names are compared without case, so they are kept in one."""
    assert parse_header_name(name) == name.lower()


@pytest.mark.parametrize("wrong", ["", "a b", "a:", "ä", "a\r\nb", None, 5, "x" * 129])
def test_what_is_no_header_name_is_refused(wrong: Any) -> None:
    """A token as RFC 9110 says."""
    with pytest.raises(BadSetting, match="expected a header name"):
        parse_header_name(wrong)


@pytest.mark.parametrize("wrong", [" a", "a ", "a\r\nb: c", "a\n", "ä", "\x00", None, 5, ["a"]])
def test_what_is_no_header_value_is_refused(wrong: Any) -> None:
    """Nothing that could begin another header."""
    with pytest.raises(BadSetting, match="expected a header value"):
        parse_header_value(wrong)
    assert parse_header_value("a b\tc") == "a b\tc"
    assert parse_header_value("") == ""


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        ("https://h/in?token=s3cret", "https://h/in?token=***"),
        ("https://h/in?a=1&b=&c&d=e=f", "https://h/in?a=***&***&***&d=***"),
        ("https://h/in?c2VjcmV0==", "https://h/in?***"),
        ("https://h/in?&=x", "https://h/in?&=***"),
        ("https://me:pw@h:1/in?a=b@c", "https://***@h:1/in?a=***"),
        ("https://me:p#w@h/@in", "https://***@h/@in"),
        ("me:pw@h", "***@h"),
    ],
)
def test_an_endpoint_is_shown_without_what_may_be_secret(endpoint: str, shown: str) -> None:
    """RULES 19: neither values of a query nor user info; shown again it is the same, and known for what it is."""
    assert shown_endpoint(endpoint) == shown
    assert shown_endpoint(shown) == shown
    assert has_hidden(shown)
    assert not has_hidden(endpoint)


@pytest.mark.parametrize(
    "endpoint", ["http://h", "https://h:1/a/@b;c#d", "http://h/?", "http://h/***", "consumer:pull", ""]
)
def test_what_has_nothing_to_hide_is_shown_as_it_is(endpoint: str) -> None:
    """RULES 19: without a query and user info an endpoint is shown byte for byte."""
    assert shown_endpoint(endpoint) == endpoint
    assert not has_hidden(endpoint)


@pytest.mark.parametrize(
    "wrong", ["ftp://h/?k=s3cret", "http://h/ ?k=s3cret", "http://s3cret@h/", "http:?s3cret", "http://h:x/?s3cret#"]
)
def test_errors_repeat_no_query(wrong: str) -> None:
    """RULES 19: who mistypes an endpoint finds its query in no error."""
    with pytest.raises(BadSetting) as refused:
        parse_endpoint(wrong)
    assert "s3cret" not in str(refused.value)


def test_the_shown_form_is_read_where_it_is_the_longer_one() -> None:
    """What an answer shows can be given back, whatever the bound of an endpoint's length."""
    endpoint = "http://h/?" + "&".join("a" * 1_019)
    assert len(shown_endpoint(parse_endpoint(endpoint))) > 2_048
    assert parse_endpoint(shown_endpoint(endpoint)) == shown_endpoint(endpoint)


def test_one_is_one_and_others_are_many() -> None:
    """What is counted in words is one or several, none among these."""
    assert [many(count, "message") for count in (0, 1, 2)] == ["0 messages", "1 message", "2 messages"]
    assert [many(count, "delivery", "deliveries") for count in (1, 2)] == ["1 delivery", "2 deliveries"]
