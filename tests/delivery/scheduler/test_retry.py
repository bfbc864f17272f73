"""When a failed attempt is made again."""

from hypothesis import given
from hypothesis import strategies as st

from syncbrok.delivery.scheduler.retry import wait_us
from syncbrok.model import limits
from syncbrok.model.message import RetryPolicy


def test_the_default_schedule_is_that_of_standard_webhooks() -> None:
    """INTERFACES 3: retried after 5s, 5m, 30m, 2h, 5h, 10h, 14h, 20h, 24h, then a dead letter."""
    policy = RetryPolicy()
    waits = [wait_us(policy, failures, 0.0, None) for failures in range(1, 11)]
    expected = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400]
    assert waits == [*(seconds * 1_000_000 for seconds in expected), None]


@given(st.integers(1, 9), st.floats(-1, 1))
def test_jitter_spreads_by_a_fifth_and_no_more(failures: int, jitter: float) -> None:
    """INTERFACES 3: +-20 %, so that a thousand retries do not come back in one second."""
    policy = RetryPolicy()
    wait = wait_us(policy, failures, jitter, None)
    assert wait is not None
    assert 0.799_999 <= wait / (policy.delays_s[failures - 1] * 1e6) <= 1.200_001


def test_retry_after_lengthens_a_wait_and_never_shortens_it() -> None:
    """INTERFACES 3: 429 and 503 honour Retry-After; an endpoint cannot ask to be hammered, or to be forgotten."""
    policy = RetryPolicy((10.0,), 0.0)
    assert wait_us(policy, 1, 0.0, 60.0) == 60_000_000
    assert wait_us(policy, 1, 0.0, 1.0) == 10_000_000
    assert wait_us(policy, 1, 0.0, 1e9) == int(limits.retry_after_max_s * 1e6)
