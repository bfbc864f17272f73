"""What is published, and what is known of it afterwards."""

import asyncio
import base64
from collections.abc import Iterable, Mapping
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

    __slots__ = ("draft", "future", "queue")

    def __init__(self, queue: str, draft: "Draft", future: "asyncio.Future[Published]") -> None:
        self.queue = queue
        self.draft = draft
        self.future = future

    def __await__(self) -> Any:
        return self.future.__await__()


Parent = Published | Pending | str
"""a message, or the id of one"""


class Draft(NamedTuple):
    """A message to publish, for ``publish_many``. ``parents`` go first; ``key`` orders; ``delay_s`` counts from
    acceptance; ``parent_failure`` is ``fail``, ``hold`` or ``deliver``."""

    content: Content
    parents: "tuple[Parent, ...]" = ()
    key: str = ""
    idempotency_key: str = ""
    headers: Mapping[str, str] | None = None
    delay_s: float | None = None
    parent_failure: str | None = None

    def line(self, parents: Iterable[str], idempotency_key: str) -> bytes:
        """The line of a batch (NDJSON), without the line feed."""
        fields: dict[str, Any] = _content(self.content)
        written = list(parents)
        if written:
            fields["parents"] = written
        if idempotency_key:
            fields["idempotency_key"] = idempotency_key
        if self.key:
            fields["key"] = self.key
        if self.headers:
            fields["headers"] = dict(self.headers)
        if self.delay_s is not None:
            fields["delay"] = self.delay_s
        if self.parent_failure is not None:
            fields["parent_failure"] = self.parent_failure
        return orjson.dumps(fields)


def _content(content: Content) -> dict[str, Any]:
    if isinstance(content, str):
        return {"content": content}
    if isinstance(content, bytes | bytearray | memoryview):
        return {"content_base64": base64.b64encode(content).decode()}
    return {"data": content}
