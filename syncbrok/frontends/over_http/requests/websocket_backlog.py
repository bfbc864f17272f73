"""Counts the bytes of a WebSocket that are not worked on yet, from its frames as they come (RFC 6455, 5.2). Pure.

aiohttp keeps a message until it is whole and then until a handler takes it, and tells nobody how much that is.
"""

from collections import deque
from typing import Final

_HEAD_BYTES_MIN: Final = 6
"""of a client's frame: two bytes, and four of its mask"""
_HEAD_BYTES_MAX: Final = 14
_LENGTH_BYTES: Final = {126: 2, 127: 8}
_CONTROL: Final = 0x8
_FINAL: Final = 0x80


class WebSocketBacklog:
    """``held``: bytes of messages that are not whole or were not taken."""

    __slots__ = ("_first", "_frame", "_head", "_left", "_message", "_whole", "held")

    def __init__(self) -> None:
        self.held = 0
        self._head = b""
        """the head of a frame that is not whole"""
        self._first = self._frame = self._left = 0
        """of the frame: its first byte, its bytes in all, and how many of them have not come"""
        self._message = 0
        """bytes of the frames before, of a message in several"""
        self._whole: deque[int] = deque()
        """bytes of each message that was not taken; bounded by what aiohttp keeps of one connection"""

    def feed(self, data: bytes) -> None:
        """Count bytes that have come, in any split."""
        self.held += len(data)
        at, end = 0, len(data)
        while at < end:
            if not self._left:
                at = self._begin(data, at)
                if self._head:
                    return
            step = min(self._left, end - at)
            self._left -= step
            at += step
            if not self._left:
                self._ended()

    def taken(self) -> None:
        """Count the oldest whole message no more: it was handed over."""
        if self._whole:
            self.held -= self._whole.popleft()

    def _begin(self, data: bytes, at: int) -> int:
        """Read the head of a frame; returns where its payload begins. An incomplete head stays in ``_head``."""
        before = len(self._head)
        head = self._head + data[at : at + _HEAD_BYTES_MAX - before]
        more = _LENGTH_BYTES.get(head[1] & 0x7F, 0) if len(head) > 1 else 0
        size = _HEAD_BYTES_MIN + more
        if len(head) < size:
            self._head = head
            return len(data)
        self._head = b""
        self._first = head[0]
        self._left = int.from_bytes(head[2 : 2 + more], "big") if more else head[1] & 0x7F
        self._frame = size + self._left
        return at + size - before

    def _ended(self) -> None:
        if self._first & _CONTROL:
            self.held -= self._frame
        elif self._first & _FINAL:
            self._whole.append(self._message + self._frame)
            self._message = 0
        else:
            self._message += self._frame
