"""Quoted strings in the values of headers (RFC 9110, 5.6.4)."""

import re
from collections.abc import Iterator
from typing import Final

_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_PART: Final = re.compile(r'(?:[^",;]|"(?:[^"\\]|\\.)*"?)*')


def unquote_header(value: str) -> str:
    """The text of a value that is a quoted string as a whole; any other value as it is."""
    found = _QUOTED.fullmatch(value)
    return value if found is None else re.sub(r"\\(.)", r"\1", found[1])


def without_parameters(value: str) -> str:
    """The text of a quoted string, whatever parameters follow it (RFC 9651, 3.3): ``"k"; v=1`` is ``k``. A value that
    does not begin with one is taken as it is, semicolons and all: many clients write keys bare."""
    found = _QUOTED.match(value)
    if found is None or not (rest := value[found.end() :].lstrip(" \t")) or rest.startswith(";"):
        return unquote_header(found[0] if found else value)
    return value


def elements(value: str) -> Iterator[str]:
    """The elements of a comma-separated list, each up to its first parameter; commas and semicolons in quotes separate
    nothing."""
    at = 0
    while at <= len(value):
        found = _PART.match(value, at)
        assert found is not None  # it matches the empty text
        yield found[0].strip()
        at = found.end()
        while at < len(value) and value[at] != ",":  # parameters
            more = _PART.match(value, at + 1)
            assert more is not None
            at = more.end()
        at += 1
