"""Query parameters and headers of requests. A ``Parameter`` is the one place that says what it is called, what it may
be and how it is read: a route lists it, its handler reads it, and ``/openapi.json`` shows it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from aiohttp import web

from syncbrok.frontends.over_http.requests.paths import decoded
from syncbrok.model import limits
from syncbrok.model.errors import Malformed
from syncbrok.model.names import SEQUENCE_MAX
from syncbrok.model.settings import suggest
from syncbrok.model.units import parse_time_us, read_setting
from syncbrok.space.channels import BEGINNING, Bound

T = TypeVar("T")

TEXT: Final[Mapping[str, Any]] = {"type": "string"}
SEQUENCE: Final[Mapping[str, Any]] = {"type": "integer", "minimum": 0, "maximum": SEQUENCE_MAX}

_SWITCHES: Final = {"true": True, "1": True, "": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Parameter(Generic[T]):
    """A query parameter or header. ``read``: its text -> its value; raises ``ClientFault``. ``schema``: what the text
    may be, as JSON Schema. ``default``: the value where it is not given."""

    name: str
    doc: str
    schema: Mapping[str, Any]
    read: Callable[[str], T]
    default: T
    required: bool = False

    def in_query(self, request: web.Request) -> T:
        """Its value in the query. Raises ``ClientFault``."""
        text = request.query.get(self.name)
        return self.default if text is None else self.read(text)


def text(name: str, doc: str) -> Parameter[str | None]:
    """Any text."""
    return Parameter(name, doc, TEXT, str, None)


def number(name: str, doc: str, default: int, low: int, high: int) -> Parameter[int]:
    """A whole number from ``low`` to ``high``; anything else is ``Malformed``."""
    schema = {"type": "integer", "minimum": low, "maximum": high, "default": default}
    return Parameter(name, doc, schema, lambda given: _number(name, given, low, high), default)


def sequence(name: str, doc: str) -> Parameter[int]:
    """A sequence; 0 where there is none; anything else is ``Malformed``."""
    return Parameter(name, doc, SEQUENCE, lambda given: _number(name, given, 0, SEQUENCE_MAX), 0)


def switch(name: str, doc: str) -> Parameter[bool]:
    """``?name``, ``?name=true`` or ``=1``; false without it. Anything else is ``Malformed``."""

    def read(given: str) -> bool:
        if given.lower() not in _SWITCHES:
            raise Malformed(f"{name} must be true or false, not {given[:40]!r}", parameter=name)
        return _SWITCHES[given.lower()]

    return Parameter(name, doc, {"type": "boolean", "default": False}, read, False)


def choice(name: str, doc: str, choices: Sequence[str], default: str | None = None) -> Parameter[str | None]:
    """One of ``choices``; anything else is ``Malformed``."""

    def read(given: str) -> str:
        if given not in choices:
            raise Malformed(f"{name} must be one of {', '.join(choices)}, not {given[:40]!r}", parameter=name)
        return given

    schema: dict[str, Any] = {**TEXT, "enum": list(choices)}
    return Parameter(name, doc, schema if default is None else {**schema, "default": default}, read, default)


def bound(name: str, doc: str) -> Parameter[Bound]:
    """A sequence, or a time as RFC 3339 writes it; without one no bound. Anything else is ``BadSetting``."""
    return Parameter(name, doc, TEXT, lambda given: read_setting(name, parse_bound, given), BEGINNING)


def parse_bound(value: Any) -> Bound:
    """Never ``BEGINNING``, which is no bound: who says ``before: 0`` does not mean all. Raises ``BadSetting``."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= SEQUENCE_MAX:
        return Bound(value)
    return Bound(time_us=max(1, parse_time_us(value)))


def whole_number(given: str, low: int, high: int) -> int | None:
    """The number that the text is; None where it is none from ``low`` to ``high``."""
    if not (given.isascii() and given.isdigit() and len(given) <= 15 and low <= int(given) <= high):
        return None
    return int(given)


def _number(name: str, given: str, low: int, high: int) -> int:
    found = whole_number(given, low, high)
    if found is None:
        raise Malformed(f"{name} must be a whole number from {low} to {high}, not {given[:40]!r}", parameter=name)
    return found


LIMIT: Final = number("limit", "How many at most.", limits.list_limit_default, 1, limits.list_limit_max)
AFTER_NAME: Final = text("after", "The `next` of the page before.")
NAME_TEXT: Final = text("text", "Only those with this in the name, in either case.")
AFTER_SEQUENCE: Final = sequence("after", "Only those with a larger sequence; the `next` of the page before.")
AFTER_OLDER: Final = sequence("after", "Only those with a smaller sequence; the `next` of the page before.")
AFTER_FOUND: Final = sequence("after", "The `next` of the page before, in the same order.")
SINCE: Final = bound("since", "Only from this sequence or time (RFC 3339) on.")
UNTIL: Final = bound("until", "Only before this sequence or time (RFC 3339).")
DRY_RUN: Final = switch("dry_run", "Only say what would be done.")


def check_query(request: web.Request, known: Collection[str]) -> None:
    """Refuse query parameters that the route does not know, as members of bodies are: ``?dryrun=true`` must not purge.
    Also one name with two values. Raises ``Malformed``, naming the parameter and those that are ``known``."""
    decoded(request.rel_url.raw_query_string, "the query")
    asked = request.query
    for name in asked:
        if name not in known:
            hint = suggest(name[:80], known) if known else "; this route takes none"
            raise Malformed(f"unknown query parameter {name[:80]!r}{hint}", parameter=name[:80], known=sorted(known))
        if len(set(asked.getall(name))) > 1:
            raise Malformed(f"query parameter {name} is given twice, with different values", parameter=name)
