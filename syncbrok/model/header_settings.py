"""The setting ``headers`` of a subscriber: what goes out with each of its deliveries. Pure."""

from collections.abc import Mapping
from typing import Any

from syncbrok.model import limits
from syncbrok.model.errors import BadSetting
from syncbrok.model.units import expected, parse_header_name, parse_header_value

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


def parse_headers(value: Any) -> tuple[tuple[str, str], ...]:
    """Sorted by name, so that the same headers in another order are the same settings."""
    if not isinstance(value, Mapping):
        raise expected("a mapping of header names to values", value)
    headers: dict[str, str] = {}
    for given, content in value.items():
        name = parse_header_name(given)
        if name in HEADERS_REFUSED or name.startswith(HEADER_PREFIXES_REFUSED):
            raise BadSetting(f"header {name!r} cannot be set: the broker writes it itself", header=name)
        if name in headers:
            raise BadSetting(f"header {name!r} is given twice", header=name)
        try:
            headers[name] = parse_header_value(content)
        except BadSetting as wrong:
            raise BadSetting(f"header {name!r}: {wrong.detail}", header=name) from None
    if sum(len(name) + len(content) + 4 for name, content in headers.items()) > limits.header_bytes_max // 2:
        raise BadSetting(f"expected at most {limits.header_bytes_max // 2} bytes of headers")
    return tuple(sorted(headers.items()))
