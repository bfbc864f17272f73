"""The setting ``batch`` of a subscriber: several messages in one request. Pure."""

from collections.abc import Callable
from typing import Any, Final

from syncbrok.model import limits
from syncbrok.model.message import BatchPolicy
from syncbrok.model.units import (
    duration_between,
    duration_schema,
    integer_between,
    read_parts,
    render_duration,
)

NAME: Final = "batch"
SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "max": {"type": "integer", "minimum": 1, "maximum": limits.delivered_batch_max},
                "wait": duration_schema(0.0, limits.delivered_batch_wait_max_s),
            },
            "additionalProperties": False,
        },
        {"type": "null"},
    ]
}
_WHAT = "null, or a mapping such as {max: 100, wait: 200ms} of which either may be left out"
_PARTS: dict[str, Callable[[Any], Any]] = {
    "max": integer_between(1, limits.delivered_batch_max),
    "wait": duration_between(0.0, limits.delivered_batch_wait_max_s),
}


def parse_batch(value: Any) -> BatchPolicy | None:
    """None for none; what a mapping leaves out has its default."""
    if value is None:
        return None
    parts = read_parts(value, _PARTS, render_batch(BatchPolicy()) or {}, _WHAT)
    return BatchPolicy(parts["max"], parts["wait"])


def render_batch(policy: BatchPolicy | None) -> dict[str, Any] | None:
    """A mapping of both its parts; None for none."""
    return None if policy is None else {"max": policy.max, "wait": render_duration(policy.wait_s)}
