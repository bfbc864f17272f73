"""A message before it is published, and the answer to its publish."""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

Content = str | bytes | Mapping[str, Any] | list[Any]
"""text goes as text, bytes as they are, anything else as JSON"""


class Published(NamedTuple):
    """A message the broker has on its disk. Give it as a parent."""

    id: str
    queue: str


class Pending:
    """A message on its way. Awaiting it gives the ``Published``; give it as a parent without awaiting."""

    __slots__ = ("future", "line", "parents", "queue")

    def __init__(
        self, queue: str, line: bytes, parents: "tuple[Parent, ...]", future: "asyncio.Future[Published]"
    ) -> None:
        self.queue = queue
        self.line = line
        """as it stands in a batch, but for its parents"""
        self.parents = parents
        self.future = future

    def __await__(self) -> Any:
        return self.future.__await__()


Parent = Published | Pending | str
"""a message, or the id of one"""


class Draft(NamedTuple):
    """A message to publish, for ``publish_many``. ``parents`` go first; ``key`` orders; ``delay_s`` counts from
    acceptance; ``parent_failure`` is ``fail``, ``hold`` or ``deliver``; ``erase_after_s``: so long after its end the
    content is erased."""

    content: Content
    parents: "tuple[Parent, ...]" = ()
    key: str = ""
    idempotency_key: str = ""
    headers: Mapping[str, str] | None = None
    delay_s: float | None = None
    parent_failure: str | None = None
    erase_after_s: float | None = None

    def line(self, idempotency_key: str) -> bytes:
        """The line of a batch (NDJSON) without parents and line feed. Raises ``TypeError``."""
        content, parents, key, _, headers, delay_s, parent_failure, erase_after_s = self
        fields: dict[str, Any] = _content(content)
        if idempotency_key:
            fields["idempotency_key"] = idempotency_key
        if key:
            fields["key"] = key
        if headers:
            fields["headers"] = dict(headers)
        if delay_s is not None:
            fields["delay"] = delay_s
        if parent_failure is not None:
            fields["parent_failure"] = parent_failure
        if erase_after_s is not None:
            fields["erase_after"] = erase_after_s
        for parent in parents:
            if not isinstance(parent, Published | Pending | str):
                raise TypeError(f"a parent is a message or the id of one, not {type(parent).__name__}")
        return orjson.dumps(fields)


def bare_line(content: Content, idempotency_key: str) -> bytes:
    """As ``Draft.line`` for a content alone."""
    fields = {"content": content} if content.__class__ is str else _content(content)
    if idempotency_key:
        fields["idempotency_key"] = idempotency_key
    return orjson.dumps(fields)


def with_parents(line: bytes, parents: list[str]) -> bytes:
    """The line with these parents added."""
    return b'%s,"parents":%s}' % (line[:-1], orjson.dumps(parents))


def _content(content: Content) -> dict[str, Any]:
    if isinstance(content, str):
        return {"content": content}
    if isinstance(content, bytes | bytearray | memoryview):
        return {"content_base64": base64.b64encode(content).decode()}
    return {"data": content}
