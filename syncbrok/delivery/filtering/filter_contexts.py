"""Evaluates filters over the variables of a message, each made once for all filters and only if one names it.

Making a variable costs more than evaluating: 1.5 us for each value in it. So of the content only the parts are taken
that some filter looks at, and a message that goes to many subscribers has one context for all of them. Pure.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import orjson

from syncbrok.delivery.filtering.filter_source import Path
from syncbrok.delivery.filtering.message_filter import MessageFilter, library
from syncbrok.model import limits
from syncbrok.model.facts import Reason, StoredMessage

_KEPT: Final = 1_024
"""one subscriber after the other is asked about its window, and some are ahead of others"""
_PARTS_MAX: Final = 16
_KEPT_BYTES_MAX: Final = 1 * limits.MIB
_VALUES_MAX: Final = 20_000
_WORK_MAX: Final = 100_000
"""tokens by values: some 40 ms"""
_US_A_VALUE: Final = 2
_TOKENS_A_US: Final = 2
_CE: Final = "ce-"


class FilterVerdict(NamedTuple):
    """``reason`` ``NONE``: it is delivered. Else ``FILTERED``, or ``FILTER_ERROR`` with what went wrong in ``detail``.
    ``work_us``: about how long it took."""

    reason: Reason
    detail: bytes = b""
    work_us: int = 0


_PASSES: Final = FilterVerdict(Reason.NONE, work_us=1)
_FILTERED: Final = FilterVerdict(Reason.FILTERED, work_us=1)


class _MessageContext:
    """The variables of one message, as far as they were named: those of all filters that look at the same parts of its
    ``data`` together. (Where each part that is named came to the others, making them took the square of their number.)
    It keeps no message; ``size_bytes``: the content of which it keeps what it says."""

    __slots__ = ("_document", "_made", "_read", "_values", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self._made: dict[frozenset[Path], tuple[Any, set[str]]] = {}
        """the library's context, and which variables are in it; by what there is of ``data``"""
        self._values: dict[Path, int] = {}
        self._read = False
        self._document: Any = None

    def variables(self, wanted: MessageFilter, message: StoredMessage, queue: str) -> tuple[Any, int, int]:
        """The library's context with what the filter names; about how long that took, in microseconds, and how many
        values of ``data`` it looks at: with too many (``_VALUES_MAX``) it is not made."""
        source = wanted.source
        work_us = 0
        if source.paths and not self._read:
            self._parse(message.content)
            work_us = len(message.content) // 500
        values = sum(map(self._count, source.paths))
        made = self._made.get(source.paths)
        if made is None:
            made = self._made[source.paths] = library().Context(), set()
            if len(self._made) > _PARTS_MAX:
                del self._made[next(iter(self._made))]
        context, names = made
        for name in source.variables - names:
            if name != "data":
                context.add_variable(name, _MAKE[name](message, queue))
                work_us += 3
            elif values <= _VALUES_MAX:
                context.add_variable(name, _part(self._document, source.paths))
                work_us += _US_A_VALUE * values
            names.add(name)
        return context, work_us, values

    def _parse(self, content: bytes) -> None:
        self._read = True
        if len(content) <= limits.filter_data_bytes_max:
            self.size_bytes = len(content)
            with suppress(orjson.JSONDecodeError):
                self._document = orjson.loads(content)

    def _count(self, path: Path) -> int:
        """How many values of the content stand at a path."""
        found = self._values.get(path)
        if found is None:
            found = self._values[path] = count_values(_at(self._document, path), _VALUES_MAX)
        return found


_MAKE: Final[Mapping[str, Callable[[StoredMessage, str], object]]] = {
    "queue": lambda _, queue: queue,
    "key": lambda message, _: message.key,
    "content_type": lambda message, _: message.content_type,
    "size": lambda message, _: len(message.content),
    "headers": lambda message, _: dict(message.headers),
    "ce": lambda message, _: {
        name[len(_CE) :]: unquote(value) for name, value in message.headers if name.startswith(_CE)
    },
}
"""how each variable but ``data`` is made of a message in the queue of this name"""


class FilterContexts:
    """Evaluates filters. Keeps the contexts of the messages seen last, at most 1,024 and those of 1 MiB of content."""

    def __init__(self) -> None:
        self._contexts: OrderedDict[int, _MessageContext] = OrderedDict()
        self._bytes = 0

    def verdict(self, wanted: MessageFilter, message: StoredMessage, queue: str) -> FilterVerdict:
        """The filter's answer for a message of the queue of this name."""
        context = self._contexts.get(message.sequence)
        if context is None:
            context = self._contexts[message.sequence] = _MessageContext()
            self._make_room(0)
        try:
            kept = context.size_bytes
            made, work_us, values = context.variables(wanted, message, queue)
            if context.size_bytes > kept:
                self._make_room(context.size_bytes)
            tokens = wanted.source.tokens
            if values > _VALUES_MAX or tokens * values > _WORK_MAX:
                return FilterVerdict(Reason.FILTER_ERROR, b"its content has too many values for this filter", work_us)
            answer = wanted.program.execute(made)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a panic of the library is no Exception
            return FilterVerdict(Reason.FILTER_ERROR, _words(error), 50)
        work_us += tokens * values // _TOKENS_A_US
        if answer is True:
            return _PASSES if not work_us else FilterVerdict(Reason.NONE, work_us=work_us)
        if answer is False:
            return _FILTERED if not work_us else FilterVerdict(Reason.FILTERED, work_us=work_us)
        return FilterVerdict(Reason.FILTER_ERROR, f"it is {type(answer).__name__}, not true or false".encode(), work_us)

    def forget(self, messages: Iterable[int]) -> None:
        """Keep nothing of these messages (sequences)."""
        for sequence in messages:
            context = self._contexts.pop(sequence, None)
            if context is not None:
                self._bytes -= context.size_bytes

    def _make_room(self, size_bytes: int) -> None:
        """The newest context, or so many bytes more of one, are kept: others may have to go."""
        self._bytes += size_bytes
        while len(self._contexts) > 1 and (len(self._contexts) > _KEPT or self._bytes > _KEPT_BYTES_MAX):
            _, oldest = self._contexts.popitem(last=False)
            self._bytes -= oldest.size_bytes


def _words(error: BaseException) -> bytes:
    """The first line of what went wrong: of a missing name the name alone, which says too little."""
    said = str(error).strip().partition("\n")[0]
    text = f"no such name: {said}" if isinstance(error, KeyError) else said or type(error).__name__
    return text.encode(errors="replace")[: limits.response_bytes_kept]


def _at(document: Any, path: Path) -> Any:
    """The value of the document that ``_part`` takes for this path."""
    for name in path:
        if not isinstance(document, dict):
            break
        document = document.get(name)
    return document


def _part(document: Any, paths: Iterable[Path]) -> Any:
    """The document with no more than what stands at these paths. What is no object is taken whole: then looking up a
    name in it goes wrong as it does in the document."""
    if () in paths or not isinstance(document, dict):
        return document
    deeper: dict[str, set[Path]] = {}
    for path in paths:
        deeper.setdefault(path[0], set()).add(path[1:])
    return {name: _part(document[name], rest) for name, rest in deeper.items() if name in document}


def count_values(document: Any, most: int) -> int:
    """How many values there are in a JSON document, it among them; it stops counting beyond ``most``."""
    count = 0
    open_ = [document]
    while open_ and count <= most:
        value = open_.pop()
        count += 1
        if isinstance(value, dict):
            open_ += value.values()
        elif isinstance(value, list):
            open_ += value
    return count
