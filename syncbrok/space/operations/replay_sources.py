"""The beginning of a replay: a ``ReplaySource`` for each way to ask for it: messages by name, dead letters, what was
skipped, all of a time. In the order of the log and in pages: there may be a million."""

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from syncbrok.model.facts import Reason
from syncbrok.model.jobs import Choice, JobWish
from syncbrok.model.sequence_set import SequenceSet
from syncbrok.space.operations.replay import NOBODY, ReplaySource
from syncbrok.space.pause import pauses

_PAGE: Final = 1_024
_COUNTED_AT_ONCE: Final = 32_768


class Letters(Protocol):
    """The scheduler's knowledge; see ``delivery.scheduler.queries``."""

    def dead_after(self, subscribers: Sequence[int], sequence: int, most: int) -> list[int]: ...
    def dead_letter(self, sequence: int, subscriber: int) -> Reason | None: ...
    def skipped_after(self, subscriber: int, sequence: int, most: int) -> list[int]: ...
    def delivery_state(self, sequence: int, subscriber: int) -> str: ...


class Named:
    """These messages, each to the subscribers (numbers) behind it; None: see ``ReplaySource``."""

    def __init__(self, messages: Mapping[int, AbstractSet[int] | None]) -> None:
        self._messages = messages
        self._sequences = sorted(messages)

    async def after(self, sequence: int) -> list[int]:
        return [one for one in self._sequences if one > sequence]

    def at(self, sequence: int) -> AbstractSet[int] | None:
        return self._messages.get(sequence, NOBODY)


class DeadLettersOf:
    """The dead letters of these subscribers, between the bounds of the wish and of its reasons."""

    def __init__(self, letters: Letters, subscribers: Sequence[int], wish: JobWish) -> None:
        self._letters = letters
        self._subscribers = subscribers
        self._wish = wish
        self._reasons = reasons_of(wish)

    async def after(self, sequence: int) -> list[int]:
        after = max(sequence, self._wish.since - 1)
        return _up_to(self._letters.dead_after(self._subscribers, after, _PAGE), self._wish)

    def at(self, sequence: int) -> AbstractSet[int]:
        if not self._wish.covers(sequence):
            return NOBODY
        return frozenset(one for one in self._subscribers if self._is_one(sequence, one))

    def _is_one(self, sequence: int, subscriber: int) -> bool:
        reason = self._letters.dead_letter(sequence, subscriber)
        return reason is not None and (not self._reasons or reason in self._reasons)


class DeadLettersNamed(DeadLettersOf):
    """The dead letters of messages that the wish names, as far as ``DeadLettersOf`` has them too."""

    async def after(self, sequence: int) -> list[int]:
        return [one for one in self._wish.messages if one > sequence][:_PAGE]

    async def total(self, ended: Callable[[int], bool]) -> int:
        """How many there are, of messages that have ``ended``."""
        total, pause = 0, pauses()
        for one in self._wish.messages:
            total += len(self.at(one)) if ended(one) else 0
            await pause()
        return total


class SkippedBy:
    """All that was skipped at one subscriber, between the bounds of the wish."""

    def __init__(self, letters: Letters, subscriber: int, wish: JobWish) -> None:
        self._letters = letters
        self._subscriber = subscriber
        self._wish = wish

    async def after(self, sequence: int) -> list[int]:
        after = max(sequence, self._wish.since - 1)
        return _up_to(self._letters.skipped_after(self._subscriber, after, _PAGE), self._wish)

    def at(self, sequence: int) -> AbstractSet[int]:
        skipped = self._letters.delivery_state(sequence, self._subscriber) == "skipped"
        return frozenset((self._subscriber,)) if skipped and self._wish.covers(sequence) else NOBODY


class AllOf:
    """All messages of a queue between the bounds of the wish, to one subscriber. ``read`` gives the next of them behind
    a sequence, at most so many; the log knows them."""

    def __init__(self, read: Callable[[int, int], Awaitable[list[int]]], wish: JobWish) -> None:
        self._read = read
        self._wish = wish
        self._to = frozenset((wish.subscriber,))
        self._known = SequenceSet()

    async def after(self, sequence: int) -> list[int]:
        some = _up_to(await self._read(max(sequence, self._wish.since - 1), _PAGE), self._wish)
        self._known.update(some)
        return some

    def at(self, sequence: int) -> AbstractSet[int]:
        return self._to if sequence in self._known else NOBODY

    async def total(self) -> int:
        """How many there are. A page of the log costs a look at a whole segment, so these are long ones."""
        total, after, until = 0, self._wish.since - 1, self._wish.until
        while some := await self._read(after, _COUNTED_AT_ONCE):
            total, after = total + (bisect_left(some, until) if until else len(some)), some[-1]
            if until and after >= until:
                break
        return total


def source_of(
    wish: JobWish,
    letters: Letters,
    subscribers: Sequence[int],
    read: Callable[[int, int], Awaitable[list[int]]],
) -> ReplaySource:
    """The messages that the job begins with. ``subscribers``: all that the queue has, or the one of the wish."""
    if wish.messages:
        only = frozenset((wish.subscriber,)) if wish.subscriber else None
        return Named(dict.fromkeys(wish.messages, only))
    if wish.choice is Choice.DEAD:
        return DeadLettersOf(letters, subscribers, wish)
    if wish.choice is Choice.SKIPPED:
        return SkippedBy(letters, wish.subscriber, wish)
    return AllOf(read, wish)


def reasons_of(wish: JobWish) -> Collection[Reason]:
    """Its reasons; none for any."""
    return frozenset(Reason[one.upper()] for one in wish.reasons)


def _up_to(sequences: list[int], wish: JobWish) -> list[int]:
    return [one for one in sequences if wish.covers(one)]
