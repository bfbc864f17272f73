"""A subscriber's filter, compiled, and what it says of a message (RULES 31)."""

import re
from functools import cache, lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, Final, NamedTuple

from syncbrok.delivery.filtering.filter_source import FilterSource, read_source
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting

_PLACE: Final = re.compile(r"<input>:(\d+):(\d+): (?:Syntax error: )?([^\n]{1,160})")
_KEPT: Final = 4_096
"""compiled filters; some 10 KB each"""


class MessageFilter(NamedTuple):
    """``program`` is the library's; ``source`` what it looks at."""

    text: str
    program: Any
    source: FilterSource


@cache
def library() -> ModuleType:
    """The compiled module of ``common-expression-language``. Raises ``ImportError`` where it is not installed.

    Not ``import cel``: the package imports its command line, with three libraries for terminals. That holds the event
    loop for half a second at the first filter; the module alone takes 30 ms."""
    package = find_spec("cel")
    spec = package and PathFinder.find_spec("cel.cel", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError("the package common-expression-language is not installed; filters need it")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache(_KEPT)
def compile_filter(text: str) -> MessageFilter:
    """The filter that ``text`` says, a CEL expression. Raises ``BadSetting`` with the place of what is wrong."""
    size = len(text.encode(errors="replace"))
    if size > limits.filter_bytes_max:
        raise BadSetting(f"a filter has at most {limits.filter_bytes_max} bytes, this one has {size}")
    try:
        program = library().compile(text)
    except ValueError as error:
        place = _PLACE.search(str(error))
        if place is None or place[1] == "0":
            raise BadSetting("this is no CEL expression, or too deep a one") from None
        raise BadSetting(f"line {place[1]}, column {place[2]}: {place[3].partition(' expecting ')[0]}") from None
    source = read_source(text, program.references())
    for pattern in source.patterns:
        try:
            library().compile(f"''.matches({pattern})").execute({})
        except (RuntimeError, ValueError):
            raise BadSetting(f"{pattern} is no pattern (RE2 syntax, without look-around)") from None
    return MessageFilter(text, program, source)
