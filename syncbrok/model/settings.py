"""The settings of queues and subscribers: one table that YAML, JSON bodies, flags and the OpenAPI document are made of.

A setting is a row: its name outside, its field inside, how it is read and shown, what it means. ``secret`` and
``start`` of a subscriber are not rows: a secret is never a field (RULES 19), and ``start`` is resolved by the Space.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from syncbrok.model import (
    auth_settings,
    backlog_settings,
    batch_settings,
    breaker_settings,
    header_settings,
    limits,
    signature_settings,
)
from syncbrok.model.credentials import Hide
from syncbrok.model.errors import BadSetting
from syncbrok.model.event_types import EVENTS_QUEUE, EventType, is_pattern
from syncbrok.model.message import (
    CONSUMER_SCHEME,
    PULL_ENDPOINT,
    Format,
    ParentFailure,
    QueueSettings,
    RetryPolicy,
    Scope,
    SubscriberSettings,
)
from syncbrok.model.names import SEQUENCE_MAX, parse_subscriber_id
from syncbrok.model.units import (
    RATE_PATTERN,
    duration_between,
    duration_schema,
    expected,
    integer_between,
    parse_endpoint,
    parse_rate,
    read_setting,
    render_duration,
    shown_endpoint,
)

E = TypeVar("E", bound=IntEnum)
T = TypeVar("T")

TIMEOUT_MIN_S = 0.001


class Setting(NamedTuple):
    """A row of the table. ``schema`` is JSON Schema (2020-12) of the value outside, ``example`` one such value."""

    name: str
    field: str
    parse: Callable[[Any], Any]
    render: Callable[[Any], Any]
    doc: str
    schema: dict[str, Any]
    example: Any
    hide: Hide | None = None
    """of one with values that nobody is shown"""


# -- how values are read ----------------------------------------------------------------------------------------------


def parse_choice(choices: type[E]) -> Callable[[Any], E]:
    """Reads the names of ``choices`` in lower case, ``-`` for ``_``."""
    names = {render_choice(choice): choice for choice in choices}

    def parse(value: Any) -> E:
        if not isinstance(value, str) or value not in names:
            raise expected(" or ".join(names), value)
        return names[value]

    return parse


def render_choice(choice: IntEnum) -> str:
    """The name of an enum's member as YAML, JSON and reports show it."""
    return choice.name.lower().replace("_", "-")


parse_keep_s = duration_between(limits.keep_min_s, limits.keep_max_s)
"""how long after its end something of a message is kept"""
_KEEP_SCHEMA = duration_schema(limits.keep_min_s, limits.keep_max_s)
_parse_delay_s = duration_between(0.0, limits.retry_delay_max_s)


def _parse_retry(value: Any) -> RetryPolicy:
    what = f"a list of at most {limits.retry_steps_max} durations such as [5s, 5m, 1h]"
    if not isinstance(value, list | tuple) or len(value) > limits.retry_steps_max:
        raise expected(what, value)
    return RetryPolicy(tuple(_parse_delay_s(delay) for delay in value))


def _render_retry(policy: RetryPolicy) -> list[str]:
    return [render_duration(delay_s) for delay_s in policy.delays_s]


def parse_switch(value: Any) -> bool:
    """``value``; raises ``BadSetting`` where it is neither true nor false."""
    if not isinstance(value, bool):
        raise expected("true or false", value)
    return value


def parse_start(value: Any) -> str:
    """Where a subscriber begins: ``now``, ``beginning``, or a sequence in digits; raises ``BadSetting``."""
    if value in ("now", "beginning"):
        return str(value)
    if not isinstance(value, bool) and isinstance(value, int | str):
        digits = str(value)
        if digits.isascii() and digits.isdigit() and len(digits) <= 13 and 1 <= int(digits) <= SEQUENCE_MAX:
            return digits
    raise expected("now, beginning or a sequence", value)


def _parse_filter(value: Any) -> str | None:
    """Its kind alone: the Space compiles it, and says what is wrong in it."""
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise expected('a CEL expression such as "data.amount > 100"', value)
    return value


def _parse_types(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not 0 < len(value) <= limits.event_types_max:
        raise expected(f"null, or a list of 1 to {limits.event_types_max} types of events", value)
    for one in value:
        if not isinstance(one, str) or not is_pattern(one):
            raise expected(f"one of {', '.join(EventType)}, or the beginning of some with * behind it", one)
    return tuple(dict.fromkeys(value))


def refuse_types(queue: str, types: tuple[str, ...] | None) -> None:
    """Raise ``BadSetting`` where a subscriber of this queue names types of events, unless those stand there."""
    if types is not None and queue != EVENTS_QUEUE:
        raise BadSetting(f"types: only for subscribers of {EVENTS_QUEUE}", setting="types")


def _parse_rate(value: Any) -> str | None:
    """None for none; else as it is given."""
    if value is None:
        return None
    parse_rate(value)
    return str(value)


def _same(value: Any) -> Any:
    return value


def _optional(setting: Setting, without: str = "as the queue says") -> Setting:
    """The same where it may be ``None``, which means ``without``; so are those of a queue for a subscriber."""
    return setting._replace(
        parse=lambda value: None if value is None else setting.parse(value),
        render=lambda value: None if value is None else setting.render(value),
        doc=f"{setting.doc} Without it: {without}.",
        schema={"anyOf": [setting.schema, {"type": "null"}]},
    )


# -- the table --------------------------------------------------------------------------------------------------------


def _choice_schema(choices: type[IntEnum]) -> dict[str, Any]:
    return {"type": "string", "enum": [render_choice(choice) for choice in choices]}


_RETRY = Setting(
    "retry",
    "retry",
    _parse_retry,
    _render_retry,
    "Waits between attempts, each spread by +-20 %. After the last one the message is a dead letter.",
    {"type": "array", "items": duration_schema(0.0, limits.retry_delay_max_s), "maxItems": limits.retry_steps_max},
    ["5s", "5m", "30m"],
)
_TIMEOUT = Setting(
    "timeout",
    "timeout_s",
    duration_between(TIMEOUT_MIN_S, limits.timeout_max_s),
    render_duration,
    "How long an attempt may take, from dialling to the whole answer.",
    duration_schema(TIMEOUT_MIN_S, limits.timeout_max_s),
    "15s",
)
_WINDOW = Setting(
    "window",
    "window",
    integer_between(1, limits.window_max),
    _same,
    "How many deliveries to one subscriber may be in flight at once.",
    {"type": "integer", "minimum": 1, "maximum": limits.window_max},
    limits.window_default,
)

QUEUE_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "scope",
        "scope",
        parse_choice(Scope),
        render_choice,
        "When a parent counts as done for a child: once every subscriber has it (all), or at each subscriber by itself "
        "(same).",
        _choice_schema(Scope),
        "all",
    ),
    Setting(
        "parent_failure",
        "parent_failure",
        parse_choice(ParentFailure),
        render_choice,
        "What becomes of a message whose parent ends as a dead letter: it fails too (fail), waits for a replay (hold) "
        "or is delivered all the same (deliver).",
        _choice_schema(ParentFailure),
        "fail",
    ),
    _RETRY,
    _TIMEOUT,
    _WINDOW,
    Setting(
        "idempotency_window",
        "idempotency_window_s",
        duration_between(0.0, limits.idempotency_window_max_s),
        render_duration,
        "How long an idempotency key is remembered.",
        duration_schema(0.0, limits.idempotency_window_max_s),
        "24h",
    ),
    Setting(
        backlog_settings.NAME,
        "max_backlog",
        backlog_settings.parse_backlog,
        backlog_settings.render_backlog,
        "How many messages, and how many bytes of content, may stand in it that have not ended; a publish that would "
        "be more is refused (429). Without it: as many as come.",
        backlog_settings.SCHEMA,
        {"messages": 100000, "bytes": "1GiB"},
    ),
    _optional(
        Setting(
            "retention",
            "retention_s",
            parse_keep_s,
            render_duration,
            "How long after it has ended a message is kept: then it answers 410 and is erased.",
            _KEEP_SCHEMA,
            "3d",
        ),
        "as long as the log is kept",
    ),
    _optional(
        Setting(
            "erase_after",
            "erase_after_s",
            parse_keep_s,
            render_duration,
            "How long after a message has ended its content is erased; how it ended stays.",
            _KEEP_SCHEMA,
            "24h",
        ),
        "not before the message goes",
    ),
)

SUBSCRIBER_SETTINGS: tuple[Setting, ...] = (
    Setting(
        "name",
        "name",
        lambda value: None if value is None else parse_subscriber_id(_text(value)),
        _same,
        "Names the subscriber within its queue; without a name the endpoint does.",
        {"anyOf": [{"type": "string", "pattern": "^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$"}, {"type": "null"}]},
        "billing",
    ),
    Setting(
        "endpoint",
        "endpoint",
        parse_endpoint,
        _same,
        "Where its messages are posted to. Of a query the values are not shown: *** stands for each, and where all of "
        "it is given as it is shown, what is there stays.",
        {"type": "string", "format": "uri", "maxLength": limits.endpoint_chars_max},
        "https://billing.example/hooks",
    ),
    Setting(
        "format",
        "format",
        parse_choice(Format),
        render_choice,
        "What a delivery looks like: the content byte for byte (raw), a CloudEvent (cloudevents, "
        "cloudevents-structured) or the first broker's JSON (original).",
        _choice_schema(Format),
        "raw",
    ),
    _optional(_RETRY),
    _optional(_TIMEOUT),
    _optional(_WINDOW),
    Setting(
        "paused",
        "paused",
        parse_switch,
        _same,
        "Whether deliveries to it stand still. What is published meanwhile waits for it.",
        {"type": "boolean"},
        False,
    ),
    Setting(
        header_settings.NAME,
        "headers",
        header_settings.parse_headers,
        header_settings.render_headers,
        "Headers that every delivery to it carries. Answers name them, and say set in place of each value.",
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"x-tenant": "set"},
        header_settings.hide,
    ),
    Setting(
        "verdicts",
        "verdicts",
        parse_switch,
        _same,
        'Whether the body of a 2xx may say more: {"status": "RETRY"} is a failed attempt, "DROP" skips the message, '
        '"DEAD" makes it a dead letter.',
        {"type": "boolean"},
        False,
    ),
    Setting(
        header_settings.FORWARD,
        "forward",
        header_settings.parse_forward,
        list,
        "Headers of publishers that go out to it though they say who somebody is: authorization, cookie, forwarded, "
        "x-forwarded-*. Without it: none of these.",
        header_settings.FORWARD_SCHEMA,
        ["authorization"],
    ),
    Setting(
        "filter",
        "filter",
        _parse_filter,
        _same,
        "A CEL expression over queue, key, content_type, headers, ce, size and data. A message of which it says true "
        "is delivered, any other is skipped. Without it: every message.",
        {"anyOf": [{"type": "string", "maxLength": limits.filter_bytes_max}, {"type": "null"}]},
        "data.amount > 100",
    ),
    Setting(
        "rate",
        "rate",
        _parse_rate,
        _same,
        "How often it is tried at most, retries included: so many a second, minute or hour. Without it: as often as "
        "its window allows.",
        {"anyOf": [{"type": "string", "pattern": RATE_PATTERN}, {"type": "null"}]},
        "100/s",
    ),
    Setting(
        "counts",
        "counts",
        parse_switch,
        _same,
        "Whether a message is complete only once it has ended here too. Without it nobody waits for this subscriber, "
        "and nothing fails through it.",
        {"type": "boolean"},
        True,
    ),
    Setting(
        breaker_settings.NAME,
        "breaker",
        breaker_settings.parse_breaker,
        breaker_settings.render_breaker,
        "Of one that is posted to: after so many failures in a row (no answer, 408, 429, 5xx), or so large a share of "
        "the newest answers, nothing is tried but a probe now and then, until one is answered. false: it is tried on.",
        breaker_settings.SCHEMA,
        {"failures": 10, "share": 0.5, "of": 100, "probe": ["5s", "5m"]},
    ),
    Setting(
        "disable_after",
        "disable_after_s",
        duration_between(0.0, limits.disable_after_max_s),
        render_duration,
        "For how long all that is tried may fail before it is disabled, as by a 410; 0s: it never is.",
        duration_schema(0.0, limits.disable_after_max_s),
        "5d",
    ),
    Setting(
        batch_settings.NAME,
        "batch",
        batch_settings.parse_batch,
        batch_settings.render_batch,
        "Several messages in one request, as NDJSON: at most max, and the first of them waits so long for others. "
        "Without it: a request for each message.",
        batch_settings.SCHEMA,
        {"max": 100, "wait": "200ms"},
    ),
    Setting(
        "types",
        "types",
        _parse_types,
        lambda types: None if types is None else list(types),
        "Of a subscriber of syncbrok.events: the types of events it gets, a trailing * stands for any end; null: all "
        "but syncbrok.delivery.*.",
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": limits.event_types_max},
                {"type": "null"},
            ]
        },
        ["syncbrok.endpoint.*", "syncbrok.message.dead"],
    ),
    Setting(
        signature_settings.NAME,
        "signatures",
        signature_settings.parse_signatures,
        signature_settings.render_signatures,
        "How its deliveries are signed: Standard Webhooks with its secret (v1) or with a key pair that the broker "
        "makes (v1a), or as another sender does it (hmac).",
        signature_settings.SCHEMA,
        [{"scheme": "v1"}],
        signature_settings.hide,
    ),
    Setting(
        auth_settings.NAME,
        "auth",
        auth_settings.parse_auth,
        auth_settings.render_auth,
        "How its endpoint knows the broker: basic, bearer or oauth2, by a certificate (mtls); and by which authority "
        "(ca) the broker knows the endpoint.",
        auth_settings.SCHEMA,
        {"basic": {"username": "syncbrok", "password": "set"}},
        auth_settings.hide,
    ),
)

_WEBHOOK_ONLY = (breaker_settings.NAME,)
"""settings that mean something only where an endpoint is posted to"""


_OF_WEBHOOKS = (
    signature_settings.NAME,
    auth_settings.NAME,
    header_settings.FORWARD,
    "verdicts",
    batch_settings.NAME,
)
"""settings that mean nothing where consumers come for their messages"""
_DEFAULTS = SubscriberSettings("")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise expected("text", value)
    return value


# -- whole mappings ---------------------------------------------------------------------------------------------------


def parse_queue_changes(mapping: Mapping[str, Any], beside: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fields of ``QueueSettings`` to their values, for what ``mapping`` (external names) gives; raises ``BadSetting``
    naming the setting and what was expected. Unknown settings are mistakes; ``beside`` are names that were taken out
    before, and may have been meant."""
    return _parse(QUEUE_SETTINGS, mapping, beside)


def parse_subscriber_changes(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """As ``parse_queue_changes``, for ``SubscriberSettings``. Take ``secret``, ``start``, ``pull`` and
    the credentials out before."""
    return _parse(SUBSCRIBER_SETTINGS, mapping, ("secret", "start", "pull"))


def take_credentials(mapping: dict[str, Any]) -> dict[str, str]:
    """Take what nobody is shown out of the settings of a subscriber, by name (see ``credentials``): call it before
    anything else reads them. Raises ``BadSetting``."""
    taken: dict[str, str] = {}
    for setting in SUBSCRIBER_SETTINGS:
        if setting.hide is not None and setting.name in mapping:
            mapping[setting.name], found = read_setting(setting.name, setting.hide, mapping[setting.name])
            taken |= found
    return taken


def credential_names(settings: SubscriberSettings) -> list[str]:
    """The names of the credentials without which these settings mean nothing."""
    return [
        *signature_settings.credential_names(settings.signatures),
        *auth_settings.credential_names(settings.auth),
        *header_settings.credential_names(settings.headers),
    ]


def check_together(settings: SubscriberSettings) -> None:
    """Raises ``BadSetting`` where a setting does not go with another one."""
    if settings.endpoint.startswith(CONSUMER_SCHEME + ":"):
        for name in _OF_WEBHOOKS:
            if getattr(settings, name) != getattr(_DEFAULTS, name):
                raise BadSetting(f"{name}: only a webhook has it, and this one's consumers come", setting=name)
    if settings.batch is not None and settings.format is not Format.RAW:
        what = (
            f"batch: its lines are of format raw, and this is {render_choice(settings.format)}: leave out one of them"
        )
        raise BadSetting(what, setting=batch_settings.NAME)
    own = dict(settings.headers)
    auth_settings.check_auth(settings.auth, settings.endpoint, own)
    for signature in settings.signatures:
        if signature.header in own:
            what = f"header {signature.header!r} carries a signature and is one of headers: name it once"
            raise BadSetting(what, setting=signature_settings.NAME, header=signature.header)


def parse_subscriber(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """As ``parse_subscriber_changes``, for one that is declared: with an endpoint, or with ``pull`` and a name, which
    makes it a group whose consumers come for its messages. Raises ``BadSetting``."""
    given = dict(mapping)
    is_group = parse_switch(given.pop("pull", False))
    if not is_group:
        return parse_subscriber_changes(given)
    if "endpoint" in given:
        raise BadSetting("pull: a group has no endpoint, its consumers come for its messages", setting="pull")
    if given.get("name") is None:
        raise BadSetting("pull: a group has a name, by which its consumers ask for messages", setting="name")
    changes = parse_subscriber_changes(given)
    refuse_webhook_only(changes)
    return as_group(changes)


def refuse_webhook_only(changes: Mapping[str, Any]) -> None:
    """Raise ``BadSetting`` where these settings of one whose consumers come for its messages mean something only where
    an endpoint is posted to; to have none of it is said of those as well."""
    for name in _WEBHOOK_ONLY:
        if changes.get(name) is not None:
            raise BadSetting(
                f"{name}: only where an endpoint is posted to; consumers come for the messages of this one",
                setting=name,
            )


def as_group(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of ``SubscriberSettings`` as those of a group that pulls."""
    return {"window": limits.window_max, **fields, "endpoint": PULL_ENDPOINT, "declared": True}


def render_queue(settings: QueueSettings) -> dict[str, Any]:
    """Every setting under its external name."""
    return {setting.name: setting.render(getattr(settings, setting.field)) for setting in QUEUE_SETTINGS}


def _as_shown(settings: SubscriberSettings) -> SubscriberSettings:
    auth = settings.auth
    if auth is not None:
        auth = auth._replace(token_url=shown_endpoint(auth.token_url))
    return replace(settings, endpoint=shown_endpoint(settings.endpoint), auth=auth)


def render_subscriber(settings: SubscriberSettings) -> dict[str, Any]:
    """Every setting under its external name; ``secret`` is ``"set"`` or None, ``start`` a sequence or ``"now"``, and
    endpoints are shown without what may be secret in them."""
    settings = _as_shown(settings)
    shown = {setting.name: setting.render(getattr(settings, setting.field)) for setting in SUBSCRIBER_SETTINGS}
    if settings.endpoint.startswith(f"{CONSUMER_SCHEME}:"):
        shown["breaker"] = False
    shown["secret"] = "set" if settings.secret_count else None
    shown["start"] = "now" if settings.start is None else settings.start
    return shown


def suggest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"``, or the known names where none is near: the end of an error's sentence."""
    names = {one.lower(): one for one in sorted(known)}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.6)
    return f"; did you mean {names[near[0]]!r}?" if near else f"; known are {', '.join(names.values())}"


def _parse(settings: tuple[Setting, ...], mapping: Mapping[str, Any], beside: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(mapping, Mapping):
        raise expected("a mapping of settings to values", mapping)
    known = {setting.name: setting for setting in settings}
    changes: dict[str, Any] = {}
    for name, value in mapping.items():
        setting = known.get(name)
        if setting is None:
            shown = str(name)[:80]
            raise BadSetting(f"unknown setting {shown!r}{suggest(shown, (*known, *beside))}", setting=shown)
        changes[setting.field] = read_setting(setting.name, setting.parse, value)
    return changes
