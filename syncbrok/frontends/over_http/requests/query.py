"""Query strings: paging, numbers and switches, each checked."""

from collections.abc import Collection
from typing import Final

from aiohttp import web

from syncbrok.frontends.over_http.requests.paths import decoded
from syncbrok.frontends.over_http.requests.routes import Parameter
from syncbrok.model import limits
from syncbrok.model.errors import Malformed
from syncbrok.model.names import SEQUENCE_MAX
from syncbrok.model.settings import suggest

LIMIT: Final = Parameter(
    "limit",
    "How many at most.",
    {"type": "integer", "minimum": 1, "maximum": limits.list_limit_max, "default": limits.list_limit_default},
)
AFTER_NAME: Final = Parameter("after", "The `next` of the page before.", {"type": "string"})
AFTER_SEQUENCE: Final = Parameter(
    "after", "Only those with a larger sequence; the `next` of the page before.", {"type": "integer", "minimum": 0}
)
AFTER_OLDER: Final = Parameter(
    "after", "Only those with a smaller sequence; the `next` of the page before.", {"type": "integer", "minimum": 0}
)
DRY_RUN: Final = Parameter("dry_run", "Only say what would be done.", {"type": "boolean", "default": False})

_SWITCHES: Final = {"true": True, "1": True, "": True, "false": False, "0": False}


def check(request: web.Request, known: Collection[str]) -> None:
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


def number(request: web.Request, name: str, default: int, low: int, high: int) -> int:
    """The parameter as a whole number from ``low`` to ``high``; raises ``Malformed``."""
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 15 and low <= int(text) <= high):
        raise Malformed(f"{name} must be a whole number from {low} to {high}, not {text[:40]!r}", parameter=name)
    return int(text)


def limit(request: web.Request) -> int:
    return number(request, "limit", limits.list_limit_default, 1, limits.list_limit_max)


def after_sequence(request: web.Request) -> int:
    return number(request, "after", 0, 0, SEQUENCE_MAX)


def switch(request: web.Request, name: str) -> bool:
    """``?name``, ``?name=true`` or ``=1``; false without it. Raises ``Malformed``."""
    text = request.query.get(name)
    if text is None:
        return False
    if text.lower() not in _SWITCHES:
        raise Malformed(f"{name} must be true or false, not {text[:40]!r}", parameter=name)
    return _SWITCHES[text.lower()]


def choice(request: web.Request, name: str, choices: tuple[str, ...], default: str | None) -> str | None:
    """The parameter, which must be one of ``choices``. Raises ``Malformed``."""
    text = request.query.get(name, default)
    if text is not None and text not in choices:
        raise Malformed(f"{name} must be one of {', '.join(choices)}, not {text[:40]!r}", parameter=name)
    return text
