"""A JSON array of objects -> the NDJSON lines that say the same. An element is a line: it counts from 1, as ``#n`` and
errors do.

The array is cut apart and not parsed: a list of five million empty lists would take 300 MB, and a parser that is given
15 MiB holds the loop up for as long as it takes. So what reads lines reads this too, with its bounds, in its steps.

Why the lines say the same: blanks between the elements are left out and the commas there become newlines; inside an
element newlines become spaces. Which quotes begin and end strings, and what is nested how deeply, is known as long as
the text is JSON; where it is none, the line that has it is no JSON either (a backslash, a bracket too many), and that
is refused by whoever reads the line. A newline inside a string, which JSON does not allow, becomes another control
character, which it does not allow either.
"""

from collections.abc import Generator
from io import BytesIO
from typing import Final

import numpy as np
from numpy.typing import NDArray

from syncbrok.model import limits
from syncbrok.model.errors import Malformed

BEGINS: Final = b"["
_BLANKS: Final = b" \t\r\n"
WINDOW_BYTES: Final = 32 * limits.KIB
"""takes a third of a millisecond"""
_SPACE, _NEWLINE, _RETURN, _TAB = b" \n\r\t"
_QUOTE, _BACKSLASH, _COMMA = b'"\\,'
_OPENING, _CLOSING = b"{}"
_TO_BRACE: Final = 0x20
"""with this bit [ is { and ] is }; no other character becomes one of them"""
_NEITHER: Final = 0x01


def begins_array(body: bytes) -> bool:
    """Whether the first character that is no blank opens an array. Looks at a few blanks only: programs write none."""
    return body[:64].lstrip(_BLANKS).startswith(BEGINS)


def lines_in_steps(body: bytes, window_bytes: int = WINDOW_BYTES) -> Generator[None, None, bytes]:
    """The elements of an array as lines, without a newline after the last one; ``b""`` where it has none. A step reads
    ``window_bytes``. Raises ``Malformed``, with ``line`` where it knows how far it came, for a body that is not one
    array."""
    first = body.index(BEGINS) + 1
    end = yield from _last_bracket(body)
    scan = _Scan()
    with BytesIO() as lines:
        for at in range(first, end, window_bytes):
            yield
            lines.write(scan.lines_of(body[at : min(at + window_bytes, end)]))
        if not scan.is_whole():
            raise Malformed(
                f"line {scan.line}: the array does not end: a quote or bracket that opens there is never closed",
                line=scan.line,
            )
        found = lines.getvalue()
    if found.endswith(b"\n"):
        raise Malformed(f"line {scan.line}: nothing stands behind the last comma; leave it out", line=scan.line)
    return found


def _last_bracket(body: bytes) -> Generator[None, None, int]:
    """Where the array ends, if it does."""
    end = len(body)
    while end > 0:
        yield
        start = max(0, end - WINDOW_BYTES)
        if rest := body[start:end].rstrip(_BLANKS):
            if rest.endswith(b"]"):
                return start + len(rest) - 1
            break
        end = start
    raise Malformed("the batch begins as a JSON array and does not end as one: ] is missing, or something follows it")


class _Scan:
    """Cuts the elements apart, window by window: it knows which line it is on and what stands open there."""

    __slots__ = ("_depth", "_escaped", "_in_string", "line")

    def __init__(self) -> None:
        self._depth = 0
        self._escaped = False
        self._in_string = False
        self.line = 1

    def is_whole(self) -> bool:
        """Whether no string, object or list is open."""
        return not (self._depth or self._in_string or self._escaped)

    def lines_of(self, text: bytes) -> bytes:
        """Make lines of the next window. Raises ``Malformed`` where the array ends in it."""
        given = np.frombuffer(text, np.uint8)
        in_string = self._strings(given)
        outside = ~in_string
        brace = given | _TO_BRACE
        steps = ((brace == _OPENING) & outside).astype(np.int8) - ((brace == _CLOSING) & outside).astype(np.int8)
        depth = np.cumsum(steps, dtype=np.int32) + self._depth
        between = outside & (depth == 0)
        commas = between & (given == _COMMA)
        if depth.min() < 0:
            line = self.line + int(np.count_nonzero(commas[: int((depth < 0).argmax())]))
            raise Malformed(f"line {line}: the array ends behind it, and something follows", line=line)
        self._depth = int(depth[-1])
        self.line += int(np.count_nonzero(commas))
        newlines = given == _NEWLINE
        written = given.copy()
        written[newlines & outside] = _SPACE
        written[newlines & in_string] = _NEITHER
        written[commas] = _NEWLINE
        blank = newlines | (given == _SPACE) | (given == _RETURN) | (given == _TAB)
        lines: bytes = written[~(between & blank)].tobytes()
        return lines

    def _strings(self, given: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which characters stand in a string. The quote that opens it does, the one that ends it does not."""
        quotes = given == _QUOTE
        backslashes = np.flatnonzero(given == _BACKSLASH)
        if self._escaped:
            quotes[0] = False
            backslashes = backslashes[backslashes > 0]
        # Of backslashes in a row the first, third, fifth ... escape what follows.
        begins = np.diff(backslashes, prepend=-2) != 1
        run_begins = np.maximum.accumulate(np.where(begins, backslashes, 0))
        escapes = backslashes[(backslashes - run_begins) % 2 == 0]
        self._escaped = bool(len(escapes)) and int(escapes[-1]) == len(given) - 1
        quotes[escapes[: len(escapes) - self._escaped] + 1] = False
        in_string = np.logical_xor.accumulate(quotes) ^ self._in_string
        self._in_string = bool(in_string[-1])
        return in_string
