"""Tells an operator of filters that say neither yes nor no of a message."""

import logging
from collections.abc import Callable
from typing import Final

from syncbrok.delivery.handler import Attempt
from syncbrok.space.state.registry import Registry

_log = logging.getLogger(__name__)

_EVERY_US: Final = 60_000_000
_SUBSCRIBERS_MAX: Final = 1_024


class FilterMinutes:
    """Lets one alarm a minute through for each subscriber; a clock that is set back lets one more through."""

    def __init__(self) -> None:
        self._told_us: dict[int, int] = {}

    def is_due(self, subscriber: int, now_us: int) -> bool:
        """Whether it is to be told now; it counts as told then."""
        told_us = self._told_us.get(subscriber)
        if told_us is not None and 0 <= now_us - told_us < _EVERY_US:
            return False
        if len(self._told_us) >= _SUBSCRIBERS_MAX:
            self._told_us.clear()
        self._told_us[subscriber] = now_us
        return True


class FilterAlarms:
    """Writes one line a minute for each subscriber. What was skipped is in the log whether told or not."""

    def __init__(self, registry: Registry, clock_us: Callable[[], int]) -> None:
        self._registry = registry
        self._clock_us = clock_us
        self._minutes = FilterMinutes()

    def failed(self, attempt: Attempt, detail: bytes) -> None:
        """The filter of its subscriber could not be evaluated; ``detail``: why."""
        if not self._minutes.is_due(attempt.subscriber, self._clock_us()):
            return
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
