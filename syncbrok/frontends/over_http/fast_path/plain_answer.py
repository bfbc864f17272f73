"""The answers to plain messages that became durable together: the bytes that ``publish.receipt`` and aiohttp would
make of each, in a tenth of the time."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import orjson

from syncbrok.frontends.over_http.publishing.publish import ALWAYS
from syncbrok.frontends.over_http.requests.gate import SERVER
from syncbrok.frontends.over_http.requests.routes import JSON
from syncbrok.frontends.over_http.requests.surface import SYNC
from syncbrok.model.names import id_text
from syncbrok.space.channels import Accepted, PlainKind

_ID_BYTES: Final = 16


def status_of(receipt: Accepted) -> int:
    return 201 if receipt.sync == ALWAYS else 202


def answers(
    status_line: str, kinds: Sequence[PlainKind], receipt: Accepted, states: Sequence[str], date: str
) -> list[bytes]:
    """One for each message: whole, head and body. ``kinds`` and ``states`` have what is told of each, ``date`` is the
    header's."""
    begin = f"HTTP/1.1 {status_line}\r\nContent-Type: {JSON}\r\nLocation: /v1/messages/"
    middle = f"\r\n{SYNC}: {receipt.sync}\r\nServer: {SERVER}\r\nContent-Length: "
    end = f"\r\nDate: {date}\r\n\r\n"
    ids, first = receipt.id_bytes, receipt.first
    made = []
    for place, (kind, state) in enumerate(zip(kinds, states, strict=True)):
        id_ = id_text(ids[_ID_BYTES * place : _ID_BYTES * (place + 1)])
        quoted, surplus_bytes = _quoted(kind[0])
        body = f'{{"id":"{id_}","queue":{quoted},"sequence":{first + place},"state":"{state}","parents":[]}}'
        made.append(f"{begin}{id_}{middle}{len(body) + surplus_bytes}{end}{body}".encode())
    return made


@lru_cache(1_024)
def _quoted(queue: str) -> tuple[str, int]:
    """A queue's name as JSON, and how many bytes it has more than characters."""
    written = orjson.dumps(queue)
    text = written.decode()
    return text, len(written) - len(text)
