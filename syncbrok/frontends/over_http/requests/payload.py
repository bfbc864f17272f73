"""A large answer that is made piece by piece, and is written so: never whole in memory beside its pieces."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from syncbrok.model import limits

_TOGETHER_BYTES: Final = 64 * limits.KIB
"""smaller ones are written with their neighbours: each write is a call of the system"""


class PiecewisePayload(Payload):
    """The body of a ``web.Response``; each piece is let go once it is written. ``len`` of it: of all of them, bytes."""

    def __init__(self, content_type: str) -> None:
        super().__init__(None, content_type=content_type)
        self._left: deque[bytes] = deque()
        self._small = bytearray()
        self._length = 0

    def add(self, piece: bytes) -> None:
        """Add a piece, before any is written."""
        self._length += len(piece)
        if len(piece) >= _TOGETHER_BYTES:
            self._close_small()
            self._left.append(piece)
            return
        self._small += piece
        if len(self._small) >= _TOGETHER_BYTES:
            self._close_small()

    def _close_small(self) -> None:
        if self._small:
            self._left.append(bytes(self._small))
            self._small.clear()

    def __len__(self) -> int:
        return self._length

    @property
    def size(self) -> int:
        """See ``Payload``: the length that the answer's headers say."""
        return self._length

    async def write(self, writer: AbstractStreamWriter) -> None:
        """See ``Payload``."""
        self._close_small()
        while self._left:
            await writer.write(self._left.popleft())

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """See ``Payload``."""
        return b"".join((*self._left, self._small)).decode(encoding, errors)


class GuardedPayload(PiecewisePayload):
    """Carries attempts. ``lets_begin`` is asked before the first byte of the answer and before each later piece. Once
    it says no nothing more is written, and ``withheld`` is called: the client cannot read what it has of the answer."""

    def __init__(
        self, content_type: str, lets_begin: Callable[[], Awaitable[bool]], withheld: Callable[[], None]
    ) -> None:
        super().__init__(content_type)
        self._lets_begin = lets_begin
        self._withheld = withheld

    async def begins(self) -> bool:
        """Whether the next piece may be written now; else all that is left is dropped."""
        if await self._lets_begin():
            return True
        self._left.clear()
        self._small.clear()
        self._withheld()
        return False

    async def write(self, writer: AbstractStreamWriter) -> None:
        """See ``Payload``. Raises ``ConnectionError`` where it must not go on."""
        self._close_small()
        while self._left:
            if not await self.begins():
                raise ConnectionAbortedError("this node leads no more")
            await writer.write(self._left.popleft())
