"""How long to wait after a failed attempt, or to give up. Pure: the jitter is an argument.

``wait = delay[failures - 1] * (1 + policy.jitter * jitter)``, ``jitter`` in -1..1; a ``Retry-After`` longer than that
wins, up to ``limits.retry_after_max_s``; none left: a dead letter. The default schedule is that of Standard Webhooks
1.0 (5s, 5m, 30m, 2h, 5h, 10h, 14h, 20h, 24h after the first attempt).
"""

from syncbrok.model import limits
from syncbrok.model.message import RetryPolicy


def wait_us(policy: RetryPolicy, failures: int, jitter: float, retry_after_s: float | None) -> int | None:
    """Microseconds to wait after the ``failures``-th failed attempt (from 1), or None to give up."""
    assert failures >= 1
    assert -1.0 <= jitter <= 1.0
    if failures > len(policy.delays_s):
        return None
    wait_s = policy.delays_s[failures - 1] * (1.0 + policy.jitter * jitter)
    if retry_after_s is not None:
        wait_s = max(wait_s, min(retry_after_s, limits.retry_after_max_s))
    return int(wait_s * 1_000_000)
