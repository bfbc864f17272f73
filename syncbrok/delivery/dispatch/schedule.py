"""The interface of the scheduler, as the dispatcher needs it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from syncbrok.delivery.handler import Attempt, AttemptResult
from syncbrok.delivery.scheduler.batches import Batches
from syncbrok.model.facts import Row


class SchedulerLike(Protocol):
    """The interface of the scheduler, as the dispatcher needs it."""

    batches: Batches
    """what waits to go out in one request with others"""

    def take(self, now_us: int, durable: int, limit: int) -> list[Attempt]:
        """Attempts to make now."""

    def offer(self, subscriber: int, room: int) -> None:
        """Hand out at most so many at once to a subscriber whose consumers come for its messages."""

    def awaited(self, message: int) -> bool:
        """Whether somebody waits for the message's end."""

    def upcoming(self, subscriber: int, limit: int) -> Sequence[int]:
        """Sequences that will probably be taken next for a subscriber, in order."""

    def children(self, message: int, limit: int) -> Sequence[int]:
        """At most ``limit`` messages that wait for this one, oldest first."""

    def settle(
        self, answers: Sequence[tuple[Attempt, AttemptResult]], now_us: int, jitter: Callable[[], float]
    ) -> tuple[list[Row], bool]:
        """Free the slots of these attempts. Returns a row for each outcome, and whether somebody waits for one of the
        rows to be durable."""

    def give_back(self, attempts: Sequence[Attempt]) -> None:
        """Take back attempts that never began: they will be made again, with the same numbers."""

    def given_up(self) -> dict[int, set[int]]:
        """Messages whose attempts should not begin any more, by subscriber. Each is told once."""

    def stands(self, attempt: Attempt) -> bool:
        """Whether an attempt may begin now."""

    def expire(self, attempt: Attempt) -> bool:
        """The message's time was over before this one began: whether it ends without it."""

    def take_pending_ends(self, now_us: int, limit: int) -> list[Row]:
        """Ends without an attempt, each asked for once."""

    @property
    def owes_ends(self) -> bool:
        """Whether that has left some."""

    def next_due_us(self) -> int | None:
        """When to ask again though nothing happens."""
