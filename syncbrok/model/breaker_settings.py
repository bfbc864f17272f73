"""The setting ``breaker`` of a subscriber: when nothing is tried any more but a probe now and then. Pure."""

from collections.abc import Callable
from typing import Any, Final

from syncbrok.model import limits
from syncbrok.model.errors import BadSetting
from syncbrok.model.message import BreakerPolicy
from syncbrok.model.units import (
    duration_between,
    duration_schema,
    expected,
    integer_between,
    read_parts,
    render_duration,
)

NAME: Final = "breaker"
SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "failures": {"type": "integer", "minimum": 1, "maximum": limits.breaker_failures_max},
                "share": {"type": "number", "minimum": 0.01, "maximum": 1},
                "of": {"type": "integer", "minimum": 1, "maximum": limits.breaker_of_max},
                "probe": {
                    "type": "array",
                    "items": duration_schema(limits.breaker_probe_min_s, limits.breaker_probe_max_s),
                    "minItems": 2,
                    "maxItems": 2,
                },
            },
            "additionalProperties": False,
        },
        {"type": "boolean"},
    ]
}
_WHAT = (
    "false, true, or a mapping such as {failures: 10, share: 0.5, of: 100, probe: [5s, 5m]} of which any may be left "
    "out"
)
_parse_probe_s = duration_between(limits.breaker_probe_min_s, limits.breaker_probe_max_s)


def parse_breaker(value: Any) -> BreakerPolicy | None:
    """None for false; what a mapping leaves out has its default."""
    if isinstance(value, bool):
        return BreakerPolicy() if value else None
    parts = read_parts(value, _PARTS, render_breaker(BreakerPolicy()), _WHAT)
    if parts["failures"] > parts["of"]:
        raise BadSetting(f"failures: expected at most as many as of, {parts['of']}, found {parts['failures']}")
    return BreakerPolicy(parts["failures"], parts["share"], parts["of"], parts["probe"])


def _parse_share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.01 <= value <= 1:
        raise expected("a number from 0.01 to 1", value)
    return float(value)


def _parse_probe(value: Any) -> tuple[float, float]:
    what = "two durations such as [5s, 5m]: the first wait for a probe, and the longest"
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise expected(what, value)
    first_s, longest_s = map(_parse_probe_s, value)
    if first_s > longest_s:
        raise expected(what, value)
    return first_s, longest_s


_PARTS: dict[str, Callable[[Any], Any]] = {
    "failures": integer_between(1, limits.breaker_failures_max),
    "share": _parse_share,
    "of": integer_between(1, limits.breaker_of_max),
    "probe": _parse_probe,
}


def render_breaker(policy: BreakerPolicy | None) -> Any:
    """A mapping of all its parts; False for none."""
    if policy is None:
        return False
    probe = [render_duration(wait_s) for wait_s in policy.probe_s]
    return {"failures": policy.failures, "share": policy.share, "of": policy.of, "probe": probe}
