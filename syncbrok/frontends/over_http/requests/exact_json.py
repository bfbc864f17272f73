"""JSON as publishers write it, with integers of any size.

orjson reads an integer beyond 64 bits as a float: its last digits would be gone, and with them what tells two messages
of one idempotency key apart. Python's own ``json`` keeps them and takes ten times as long, so only what has such a
number is given to it. Fractions are doubles, as JSON has them between programs (RFC 8259, 6).
"""

import json
from typing import Any, Final

import numpy as np
import orjson

from syncbrok.model.errors import Malformed

_MARK: Final = b"\xef\xbb\xbf"
_STRIDE: Final = 4
"""2**63 has nineteen digits; as many in a row have four of these in a row"""
_ZERO: Final = np.uint8(ord("0"))
_TOO_DEEP: Final = "the JSON is nested too deeply"


def has_long_number(text: bytes) -> bool:
    """Whether there may be a number in it that orjson would change. Less than 1 ns a byte where there are few."""
    is_digit = np.frombuffer(text, np.uint8)[::_STRIDE] - _ZERO < 10
    together = is_digit[:-3] & is_digit[1:-2] & is_digit[2:-1] & is_digit[3:]
    return bool(together.any()) and _has_run(text)


def _has_run(text: bytes) -> bool:
    """Whether nineteen digits stand in a row: a regular expression takes ten times as long over a text full of ids."""
    run = np.frombuffer(text, np.uint8) - _ZERO < 10
    for further in (1, 2, 4, 8, 3):  # of two, four, eight, sixteen, nineteen
        run = run[:-further] & run[further:]
    return bool(run.any())


def without_mark(body: bytes) -> bytes:
    """``body`` without a byte order mark at its beginning. Some programs write one, and a parser may ignore it (RFC
    8259, 8.1)."""
    return body.removeprefix(_MARK)


def loads(text: bytes) -> Any:
    """The value. Raises ``orjson.JSONDecodeError`` for bytes that are not JSON, and ``Malformed`` for a value that is
    nested too deeply."""
    found = orjson.loads(text)  # stricter than the other, so it is asked first
    if not has_long_number(text):
        return found
    try:
        return json.loads(text)
    except RecursionError:
        raise Malformed(_TOO_DEEP) from None


def dumps(value: Any) -> bytes:
    """The bytes of a value that ``loads`` returned. Raises ``Malformed`` where it is nested too deeply."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        pass
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except RecursionError:
        raise Malformed(_TOO_DEEP) from None
