"""One connection of a TCP frontend: bytes in any split become commands, and those are handled in order, one at a time.

While a command waits for something (a queue to be declared, room to publish, a message) little more is read: just
enough to notice a peer that goes. So a peer costs some pieces and one frame that is not whole yet. A peer that begins a
frame and does not end it in time is sent away; so is one that does not read what it is sent.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, Final, Protocol, cast

from syncbrok.delivery.attempt_guard import AttemptGuard
from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.listening import is_secure
from syncbrok.model import limits
from syncbrok.model.errors import SyncbrokError

log = logging.getLogger(__name__)


_WAITING_BYTES_MAX: Final = 64 * limits.KIB


class PeerFault(Exception):
    """The peer sent what its format does not allow. The text is for the peer."""


class EndOfInput:
    """The peer has sent all it will; the last command of a session."""


END: Final = EndOfInput()


class WireFormat(Protocol):
    """A wire format's reading half; pure."""

    @property
    def partial_bytes(self) -> int:
        """Bytes kept of a frame that is not whole."""

    def feed(self, data: bytes) -> Sequence[Any]:
        """The commands that ``data`` completes. What cannot be read ends them with a ``PeerFault``, as a command."""

    def drop(self) -> None:
        """Forget what it has of a frame: the session is over, and may stand around until the collector comes."""


class SessionOwner(Protocol):
    """Keeps account of the sessions (``listener``)."""

    bounds: Bounds

    def opened(self, session: "PeerSession") -> bool:
        """Whether there is room for it."""

    def closed(self, session: "PeerSession") -> None: ...


class PeerSession(asyncio.Protocol):
    """A frontend's connection derives from it: ``handle`` is what its commands do."""

    def __init__(self, account: SessionOwner, codec: WireFormat, attempt_guard: AttemptGuard | None = None) -> None:
        """``attempt_guard``: where its peer may consume."""
        self._account = account
        self._codec = codec
        self._attempt_guard = attempt_guard
        self._to_begin: deque[tuple[tuple[bytes, ...], int, Callable[[], None]]] = deque()
        """attempts behind what the peer has not read yet; bounded by the windows"""
        self.owner = ""
        """who is accounted for it: its peer's address; see ``HeldConnection``"""
        self.unproven = True
        """nothing has come from it"""
        self._commands: deque[Any] = deque()
        self._task: asyncio.Task[None] | None = None
        self._under_way: Any = None
        """the command that the task handles"""
        self._gone = False
        """the peer has sent all and gone; what it published is still handled"""
        self._waiting_bytes = 0
        """read, and its commands not yet handled"""
        self._reading = True
        self.transport: asyncio.Transport | None = None
        self.writable = True
        """the peer reads what it is sent"""
        self._resumed: asyncio.Future[None] | None = None
        self._held = 0
        """of the frame that is not whole, what was counted"""
        self._partial_since_s = 0.0
        self.all_sent = False
        """the peer has closed its side, and has perhaps gone"""
        self.over = False

    # -- what a frontend says -----------------------------------------------------------------------------------------

    def handle(self, command: Any) -> Awaitable[None] | None:
        """Do what it says; what takes time is awaited before the next command. ``END``: the peer is done sending.
        Raises ``PeerFault`` and ``SyncbrokError``, which end the session with a farewell."""
        raise NotImplementedError

    def publishes(self, command: Any) -> bool:  # noqa: ARG002 (for those that do)
        """Whether a command is to be done although its peer, which has sent all, is gone. (Over TLS it is gone as soon
        as it has closed its side.)"""
        return False

    def farewell(self, words: str) -> bytes:
        """The bytes that a peer is sent before it is sent away."""
        raise NotImplementedError

    def ended(self) -> None:
        """Let go of what the peer had: the connection is gone, whoever closed it."""

    def writable_again(self) -> None:
        """Go on writing: the peer has read what it was sent."""

    async def until_writable(self) -> None:
        """Wait, while a command is handled, until the peer reads what it is sent."""
        while not self.writable:
            self._resumed = asyncio.get_running_loop().create_future()
            await self._resumed

    # -- what asyncio says --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if not self._account.opened(self):
            self.send_away("too many connections; try again later")
        elif self._attempt_guard is not None:
            self._attempt_guard.carries(self.transport)

    def data_received(self, data: bytes) -> None:
        if self.over:
            return
        self.unproven = False
        self._waiting_bytes += len(data)
        self._commands.extend(self._codec.feed(data))
        partial_bytes = self._codec.partial_bytes
        self._partial_since_s = monotonic() if partial_bytes else 0.0
        if not self._hold(partial_bytes):
            self.send_away("more is being sent from this address at once than its share; try again later")
        self._go_on()

    def _hold(self, partial_bytes: int) -> bool:
        """Count the bytes kept of a frame. False where they are too many: then this peer is sent away."""
        amount = partial_bytes if partial_bytes > limits.uncounted_bytes else 0
        more, self._held = amount - self._held, amount
        return not more or self._account.bounds.receiving.hold(self.owner, more)

    def eof_received(self) -> bool:
        self.all_sent = True
        if not self.over:
            self._commands.append(END)
            self._go_on()
        if self.transport is None or is_secure(self.transport):
            return False
        return not self.over  # stays open for what is still to be answered

    def pause_writing(self) -> None:
        self.writable = False
        self._account.bounds.sending.filled(self)

    def resume_writing(self) -> None:
        self.writable = True
        self._account.bounds.sending.emptied(self)
        if self._resumed is not None and not self._resumed.done():
            self._resumed.set_result(None)
        while self._to_begin and self.writable and not self.over:
            self._begin(*self._to_begin.popleft())
        if self.writable and not self.over:
            self.writable_again()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (a peer may go as it likes)
        if self.all_sent and not self.over:
            self._commands = deque(filter(self.publishes, self._commands))
            if self._task is None or self.publishes(self._under_way):
                self._gone, self.transport = True, None
                self._account.bounds.sending.emptied(self)
                self._go_on()
                return
        self._forget()

    def _forget(self) -> None:
        """Nothing more is done for this peer, which is gone."""
        self.over, self._gone = True, False
        self._commands.clear()
        if self._task is not None:
            self._task.cancel()
        self._codec.drop()
        self._hold(0)
        self._to_begin.clear()
        self._account.bounds.sending.emptied(self)
        self.ended()
        self._account.closed(self)

    @property
    def at_rest(self) -> bool:
        """True if every command that was read has been handled, and the connection is open."""
        return not (self._commands or self.over) and self._task is None

    def rests_since(self) -> float | None:
        """See ``HeldConnection``. Never: a consumer may say nothing for hours."""
        return None

    def make_way(self) -> None:
        """See ``HeldConnection``."""
        self.send_away("too many connections; try again later")

    @property
    def payer(self) -> str:
        """See ``Unread``."""
        return self.owner

    spoken_for = 0

    # -- commands -----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        while self._commands and self._task is None and not self.over:
            command = self._commands.popleft()
            try:
                if isinstance(command, PeerFault):
                    raise command
                waiting = self.handle(command)
            except (PeerFault, SyncbrokError) as fault:
                self._commands.clear()
                self.send_away(str(fault))
                break
            if waiting is not None:
                self._under_way = command
                self._task = asyncio.get_running_loop().create_task(self._wait(waiting), name="syncbrok session")
        if self._gone and self._task is None:
            self._forget()
            return
        if not self._commands:
            self._waiting_bytes = 0
        self._read(on=self._waiting_bytes < _WAITING_BYTES_MAX)

    async def _wait(self, waiting: Awaitable[None]) -> None:
        try:
            await waiting
        except (PeerFault, SyncbrokError) as fault:
            self.send_away(str(fault))
        except asyncio.CancelledError:
            if not self.over:
                raise
        except Exception as error:
            log.exception("syncbrok.tcp.conversation_failed", extra={"frontend": type(self).__name__})
            self.send_away(f"a defect of the broker: {type(error).__name__}")
        finally:
            self._task = None
        self._go_on()

    def _read(self, *, on: bool) -> None:
        if on == self._reading or self.transport is None or self.transport.is_closing():
            return
        self._reading = on
        if on:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def write(self, *pieces: bytes) -> None:
        """Write to the peer, unless it has gone. What is large is not copied: pieces that many peers are sent are in
        memory once, however many of them do not read. Where all peers together leave more unread than there may be, one
        that does not take it at once is cut off before it is given more."""
        if self.transport is None or self.over:
            return
        size_bytes = sum(map(len, pieces))
        if size_bytes > self._account.bounds.sending.budget.free and self.transport.get_write_buffer_size():
            self.over = True
            self.transport.abort()
            return
        if size_bytes > limits.uncounted_bytes:
            self.transport.writelines(pieces)
        else:
            self.transport.write(b"".join(pieces))

    def begin(self, *pieces: bytes, attempts: int = 1) -> bool:
        """Write so many attempts as ``write`` does. False where this node leads no more: nothing was written, and the
        caller gives them back. In a cluster the peer must have been sent all else (``writable``)."""
        assert self._attempt_guard is not None
        if not self._attempt_guard.lets_begin(attempts):
            return False
        self.write(*pieces)
        return True

    def begin_in_turn(self, pieces: tuple[bytes, ...], attempts: int, withheld: Callable[[], None]) -> None:
        """As ``begin``, now or, in a cluster, once the system has taken all that was written before. ``withheld`` is
        called where nothing was written."""
        assert self._attempt_guard is not None
        if self._attempt_guard.looks and (self._to_begin or not self.writable):
            self._to_begin.append((pieces, attempts, withheld))
        else:
            self._begin(pieces, attempts, withheld)

    def _begin(self, pieces: tuple[bytes, ...], attempts: int, withheld: Callable[[], None]) -> None:
        if not self.begin(*pieces, attempts=attempts):
            withheld()

    @property
    def flushed(self) -> bool:
        """True if the system has taken all that was written or is to be."""
        return self.transport is not None and not (self._to_begin or self.transport.get_write_buffer_size())

    # -- its end ------------------------------------------------------------------------------------------------------

    def send_away(self, words: str) -> None:
        """Close with a farewell. What was published before is published."""
        if self.transport is not None and not self.over and not self.transport.is_closing():
            log.info("syncbrok.tcp.sent_away", extra={"frontend": type(self).__name__, "why": words[:200]})
            self.transport.write(self.farewell(words))
            self.close()

    def refused(self, error: BaseException) -> None:
        """Tell the peer that what it published was not taken: one that hears no answers hears this."""
        self.send_away(str(error))

    def close(self) -> None:
        """Close once what was written has gone out."""
        self.over = True
        self._commands.clear()
        self._codec.drop()
        self._hold(0)
        if self.transport is not None:
            self.transport.close()

    def check(self, now_s: float) -> None:
        """Send the peer away if its frame is late. Called every second; ``now_s`` is ``monotonic``'s."""
        if self._partial_since_s and now_s - self._partial_since_s > limits.frame_timeout_s and self._task is None:
            self.send_away(f"a frame was not complete after {limits.frame_timeout_s:g} s")

    async def finished(self) -> None:
        """Cancel its task and wait for it; called when the frontend stops."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
