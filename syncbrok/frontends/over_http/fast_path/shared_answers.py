"""The answers to publishes that became durable together and share a receipt: the bytes that ``publish.receipt`` and
aiohttp would make of each, in a tenth of the time."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import orjson

from syncbrok.frontends.over_http.publishing.publish import ALWAYS
from syncbrok.frontends.over_http.requests.gate import SERVER
from syncbrok.frontends.over_http.requests.routes import JSON
from syncbrok.frontends.over_http.requests.surface import SYNC
from syncbrok.model.names import id_text
from syncbrok.space.channels import Accepted, Publish

_ID_BYTES: Final = 16


def status_of(receipt: Accepted) -> int:
    """201, 200 where nothing is new, 202 under a weaker policy."""
    if receipt.known and len(receipt.known) * _ID_BYTES == len(receipt.id_bytes):
        return 200
    return 201 if receipt.sync == ALWAYS else 202


def answers(
    status_line: str, units: Sequence[Publish], receipt: Accepted, states: Sequence[str], date: str
) -> list[bytes]:
    """One for each message: whole, head and body. ``units`` and ``states`` have what is told of each, ``date`` is the
    header's."""
    begin = f"HTTP/1.1 {status_line}\r\nContent-Type: {JSON}\r\nLocation: /v1/messages/"
    middle = f"\r\n{SYNC}: {receipt.sync}\r\nServer: {SERVER}\r\nContent-Length: "
    end = f"\r\nDate: {date}\r\n\r\n"
    ids, sequences, parents_of = receipt.id_bytes, sequences_of(receipt), receipt.parents
    parents = ""
    made = []
    for place, (unit, sequence, state) in enumerate(zip(units, sequences, states, strict=True)):
        id_ = id_text(ids[_ID_BYTES * place : _ID_BYTES * (place + 1)])
        quoted, surplus_bytes = _quoted(unit[0])
        if parents_of:
            parents = ",".join([f'"{id_text(parent)}"' for parent in parents_of.get(place, ())])
        body = f'{{"id":"{id_}","queue":{quoted},"sequence":{sequence},"state":"{state}","parents":[{parents}]}}'
        made.append(f"{begin}{id_}{middle}{len(body) + surplus_bytes}{end}{body}".encode())
    return made


def sequences_of(receipt: Accepted) -> Sequence[int]:
    """As ``Accepted.sequences``, with nothing made for messages that are all new."""
    if receipt.known:
        return receipt.sequences
    return range(receipt.first, receipt.first + len(receipt.id_bytes) // _ID_BYTES)


@lru_cache(1_024)
def _quoted(queue: str) -> tuple[str, int]:
    """A queue's name as JSON, and how many bytes it has more than characters."""
    written = orjson.dumps(queue)
    text = written.decode()
    return text, len(written) - len(text)
