"""The table of settings: every row reads what it writes, refuses what it must, and says the same as its schema."""

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.model import limits
from syncbrok.model.errors import BadSetting
from syncbrok.model.message import Format, ParentFailure, QueueSettings, RetryPolicy, Scope, SubscriberSettings
from syncbrok.model.settings import (
    QUEUE_SETTINGS,
    SUBSCRIBER_SETTINGS,
    Setting,
    credential_names,
    parse_queue_changes,
    parse_subscriber_changes,
    render_queue,
    render_subscriber,
    suggest,
    take_credentials,
)
from syncbrok.model.units import shown_endpoint

ROWS = [("queue", row) for row in QUEUE_SETTINGS] + [("subscriber", row) for row in SUBSCRIBER_SETTINGS]


def parsed_subscriber(given_: dict[str, Any]) -> dict[str, Any]:
    """As a frontend reads it."""
    public = dict(given_)
    take_credentials(public)
    return parse_subscriber_changes(public)


PARSE = {"queue": parse_queue_changes, "subscriber": parsed_subscriber}

milliseconds = st.integers(0, int(limits.retry_delay_max_s) * 1_000).map(lambda n: n / 1_000)
retries = st.lists(milliseconds, max_size=limits.retry_steps_max).map(lambda delays: RetryPolicy(tuple(delays)))
timeouts = st.integers(1, int(limits.timeout_max_s) * 1_000).map(lambda n: n / 1_000)
windows = st.integers(1, limits.window_max)
queue_settings = st.builds(
    QueueSettings,
    scope=st.sampled_from(Scope),
    parent_failure=st.sampled_from(ParentFailure),
    retry=retries,
    timeout_s=timeouts,
    window=windows,
    idempotency_window_s=st.integers(0, int(limits.idempotency_window_max_s)).map(float),
)
subscriber_settings = st.builds(
    SubscriberSettings,
    endpoint=st.sampled_from(["http://a/", "https://b.example:8443/x?y=z"]),
    name=st.none() | st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,20}", fullmatch=True),
    format=st.sampled_from(Format),
    retry=st.none() | retries,
    timeout_s=st.none() | timeouts,
    window=st.none() | windows,
    paused=st.booleans(),
    headers=st.dictionaries(st.from_regex(r"x-[a-z]{1,8}", fullmatch=True), st.just("set"), max_size=4).map(
        lambda headers: tuple(sorted(headers.items()))
    ),
)


@given(queue_settings)
def test_queue_settings_are_read_back(settings: QueueSettings) -> None:
    """What an answer shows of a queue declares the same queue: POST what GET answered and it is unchanged."""
    assert QueueSettings(**parse_queue_changes(render_queue(settings))) == settings


@given(subscriber_settings)
def test_subscriber_settings_are_read_back(settings: SubscriberSettings) -> None:
    """The same for subscribers, but for secret and start, which are shown and given apart, and for the query of an
    endpoint, which stays hidden (RULES 19)."""
    shown = render_subscriber(settings)
    assert (shown.pop("secret"), shown.pop("start")) == (None, "now")
    read = SubscriberSettings(**parse_subscriber_changes(shown))
    assert read == replace(settings, endpoint=shown_endpoint(settings.endpoint))


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_every_row_reads_its_example(kind: str, row: Setting) -> None:
    """The example of the documentation is one, names the field it says, and satisfies its own schema."""
    changes = PARSE[kind]({row.name: row.example})
    assert list(changes) == [row.field]
    assert satisfies(row.schema, row.example)
    assert satisfies(row.schema, row.render(changes[row.field]))
    assert row.doc.endswith(".")


def test_every_field_has_a_row() -> None:
    """A setting added to a queue or subscriber can be set; what the broker decides itself has no row."""
    assert {row.field for row in QUEUE_SETTINGS} == {one.name for one in fields(QueueSettings)}
    decided = {"start", "disabled_us", "disabled_by", "secret_count", "declared", "credentials"}
    assert {row.field for row in SUBSCRIBER_SETTINGS} == {one.name for one in fields(SubscriberSettings)} - decided


def test_the_defaults_are_those_of_the_interface() -> None:
    """15 s, and after 5s, 5m, 30m, 2h, 5h, 10h, 14h, 20h, 24h a dead letter (INTERFACES 3)."""
    shown = render_queue(QueueSettings())
    assert shown["retry"] == ["5s", "5m", "30m", "2h", "5h", "10h", "14h", "20h", "1d"]
    assert (shown["timeout"], shown["window"], shown["idempotency_window"]) == ("15s", 64, "1d")
    assert (shown["scope"], shown["parent_failure"]) == ("all", "fail")
    assert [shown[name] for name in ("max_backlog", "retention", "erase_after")] == [None] * 3


def test_what_controls_deliveries_is_off_but_for_the_breaker() -> None:
    """INTERFACES 3: a breaker after ten failures or half of a hundred, disabled after five days, signed ``v1``; nothing
    else is between a message and its endpoint unless somebody says so."""
    shown = render_subscriber(SubscriberSettings("http://a/"))
    assert shown["breaker"] == {"failures": 10, "share": 0.5, "of": 100, "probe": ["5s", "5m"]}
    assert (shown["disable_after"], shown["signatures"]) == ("5d", [{"scheme": "v1"}])
    assert [shown[name] for name in ("filter", "rate", "auth", "batch", "types")] == [None] * 5
    assert (shown["verdicts"], shown["forward"], shown["counts"]) == (False, [], True)


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("queue", {"timout": 1}, "unknown setting 'timout'; did you mean 'timeout'?"),
    ("queue", {"colour": 1}, "unknown setting 'colour'; known are erase_after, idempotency_window, max_backlog"),
    ("queue", {"endpoint": "http://a/"}, "unknown setting 'endpoint'"),
    ("queue", {5: 1}, "unknown setting '5'"),
    ("queue", {"x" * 500: 1}, "unknown setting 'xxx"),
    ("queue", {"scope": "ALL"}, "scope: expected all or same, found 'ALL'"),
    ("queue", {"scope": 0}, "scope: expected all or same, found 0"),
    ("queue", {"parent_failure": "die"}, "parent_failure: expected fail or hold or deliver"),
    ("queue", {"timeout": None}, "timeout: expected a duration"),
    ("queue", {"timeout": 0}, "timeout: expected a duration from 1ms to 5m, found 0"),
    ("queue", {"timeout": "301s"}, "timeout: expected a duration from 1ms to 5m, found '301s'"),
    ("queue", {"retry": "5s"}, "retry: expected a list of at most 64 durations"),
    ("queue", {"retry": ["5s"] * 65}, "retry: expected a list of at most 64 durations"),
    ("queue", {"retry": ["31d"]}, "retry: expected a duration from 0s to 30d, found '31d'"),
    ("queue", {"retry": ["5s", "x"]}, "retry: expected a duration such as"),
    ("queue", {"window": 0}, "window: expected a whole number from 1 to 10000, found 0"),
    ("queue", {"window": 10_001}, "window: expected a whole number from 1 to 10000"),
    ("queue", {"window": True}, "window: expected a whole number"),
    ("queue", {"window": 1.5}, "window: expected a whole number"),
    ("queue", {"window": "64"}, "window: expected a whole number"),
    ("queue", {"max_backlog": {"messages": 0}}, "max_backlog: messages: expected a whole number from 1 to"),
    ("queue", {"max_backlog": {"octets": 1}}, "max_backlog: expected null, or a mapping such as"),
    ("queue", {"max_backlog": {"bytes": "1 mile"}}, "max_backlog: bytes: expected a size such as"),
    ("queue", {"retention": "10ms"}, "retention: expected a duration from 1s to"),
    ("queue", {"erase_after": "soon"}, "erase_after: expected a duration"),
    ("queue", {"max_backlog": 7}, "max_backlog: expected null, or a mapping such as"),
    ("queue", {"idempotency_window": "31d"}, "idempotency_window: expected a duration from 0s to 30d"),
    ("subscriber", {"name": "a b"}, "name: 'a b' is not a subscriber name"),
    ("subscriber", {"name": 5}, "name: expected text, found 5"),
    ("subscriber", {"endpoint": None}, "endpoint: expected an http or https URL"),
    ("subscriber", {"format": "xml"}, "format: expected raw or original or cloudevents or cloudevents-structured"),
    ("subscriber", {"paused": "yes"}, "paused: expected true or false, found 'yes'"),
    ("subscriber", {"secret": "whsec_x"}, "unknown setting 'secret'"),
    ("subscriber", {"start": "now"}, "unknown setting 'start'"),
    ("subscriber", {"disabled_us": 0}, "unknown setting 'disabled_us'"),
    ("subscriber", {"headers": []}, "headers: expected a mapping of header names to values"),
    ("subscriber", {"headers": {"a b": "c"}}, "headers: expected a header name"),
    ("subscriber", {"headers": {"x-a": 5}}, "headers: header 'x-a': expected a header value"),
    ("subscriber", {"headers": {"X-A": "1", "x-a": "2"}}, "headers: header 'x-a' is given twice"),
    ("subscriber", {"headers": {"x-a": "v" * 9_000}}, "headers: expected at most 8192 bytes of headers"),
    ("subscriber", {"forward": "cookie"}, "forward: expected a list of at most 16 names"),
    ("subscriber", {"forward": ["x-shop"]}, "forward: expected a list of at most 16 names"),
    ("subscriber", {"forward": ["host"]}, "forward: expected a list of at most 16 names"),
    ("subscriber", {"forward": ["cookie"] * 17}, "forward: expected a list of at most 16 names"),
    ("subscriber", {"timeout": -1}, "timeout: expected a duration"),
]


@pytest.mark.parametrize(("kind", "given_", "said"), MISTAKES)
def test_a_mistake_names_the_setting_and_what_was_expected(kind: str, given_: dict[str, Any], said: str) -> None:
    """Unknown settings and values out of bounds are mistakes; the error is bounded whatever was given."""
    with pytest.raises(BadSetting) as raised:
        PARSE[kind](given_)
    assert str(raised.value).startswith(said)
    assert raised.value.members["setting"] == str(next(iter(given_)))[:80]
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("wrong", [None, [], "retry", 5])
def test_settings_are_a_mapping(wrong: Any) -> None:
    """Anything else than a mapping is a mistake, not a crash."""
    with pytest.raises(BadSetting, match="expected a mapping"):
        parse_queue_changes(wrong)


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "content-length",
        "Content-Type",
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Proxy-Authorization",
        "webhook-id",
        "Webhook-Signature",
        "syncbrok-queue",
        "Syncbrok-Anything",
    ],
)
def test_headers_that_the_broker_writes_are_refused(name: str) -> None:
    """A subscriber's own headers can neither forge a signature nor reframe a request."""
    with pytest.raises(BadSetting, match="the broker writes it itself"):
        parsed_subscriber({"headers": {name: "x"}})


def test_headers_in_another_order_are_the_same() -> None:
    """Order and case of header names make no other settings: declared again they are alike."""
    first = parsed_subscriber({"headers": {"X-B": "2", "x-a": "1"}})
    assert first == parsed_subscriber({"headers": {"x-a": "1", "x-b": "2"}})


def test_who_is_forwarded_is_said_in_any_case_and_order() -> None:
    """The same names are the same settings."""
    first = parse_subscriber_changes({"forward": ["X-Forwarded-For", "cookie", "Cookie"]})
    assert first == parse_subscriber_changes({"forward": ["cookie", "x-forwarded-for"]})


def test_values_of_headers_are_taken_out_and_shown_as_set() -> None:
    """RULES 19: what becomes a setting, and so a fact and an answer, has the word set, and is read back from there; an
    error repeats none; those that an older version left in a fact are not shown either."""
    given: dict[str, Any] = {"headers": {"X-Api-Key": "s3cret", "x-b": "2"}}
    assert take_credentials(given) == {"headers:x-api-key": "s3cret", "headers:x-b": "2"}
    settings = SubscriberSettings("http://a/", **parse_subscriber_changes(given))
    shown = render_subscriber(settings)["headers"]
    assert shown == {"x-api-key": "set", "x-b": "set"}
    assert parse_subscriber_changes({"headers": shown})["headers"] == settings.headers
    assert credential_names(settings) == ["headers:x-api-key", "headers:x-b"]
    for wrong in ({"x-a": "s3cret\n"}, {"x-a": ["s3cret"]}, {"x-a": "s3cret" * 2_000}):
        with pytest.raises(BadSetting) as refused:
            take_credentials({"headers": wrong})
        assert "s3cret" not in refused.value.detail
    old = SubscriberSettings("http://a/", headers=(("x-api-key", "s3cret"),))
    assert render_subscriber(old)["headers"] == {"x-api-key": "set"}


@pytest.mark.parametrize("name", ["name", "retry", "timeout", "window"])
def test_null_takes_a_subscriber_back_to_its_queue(name: str) -> None:
    """``None`` on a subscriber means: as the queue says."""
    assert list(parse_subscriber_changes({name: None}).values()) == [None]


def test_a_secret_is_shown_as_set_only() -> None:
    """RULES 19: of a secret, an answer shows that there is one."""
    assert render_subscriber(SubscriberSettings("http://a/", secret_count=2, start=7))["secret"] == "set"
    assert render_subscriber(SubscriberSettings("http://a/", start=7))["start"] == 7


def test_suggestions() -> None:
    """The nearest known name in its own spelling, or all of them."""
    assert suggest("Retyr", ("retry", "timeout")) == "; did you mean 'retry'?"
    assert suggest("SYNCBROK_HTTP_PROT", ("SYNCBROK_HTTP_PORT",)) == "; did you mean 'SYNCBROK_HTTP_PORT'?"
    assert suggest("zzz", ("b", "a")) == "; known are a, b"


def satisfies(schema: dict[str, Any], value: Any) -> bool:
    """As much of JSON Schema as the table uses. An unknown keyword fails, so that none goes unchecked."""
    types = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict, "null": type(None)}
    checks = {
        "anyOf": lambda want: any(satisfies(one, value) for one in want),
        "oneOf": lambda want: sum(satisfies(one, value) for one in want) == 1,
        "type": lambda want: any(
            isinstance(value, int | float if one == "number" else types[one])
            and (one == "boolean" or not isinstance(value, bool))
            for one in ([want] if isinstance(want, str) else want)
        ),
        "enum": lambda want: value in want,
        "const": lambda want: value == want,
        "minimum": lambda want: value >= want,
        "maximum": lambda want: value <= want,
        "maxItems": lambda want: len(value) <= want,
        "maxLength": lambda want: len(value) <= want,
        "minLength": lambda want: len(value) >= want,
        "items": lambda want: all(satisfies(want, one) for one in value),
        "minItems": lambda want: len(value) >= want,
        "properties": lambda want: all(satisfies(want[name], one) for name, one in value.items() if name in want),
        "required": lambda want: all(name in value for name in want),
        "additionalProperties": lambda want: (
            value.keys() <= schema["properties"].keys()
            if want is False
            else all(satisfies(want, one) for one in value.values())
        ),
        "pattern": lambda want: re.search(want, value) is not None,
        "format": lambda _: True,
        "description": lambda _: True,
    }  # fmt: skip
    return all(checks[keyword](want) for keyword, want in sorted(schema.items(), key=lambda pair: pair[0] != "type"))
