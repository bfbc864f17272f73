"""Requests that were refused for their token: counted, logged at a bounded rate, and, where somebody may be trying
which tokens there are, answered late. Who has a right token waits for nobody."""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, Literal

from syncbrok.model.errors import SyncbrokError, Unauthorized, WrongToken

_log = logging.getLogger(__name__)

Why = Literal["missing", "wrong", "scope"]
"""no token; one that is unknown or has expired; one that may do other things, or in other queues"""
WHY: Final[tuple[Why, ...]] = ("missing", "wrong", "scope")

_KNOWN_MAX: Final = 1_024
"""clients whose wrong tokens are remembered"""
_FORGOTTEN_S: Final = 60.0
_FIRST_S: Final = 0.02
_LATEST_S: Final = 1.0
_LINES_AT_ONCE: Final = 20
_LINE_S: Final = 1.0
"""how long it takes until another line may be written, once so many were"""


class RefusedTokens:
    """``clock_s`` is monotonic."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(WHY, 0))
        self._clock_s = clock_s
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """by client: how many came one after the other, and when the last did; the longest silent first"""
        self._lines = float(_LINES_AT_ONCE)
        self._lines_since = clock_s()
        self._left_out = 0

    def note(self, why: SyncbrokError, client: str, method: str, path: str) -> float:
        """Count and log one; after how many seconds it should be answered. ``client``: the owner of its address."""
        reason: Why = (
            "wrong" if isinstance(why, WrongToken) else "missing" if isinstance(why, Unauthorized) else "scope"
        )
        self.counts[reason] += 1
        now = self._clock_s()
        self._log(now, {"reason": reason, "client": client, "method": method, "path": path[:200], "detail": why.detail})
        return self._delay_s(client, now) if reason == "wrong" else 0.0

    def _delay_s(self, client: str, now: float) -> float:
        count, last = self._wrong.pop(client, (0, now))
        count = 0 if now - last > _FORGOTTEN_S else count
        self._wrong[client] = count + 1, now
        if len(self._wrong) > _KNOWN_MAX:
            self._wrong.popitem(last=False)
        return float(min(_LATEST_S, _FIRST_S * 2.0 ** min(count, 16)))

    def _log(self, now: float, told: dict[str, str]) -> None:
        self._lines = min(float(_LINES_AT_ONCE), self._lines + (now - self._lines_since) / _LINE_S)
        self._lines_since = now
        if self._lines < 1.0:
            self._left_out += 1
            return
        self._lines -= 1.0
        _log.warning("syncbrok.http.token_refused", extra={**told, "left_out": self._left_out})
        self._left_out = 0
