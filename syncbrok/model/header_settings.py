"""The setting ``headers`` of a subscriber: what goes out with each of its deliveries. Pure.

Their values are credentials: many an endpoint wants a key of its own in one. In their place stands ``set``.
"""

from collections.abc import Mapping
from typing import Any, Final

from syncbrok.model import limits
from syncbrok.model.credentials import SET, hidden
from syncbrok.model.errors import BadSetting
from syncbrok.model.units import expected, parse_header_name, parse_header_value

NAME: Final = "headers"
FORWARD: Final = "forward"
HELD_BACK: Final = frozenset({"authorization", "cookie", "forwarded"})
"""headers of a publisher that go to nobody who does not ask for them: they say who somebody is"""
HELD_BACK_PREFIX: Final = "x-forwarded-"
FORWARD_SCHEMA: Final[dict[str, Any]] = {
    "type": "array",
    "items": {"type": "string"},
    "maxItems": limits.forwarded_headers_max,
}
HEADERS_REFUSED = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
HEADER_PREFIXES_REFUSED = ("webhook-", "syncbrok-")


def credential(name: str) -> str:
    """The name of the value of this header among the credentials."""
    return f"{NAME}:{name.lower()}"


def hide(value: Any) -> tuple[Any, dict[str, str]]:
    """See ``credentials.Hide``. What is no mapping is left as it is, for ``parse_headers`` to refuse."""
    credentials: dict[str, str] = {}
    if not isinstance(value, Mapping):
        return value, credentials
    public: dict[Any, Any] = {}
    for name, content in value.items():
        known = isinstance(name, str) and content != SET
        public[name] = hidden(credential(name), _value(name, content), credentials) if known else content
    if sum(len(name) + len(content) for name, content in credentials.items()) > limits.header_bytes_max // 2:
        raise BadSetting(f"expected at most {limits.header_bytes_max // 2} bytes of headers")
    return public, credentials


def _value(name: str, content: Any) -> str:
    """Raises ``BadSetting``, which does not repeat the value."""
    try:
        return parse_header_value(content)
    except BadSetting:
        what = "a header value: printable ASCII text without blanks around it"
        raise BadSetting(f"header {name[:80].lower()!r}: expected {what}", expected=what, header=name[:80]) from None


def parse_headers(value: Any) -> tuple[tuple[str, str], ...]:
    """Sorted by name, so that the same headers in another order are the same settings. Of a value only the word ``set``
    stands here."""
    if not isinstance(value, Mapping):
        raise expected("a mapping of header names to values", value)
    headers: dict[str, str] = {}
    for given, content in value.items():
        name = parse_header_name(given)
        if name in HEADERS_REFUSED or name.startswith(HEADER_PREFIXES_REFUSED):
            raise BadSetting(f"header {name!r} cannot be set: the broker writes it itself", header=name)
        if name in headers:
            raise BadSetting(f"header {name!r} is given twice", header=name)
        if content != SET:
            raise BadSetting(f"header {name!r}: expected text", header=name)
        headers[name] = SET
    return tuple(sorted(headers.items()))


def parse_forward(value: Any) -> tuple[str, ...]:
    """Their names in lower case, sorted; raises ``BadSetting``."""
    what = f"a list of at most {limits.forwarded_headers_max} names: {', '.join(sorted(HELD_BACK))}, x-forwarded-*"
    if not isinstance(value, list | tuple) or len(value) > limits.forwarded_headers_max:
        raise expected(what, value)
    names = set()
    for given in value:
        name = parse_header_name(given)
        if name not in HELD_BACK and not name.startswith(HELD_BACK_PREFIX):
            raise expected(f"{what} (any other goes out as it is)", given)
        names.add(name)
    return tuple(sorted(names))


def render_headers(headers: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Their names; an older version has left values with some, which are not shown either."""
    return dict.fromkeys((name for name, _ in headers), SET)


def credential_names(headers: tuple[tuple[str, str], ...]) -> list[str]:
    """The credentials that these need."""
    return [credential(name) for name, content in headers if content == SET]


def in_the_clear(headers: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The values that stand with their names, as an older version left them, as credentials."""
    return {credential(name): content for name, content in headers if content != SET}


def without_values(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The same as this version keeps them."""
    return tuple((name, SET) for name, _ in headers)
