"""The setting ``max_backlog`` of a queue: how much may stand there that has not ended. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from syncbrok.model import limits
from syncbrok.model.message import BacklogBound
from syncbrok.model.units import BYTES_PATTERN, expected, integer_between, parse_bytes, read_setting, render_bytes

NAME: Final = "max_backlog"
SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "messages": {
                    "anyOf": [
                        {"type": "integer", "minimum": 1, "maximum": limits.backlog_messages_max},
                        {"type": "null"},
                    ]
                },
                "bytes": {
                    "anyOf": [
                        {"type": "integer", "minimum": 1, "maximum": limits.backlog_bytes_max},
                        {"type": "string", "pattern": BYTES_PATTERN},
                        {"type": "null"},
                    ]
                },
            },
            "additionalProperties": False,
        },
        {"type": "null"},
    ]
}
_WHAT: Final = "null, or a mapping such as {messages: 100000, bytes: 1GiB} of which one may be left out"


def _parse_size(value: Any) -> int:
    size = parse_bytes(value)
    if not 1 <= size <= limits.backlog_bytes_max:
        raise expected(f"a size from 1B to {render_bytes(limits.backlog_bytes_max)}", value)
    return size


_PARTS: Final[dict[str, Callable[[Any], int]]] = {
    "messages": integer_between(1, limits.backlog_messages_max),
    "bytes": _parse_size,
}


def parse_backlog(value: Any) -> BacklogBound | None:
    """None for null, and where neither part says something."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value.keys() <= _PARTS.keys():
        raise expected(_WHAT, value)
    parts = {
        name: None if value.get(name) is None else read_setting(name, parse, value[name])
        for name, parse in _PARTS.items()
    }
    bound = BacklogBound(**parts)
    return None if bound == BacklogBound() else bound


def render_backlog(bound: BacklogBound | None) -> Any:
    """A mapping of both its parts; None for none."""
    return None if bound is None else {"messages": bound.messages, "bytes": bound.bytes}
