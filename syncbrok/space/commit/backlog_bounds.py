"""Refuses what would be more than a queue lets stand that has not ended (RULES 35). Pure.

A batch is made when the one before is applied, so what stands is exact; what the batch itself adds is counted here.
"""

from collections.abc import Callable, Collection, Mapping

from syncbrok.delivery.scheduler.queries import Standing
from syncbrok.model import limits
from syncbrok.model.errors import BacklogFull, TooLarge
from syncbrok.model.facts import Extras
from syncbrok.model.message import Queue


class BacklogBounds:
    """``standing``: what has not ended of a queue (number) by now."""

    def __init__(self, standing: Callable[[int], Standing]) -> None:
        self._standing = standing

    def admit(
        self,
        queue: Queue,
        contents: Collection[bytes],
        extras: Mapping[int, Extras],
        added: dict[int, tuple[int, int]],
    ) -> None:
        """Count new messages of a queue into what a batch adds: by queue (number), how many, and how many bytes.
        ``extras``: by position. Raises ``BacklogFull``, having counted nothing."""
        bound = queue.settings.max_backlog
        if bound is None:
            return
        standing, (messages, size_bytes) = self._standing(queue.number), added.get(queue.number, (0, 0))
        # Where nobody is to get it a message ends as it is accepted, unless it has to wait itself.
        waiting = [
            content
            for position, content in enumerate(contents)
            if standing.is_delivered or (position in extras and _waits(extras[position]))
        ]
        more, more_bytes = len(waiting), sum(map(len, waiting))
        if bound.messages is not None and standing.messages + messages + more > bound.messages:
            raise _full(queue, "messages", bound.messages, standing.messages + messages, more)
        if bound.bytes is not None and standing.bytes + size_bytes + more_bytes > bound.bytes:
            raise _full(queue, "bytes", bound.bytes, standing.bytes + size_bytes, more_bytes)
        added[queue.number] = messages + more, size_bytes + more_bytes


def _waits(extras: Extras) -> bool:
    return bool(extras.parents or extras.due_us)


def _full(queue: Queue, which: str, most: int, stands: int, more: int) -> BacklogFull | TooLarge:
    unit = "messages" if which == "messages" else "bytes of content"
    told = {"queue": queue.name, "bound": which, "max": most, "stands": stands}
    if more > most:
        return TooLarge(
            f"this publish has {more} {unit}, and max_backlog.{which} of queue {queue.name!r} is {most}: it never has "
            "room; publish less at once, or raise the bound",
            **told,
        )
    return BacklogFull(
        f"queue {queue.name!r} holds {stands} {unit} that have not ended, and its max_backlog.{which} is {most}: "
        f"{more} more would be too many; send it again when some have ended, or raise the bound",
        **told,
        retry_after_s=limits.backlog_retry_after_s,
    )
