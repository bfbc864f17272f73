"""The text of a filter as tokens: which variables it names, which part of the content, and how much work it can be.

The library that evaluates CEL tells the names in an expression, but neither its structure nor its cost. An expression
of 100 characters held a core for 100 s (`data.all(x, size(data + data + ...) > 0)` over 64 KiB), one with a pattern
for 21 s. So an expression is kept to forms whose work grows with the content alone. Pure.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from syncbrok.model import limits
from syncbrok.model.errors import BadSetting
from syncbrok.model.settings import suggest

VARIABLES: Final = ("ce", "content_type", "data", "headers", "key", "queue", "size")
_LARGE: Final = frozenset({"ce", "data", "headers"})
_MACROS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter"})
_FUNCTIONS: Final = frozenset(
    {"bool", "bytes", "contains", "double", "duration", "endsWith", "has", "int", "matches", "size", "startsWith"}
    | {"string", "timestamp", "type", "uint"}
    | {"getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds"}
    | {"getMinutes", "getMonth", "getSeconds"}
)
_TYPES: Final = frozenset({"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"})
_JOINS_MAX: Final = 8
_PATTERN_CHARS_MAX: Final = 64
_CLASSES_MAX: Final = 4
"""of \\d, \\w and the like in a pattern: each costs 0.3 ms whenever the pattern is used"""

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<raw>[bB]?[rR][bB]?(?:"[^"\n]*"|'[^'\n]*'))
    |(?P<text>[bB]?(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<number>\d[\w.]*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)

Path = tuple[str, ...]


class FilterToken(NamedTuple):
    kind: str
    text: str
    at: int
    """offset in the expression"""


class FilterSource(NamedTuple):
    """The parts of a message that a filter looks at. ``paths``: those of ``data``; ``()`` is all of it.
    ``tokens``: how many an evaluation goes through for each value of the content; 0 if it only looks some up."""

    variables: frozenset[str]
    paths: frozenset[Path]
    tokens: int
    patterns: tuple[str, ...] = ()
    """the texts that are patterns, as they are written"""


def read_source(text: str, names: Mapping[str, list[str]]) -> FilterSource:
    """``names`` are the ``variables`` and ``functions`` of a text that the library has compiled. Raises ``BadSetting``
    with the place where it is not taken."""
    tokens = [token for token in _tokens(text) if token.kind != "space"]
    if "`" in (token.text for token in tokens) or _is_triple(tokens):
        raise BadSetting("quoted names and texts in three quotes are not taken")
    body = _macro(text, tokens)
    bound = {tokens[body.start].text} if body else set()
    _check_names(names, bound)
    patterns = _check_cost(text, tokens, body)
    used = frozenset(names["variables"]) & frozenset(VARIABLES)
    joins = sum(token.text == "+" for token in tokens)
    return FilterSource(used, frozenset(_paths(tokens)), len(tokens) if body or joins else 0, patterns)


def place_of(text: str, at: int) -> str:
    """An offset in words: line and column, from 1."""
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - (text.rfind(chr(10), 0, at) + 1) + 1}"


def _tokens(text: str) -> Iterator[FilterToken]:
    for match in _TOKEN.finditer(text):
        yield FilterToken(match.lastgroup or "sign", match.group(), match.start())


def _is_triple(tokens: list[FilterToken]) -> bool:
    """Whether two texts stand side by side, as the tokens of one in three quotes do."""
    quoted = ("text", "raw")
    return any(one.kind in quoted and two.kind in quoted for one, two in pairwise(tokens))


def _macro(text: str, tokens: list[FilterToken]) -> range | None:
    """The positions inside the parentheses of the one macro there may be, from the name that it binds on."""
    found: range | None = None
    for at in range(1, len(tokens) - 1):
        if tokens[at].text not in _MACROS or tokens[at - 1].text != "." or tokens[at + 1].text != "(":
            continue
        if found is not None:
            raise _refused(text, tokens[at], f"one of {', '.join(sorted(_MACROS))} is taken, this is the second")
        found = range(at + 2, _closing(tokens, at + 1))
    if found is not None and tokens[found.start].text in VARIABLES:
        raise _refused(text, tokens[found.start], f"{tokens[found.start].text} is a variable of every filter; "
                       "name the elements otherwise")  # fmt: skip
    return found


def _closing(tokens: list[FilterToken], opening: int) -> int:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].text == "(") - (tokens[at].text == ")")
        if not depth:
            return at
    return len(tokens)


def _check_names(names: Mapping[str, list[str]], bound: set[str]) -> None:
    for name in names["functions"]:
        if name.isidentifier() and not name.startswith("_") and name not in _FUNCTIONS:
            raise BadSetting(f"unknown function {name!r}{suggest(name, (*_FUNCTIONS, *_MACROS))}")
    for name in names["variables"]:
        if name not in VARIABLES and name not in bound and name not in _TYPES:
            raise BadSetting(f"unknown variable {name!r}{suggest(name, VARIABLES)}")


def _check_cost(text: str, tokens: list[FilterToken], body: range | None) -> tuple[str, ...]:
    """The patterns. Raises ``BadSetting`` where an evaluation could take too long."""
    for at in body or ():
        if tokens[at].text in (*_LARGE, "matches") and tokens[at].kind == "name" and tokens[at - 1].text != ".":
            raise _refused(text, tokens[at], f"{tokens[at].text} is not taken inside of all, exists, map or filter, "
                           "where each element would go through it again")  # fmt: skip
        if tokens[at].text == "matches" and tokens[at].kind == "name":
            raise _refused(text, tokens[at], "matches is not taken inside of all, exists, map or filter; contains, "
                           "startsWith and endsWith are")  # fmt: skip
    joins = [token for token in tokens if token.text == "+"]
    if len(joins) > _JOINS_MAX:
        raise _refused(text, joins[_JOINS_MAX], f"at most {_JOINS_MAX} times + is taken")
    return tuple(
        _pattern(text, tokens, at)
        for at, token in enumerate(tokens)
        if token.text == "matches" and token.kind == "name" and _after(tokens, at) == "("
    )


def _pattern(text: str, tokens: list[FilterToken], at: int) -> str:
    """A pattern is built anew whenever it is used, in up to 50 ms: so it is a short text that stands in the filter."""
    pattern = tokens[at + 2] if at + 2 < len(tokens) else tokens[at]
    if pattern.kind not in ("text", "raw") or tokens[at - 1].text != "." or _after(tokens, at + 2) != ")":
        raise _refused(text, tokens[at], "matches is taken as NAME.matches('pattern'), the pattern in quotes")
    classes = len(re.findall(r"\\[a-zA-Z]", pattern.text.replace("\\\\", "\\")))
    if len(pattern.text) > _PATTERN_CHARS_MAX or "{" in pattern.text or classes > _CLASSES_MAX:
        raise _refused(text, pattern, f"a pattern has at most {_PATTERN_CHARS_MAX} characters, {_CLASSES_MAX} classes "
                       "such as \\d, and no repetition in braces")  # fmt: skip
    return pattern.text


def _paths(tokens: list[FilterToken]) -> Iterator[Path]:
    """Which parts of ``data`` are looked at: ``data.a["b"].size()`` looks at (a, b)."""
    for start, token in enumerate(tokens):
        if token.kind != "name" or token.text != "data" or (start and tokens[start - 1].text == "."):
            continue
        path: list[str] = []
        at = start
        while True:
            step, length = _step(tokens, at + 1)
            if step is None:
                break
            path.append(step)
            at += length
        yield tuple(path)


def _step(tokens: list[FilterToken], at: int) -> tuple[str | None, int]:
    """The name that is looked up there, and of how many tokens that consists; None for no such look-up."""
    sign = tokens[at].text if at < len(tokens) else ""
    if sign == "." and at + 1 < len(tokens) and tokens[at + 1].kind == "name" and _after(tokens, at + 1) != "(":
        return tokens[at + 1].text, 2
    if sign == "[" and at + 2 < len(tokens) and tokens[at + 1].kind == "text" and tokens[at + 2].text == "]":
        name = tokens[at + 1].text
        if name[0] in "\"'" and "\\" not in name:
            return name[1:-1], 3
    return None, 0


def _after(tokens: list[FilterToken], at: int) -> str:
    return tokens[at + 1].text if at + 1 < len(tokens) else ""


def _refused(text: str, token: FilterToken, why: str) -> BadSetting:
    return BadSetting(f"{place_of(text, token.at)}: {why}")


assert limits.filter_bytes_max <= 1_024, "the bounds above are for expressions of this size"
