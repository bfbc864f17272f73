"""The framed wire format (INTERFACES 4): topics as queues, consumers that ask.

Big-endian. A frame is ``u32 length, u8 type, i64 timestamp_ns, payload``; the payload of publish and consume is
``u8 n, topic[n], u8 k, key[k], data``, and there ``length`` leaves out the two bytes ``n`` and ``k``. A publish has no
answer. A consume with neither key nor data asks for the next message of the topic, whose read position all who ask
share; it is answered with a consume frame, or a consume-empty where there is nothing.
"""

import struct
import time
from collections.abc import Awaitable
from typing import Any, Final, NamedTuple

from syncbrok.delivery.handler import Delivery
from syncbrok.frontends.listening import ListenerTls
from syncbrok.frontends.over_tcp.session.first_use import named
from syncbrok.frontends.over_tcp.session.frame_reader import FrameReader, text_of
from syncbrok.frontends.over_tcp.session.listener import OnOnePort, TcpListener
from syncbrok.frontends.over_tcp.session.peer_session import END, PeerFault, PeerSession
from syncbrok.frontends.over_tcp.session.services import TcpServices
from syncbrok.frontends.over_tcp.session.shared_position import SharedPosition, SharedPositions
from syncbrok.frontends.over_tcp.session.unacked_publisher import UnackedPublisher
from syncbrok.model import limits

GOODBYE: Final = 1
PUBLISH: Final = 2
CONSUME: Final = 3
CONSUME_EMPTY: Final = 4

_HEAD: Final = struct.Struct(">IBq")
_AFTER_LENGTH: Final = 9
"""what ``length`` counts besides the payload: type and timestamp"""
_KEY_BYTES_MAX: Final = 255
_RUN_MAX: Final = 1_000


# -- the codec --------------------------------------------------------------------------------------------------------


class FramedPublish(NamedTuple):
    """Messages of one topic and without a key that came one after the other, or a single one with its key."""

    topic: str
    key: str
    contents: list[bytes]


class Consume(NamedTuple):
    topic: str


class Goodbye(NamedTuple):
    words: str


Command = FramedPublish | Consume | Goodbye | PeerFault


class FramedCodec(FrameReader):
    """Frames from bytes in any split. At most one frame of ``content_bytes_max`` is kept."""

    def __init__(self, content_bytes_max: int = limits.content_bytes_max) -> None:
        super().__init__()
        self._content_bytes_max = content_bytes_max

    def take(self, data: bytes, at: int, commands: list[Command]) -> int:
        """See ``FrameReader``."""
        if len(data) - at < _HEAD.size:
            return 0
        length: int
        length, kind, _ = _HEAD.unpack_from(data, at)
        if length < _AFTER_LENGTH:
            raise PeerFault(f"a frame of length {length}; the shortest is {_AFTER_LENGTH}")
        if length > self._content_bytes_max + 520:
            raise PeerFault(f"a frame of length {length}; messages have at most {self._content_bytes_max} bytes")
        body_at = at + _HEAD.size
        following = at + 4 + length
        if kind in (PUBLISH, CONSUME):
            following += 2
        if following > len(data):
            return 0
        if kind in (PUBLISH, CONSUME):
            _addressed(kind, data, body_at, following, self._content_bytes_max, commands)
        elif kind == GOODBYE:
            commands.append(Goodbye(data[body_at:following].decode("utf-8", "replace")))
        elif kind != CONSUME_EMPTY:
            raise PeerFault(f"a frame of type {kind}; known are 1 to 4")
        return following


def _addressed(kind: int, data: bytes, at: int, end: int, content_bytes_max: int, commands: list[Command]) -> None:
    key_at = at + 1 + data[at]
    if key_at >= end:
        raise PeerFault("the topic's name is longer than its frame")
    data_at = key_at + 1 + data[key_at]
    if data_at > end:
        raise PeerFault("the key is longer than its frame")
    if end - data_at > content_bytes_max:
        raise PeerFault(f"a message of {end - data_at} bytes; at most {content_bytes_max} are taken")
    topic = text_of(data[at + 1 : key_at], "the topic's name")
    if kind == CONSUME:
        commands.append(Consume(topic))
        return
    key = text_of(data[key_at + 1 : data_at], "the key")
    last = commands[-1] if commands else None
    if (
        not key
        and type(last) is FramedPublish
        and last.topic == topic
        and not last.key
        and len(last.contents) < _RUN_MAX
    ):
        last.contents.append(data[data_at:end])
    else:
        commands.append(FramedPublish(topic, key, [data[data_at:end]]))


def encode_message(topic: str, key: str, content: bytes, timestamp_ns: int, kind: int = CONSUME) -> bytes:
    """A consume or publish frame. Of a key the format has room for 255 bytes: a longer one is cut."""
    name, mark = topic.encode(), key.encode()
    if len(mark) > _KEY_BYTES_MAX:
        mark = mark[:_KEY_BYTES_MAX].decode("utf-8", "ignore").encode()
    length = _AFTER_LENGTH + len(name) + len(mark) + len(content)
    head = _HEAD.pack(length, kind, timestamp_ns)
    return b"".join((head, bytes((len(name),)), name, bytes((len(mark),)), mark, content))


def encode_notice(kind: int, payload: bytes, timestamp_ns: int) -> bytes:
    """A goodbye or consume-empty frame."""
    return _HEAD.pack(_AFTER_LENGTH + len(payload), kind, timestamp_ns) + payload


# -- the shell --------------------------------------------------------------------------------------------------------


class Framed(OnOnePort):
    """The frontend; see ``Frontend`` in the composition."""

    def __init__(self, services: TcpServices, host: str, port: int, tls: ListenerTls | None = None) -> None:
        positions = SharedPositions(services.queues, services.consumers, named("consumer:framed", "framed"))
        self.listener = TcpListener(
            host, port, lambda owner: _FramedPeer(owner, services, positions), services.bounds, tls
        )

    async def start(self) -> None:
        await self.listener.start()

    async def stop(self) -> None:
        await self.listener.stop()


class _FramedPeer(PeerSession):
    def __init__(self, owner: TcpListener, services: TcpServices, positions: SharedPositions) -> None:
        super().__init__(owner, FramedCodec(services.content_bytes_max), services.consumers.attempt_guard)
        self._positions = positions
        self._publisher = UnackedPublisher(services.queues, services.channels.messages, self.refused)

    def handle(self, command: Any) -> Awaitable[None] | None:
        if isinstance(command, FramedPublish):
            return self._publisher.publish(command.topic, command.contents, command.key)
        if isinstance(command, Consume):
            return None if self._consume_at_once(command.topic) else self._consume(command.topic)
        return self._leave(b"Goodbye" if command is not END else b"")

    def publishes(self, command: Any) -> bool:
        return isinstance(command, FramedPublish)

    def _consume_at_once(self, topic: str) -> bool:
        """Whether the next message was at hand, and no task had to wait for it."""
        position = self._positions.opened(topic) if self.writable and not self.all_sent else None
        delivery = None if position is None else position.take()
        if position is None or delivery is None:
            return False
        self._hand_over(position, delivery)
        return True

    async def _consume(self, topic: str) -> None:
        await self.until_writable()  # or it asks and asks, and reads nothing of what it gets
        position = await self._positions.of(topic)
        delivery = await position.next()
        if delivery is None:
            self.write(encode_notice(CONSUME_EMPTY, b"", time.time_ns()))
        elif self.over or self.all_sent:  # nobody can tell from one who has gone; it would be lost
            position.give_back((delivery,))
        else:
            self._hand_over(position, delivery)

    def _hand_over(self, position: SharedPosition, delivery: Delivery) -> None:
        message = delivery.message
        if self.begin(encode_message(delivery.to.queue, message.key, message.content, time.time_ns())):
            position.acknowledge((delivery,))
        else:
            position.give_back((delivery,))
            self.write(encode_notice(CONSUME_EMPTY, b"", time.time_ns()))

    async def _leave(self, words: bytes) -> None:
        """Close once all that was published is durable."""
        await self._publisher.settled()
        if words:
            self.write(encode_notice(GOODBYE, words, time.time_ns()))
        self.close()

    def farewell(self, words: str) -> bytes:
        return encode_notice(GOODBYE, words.encode(), time.time_ns())
