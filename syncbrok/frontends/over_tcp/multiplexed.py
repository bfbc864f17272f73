"""The multiplexed wire format (INTERFACES 4): many streams on a connection, each a subscriber of a queue's messages.

``u32 little-endian length, JSON``. A ``Queue`` message asserts a queue and subscribes that stream of the connection;
an ``EPMessage`` publishes; streams receive ``EPMessage`` too. Every stream of a queue receives every message, and
messages wait while there is no stream: one durable subscriber stands for all streams of its queue.
"""

import asyncio
import base64
import binascii
import struct
from collections import deque
from collections.abc import Awaitable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from syncbrok.delivery.consumers import Member
from syncbrok.delivery.handler import Delivery
from syncbrok.frontends.listening import ListenerTls
from syncbrok.frontends.over_tcp.session.first_use import named
from syncbrok.frontends.over_tcp.session.frame_reader import FrameReader
from syncbrok.frontends.over_tcp.session.listener import OnOnePort, TcpListener
from syncbrok.frontends.over_tcp.session.peer_session import END, PeerFault, PeerSession
from syncbrok.frontends.over_tcp.session.services import TcpServices
from syncbrok.frontends.over_tcp.session.unacked_publisher import UnackedPublisher
from syncbrok.model import limits
from syncbrok.model.errors import ClientFault
from syncbrok.model.names import QueueName

ENDPOINT: Final = "consumer:multiplexed"
NAME: Final = "multiplexed"

_LENGTH: Final = struct.Struct("<I")
_STREAMS_MAX: Final = 1_024
"""streams of one connection"""
_RUN_MAX: Final = 1_000
_WINDOW: Final = 16
_TOGETHER_BYTES: Final = 1 * limits.MIB
"""of the contents of a window, unless that is a single one"""
_WRITE_S: Final = 2 * limits.frame_timeout_s
"""how long a message may take to leave: a peer that reads nothing is cut off before"""


# -- the codec --------------------------------------------------------------------------------------------------------


class Assert(NamedTuple):
    """A queue, and the stream that is to receive its messages."""

    queue: str
    type: str
    stream: str


class StreamMessages(NamedTuple):
    """Messages of one route and stream that came one after the other."""

    route: str
    stream: str
    contents: list[bytes]


class MalformedFrame(NamedTuple):
    """A message that makes no sense; the connection goes on."""

    words: str
    stream: str


Command = Assert | StreamMessages | MalformedFrame | PeerFault


class MultiplexedCodec(FrameReader):
    """Messages from bytes in any split. At most one is kept."""

    def __init__(self, content_bytes_max: int = limits.content_bytes_max) -> None:
        super().__init__()
        self._content_bytes_max = content_bytes_max
        self._frame_bytes_max = content_bytes_max * 4 // 3 + 4 * limits.KIB

    def take(self, data: bytes, at: int, commands: list[Command]) -> int:
        """See ``FrameReader``."""
        if len(data) - at < _LENGTH.size:
            return 0
        (length,) = _LENGTH.unpack_from(data, at)
        if length > self._frame_bytes_max:
            raise PeerFault(f"a message of {length} bytes; at most {self._frame_bytes_max} are taken")
        end: int = at + _LENGTH.size + length
        if end > len(data):
            return 0
        _command(data[at + _LENGTH.size : end], self._content_bytes_max, commands)
        return end


def _command(written: bytes, content_bytes_max: int, commands: list[Command]) -> None:
    try:
        message = orjson.loads(written)
    except ValueError:
        commands.append(MalformedFrame("the message is not JSON", ""))
        return
    if not isinstance(message, dict):
        commands.append(MalformedFrame("the message is not a JSON object", ""))
        return
    stream = message.get("StreamID")
    stream = stream if isinstance(stream, str) else ""
    kind = message.get("MessageType")
    if kind == "Queue":
        commands.append(_assert(message, stream))
    elif kind == "EPMessage":
        _published(message, stream, content_bytes_max, commands)
    else:
        commands.append(MalformedFrame(f"MessageType {str(kind)[:80]!r}; known are Queue and EPMessage", stream))


def _assert(message: dict[str, Any], stream: str) -> Command:
    queue, type_ = message.get("Name"), message.get("Type", "P2P")
    if not isinstance(queue, str) or type_ not in ("P2P", "PUBSUB") or not stream:
        return MalformedFrame('a Queue has a Name, a Type ("P2P" or "PUBSUB") and a StreamID', stream)
    return Assert(queue, type_, stream)


def _published(message: dict[str, Any], stream: str, content_bytes_max: int, commands: list[Command]) -> None:
    route, body = message.get("Route"), message.get("Body")
    if not isinstance(route, str) or not isinstance(body, str):
        commands.append(MalformedFrame("an EPMessage has a Route and a Body in base64", stream))
        return
    try:
        content = base64.b64decode(body, validate=True)
    except binascii.Error:
        commands.append(MalformedFrame("the Body is not base64", stream))
        return
    if len(content) > content_bytes_max:
        too_large = f"a Body of {len(content)} bytes; at most {content_bytes_max} are taken"
        commands.append(MalformedFrame(too_large, stream))
        return
    last = commands[-1] if commands else None
    if type(last) is StreamMessages and (last.route, last.stream) == (route, stream) and len(last.contents) < _RUN_MAX:
        last.contents.append(content)
    else:
        commands.append(StreamMessages(route, stream, [content]))


class EncodedMessage:
    """A message as its streams receive it. The part that is the same for all of them is made once and is in memory
    once."""

    __slots__ = ("_begin", "_body")

    def __init__(self, route: str, content: bytes) -> None:
        self._begin = b'{"MessageType":"EPMessage","Route":%s,"Body":"' % orjson.dumps(route)
        self._body = base64.b64encode(content)

    def to(self, stream: str, type_: str) -> tuple[bytes, bytes, bytes]:
        """The pieces of the frame."""
        end = b'","Type":%s,"StreamID":%s}' % (orjson.dumps(type_), orjson.dumps(stream))
        size_bytes = len(self._begin) + len(self._body) + len(end)
        return _LENGTH.pack(size_bytes) + self._begin, self._body, end


def encode_error(words: str, stream: str) -> bytes:
    body = base64.b64encode(words.encode()).decode()
    return _framed({"MessageType": "ErrorMessage", "Body": body, "StreamID": stream})


def _framed(message: dict[str, str]) -> bytes:
    written = orjson.dumps(message)
    return _LENGTH.pack(len(written)) + written


# -- the shell --------------------------------------------------------------------------------------------------------


class Multiplexed(OnOnePort):
    """The frontend; see ``Frontend`` in the composition."""

    def __init__(self, services: TcpServices, host: str, port: int, tls: ListenerTls | None = None) -> None:
        self._services = services
        self._hubs: dict[QueueName, _Hub] = {}  # bounded by the number of queues
        self.listener = TcpListener(
            host, port, lambda owner: _MultiplexedPeer(owner, self, services), services.bounds, tls
        )

    async def start(self) -> None:
        await self.listener.start()

    async def stop(self) -> None:
        await self.listener.stop()

    async def hub(self, queue: str) -> "_Hub":
        """Raises ``ClientFault`` and ``BrokerFault``."""
        hub = self._hubs.get(QueueName(queue))
        if hub is not None and hub.member is not None:
            return hub
        name = await self._services.queues.queue(queue)
        settings = named(ENDPOINT, NAME, timeout_s=_WRITE_S)
        number = await self._services.queues.subscriber(name, settings, "beginning")
        hub = self._hubs.setdefault(name, _Hub(self._services))
        if hub.member is None:
            hub.member = self._services.consumers.join(number, hub, 0)
        return hub


class _Round:
    """Messages on their way to all streams of a queue. ``left``: the streams to which they are to be written yet."""

    __slots__ = ("encoded", "left", "messages")

    def __init__(self, deliveries: Sequence[Delivery], streams: Iterable[tuple["_MultiplexedPeer", str]]) -> None:
        self.encoded = [EncodedMessage(one.to.queue, one.message.content) for one in deliveries]
        self.messages = [one.attempt.message for one in deliveries]
        self.left = deque(streams)

    def drop(self, messages: Collection[int]) -> None:
        """Stop writing these messages to further streams."""
        kept = [place for place, one in enumerate(self.messages) if one not in messages]
        self.encoded = [self.encoded[place] for place in kept]
        self.messages = [self.messages[place] for place in kept]


class _Hub:
    """A queue's streams; each of its messages goes to all of them, and is done when it has left for all."""

    def __init__(self, services: TcpServices) -> None:
        self._turns = services.bounds.turns
        self.member: Member | None = None
        self._rounds: deque[_Round] = deque()
        """not yet written to every stream; bounded by the window, as ``_leaving``"""
        self._writing = False
        self._streams: dict[tuple[_MultiplexedPeer, str], str] = {}  # to the type it was asserted with
        self._typical_bytes = services.content_bytes_max
        """of a content: that of those that came last"""
        self._leaving: deque[int] = deque()
        """written and not yet out of our hands; bounded by the window"""

    def add(self, peer: "_MultiplexedPeer", stream: str, type_: str) -> None:
        self._streams[peer, stream] = type_
        self._open()

    def remove(self, peer: "_MultiplexedPeer", stream: str) -> None:
        self._streams.pop((peer, stream), None)
        if not self._streams and self.member is not None:
            rounds, self._rounds = self._rounds, deque()
            for message in (*self._leaving, *(one for round_ in rounds for one in round_.messages)):
                self.member.give_back(message)  # nobody has it for certain: it waits for the next stream
            self._leaving.clear()
        self._open()
        self.settle()

    def receive(self, deliveries: Sequence[Delivery]) -> None:
        """See ``Consumer``."""
        self._typical_bytes = max(1, sum([len(one.message.content) for one in deliveries]) // len(deliveries))
        self._open()
        small = len(deliveries) * self._typical_bytes < limits.uncounted_bytes
        for together in (deliveries,) if small else [(one,) for one in deliveries]:
            self._rounds.append(_Round(together, self._streams))
        if not self._writing:
            self._write()

    def _write(self, turn: "asyncio.Future[None] | None" = None) -> None:
        """Write each round to stream after stream, in turns: a megabyte to each of a thousand takes the better part of
        a second."""
        its_turn = turn is not None
        self._writing = False
        while self._rounds:
            round_ = self._rounds[0]
            while round_.left:
                if not (its_turn or self._turns.now()):
                    self._writing = True
                    self._turns.later(self, goes_on=True).add_done_callback(self._write)
                    return
                its_turn = False
                peer, stream = round_.left.popleft()
                type_ = self._streams.get((peer, stream))
                if type_ is not None and round_.encoded and not peer.over:
                    pieces = tuple([piece for one in round_.encoded for piece in one.to(stream, type_)])
                    messages = round_.messages
                    peer.begin_in_turn(pieces, len(messages), partial(self._withheld, messages))
            self._rounds.popleft()
            self._leaving.extend(round_.messages)
        self.settle()

    def _withheld(self, messages: Sequence[int]) -> None:
        """A stream was not told of these messages: they are for all of them again."""
        if self.member is not None:
            for message in messages:
                self.member.give_back(message)
        self.lapsed(messages)

    def settle(self) -> None:
        """Acknowledge messages that have been written to every stream."""
        if self.member is not None and self._leaving and self._streams:
            if all(peer.flushed for peer, _ in self._streams):
                self.member.acknowledge(self._leaving)
                self._leaving.clear()
            else:
                for peer in {peer for peer, _ in self._streams if not peer.flushed}:
                    peer.waited_for(self)

    def lapsed(self, messages: Sequence[int]) -> None:
        """See ``Consumer``."""
        self._leaving = deque(message for message in self._leaving if message not in messages)
        for round_ in self._rounds:
            round_.drop(messages)

    def dismissed(self) -> None:
        """See ``Consumer``."""
        self.member = None
        self._rounds.clear()
        self._leaving.clear()

    def _open(self) -> None:
        if self.member is not None:
            window = min(_WINDOW, max(1, _TOGETHER_BYTES // self._typical_bytes)) if self._streams else 0
            if window != self.member.window:
                self.member.open(window)


class _MultiplexedPeer(PeerSession):
    def __init__(self, owner: TcpListener, frontend: Multiplexed, services: TcpServices) -> None:
        super().__init__(owner, MultiplexedCodec(services.content_bytes_max), services.consumers.attempt_guard)
        self._frontend = frontend
        self._publisher = UnackedPublisher(services.queues, services.channels.messages, self.refused)
        self._streams: set[tuple[_Hub, str]] = set()
        self._waiting: set[_Hub] = set()

    def handle(self, command: Any) -> Awaitable[None] | None:
        if isinstance(command, StreamMessages):
            return self._publish(command)
        if isinstance(command, Assert):
            return self._assert(command)
        if isinstance(command, MalformedFrame):
            self.write(encode_error(command.words, command.stream))
            return None
        assert command is END
        return self._leave()

    def publishes(self, command: Any) -> bool:
        return isinstance(command, StreamMessages)

    def _publish(self, command: StreamMessages) -> Awaitable[None] | None:
        waiting = self._publisher.publish(command.route, command.contents)
        return None if waiting is None else self._answer_mistakes(waiting, command.stream)

    async def _answer_mistakes(self, waiting: Awaitable[None], stream: str) -> None:
        """Tell ``stream`` of a mistake of the client (a bad name); the connection goes on."""
        try:
            await waiting
        except ClientFault as fault:
            self.write(encode_error(str(fault), stream))

    async def _assert(self, command: Assert) -> None:
        if len(self._streams) >= _STREAMS_MAX:
            self.write(encode_error(f"a connection has at most {_STREAMS_MAX} streams", command.stream))
            return
        try:
            hub = await self._frontend.hub(command.queue)
        except ClientFault as fault:
            self.write(encode_error(str(fault), command.stream))
            return
        if not self.over:
            self._streams.add((hub, command.stream))
            hub.add(self, command.stream, command.type)

    def waited_for(self, hub: _Hub) -> None:
        """Call ``hub.settle`` when what was written has left; asyncio tells of that only below its low water mark."""
        self._waiting.add(hub)
        assert self.transport is not None
        self.transport.set_write_buffer_limits(high=0)

    def writable_again(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for hub in waiting:
            hub.settle()

    async def _leave(self) -> None:
        await self._publisher.settled()
        self.close()

    def ended(self) -> None:
        for hub, stream in self._streams:
            hub.remove(self, stream)
        self._streams.clear()

    def farewell(self, words: str) -> bytes:
        return encode_error(words, "")
