"""The answers to plain messages that became durable together: the bytes that ``publish.receipt`` and aiohttp would
make of each, in a tenth of the time."""

from collections.abc import Sequence
from typing import Final

from syncbrok.frontends.over_http.gate import SERVER
from syncbrok.frontends.over_http.publish import ALWAYS
from syncbrok.frontends.over_http.routes import JSON
from syncbrok.frontends.over_http.surface import SYNC
from syncbrok.model.names import id_text
from syncbrok.space.channels import AcceptedPlain, PlainKind

_ID_BYTES: Final = 16


def status_of(receipt: AcceptedPlain) -> int:
    return 201 if receipt.sync == ALWAYS else 202


def answers(
    status_line: str, kinds: Sequence[PlainKind], receipt: AcceptedPlain, states: Sequence[str], date: str
) -> list[bytes]:
    """One for each message: whole, head and body. ``kinds`` and ``states`` have what is told of each, ``date`` is the
    header's."""
    begin = f"HTTP/1.1 {status_line}\r\nContent-Type: {JSON}\r\nLocation: /v1/messages/"
    middle = f"\r\n{SYNC}: {receipt.sync}\r\nServer: {SERVER}\r\nContent-Length: "
    end = f"\r\nDate: {date}\r\n\r\n"
    ids, first = receipt.ids, receipt.first
    made = []
    for place, (kind, state) in enumerate(zip(kinds, states, strict=True)):
        id_ = id_text(ids[_ID_BYTES * place : _ID_BYTES * (place + 1)])
        body = f'{{"id":"{id_}","queue":"{kind[0]}","sequence":{first + place},"state":"{state}","parents":[]}}'
        made.append(f"{begin}{id_}{middle}{len(body)}{end}{body}".encode("ascii"))
    return made
