"""The request headers of a publish -> one ``Message``; ``HEADERS`` is the table of them.

The usual publish has none of them, so they are collected in one pass and only those that are there cost anything.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from syncbrok.frontends.over_http.publishing import cloud_events
from syncbrok.frontends.over_http.publishing.cloud_events import Cause
from syncbrok.frontends.over_http.publishing.quoted import elements, unquote_header, without_parameters
from syncbrok.frontends.over_http.requests.parameters import TEXT, Parameter
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting, Loop, Malformed
from syncbrok.model.message import HOPS, Message, ParentFailure
from syncbrok.model.names import MessageId, parse_message_id
from syncbrok.model.settings import parse_keep_s
from syncbrok.model.units import parse_duration_s, parse_header_name, parse_header_value, parse_time_us

PARENT_FAILURES = {value.name.lower(): value for value in ParentFailure}

_OURS = ("syncbrok-", "ce-")
_TRACE = ("traceparent", "tracestate")
_SENT_BY_BROKERS = frozenset(
    f"syncbrok-{name}"
    for name in ("queue", "sequence", "parents", "attempt", "replay", "sync", "previous", "complete-through")
)
"""Headers that a broker puts on its deliveries. They are ignored, so that one broker can subscribe to another's queue.
``syncbrok-parents`` is ignored on a delivery only, which has its ``webhook-id``; on any other publish it is
``Syncbrok-Parent`` misspelt."""
_NOT_FORWARDED = frozenset(
    {
        *("connection", "content-encoding", "content-length", "content-type", "expect", "host", "keep-alive", "te"),
        *("proxy-authenticate", "proxy-authorization", "proxy-connection", "trailer"),
        *("transfer-encoding", "upgrade", *_TRACE),
    }
)
_NOT_FORWARDED_PREFIXES = ("syncbrok-", "webhook-", "ce-")
_US = 1_000_000
_MOMENT_US_MIN = 1_000_000_000 * _US
"""2001: earlier times are taken for mistakes"""


class ParsedPublish(NamedTuple):
    """A parsed publish: the message, how long to wait for its end, and a cause still to be looked up."""

    message: Message
    wait_s: float | None = None
    cause: Cause | None = None


def parse_publish(headers: Iterable[tuple[str, str]], content: bytes, parents_max: int, now_us: int) -> ParsedPublish:
    """Raises ``Malformed`` and ``BadSetting``, naming the header. ``now_us`` is where ``Syncbrok-Expires`` in seconds
    counts from (Unix microseconds)."""
    content_type, special = _sorted(headers)
    if not special:
        return ParsedPublish(Message(content, content_type))
    return _with_special(Message(content, content_type), special, parents_max, now_us)


def parse_event(headers: Iterable[tuple[str, str]], body: bytes, parents_max: int, now_us: int) -> ParsedPublish:
    """Parse a publish whose body is one CloudEvent in structured mode. The event's data is the content; source and id
    are the idempotency key, unless the publish has one. Other headers count as well; ``ce-*`` are the event's own.
    Raises as ``parse_publish``."""
    message, identity = cloud_events.from_json(cloud_events.load(body))
    others = [one for one in headers if one[0].lower() != "content-type" and not one[0].lower().startswith("ce-")]
    asked = parse_publish(others, message.content, parents_max, now_us)
    check_parents_count(len(asked.message.parents) + (identity.cause is not None), parents_max)
    kept = (*message.headers, *asked.message.headers)
    check_headers_size(kept)
    key = asked.message.idempotency_key or identity.key
    told = asked.message._replace(content_type=message.content_type, headers=kept, idempotency_key=key)
    return ParsedPublish(told, asked.wait_s, identity.cause)


def bare_type(headers: Iterable[tuple[str, str]]) -> str | None:
    """The content type where the headers ask for nothing but a bare message, else None. Raises ``Malformed``."""
    content_type, special = _sorted(headers)
    return None if special else content_type


def _sorted(headers: Iterable[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
    """The content type, and the headers that ask for more than a bare message, names in lower case."""
    content_type = ""
    special: list[tuple[str, str]] = []
    for name, value in headers:
        low = name.lower()
        if low in _OTHERS or low.startswith(_OURS):
            if low == "content-type":
                content_type = check_content_type(value)
            else:
                special.append((low, value))
    return content_type, special


def check_content_type(value: str) -> str:
    if not (value.isascii() and value.isprintable()) or len(value) > 256:
        raise Malformed("Content-Type is not a media type", header="content-type")
    return value


def check_key(value: str, what: str) -> str:
    """A ``Syncbrok-Key`` or idempotency key: 1 to ``limits.key_bytes_max`` bytes of printable UTF-8."""
    if not value or not value.isprintable():  # surrogates of bytes that are not UTF-8 are not printable either
        raise Malformed(f"{what} must be printable text, not empty", header=what)
    if len(value) * 4 > limits.key_bytes_max and len(value.encode()) > limits.key_bytes_max:
        raise Malformed(f"{what} may have {limits.key_bytes_max} bytes", header=what, bytes_max=limits.key_bytes_max)
    return value


def check_parents_count(count: int, parents_max: int) -> None:
    if count > parents_max:
        raise Malformed(f"a message may have {parents_max} parents, this one names {count}", parents_max=parents_max)


def parse_parent_failure(value: Any) -> ParentFailure:
    found = PARENT_FAILURES.get(value) if isinstance(value, str) else None
    if found is None:
        raise BadSetting(f"expected fail, hold or deliver, found {str(value)[:40]!r}", expected=[*PARENT_FAILURES])
    return found


def parse_delay_us(value: Any) -> int:
    """A wait before delivery in microseconds; at most ``limits.delay_max_s``."""
    seconds = parse_duration_s(value)
    if seconds > limits.delay_max_s:
        raise BadSetting(f"a delay may be {limits.delay_max_s:.0f} s, this is {seconds:g} s", max_s=limits.delay_max_s)
    return round(seconds * _US)


def parse_erase_after_us(value: Any) -> int:
    """How long after its end a message's content is kept, in microseconds."""
    return round(parse_keep_s(value) * _US)


def parse_moment_us(value: Any, hint: str) -> int:
    """A moment as Unix microseconds. Raises ``BadSetting``, with the hint, for seconds from now: as Unix seconds they
    would be in 1970, and the message would go out, or expire, at once."""
    moment_us = parse_time_us(value) if isinstance(value, str) else 0
    if moment_us < _MOMENT_US_MIN:
        raise BadSetting(f"expected a time such as 2026-07-01T12:00:00Z, found {str(value)[:40]!r}{hint}")
    return moment_us


def parse_forward(name: str, value: Any) -> tuple[str, str]:
    """A header that is to reach subscribers; raises ``BadSetting`` for names that are the broker's own business."""
    low = parse_header_name(name)
    if low in _NOT_FORWARDED or low.startswith(_NOT_FORWARDED_PREFIXES):
        raise BadSetting(f"{name[:80]!r} cannot be forwarded: the broker or the connection sets it", header=low)
    return low, parse_header_value(value)


def parse_hops(value: Any) -> tuple[tuple[str, str], ...]:
    """``Syncbrok-Hops`` as it is kept with the message: not at all where it is 0. Raises ``Loop`` above
    ``limits.hops_max``."""
    text = value.strip() if isinstance(value, str) else ""
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise Malformed(f"Syncbrok-Hops is a whole number, not {str(value)[:40]!r}", header=HOPS)
    hops = int(text)
    if hops > limits.hops_max:
        raise Loop(
            f"this message was delivered and published again {hops} times, at most {limits.hops_max} are allowed: "
            "a subscriber leads back to where it came from",
            hops=hops,
            hops_max=limits.hops_max,
        )
    return ((HOPS, str(hops)),) if hops else ()


def check_headers_size(headers: Iterable[tuple[str, str]]) -> None:
    """Check that the headers kept with a message are at most ``limits.header_bytes_max``. Raises ``Malformed``."""
    size = sum(len(name) + len(value) for name, value in headers)
    if size > limits.header_bytes_max:
        raise Malformed(
            f"the headers kept with a message may have {limits.header_bytes_max} bytes, these have {size}",
            bytes_max=limits.header_bytes_max,
        )


def _with_special(bare: Message, special: list[tuple[str, str]], parents_max: int, now_us: int) -> ParsedPublish:
    given: dict[str, Any] = {}
    parents: dict[MessageId, None] = {}
    forwarded: list[tuple[str, str]] = []
    attributes: dict[str, str] = {}
    wait_s = None
    for name, value in _said_by_publisher(special):
        try:
            if name.startswith("ce-"):
                text = _parse_attribute(name, value)
                forwarded.append((name, cloud_events.encode(text)))  # one form: it tells whether two events are one
                _set_once(attributes, name[3:], text, name)
            elif name.startswith(_FORWARD):
                forwarded.append(parse_forward(name[len(_FORWARD) :], value))
            elif name in _TRACE:
                forwarded.append((name, _READ_BY[name](value)))
            elif name == _PREFER:
                wait_s = WAIT.read(value) if wait_s is None else wait_s
            elif name == _PARENT:
                parents.update(dict.fromkeys(PARENT.read(value)))
            else:
                _set_once(given, *_parse_field(name, value, now_us), name)
        except BadSetting as error:
            raise BadSetting(f"{name}: {error.detail}", **error.members | {"header": name}) from None
    forwarded += given.pop(HOPS, ())
    cause = None
    if not attributes.keys().isdisjoint((*cloud_events.REQUIRED, cloud_events.CAUSE)):
        identity = cloud_events.identify(attributes)
        cause = identity.cause
        given.setdefault("idempotency_key", identity.key)
    check_parents_count(len(parents) + (cause is not None), parents_max)
    check_headers_size(forwarded)
    return ParsedPublish(bare._replace(parents=tuple(parents), headers=tuple(forwarded), **given), wait_s, cause)


def _said_by_publisher(special: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers without what a broker put on its delivery, where this is one that is passed on, and without a
    tracestate that is empty, as it may be (W3C Trace Context 3.3.1)."""
    names = {name for name, _ in special}
    passed_over = _SENT_BY_BROKERS if "webhook-id" in names else _SENT_BY_BROKERS - {"syncbrok-parents"}
    return [
        (name, value)
        for name, value in special
        if name != "webhook-id" and name not in passed_over and (value or name != "tracestate")
    ]


def _set_once(given: dict[str, Any], field: str, value: Any, header: str) -> None:
    """Set ``given[field]``. Raises ``Malformed`` where it has another value: of two headers neither may silently
    win."""
    if given.setdefault(field, value) != value:
        raise Malformed(f"{header} is given twice, with different values", header=header)


def _parse_field(name: str, value: str, now_us: int) -> tuple[str, Any]:
    """A field of ``Message`` and its value, out of the header that sets it; or ``HOPS``, which is kept among its
    headers."""
    if name == _EXPIRES:
        time_us, from_now = EXPIRES.read(value)
        return "expires_us", now_us + time_us if from_now else time_us
    field = _FIELD_OF.get(name)
    if field is not None:
        return field, _READ_BY[name](value)
    # Not passed over: a header misspelt (Syncbrok-Parnet) would silently lose the order the publisher counts on.
    hint = "; Syncbrok-Parent names a parent" if name.startswith("syncbrok-par") else ""
    raise Malformed(f"there is no header {name[:80]!r} on a publish{hint}", header=name[:80])


def _parse_parents(value: str) -> list[MessageId]:
    parents = [parse_message_id(part) for part in value.split(",") if part.strip()]
    if not parents:
        raise Malformed(
            "Syncbrok-Parent names no parent; leave it out for a message without one", header="syncbrok-parent"
        )
    return parents


def _parse_wait_s(value: str) -> float | None:
    """Seconds of ``wait`` in a ``Prefer`` header, at most ``limits.wait_s_max``; None where it has none, and where its
    value cannot be read: as if it were not there (RFC 7240, 2)."""
    for preference in elements(value):
        name, _, argument = preference.partition("=")
        if name.strip().lower() == "wait":
            try:
                return min(parse_duration_s(unquote_header(argument.strip())), limits.wait_s_max)
            except BadSetting:
                return None
    return None


def _parse_deliver_at_us(value: str) -> int:
    return parse_moment_us(value, "; Syncbrok-Delay counts from now")


def _parse_expires(value: str) -> tuple[int, bool]:
    """Microseconds, and whether they count from now: a number of seconds does, a moment in RFC 3339 does not."""
    try:
        seconds = parse_duration_s(value)
    except BadSetting:
        return parse_time_us(value), False
    return parse_delay_us(seconds), True


def _parse_idempotency_key(value: str) -> str:
    return check_key(without_parameters(value), "idempotency-key")


def _parse_attribute(name: str, value: str) -> str:
    """A CloudEvents attribute out of the header of this name."""
    return cloud_events.decode(parse_header_value(value), name)


def _attribute(attribute: str, doc: str, schema: Mapping[str, Any] = TEXT) -> Parameter[Any]:
    name = f"ce-{attribute}"
    return Parameter(name, doc, schema, partial(_parse_attribute, name), "")


# -- the table --------------------------------------------------------------------------------------------------------

_KEY_TEXT: Final = {**TEXT, "maxLength": limits.key_bytes_max}
_DURATION: Final = {**TEXT, "examples": ["30", "5m"]}

PARENT: Final[Parameter[list[MessageId]]] = Parameter(
    "Syncbrok-Parent",
    "Messages that must be complete first; repeatable; in any queue.",
    {**TEXT, "description": "Message ids, comma-separated."},
    _parse_parents,
    [],
)
WAIT: Final = Parameter(
    "Prefer",
    f"`wait=SECONDS`: answer once every delivery has ended, at most {limits.wait_s_max:.0f} s (RFC 7240).",
    {**TEXT, "examples": ["wait=10"]},
    _parse_wait_s,
    None,
)
EXPIRES: Final = Parameter(
    "Syncbrok-Expires", "Not after this time; RFC 3339 or seconds from now.", TEXT, _parse_expires, (0, False)
)
FORWARD: Final = Parameter(
    "Syncbrok-Forward-NAME", "Reaches subscribers as the header NAME.", TEXT, parse_header_value, ""
)
_FIELDS: Final[Mapping[str, Parameter[Any]]] = {
    "parent_failure": Parameter(
        "Syncbrok-Parent-Failure",
        "What becomes of this message when a parent ends as a dead letter; without it as the queue says.",
        {**TEXT, "enum": [*PARENT_FAILURES]},
        lambda value: parse_parent_failure(value.strip().lower()),
        None,
    ),
    "key": Parameter(
        "Syncbrok-Key",
        "Messages of one key go out to each subscriber in the order accepted. Order only; what is new does not wait "
        "for a replay.",
        _KEY_TEXT,
        partial(check_key, what="syncbrok-key"),
        "",
    ),
    "idempotency_key": Parameter(
        "Idempotency-Key",
        "Quoted or not. The same key and content answer 200 and the first id, other content 409.",
        _KEY_TEXT,
        _parse_idempotency_key,
        "",
    ),
    "delay_us": Parameter("Syncbrok-Delay", "Not before so long after it is accepted.", _DURATION, parse_delay_us, 0),
    "due_us": Parameter(
        "Syncbrok-Deliver-At",
        "Not before this time; RFC 3339.",
        {**TEXT, "examples": ["2026-07-01T12:00:00Z"]},
        _parse_deliver_at_us,
        0,
    ),
    "erase_after_us": Parameter(
        "Syncbrok-Erase-After",
        "So long after its end its content is erased; without it as the queue says.",
        _DURATION,
        parse_erase_after_us,
        0,
    ),
    HOPS: Parameter(
        "Syncbrok-Hops",
        f"Deliveries that brought it here; a delivery says so. Above {limits.hops_max}: 409 `loop`.",
        {"type": "integer", "minimum": 0},
        parse_hops,
        (),
    ),
}
"""field of ``Message`` -> the header that sets it; and ``HOPS``"""
HEADERS: Final[tuple[Parameter[Any], ...]] = (
    PARENT,
    _FIELDS["parent_failure"],
    _FIELDS["key"],
    _FIELDS["idempotency_key"],
    WAIT,
    _FIELDS["delay_us"],
    _FIELDS["due_us"],
    EXPIRES,
    _FIELDS["erase_after_us"],
    _attribute("id", "With the other ce- headers: a CloudEvent in binary mode."),
    _attribute("source", "With ce-id its idempotency key."),
    _attribute("specversion", "Of CloudEvents.", {**TEXT, "enum": [cloud_events.SPECVERSION]}),
    _attribute("type", "Of the event."),
    _attribute(cloud_events.CAUSE, "A parent, by its CloudEvents id of the same source or by its message id."),
    *(Parameter(name, "Reaches subscribers.", TEXT, parse_header_value, "") for name in _TRACE),
    _FIELDS[HOPS],
    FORWARD,
)
"""every header of a publish, as it is read and as it is described"""

_PARENT, _PREFER, _EXPIRES = (one.name.lower() for one in (PARENT, WAIT, EXPIRES))
_FORWARD: Final = FORWARD.name.removesuffix("NAME").lower()
_FIELD_OF: Final = {one.name.lower(): field for field, one in _FIELDS.items()}
_READ_BY: Final = {one.name.lower(): one.read for one in HEADERS}
_OTHERS: Final = {"content-type", "webhook-id", *(name for name in _READ_BY if not name.startswith(_OURS))}
