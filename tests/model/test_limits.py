"""Figures that users are told: they stand in one place, and who changes one changes a promise."""

import pytest

from syncbrok.model import limits

DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("filter_bytes_max", 1_024),
        ("filter_data_bytes_max", 65_536),
        ("hops_max", 8),
        ("disabled_max_s", 5 * DAY_S),
        ("idle_after_default_s", 5 * DAY_S),
        ("secret_grace_max_s", 7 * DAY_S),
        ("erase_within_default_s", DAY_S),
        ("idempotency_window_default_s", DAY_S),
        ("retention_default_s", 7 * DAY_S),
        ("reader_hold_default_s", 3 * DAY_S),
        ("log_readers_max", 64),
        ("jobs_kept_s", 7 * DAY_S),
        ("job_ahead_messages_max", 10_000),
        ("tree_nodes_max", 10_000),
        ("search_s", 0.2),
        ("metrics_named_max", 200),
        ("metrics_named_s", 3_600.0),
    ],
)
def test_a_figure_is_the_one_that_is_documented(name: str, value: float) -> None:
    """INTERFACES 1 to 5, RULES 14, 29, 31, 32 and 34."""
    assert getattr(limits, name) == value
