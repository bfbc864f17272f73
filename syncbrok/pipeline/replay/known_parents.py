"""Asks a broker which messages it still knows, one by one over kept-alive connections. A parent that it does not know
would have the publish refused (RULES 2)."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from syncbrok.client import Connection
from syncbrok.client.connection import Broken
from syncbrok.model.errors import BrokerFault, ClientFault
from syncbrok.pipeline.sink.publisher import PublishTarget

_CONNECTIONS: Final = 8
_SLICE: Final = 500
_TRIES: Final = 3
_KNOWN: Final = frozenset({200, 410})
"""410: retention has dropped it, and the broker still takes it as a parent"""
_UNKNOWN: Final = frozenset({400, 404, 422})


class CannotAsk(ClientFault):
    """Raised where the broker does not answer what it knows: no permission, or no broker."""

    slug = "cannot-ask"


def unknown_to(target: PublishTarget, ids: Sequence[str]) -> frozenset[str]:
    """The ``ids`` that the broker has never issued. Raises ``CannotAsk`` and ``BrokerFault``."""
    rest = iter(ids)
    slices = list(iter(lambda: list(islice(rest, _SLICE)), []))
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        return frozenset(one for found in pool.map(lambda some: list(_unknown(target, some)), slices) for one in found)


def _unknown(target: PublishTarget, ids: Sequence[str]) -> Iterator[str]:
    """Yield the ``ids`` that the broker has never issued, asked over one connection, which is dialled again where it
    breaks."""
    with Connection(target.urls, target.token, timeout_s=target.answer_timeout_s) as connection:
        for id_ in ids:
            for tried in range(_TRIES):
                try:
                    status = connection.request("GET", f"/v1/messages/{id_}").status
                    break
                except Broken as error:
                    if tried == _TRIES - 1:
                        raise BrokerFault(f"no broker answers at {target.url}: {error}") from None
            if status in _UNKNOWN:
                yield id_
            elif status not in _KNOWN:
                raise CannotAsk(
                    f"the broker answers {status} when it is asked for message {id_}: looking for parents "
                    "outside of the selection needs a token that may read (or select the parents too)"
                )
