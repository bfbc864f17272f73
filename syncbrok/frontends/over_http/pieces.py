"""A large answer that was made piece by piece, and is written so: never whole in memory beside its pieces."""

from collections import deque
from collections.abc import Iterable

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload


class Pieces(Payload):
    """The body of a ``web.Response``; each piece is let go once it is written. ``length``: of all of them, bytes."""

    def __init__(self, pieces: Iterable[bytes], content_type: str) -> None:
        self._left = deque(pieces)
        self.length = self._size = sum([len(piece) for piece in self._left])
        super().__init__(None, content_type=content_type)

    async def write(self, writer: AbstractStreamWriter) -> None:
        while self._left:
            await writer.write(self._left.popleft())

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._left).decode(encoding, errors)
