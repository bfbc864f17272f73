"""A receiver with an inbox (``syncbrok.client.Inbox``) applies each message once, whatever is killed."""

from pathlib import Path

from tests.support.crash.inbox_ordeal import ordeal


def test_killed_fifty_times_nothing_is_missing_twice_or_early(tmp_path: Path, seed: int) -> None:
    """RULES 1, 13, 24: a receiver killed 50 times, its broker killed -9 three times, a network that loses one piece in
    twenty: what was acknowledged is applied once, no child before its parent, and the inbox has no gap."""
    came = ordeal(tmp_path, seed, receiver_kills=50, broker_kills=3, pause_s=0.2, broker_pause_s=3.0)
    assert came.messages > 100
    assert came.lost > 10
    assert not came.wrong, came.wrong[:5]
