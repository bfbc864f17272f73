"""The broker's answers other than success, and when to ask again."""

import random
import time
from collections.abc import Mapping
from typing import Any, Final

import orjson

LATER: Final = frozenset({408, 429, 503, 507})
"""statuses of what may work later. With one nothing was kept, whatever the request, but see ``is_unknown``"""
_ELSEWHERE: Final = frozenset({"no-leader", "no-quorum", "draining", "log-failed", "crowded"})
_UNKNOWN: Final = "log-failed"
_PAUSE_FIRST_S: Final = 0.1


def problem_of(written: bytes) -> dict[str, Any]:
    """The problem document (RFC 9457) of an answer; empty where it is none."""
    try:
        found = orjson.loads(written)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def slug_of(problem: Mapping[str, object]) -> str:
    """The word by which programs know a problem; empty where it is none of a broker's."""
    return str(problem.get("type") or "").rpartition(":")[2]


def is_elsewhere(status: int, problem: Mapping[str, object]) -> bool:
    """Whether another address of the same cluster may do what this one cannot now: it does not lead, is starting or
    stopping, has no room for connections, or what answers is a gateway with no broker behind it."""
    return status == 503 and (not problem.get("type") or slug_of(problem) in _ELSEWHERE)


def is_unknown(status: int, problem: Mapping[str, object]) -> bool:
    """Whether the broker itself cannot say if it has kept what it was sent: its log failed meanwhile. Then only what
    changes nothing the second time is repeated."""
    return status == 503 and slug_of(problem) == _UNKNOWN


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

    @property
    def are_over(self) -> bool:
        """Nothing is sent any more."""
        return time.monotonic() > self._until_s

    def pause_s(self, at_least_s: float) -> float | None:
        """The next pause, for as long as the broker asks at least; None where the time would be over by then."""
        pause_s = max(at_least_s, self._pause_s * random.uniform(0.5, 1.0))  # noqa: S311 (no secret)
        self._pause_s = min(2 * self._pause_s, self._pause_max_s)
        return pause_s if time.monotonic() + pause_s <= self._until_s else None
