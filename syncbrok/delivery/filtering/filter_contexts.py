"""Evaluates filters over the variables of a message, each made once for all filters and only if one names it.

Making a variable costs more than evaluating: 1.5 us for each value in it. So of the content only the parts are taken
that some filter looks at, and a message that goes to many subscribers has one context for all of them. Pure.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import orjson

from syncbrok.delivery.filtering.filter_source import Path
from syncbrok.delivery.filtering.message_filter import MessageFilter, library
from syncbrok.model import limits
from syncbrok.model.facts import Reason, StoredMessage

_KEPT: Final = 64
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
    """The variables of one message, as far as they were named."""

    __slots__ = ("_document", "_parsed", "made", "message", "names", "paths", "queue", "values")

    def __init__(self, message: StoredMessage, queue: str) -> None:
        self.message = message
        self.queue = queue
        self.made = library().Context()
        self.names: set[str] = set()
        self.paths: frozenset[Path] = frozenset()
        self.values = 0
        """in the part of ``data`` that was made"""
        self._parsed = False
        self._document: Any = None

    def add(self, wanted: MessageFilter) -> int:
        """Make what the filter names; about how long that took, in microseconds."""
        source = wanted.source
        work_us = 0
        for name in source.variables - self.names:
            if name != "data":
                self.made.add_variable(name, getattr(self, f"_{name}")())
                self.names.add(name)
                work_us += 3
        if "data" in source.variables and not source.paths <= self.paths:
            paths = self.paths | source.paths
            part = _part(self._data(), paths)
            self.values = count_values(part, _VALUES_MAX)
            if self.values <= _VALUES_MAX:
                self.made.add_variable("data", part)
                self.names.add("data")
                self.paths = paths
            work_us += _US_A_VALUE * min(self.values, _VALUES_MAX) + len(self.message.content) // 500
        return work_us

    def _data(self) -> Any:
        if not self._parsed:
            self._parsed = True
            if len(self.message.content) <= limits.filter_data_bytes_max:
                try:
                    self._document = orjson.loads(self.message.content)
                except orjson.JSONDecodeError:
                    self._document = None
        return self._document

    def _queue(self) -> str:
        return self.queue

    def _key(self) -> str:
        return self.message.key

    def _content_type(self) -> str:
        return self.message.content_type

    def _size(self) -> int:
        return len(self.message.content)

    def _headers(self) -> dict[str, str]:
        return dict(self.message.headers)

    def _ce(self) -> dict[str, str]:
        return {name[len(_CE) :]: unquote(value) for name, value in self.message.headers if name.startswith(_CE)}


class FilterContexts:
    """Evaluates filters. Keeps the contexts of the messages seen last, at most 64 and 1 MiB of content."""

    def __init__(self) -> None:
        self._contexts: OrderedDict[int, _MessageContext] = OrderedDict()
        self._bytes = 0

    def verdict(self, wanted: MessageFilter, message: StoredMessage, queue: str) -> FilterVerdict:
        """The filter's answer for a message of the queue of this name."""
        context = self._contexts.get(message.sequence)
        if context is None:
            context = self._keep(_MessageContext(message, queue))
        try:
            work_us = context.add(wanted)
            tokens = wanted.source.tokens
            if context.values > _VALUES_MAX or tokens * context.values > _WORK_MAX:
                return FilterVerdict(Reason.FILTER_ERROR, b"its content has too many values for this filter", work_us)
            answer = wanted.program.execute(context.made)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a panic of the library is no Exception
            return FilterVerdict(Reason.FILTER_ERROR, _words(error), 50)
        work_us += tokens * context.values // _TOKENS_A_US
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
                self._bytes -= len(context.message.content)

    def _keep(self, context: _MessageContext) -> _MessageContext:
        self._contexts[context.message.sequence] = context
        self._bytes += len(context.message.content)
        while len(self._contexts) > 1 and (len(self._contexts) > _KEPT or self._bytes > _KEPT_BYTES_MAX):
            _, oldest = self._contexts.popitem(last=False)
            self._bytes -= len(oldest.message.content)
        return context


def _words(error: BaseException) -> bytes:
    """The first line of what went wrong: of a missing name the name alone, which says too little."""
    said = str(error).strip().partition("\n")[0]
    text = f"no such name: {said}" if isinstance(error, KeyError) else said or type(error).__name__
    return text.encode(errors="replace")[: limits.response_bytes_kept]


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
