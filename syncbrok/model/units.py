"""Durations, sizes, times, endpoints, secrets and header names as people write them, in YAML, JSON, headers and flags.

Each ``parse_*`` returns the one form that is used inside and raises ``BadSetting`` saying what was expected; each
``render_*`` writes what its ``parse_*`` reads back as the same value.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar
from urllib.parse import urlsplit

from syncbrok.model import limits
from syncbrok.model.errors import BadSetting, ClientFault

T = TypeVar("T")

DURATION_PATTERN = r"^(\d{1,15}(?:\.\d{1,30})?)\s*(ms|s|m|h|d)?$"
BYTES_PATTERN = r"^(\d{1,15}(?:\.\d{1,6})?)\s*(B|KiB|MiB|GiB|TiB|kB|KB|MB|GB|TB)?$"
SECRET_PREFIX = "whsec_"  # noqa: S105  the public mark of a Standard Webhooks secret, not a secret
SECRET_BYTES_MIN = 24
SECRET_BYTES_MAX = 64
HIDDEN = "***"
"""in an endpoint, in place of what nobody is shown"""

RATE_PATTERN = r"^([1-9]\d{0,6})/(s|m|h)$"
_RATE = re.compile(RATE_PATTERN, re.ASCII)
_DURATION = re.compile(DURATION_PATTERN, re.ASCII)
_BYTES = re.compile(BYTES_PATTERN, re.ASCII)
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_UNIT_BYTES = {
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_RFC3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_US_MAX = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_HOST_NAME = re.compile(r"[a-zA-Z0-9_](?:[a-zA-Z0-9_-]{0,62})(?:\.[a-zA-Z0-9_-]{1,63})*\.?", re.ASCII)
_USER_INFO = re.compile(r"^((?:[^/]*//)?)[^/]*@")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}", re.ASCII)
_HEADER_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")


def expected(what: str, found: object, **members: object) -> BadSetting:
    """The error of a value that is not ``what``; the text is cut so that a huge value does not make a huge error."""
    shown = repr(found)
    return BadSetting(
        f"expected {what}, found {shown if len(shown) <= 80 else shown[:77] + '...'}", expected=what, **members
    )


# -- durations --------------------------------------------------------------------------------------------------------


def parse_duration_s(value: Any) -> float:
    """Seconds, to the nanosecond, from ``"50ms"``, ``"15s"``, ``"5m"``, ``"2h"``, ``"30d"`` or a number of seconds
    (also as text)."""
    what = "a duration such as 50ms, 15s, 5m, 2h or 30d, or a number of seconds"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise expected(what, value)
    if isinstance(value, str):
        matched = _DURATION.match(value.strip())
        if not matched:
            raise expected(what, value)
        number, unit = matched.groups()
        return round(float(number) * _UNIT_S[unit or "s"], 9)
    try:
        seconds = float(value)
    except OverflowError:
        raise expected(what, value) from None
    if not 0 <= seconds < 1e15:  # false for NaN too
        raise expected(what, value)
    return round(seconds, 9)


def duration_between(low_s: float, high_s: float) -> Callable[[Any], float]:
    """Reads seconds as ``parse_duration_s`` does, and raises ``BadSetting`` for less than ``low_s`` or more than
    ``high_s``."""

    def parse(value: Any) -> float:
        seconds = parse_duration_s(value)
        if not low_s <= seconds <= high_s:
            raise expected(f"a duration from {render_duration(low_s)} to {render_duration(high_s)}", value)
        return seconds

    return parse


def render_duration(seconds: float) -> str:
    """A duration as text: in whole units where possible, else in seconds to the nanosecond. ``parse_duration_s`` reads
    it back exactly."""
    seconds = round(seconds, 9)
    for unit in ("d", "h", "m"):
        if seconds and seconds % _UNIT_S[unit] == 0:
            return f"{int(seconds // _UNIT_S[unit])}{unit}"
    if seconds == int(seconds):
        return f"{int(seconds)}s"
    milliseconds = round(seconds * 1_000)
    if seconds < 10 and milliseconds / 1_000 == seconds:
        return f"{milliseconds}ms"
    return f"{Decimal(repr(seconds)):f}s"


# -- sizes ------------------------------------------------------------------------------------------------------------


def parse_bytes(value: Any) -> int:
    """Bytes, from ``"64MiB"``, ``"1GiB"``, ``"10MB"`` (a million) or a number of bytes (also as text)."""
    what = "a size such as 4096, 512KiB, 64MiB or 1GiB"
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise expected(what, value)
    if isinstance(value, int):
        if value < 0:
            raise expected(what, value)
        return value
    matched = _BYTES.match(value.strip())
    if not matched:
        raise expected(what, value)
    number, unit = matched.groups()
    size = Decimal(number) * _UNIT_BYTES[unit or "B"]
    if size != int(size):
        raise expected(f"{what} (whole bytes)", value)
    return int(size)


def render_bytes(size: int) -> str:
    """A size as text, in the largest binary unit that divides it."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _UNIT_BYTES[unit] == 0:
            return f"{size // _UNIT_BYTES[unit]}{unit}"
    return f"{size}B"


# -- times ------------------------------------------------------------------------------------------------------------


def parse_time_us(value: Any) -> int:
    """Unix microseconds, from RFC 3339 text (``2026-07-01T12:00:00Z``) or Unix seconds (a number, also as text)."""
    what = "a time such as 2026-07-01T12:00:00Z (RFC 3339), or Unix seconds"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise expected(what, value)
    if isinstance(value, str):
        matched = _RFC3339.fullmatch(value.strip())
        if matched:
            return _time_us(matched, what, value)
        try:
            value = Decimal(value.strip())
        except ArithmeticError:
            raise expected(what, value) from None
        if not value.is_finite():  # comparing a NaN of Decimal would raise
            raise expected(what, str(value))
    # Bounded before it is multiplied: a number such as 1e999999 would fill the memory as an integer.
    if not 0 <= value <= _TIME_US_MAX // 1_000_000:
        raise expected(what, value)
    time_us: int = round(value * 1_000_000)
    return time_us


def _time_us(matched: "re.Match[str]", what: str, text: str) -> int:
    year, month, day, hour, minute, second = (int(part) for part in matched.groups()[:6])
    fraction = int(((matched[7] or "") + "000000")[:6])
    zone = matched[8]
    leap = second == 60  # RFC 3339 allows a leap second; Unix time has none: it is the second after 59
    try:
        moment = datetime(year, month, day, hour, minute, second - leap, tzinfo=UTC)
        offset = timedelta()
        if zone not in "Zz":
            minutes = int(zone[4:6])
            if minutes > 59 or int(zone[1:3]) > 23:
                raise expected(what, text)
            offset = timedelta(hours=int(zone[1:3]), minutes=minutes) * (-1 if zone[0] == "-" else 1)
    except ValueError:
        raise expected(what, text) from None
    time_us = (moment - _EPOCH - offset) // timedelta(microseconds=1) + leap * 1_000_000 + fraction
    if not 0 <= time_us <= _TIME_US_MAX:
        raise expected("a time from 1970 to 9999", text)
    return time_us


def render_time(time_us: int) -> str:
    """RFC 3339 in UTC with microseconds, of one width, so that it sorts as text."""
    return (_EPOCH + timedelta(microseconds=time_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# -- endpoints --------------------------------------------------------------------------------------------------------


def parse_rate(value: Any) -> tuple[int, int]:
    """How many in how many seconds: ``"100/s"``, ``"30/m"``, ``"5/h"``; raises ``BadSetting``."""
    found = _RATE.match(value) if isinstance(value, str) else None
    if found is None or not 1 <= int(found[1]) <= limits.rate_max:
        raise expected(f"a rate such as 100/s, 30/m or 5/h, of at most {limits.rate_max:,}", value)
    return int(found[1]), int(_UNIT_S[found[2]])


def parse_endpoint(value: Any) -> str:
    """An http or https URL with a host, without user info or fragment, exactly as given; raises ``BadSetting``."""
    what = "an http or https URL such as https://billing.example/hooks"
    if not isinstance(value, str) or not value:
        raise expected(what, value)
    found = shown_endpoint(value)  # neither is a query repeated, nor user info
    if len(value) > limits.endpoint_chars_max and not has_hidden(value):  # as it is shown it may be the longer one
        raise expected(f"{what}, at most {limits.endpoint_chars_max} characters", found)
    if any(not "!" <= character <= "~" for character in value):
        raise expected(f"{what}, other characters and blanks percent-encoded", found)
    try:
        parts = urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise expected(what, found) from None
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise expected(what, found)
    if "@" in parts.netloc:
        # Not repeated in the error: it may hold a password.
        raise BadSetting(f"expected {what}, without a user name or password in it; use headers", expected=what)
    if "#" in value:
        raise expected(f"{what}, without a fragment (#...)", found)
    if not (_is_ipv6(host) if "[" in parts.netloc else _HOST_NAME.fullmatch(host)):
        raise expected(what, found)
    return value


def shown_endpoint(endpoint: str) -> str:
    """The endpoint as it is shown: ``***`` stands for its user info and for the value of each parameter of its query
    (RULES 19). One with neither stays as it is."""
    if "?" not in endpoint and "@" not in endpoint:
        return endpoint
    head, mark, query = endpoint.partition("?")
    head = _USER_INFO.sub(rf"\1{HIDDEN}@", head)
    return head + mark + "&".join(map(_shown_parameter, query.split("&")))


def has_hidden(endpoint: str) -> bool:
    """Whether ``***`` stands in it for anything, as in an endpoint that is shown."""
    head, _, query = endpoint.partition("?")
    in_query = any(HIDDEN in one and one == _shown_parameter(one) for one in query.split("&"))
    return in_query or (f"{HIDDEN}@" in head and head == shown_endpoint(head))


def _shown_parameter(parameter: str) -> str:
    """Without its value. One that has no other ``=`` than at its end is all value: base64 may end so."""
    name, _, value = parameter.partition("=")
    if not value.strip("="):
        return parameter and HIDDEN
    return f"{name}={HIDDEN}"


def endpoint_scheme(endpoint: str) -> str:
    """The part before the colon, in lower case: schemes do not depend on case (RFC 3986, 3.1)."""
    return endpoint.partition(":")[0].lower()


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return "%" not in host


# -- secrets and headers ----------------------------------------------------------------------------------------------


def parse_secret(value: Any, bytes_min: int = SECRET_BYTES_MIN) -> str:
    """A Standard Webhooks secret. Raises ``BadSetting``, which never repeats the input (RULES 19). ``bytes_min`` is
    smaller only for secrets from before there was this bound."""
    what = f"{SECRET_PREFIX} followed by base64 of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes"
    wrong = BadSetting(f"expected {what}", expected=what)
    if not isinstance(value, str):
        raise wrong
    text = value.strip()
    if not text.startswith(SECRET_PREFIX):
        raise wrong
    try:
        key = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise wrong from None
    if not bytes_min <= len(key) <= SECRET_BYTES_MAX:
        raise wrong
    return text


def parse_header_name(value: Any) -> str:
    """A header name in lower case; raises ``BadSetting``."""
    if not isinstance(value, str) or not _HEADER_NAME.fullmatch(value):
        raise expected("a header name such as x-tenant", value)
    return value.lower()


def parse_header_value(value: Any) -> str:
    """A header value: printable ASCII without blanks around it; raises ``BadSetting``."""
    if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
        raise expected("a header value: printable ASCII text without blanks around it", value)
    return value


# -- how settings are read ---------------------------------------------------------------------------------------------


def integer_between(low: int, high: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise expected(f"a whole number from {low} to {high}", value)
        return value

    return parse


def duration_schema(low_s: float, high_s: float) -> dict[str, Any]:
    return {
        "anyOf": [
            {"type": "number", "minimum": low_s, "maximum": high_s},
            {"type": "string", "pattern": DURATION_PATTERN},
        ],
        "description": f"A number with a unit (ms, s, m, h, d) or of seconds, "
        f"from {render_duration(low_s)} to {render_duration(high_s)}.",
    }


def read_setting(name: str, parse: Callable[[Any], T], value: Any) -> T:
    """``parse(value)``; its error names the setting too. Raises ``BadSetting``."""
    try:
        return parse(value)
    except ClientFault as wrong:
        raise BadSetting(f"{name}: {wrong.detail}", **{**wrong.members, "setting": name}) from None


def read_parts(
    value: Any, parts: Mapping[str, Callable[[Any], Any]], default: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """The parts of a setting that is a mapping, parsed; what it leaves out is as ``default`` says. Raises
    ``BadSetting``, where it is none or has other parts with ``what`` as that which was expected."""
    if not isinstance(value, Mapping) or not value.keys() <= parts.keys():
        raise expected(what, value)
    return {name: read_setting(name, parse, value.get(name, default[name])) for name, parse in parts.items()}


# -- counts -----------------------------------------------------------------------------------------------------------


def many(count: int, one: str, others: str = "") -> str:
    """``many(1, "message")`` is ``1 message``, of two ``2 messages``. ``others``: where an ``s`` is not enough."""
    return f"{count} {one if count == 1 else others or one + 's'}"
