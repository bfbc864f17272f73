"""The broker's answers other than success, and when to ask again."""

import random
import time
from typing import Any, Final

import orjson

LATER: Final = frozenset({408, 429, 503, 507})
"""statuses with which nothing was kept: safe to repeat, whatever the request"""
_PAUSE_FIRST_S: Final = 0.1


def problem_of(written: bytes) -> dict[str, Any]:
    """The problem document (RFC 9457) of an answer; empty where it is none."""
    try:
        found = orjson.loads(written)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def retry_after_s(header: str | None) -> float:
    """Seconds to wait that a ``Retry-After`` header asks for. A date counts as no wish: the client's own pause grows by
    itself."""
    text = (header or "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0


class Repeats:
    """When a request is sent again, over ``give_up_s`` from now on: after pauses that double up to ``pause_max_s``,
    each spread over its second half so that many do not come back at once."""

    def __init__(self, give_up_s: float, pause_max_s: float) -> None:
        self._until_s = time.monotonic() + give_up_s
        self._pause_max_s = pause_max_s
        self._pause_s = _PAUSE_FIRST_S

    def pause_s(self, at_least_s: float) -> float | None:
        """The next pause, for as long as the broker asks at least; None where the time would be over by then."""
        pause_s = max(at_least_s, self._pause_s * random.uniform(0.5, 1.0))  # noqa: S311 (no secret)
        self._pause_s = min(2 * self._pause_s, self._pause_max_s)
        return pause_s if time.monotonic() + pause_s <= self._until_s else None
