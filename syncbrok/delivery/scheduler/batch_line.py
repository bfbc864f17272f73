"""Which messages of a subscriber with ``batch`` go out in one request, and when (RULES 36). Pure.

Attempts are taken as for any subscriber: so no parent is out with its child, nor two messages of a key, but for what an
operator's replay sends again, which is looked at here. What was taken waits in the line until a batch is full or has
waited long enough, and then for one of the window's slots: here those are requests.
"""

from collections.abc import Collection, Iterable
from typing import Final

from syncbrok.delivery.handler import Delivery
from syncbrok.model import limits
from syncbrok.model.event_types import EVENTS_QUEUE
from syncbrok.model.message import BatchPolicy
from syncbrok.model.names import MessageId

_BYTES_MAX: Final = limits.delivered_batch_bytes_max


class BatchLine:
    """The deliveries that wait to go out together, of one subscriber. ``window``: how many requests may be out;
    ``requests`` are, with ``out`` messages."""

    __slots__ = ("_bytes", "_most", "_since", "_waiting", "out", "policy", "requests", "window")

    def __init__(self, policy: BatchPolicy, window: int = 1) -> None:
        self.policy = policy
        self.window = window
        self.requests = 0
        self.out = 0
        self._waiting: dict[int, Delivery] = {}
        """by sequence; bounded by ``room``"""
        self._since: dict[int, int] = {}
        """when they came, the first to come first"""
        self._most: dict[int, int] = {}
        """of those that wait and may have few others with them: how many a request with it has at most"""
        self._bytes = 0

    def __repr__(self) -> str:
        return f"<BatchLine: {len(self._waiting)} waiting, {self.requests} requests out>"

    def __len__(self) -> int:
        return len(self._waiting)

    def room(self, flight: int) -> int:
        """How many more messages it may be given; ``flight`` of its subscriber have been taken and not answered."""
        return self.policy.max - max(flight - self.out, 0) if self.requests < self.window else 0

    def put(self, delivery: Delivery, now_us: int, most: int = 0) -> None:
        """It may go out, in a request of at most ``most`` messages; 0: as large as any."""
        sequence = delivery.attempt.message
        if delivery.message.only and delivery.to.queue != EVENTS_QUEUE:
            most = 1  # somebody waits for the answer to a test
        if 0 < most < self.policy.max:
            self._most[sequence] = most
        self._waiting[sequence] = delivery
        self._since[sequence] = now_us
        self._bytes += len(delivery.message.content)

    def take_out(self, messages: Collection[int]) -> list[Delivery]:
        """Remove those of these messages (sequences) that wait, and return them."""
        return self._remove([sequence for sequence in messages if sequence in self._waiting])

    def clear(self) -> list[Delivery]:
        """Remove all that wait, and return them."""
        return self._remove([*self._waiting])

    def _remove(self, sequences: Iterable[int]) -> list[Delivery]:
        gone: list[Delivery] = []
        for sequence in sequences:
            gone.append(self._waiting.pop(sequence))
            del self._since[sequence]
            self._most.pop(sequence, None)
            self._bytes -= len(gone[-1].message.content)
        return gone

    def due_us(self) -> int | None:
        """When what wait goes out though it is no full batch; None where nothing waits that time alone lets go."""
        if not self._since or self.requests >= self.window:
            return None
        return next(iter(self._since.values())) + int(self.policy.wait_s * 1e6)

    def next_batch(self, now_us: int) -> list[Delivery]:
        """The next request's messages, in the order of their sequences; none where a batch may still grow, or nothing
        more may be out. They are out from now on."""
        due_us = self.due_us()
        may_be_full = len(self._waiting) >= self.policy.max or self._bytes > _BYTES_MAX or self._most
        if due_us is None or (now_us < due_us and not may_be_full):
            return []
        group, is_full = self._gather()
        if not is_full and now_us < due_us:
            group = self._alone()
        if not group:
            return []
        self._remove([delivery.attempt.message for delivery in group])
        self.requests += 1
        self.out += len(group)
        return group

    def _gather(self) -> tuple[list[Delivery], bool]:
        """The messages that would go next, and whether no other could go with them."""
        group: list[Delivery] = []
        most, size_bytes = self.policy.max, 0
        ids: set[MessageId] = set()
        keys: set[str] = set()
        for sequence in sorted(self._waiting):
            delivery = self._waiting[sequence]
            message = delivery.message
            own = min(most, self._most.get(sequence, most))
            if len(group) >= own or message.key in keys or not ids.isdisjoint(message.parents):
                continue
            if group and size_bytes + len(message.content) > _BYTES_MAX:
                return group, True
            group.append(delivery)
            most = own
            if len(group) == most:
                return group, True
            size_bytes += len(message.content)
            ids.add(message.id)
            if message.key:
                keys.add(message.key)
        return group, False

    def _alone(self) -> list[Delivery]:
        """One that goes without others, and so has nothing to wait for."""
        return [self._waiting[sequence] for sequence, most in self._most.items() if most == 1][:1]

    def dropped(self, messages: int) -> None:
        """So many of a request that is to go out do not go with it."""
        self.out -= messages

    def answered(self, messages: int) -> None:
        """A request with so many messages is over, or was not begun after all."""
        self.requests -= 1
        self.out -= messages
