"""Tells an operator of filters that say neither yes nor no of a message."""

import logging
from collections.abc import Callable
from typing import Final

from syncbrok.delivery.handler import Attempt
from syncbrok.space.state.registry import Registry

_log = logging.getLogger(__name__)

_EVERY_US: Final = 60_000_000
_SUBSCRIBERS_MAX: Final = 1_024


class FilterAlarms:
    """Writes one event a minute for each subscriber. What was skipped is in the log whether told or not."""

    def __init__(self, registry: Registry, clock_us: Callable[[], int]) -> None:
        self._registry = registry
        self._clock_us = clock_us
        self._told_us: dict[int, int] = {}

    def failed(self, attempt: Attempt, detail: bytes) -> None:
        """The filter of its subscriber could not be evaluated; ``detail``: why."""
        now_us = self._clock_us()
        told_us = self._told_us.get(attempt.subscriber)
        if told_us is not None and 0 <= now_us - told_us < _EVERY_US:
            return
        if len(self._told_us) >= _SUBSCRIBERS_MAX:
            self._told_us.clear()
        self._told_us[attempt.subscriber] = now_us
        queue = self._registry.subscriber_queue(attempt.subscriber)
        _log.warning(
            "syncbrok.space.filter_failed",
            extra={
                "queue": self._registry.queue_name(queue),
                "subscriber": self._registry.subscriber_id(attempt.subscriber),
                "sequence": attempt.message,
                "detail": detail.decode(errors="replace"),
            },
        )
