"""The wire format of the msgpack message bus (INTERFACES 4): one connection a message, one connection a look.

A producer sends a msgpack map with ``Topic`` (string) and ``Data`` (bytes or string) and closes its side. A consumer
sends ``TOPIC`` and a line feed, receives each message that waits for it as one line, and then the connection is closed.
Consumers of a topic share its read position, which survives a restart.
"""

from collections.abc import Awaitable, Sequence
from typing import Any, Final, NamedTuple

import msgpack

from syncbrok.frontends.listening import ListenerTls
from syncbrok.frontends.over_tcp.session.first_use import named
from syncbrok.frontends.over_tcp.session.frame_reader import text_of
from syncbrok.frontends.over_tcp.session.listener import TcpListener
from syncbrok.frontends.over_tcp.session.peer_session import END, PeerFault, PeerSession
from syncbrok.frontends.over_tcp.session.services import TcpServices
from syncbrok.frontends.over_tcp.session.shared_position import SharedPositions
from syncbrok.frontends.over_tcp.session.unacked_publisher import UnackedPublisher
from syncbrok.model import limits

_TOPIC_BYTES_MAX: Final = 1 * limits.KIB
_FETCH_MAX: Final = 10_000
"""messages that one look takes, so that it ends where more come all the time"""


# -- the codecs -------------------------------------------------------------------------------------------------------


class ProducerCodec:
    """Keeps what one message may take; what it is, is known when the producer has closed its side."""

    def __init__(self, content_bytes_max: int = limits.content_bytes_max) -> None:
        self._kept = bytearray()
        self._content_bytes_max = content_bytes_max
        self._bytes_max = content_bytes_max + _TOPIC_BYTES_MAX

    @property
    def partial_bytes(self) -> int:
        """See ``peer_session.WireFormat``."""
        return len(self._kept)

    def drop(self) -> None:
        """See ``peer_session.WireFormat``."""
        self._kept = bytearray()

    def feed(self, data: bytes) -> Sequence[PeerFault]:
        """See ``peer_session.WireFormat``."""
        if len(self._kept) + len(data) > self._bytes_max:
            self._kept.clear()
            return (PeerFault(f"more than {self._bytes_max} bytes"),)
        self._kept += data
        return ()

    def message(self) -> tuple[str, bytes] | None:
        """Topic and data; None where nothing came at all. Raises ``PeerFault``."""
        if not self._kept:
            return None
        try:
            map_ = msgpack.unpackb(bytes(self._kept), raw=False, strict_map_key=False)
        except (ValueError, msgpack.exceptions.ExtraData, msgpack.exceptions.FormatError) as wrong:
            raise PeerFault(f"not one msgpack value: {wrong}") from None
        topic, data = (map_.get("Topic"), map_.get("Data")) if isinstance(map_, dict) else (None, None)
        if not isinstance(topic, str) or not isinstance(data, str | bytes):
            raise PeerFault("expected a map with Topic (a string) and Data (bytes or a string)")
        content = data.encode() if isinstance(data, str) else data
        if len(content) > self._content_bytes_max:
            raise PeerFault(f"a message of {len(content)} bytes; at most {self._content_bytes_max} are taken")
        return topic, content


class FetchTopic(NamedTuple):
    topic: str


class ConsumerCodec:
    """One line, the topic; whatever follows it is passed over."""

    def __init__(self) -> None:
        self._line = b""
        self._over = False

    @property
    def partial_bytes(self) -> int:
        """See ``peer_session.WireFormat``."""
        return len(self._line)

    def drop(self) -> None:
        """See ``peer_session.WireFormat``."""
        self._line, self._over = b"", True

    def feed(self, data: bytes) -> Sequence[FetchTopic | PeerFault]:
        """See ``peer_session.WireFormat``."""
        if self._over:
            return ()
        line, feed, _ = (self._line + data).partition(b"\n")
        if len(line) > _TOPIC_BYTES_MAX:
            self._over, self._line = True, b""
            return (PeerFault("the name of a topic ends with a line feed"),)
        self._line = b"" if feed else line
        self._over = bool(feed)
        try:
            return (FetchTopic(text_of(line.rstrip(b"\r"), "the name of a topic")),) if feed else ()
        except PeerFault as fault:
            return (fault,)


# -- the shell --------------------------------------------------------------------------------------------------------


class MsgpackBus:
    """The frontend; see ``Frontend`` in the composition."""

    def __init__(
        self, services: TcpServices, host: str, producer_port: int, consumer_port: int, tls: ListenerTls | None = None
    ) -> None:
        positions = SharedPositions(services.queues, services.consumers, named("consumer:msgpack_bus", "msgpack_bus"))
        bounds = services.bounds
        self.producers = TcpListener(host, producer_port, lambda owner: _Producer(owner, services), bounds, tls)
        self.consumers = TcpListener(host, consumer_port, lambda owner: _Consumer(owner, positions), bounds, tls)

    @property
    def ports(self) -> list[int]:
        """See ``Frontend``."""
        return [self.producers.port, self.consumers.port]

    async def start(self) -> None:
        await self.producers.start()
        try:
            await self.consumers.start()
        except OSError:
            await self.producers.stop()
            raise

    async def stop(self) -> None:
        await self.producers.stop()
        await self.consumers.stop()


class _Producer(PeerSession):
    def __init__(self, owner: TcpListener, services: TcpServices) -> None:
        self._message = ProducerCodec(services.content_bytes_max)
        super().__init__(owner, self._message)
        self._publisher = UnackedPublisher(services.queues, services.channels.messages, self.refused)

    def handle(self, command: Any) -> Awaitable[None]:
        assert command is END
        return self._publish()

    def publishes(self, command: Any) -> bool:
        return command is END

    async def _publish(self) -> None:
        message = self._message.message()
        if message is not None:
            waiting = self._publisher.publish(message[0], [message[1]])
            if waiting is not None:
                await waiting
            await self._publisher.settled()
        self.close()

    def farewell(self, words: str) -> bytes:  # noqa: ARG002 (its format has no word for it; the log says why)
        return b""


class _Consumer(PeerSession):
    def __init__(self, owner: TcpListener, positions: SharedPositions) -> None:
        super().__init__(owner, ConsumerCodec(), positions.attempt_guard)
        self._positions = positions

    def handle(self, command: Any) -> Awaitable[None] | None:
        if isinstance(command, FetchTopic):
            return self._answer_poll(command.topic)
        self.close()
        return None

    async def _answer_poll(self, topic: str) -> None:
        position = await self._positions.of(topic)
        for _ in range(_FETCH_MAX):
            delivery = await position.next()
            if delivery is None:
                break
            if self.over or not self.begin(delivery.message.content + b"\n"):
                position.give_back((delivery,))
                break
            await self.until_writable()
            position.acknowledge((delivery,))
        self.close()

    def farewell(self, words: str) -> bytes:  # noqa: ARG002 (as the producer's)
        return b""
