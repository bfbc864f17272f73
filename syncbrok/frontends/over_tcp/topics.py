"""The topics wire format (INTERFACES 4): push with acknowledgement, one delivery at a time on a connection.

Big-endian. The first ``u16 action``: 1 subscribe (``u32 n, JSON list of topics[n], u16 start``, and for start 2 a
``u16 index``), 2 unsubscribe (``u32 n, JSON list``), 3 publish, after which the connection publishes for ever:
``u16 n, "topic:NAME"[n], u32 m, data[m]``. Subscribing is answered with ``u16 status`` (1 subscribed, 2 unsubscribed,
3 error and ``u16 n, text[n]``). A message is ``u16 n, topic[n], u64 m, data[m]``, answered by ``u16`` 4 ack or 5 nack.
Each topic of a connection is a subscriber of its own, there as long as the connection is.

Of a publisher two zero bytes where ``n`` is expected are passed over, so ``n`` may have 32 bits as well, and a message
of length 0 is read and not published: both as the original does.
"""

import asyncio
import struct
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from syncbrok.delivery.consumers import Member
from syncbrok.delivery.handler import Delivery
from syncbrok.frontends.ephemeral_subscribers import EphemeralSubscriber, EphemeralSubscribers
from syncbrok.frontends.listening import ListenerTls
from syncbrok.frontends.over_tcp.session.coalesced_writes import CoalescedWrites
from syncbrok.frontends.over_tcp.session.frame_reader import FrameReader, sized, text_of
from syncbrok.frontends.over_tcp.session.listener import OnOnePort, TcpListener
from syncbrok.frontends.over_tcp.session.peer_session import END, PeerFault, PeerSession
from syncbrok.frontends.over_tcp.session.prefetch_buffer import PREFETCH_HOLD_S, PrefetchBuffer
from syncbrok.frontends.over_tcp.session.services import TcpServices
from syncbrok.frontends.over_tcp.session.unacked_publisher import UnackedPublisher
from syncbrok.model import limits
from syncbrok.model.errors import SyncbrokError
from syncbrok.model.message import RetryPolicy

SUBSCRIBE: Final = 1
UNSUBSCRIBE: Final = 2
PUBLISH: Final = 3
ACK: Final = 4
NACK: Final = 5

SUBSCRIBED: Final = 1
UNSUBSCRIBED: Final = 2
ERROR: Final = 3

BEGINNING: Final = 0
NOW: Final = 1
FROM: Final = 2

NAME: Final = "topics"
ANSWER_S: Final = 2.0
RETRY: Final = RetryPolicy((1.0,) * 4, 0.0)  # five deliveries, a second between them

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_PREFIX: Final = b"topic:"
_TOPICS_MAX: Final = 64
_LIST_BYTES_MAX: Final = _TOPICS_MAX * (limits.queue_name_bytes_max + len('"", ')) + len("[]")
_RUN_MAX: Final = 1_000
_ZEROS_AT_ONCE: Final = 4 * limits.KIB


# -- the codec --------------------------------------------------------------------------------------------------------


class TopicSubscribe(NamedTuple):
    """``start`` is ``BEGINNING``, ``NOW`` or ``FROM``, and then ``position`` counts."""

    topics: tuple[str, ...]
    start: int
    position: int = 0


class TopicUnsubscribe(NamedTuple):
    """An unsubscribe."""

    topics: tuple[str, ...]


class TopicMessages(NamedTuple):
    """Messages of one topic that came one after the other."""

    topic: str
    contents: list[bytes]


class Answered(NamedTuple):
    well: bool


Command = TopicSubscribe | TopicUnsubscribe | TopicMessages | Answered | PeerFault

_ACKNOWLEDGEMENT: Final = _U16.pack(ACK)


class TopicsCodec(FrameReader):
    """Actions from bytes in any split."""

    def __init__(self, content_bytes_max: int = limits.content_bytes_max) -> None:
        super().__init__()
        self._content_bytes_max = content_bytes_max
        self._publishing = False

    def acknowledges(self, data: bytes) -> bool:
        """True if the bytes are one acknowledgement and nothing else. Then they need not be fed."""
        return data == _ACKNOWLEDGEMENT and not (self._rest or self._publishing or self._broken)

    def take(self, data: bytes, at: int, commands: list[Command]) -> int:
        """See ``FrameReader``."""
        return self._message(data, at, commands) if self._publishing else self._action(data, at, commands)

    def _action(self, data: bytes, at: int, commands: list[Command]) -> int:
        if len(data) - at < 2:
            return 0
        (action,) = _U16.unpack_from(data, at)
        at += 2
        if action in (ACK, NACK):
            commands.append(Answered(action == ACK))
            return at
        if action == PUBLISH:
            self._publishing = True
            return at
        if action not in (SUBSCRIBE, UNSUBSCRIBE):
            raise PeerFault(f"action {action}; known are 1 subscribe, 2 unsubscribe, 3 publish, 4 ack and 5 nack")
        listed = sized(data, at, _U32, _LIST_BYTES_MAX, "the list of topics")
        if listed is None:
            return 0
        names, at = _topics(listed[0]), listed[1]
        if action == UNSUBSCRIBE:
            commands.append(TopicUnsubscribe(names))
            return at
        return _start(names, data, at, commands)

    def _message(self, data: bytes, at: int, commands: list[Command]) -> int:
        if data[at : at + 2] == b"\0\0":
            some = data[at : at + _ZEROS_AT_ONCE]
            return at + (len(some) - len(some.lstrip(b"\0")) & ~1)  # an odd one belongs to the length behind it
        named_ = sized(data, at, _U16, 0xFFFF, "a topic")
        if named_ is None:
            return 0
        content = sized(data, named_[1], _U32, self._content_bytes_max, "a message")
        if content is None:
            return 0
        if not named_[0].startswith(_PREFIX):
            raise PeerFault('a topic to publish to is written "topic:NAME"')
        topic = text_of(named_[0][len(_PREFIX) :], "the topic's name")
        last = commands[-1] if commands else None
        if not content[0]:
            return content[1]  # read and not published, as the original does
        if type(last) is TopicMessages and last.topic == topic and len(last.contents) < _RUN_MAX:
            last.contents.append(content[0])
        else:
            commands.append(TopicMessages(topic, [content[0]]))
        return content[1]


def _topics(written: bytes) -> tuple[str, ...]:
    try:
        names = orjson.loads(written)
    except ValueError:
        raise PeerFault("the list of topics is not JSON") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PeerFault('topics are a JSON list of names, such as ["orders"]')
    if len(names) > _TOPICS_MAX:
        raise PeerFault(f"{len(names)} topics; a connection has at most {_TOPICS_MAX}")
    return tuple(names)


def _start(names: tuple[str, ...], data: bytes, at: int, commands: list[Command]) -> int:
    if len(data) - at < 2:
        return 0
    (start,) = _U16.unpack_from(data, at)
    if start not in (BEGINNING, NOW, FROM):
        raise PeerFault(f"start {start}; known are 0 beginning, 1 now and 2 from an index")
    if start != FROM:
        commands.append(TopicSubscribe(names, start))
        return at + 2
    if len(data) - at < 4:
        return 0
    commands.append(TopicSubscribe(names, start, _U16.unpack_from(data, at + 2)[0]))
    return at + 4


def encode_begin(topic: str, content: bytes) -> bytes:
    """The bytes that a subscriber receives before the content."""
    name = topic.encode()
    return b"".join((_U16.pack(len(name)), name, _U64.pack(len(content))))


def encode_error(words: str) -> bytes:
    text = words.encode()[:0xFFFF]
    return _U16.pack(ERROR) + _U16.pack(len(text)) + text


# -- the shell --------------------------------------------------------------------------------------------------------


class Topics(OnOnePort):
    """The frontend; see ``Frontend`` in the composition."""

    def __init__(self, services: TcpServices, host: str, port: int, tls: ListenerTls | None = None) -> None:
        self._ephemeral = EphemeralSubscribers(services.channels.subscribers, services.view, services.number_of, NAME)
        writes = CoalescedWrites(services.bounds.turns)
        self.listener = TcpListener(
            host, port, lambda owner: _TopicsPeer(owner, services, self._ephemeral, writes), services.bounds, tls
        )

    async def start(self) -> None:
        await self._ephemeral.delete_leftovers()
        await self.listener.start()

    async def stop(self) -> None:
        await self.listener.stop()


class _TopicSubscription:
    """A topic that a connection subscribes to."""

    def __init__(self, peer: "_TopicsPeer") -> None:
        self._peer = peer
        self.subscriber: EphemeralSubscriber | None = None
        self.member: Member | None = None

    def receive(self, deliveries: Sequence[Delivery]) -> None:
        """See ``Consumer``."""
        self._peer.push(self, deliveries)

    def lapsed(self, messages: Sequence[int]) -> None:
        """See ``Consumer``."""
        self._peer.lapsed(messages)

    def dismissed(self) -> None:
        """See ``Consumer``."""
        self.member = None
        self._peer.ends(self)


class _TopicsPeer(PeerSession):
    def __init__(
        self, owner: TcpListener, services: TcpServices, ephemeral: EphemeralSubscribers, writes: CoalescedWrites
    ) -> None:
        self._actions = TopicsCodec(services.content_bytes_max)
        super().__init__(owner, self._actions, services.consumers.attempt_guard)
        self._services = services
        self._writes = writes
        self._ephemeral = ephemeral
        self._publisher = UnackedPublisher(services.queues, services.channels.messages, self.refused)
        self._subscriptions: dict[str, _TopicSubscription] = {}  # bounded by _TOPICS_MAX
        self._out: tuple[_TopicSubscription, Delivery] | None = None
        """the message that the client is to answer"""
        self._prefetched: PrefetchBuffer[_TopicSubscription] = PrefetchBuffer()
        self._share = 0
        """of the room in the buffer, for each topic"""

    def data_received(self, data: bytes) -> None:
        """Handle a lone acknowledgement, as nearly always, without the codec; all else as every session does."""
        if self.at_rest and self._actions.acknowledges(data):
            self._answered(well=True)
        else:
            super().data_received(data)

    def handle(self, command: Any) -> Awaitable[None] | None:
        if isinstance(command, Answered):
            self._answered(well=command.well)
            return None
        if isinstance(command, TopicMessages):
            return self._publisher.publish(command.topic, command.contents)
        if isinstance(command, TopicSubscribe):
            return self._subscribe(command)
        if command is END:
            return self._leave()
        for topic in command.topics:
            self._unsubscribe_topic(topic)
        self._writes.write(self, _U16.pack(UNSUBSCRIBED))
        self._open()
        return None

    def publishes(self, command: Any) -> bool:
        return isinstance(command, TopicMessages)

    async def _subscribe(self, command: TopicSubscribe) -> None:
        wanted = [topic for topic in command.topics if topic not in self._subscriptions]
        if len(wanted) + len(self._subscriptions) > _TOPICS_MAX:
            raise PeerFault(f"a connection subscribes to at most {_TOPICS_MAX} topics")
        try:
            for topic in dict.fromkeys(wanted):
                await self._subscribe_topic(topic, command)
        except SyncbrokError as error:
            for topic in wanted:
                self._unsubscribe_topic(topic)
            self._writes.write(self, encode_error(str(error)))
            return
        self._writes.write(self, _U16.pack(SUBSCRIBED))
        for topic in wanted:
            subscription = self._subscriptions[topic]
            assert subscription.subscriber is not None
            subscription.member = self._services.consumers.join(
                subscription.subscriber.number, subscription, 0, PREFETCH_HOLD_S, self.payer
            )
        self._open()

    async def _subscribe_topic(self, topic: str, command: TopicSubscribe) -> None:
        queue = await self._services.queues.queue(topic)
        start = {BEGINNING: "beginning", NOW: "now"}.get(command.start, "")
        if not start:
            newest = self._services.view.queue(queue).last_sequence
            sequence = await self._services.view.sequence_of(queue, command.position)
            # Not "now", which is later: what is accepted until then has this index, or comes after it.
            start = str(newest + 1 if sequence is None else sequence)
        subscription = self._subscriptions[topic] = _TopicSubscription(self)
        counts = self._services.queues.made(queue)
        subscription.subscriber = await self._ephemeral.declare(
            queue, start, counts=counts, timeout_s=ANSWER_S, retry=RETRY
        )

    # -- messages -----------------------------------------------------------------------------------------------------

    def push(self, subscription: _TopicSubscription, deliveries: Sequence[Delivery]) -> None:
        """Send messages to the client, once it has answered all earlier ones."""
        self._prefetched.put(subscription, deliveries)
        self._send_next()

    def _send_next(self) -> None:
        taken = self._prefetched.take() if self._out is None and self.writable else None
        if taken is None:
            return
        self._out = taken
        subscription, delivery = taken
        assert subscription.member is not None
        subscription.member.begin(delivery.attempt.message)
        if not self._share:
            self._open()
        content = delivery.message.content
        begin = encode_begin(delivery.to.queue, content)
        self._writes.begin(self, begin, content, withheld=partial(self._withheld, taken))

    def _withheld(self, out: tuple[_TopicSubscription, Delivery]) -> None:
        """The client was told of nothing: that message is the broker's again, and so are those in hand, which do not go
        out before it."""
        if self._out is out:
            self._out = None
        taken: tuple[_TopicSubscription, Delivery] | None = out
        while taken is not None:
            subscription, delivery = taken
            if subscription.member is not None:
                subscription.member.give_back(delivery.attempt.message)
            taken = self._prefetched.take()
        self._open()

    def _answered(self, *, well: bool) -> None:
        if self._out is None:
            return  # too late: it has failed already
        (subscription, delivery), self._out = self._out, None
        message = delivery.attempt.message
        plenty = self._prefetched.plenty
        if subscription.member is not None and well:
            subscription.member.acknowledge((message,), in_company=plenty)
        elif subscription.member is not None:
            subscription.member.refuse(message, b"nack")
        self._send_next()
        if not plenty and (self._prefetched.runs_low(len(delivery.message.content)) or not self._share):
            self._open()

    def lapsed(self, messages: Sequence[int]) -> None:
        """See ``Consumer``. Messages in hand are the broker's again. One that was out was not answered in time, and the
        client's later answer is about nothing."""
        self._prefetched.stayed(messages)
        if self._out is not None and self._out[1].attempt.message in messages:
            self._out = None
            self._send_next()
        self._open()

    def _open(self) -> None:
        """Tell the broker how much room each topic has. While nothing is out every topic has room for one message, else
        only the topic of the one that is out. Where the client is quick, each topic has its share of the hand
        besides."""
        self._share = share = self._prefetched.room // max(len(self._subscriptions), 1)
        for subscription in self._subscriptions.values():
            if subscription.member is not None:
                has_turn = share or self._out is None or self._out[0] is subscription
                window = 1 + share if self.writable and has_turn else 0
                if subscription.member.window != window:
                    subscription.member.open(window)

    def writable_again(self) -> None:
        self._send_next()
        self._open()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._open()

    # -- its end ------------------------------------------------------------------------------------------------------

    async def _leave(self) -> None:
        await self._publisher.settled()
        self.close()

    def ended(self) -> None:
        for topic in list(self._subscriptions):
            self._unsubscribe_topic(topic)

    def _unsubscribe_topic(self, topic: str) -> None:
        subscription = self._subscriptions.pop(topic, None)
        if subscription is None:
            return
        member, subscription.member = subscription.member, None
        self.ends(subscription)
        if member is not None:
            member.leave()
        if subscription.subscriber is not None:
            self._ephemeral.delete(subscription.subscriber)

    def ends(self, subscription: _TopicSubscription) -> None:
        """Send no more messages of ``subscription``. One that is out will be answered all the same, and that answer is
        not to be taken for the next one's."""
        self._prefetched.drop(subscription)
        if self._out is not None and self._out[0] is subscription and not self.over:
            asyncio.get_running_loop().call_later(ANSWER_S, self._answered_no_more, self._out)

    def _answered_no_more(self, out: tuple[_TopicSubscription, Delivery]) -> None:
        if self._out is out:
            self._out = None
            self._send_next()
            self._open()

    def farewell(self, words: str) -> bytes:
        return encode_error(words)
