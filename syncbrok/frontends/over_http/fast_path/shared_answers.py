"""The answers to publishes that became durable together and share a receipt: the bytes that ``publish.answer_of`` and
aiohttp would make of each, in a tenth of the time."""

from binascii import hexlify
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

import orjson

from syncbrok.frontends.over_http.requests.context import SYNC
from syncbrok.frontends.over_http.requests.middleware import JSON_LINES, SERVER
from syncbrok.frontends.over_http.requests.routes import JSON
from syncbrok.model.names import id_text
from syncbrok.space.channels import Accepted, Publish

_ID_BYTES: Final = 16
_BODY: Final = b'{"id":"%b","queue":%b,"sequence":%d,"state":"%b","parents":[%b]}'
_id_pieces: Final = Struct("8s4s4s4s12s").iter_unpack
"""the digits of each id as they stand between its dashes"""


def answers(
    status_line: str,
    units: Sequence[Publish],
    receipt: Accepted,
    states: Sequence[str],
    date: str,
    more: str = "",
) -> list[bytes]:
    """A whole answer, head and body, for each message. ``units`` and ``states`` have the fields that differ; ``date``
    is the header's, ``more`` whole lines of headers."""
    begin = f"HTTP/1.1 {status_line}\r\nContent-Type: {JSON}\r\nLocation: /v1/messages/".encode()
    middle = f"\r\n{SYNC}: {receipt.sync}\r\nServer: {SERVER}\r\n{JSON_LINES}{more}Content-Length: ".encode()
    end = f"\r\nDate: {date}\r\n\r\n".encode()
    ids = map(b"-".join, _id_pieces(hexlify(receipt.id_bytes)))
    parents_of, parents = receipt.parents, b""
    made = []
    for place, (unit, id_, sequence, state) in enumerate(zip(units, ids, sequences_of(receipt), states, strict=True)):
        if parents_of:
            parents = ",".join([f'"{id_text(parent)}"' for parent in parents_of.get(place, ())]).encode()
        body = _BODY % (id_, _quoted(unit[0]), sequence, state.encode(), parents)
        made.append(b"%b%b%b%d%b%b" % (begin, id_, middle, len(body), end, body))
    return made


def sequences_of(receipt: Accepted) -> Sequence[int]:
    """As ``Accepted.sequences``, with nothing made for messages that are all new."""
    if receipt.known:
        return receipt.sequences
    return range(receipt.first, receipt.first + len(receipt.id_bytes) // _ID_BYTES)


@lru_cache(1_024)
def _quoted(queue: str) -> bytes:
    """A queue's name as JSON. A copy: what orjson makes keeps 4 KiB for as long as it lives."""
    return b"%b" % orjson.dumps(queue)
