"""A client of the broker, over HTTP: publish, wait, consume, verify.

    async with Client("http://127.0.0.1:10000") as broker:
        customer = await broker.publish("shop", {"customer": 1})
        await broker.publish("shop", {"card": 1}, parents=[customer])

``Client`` is for asyncio, ``SyncClient`` for everything else; both have the same words. ``Connection`` asks one thing
at a time and leaves the answer to whoever asks. ``verify`` checks the signature of a webhook. It needs nothing of the
broker but its address.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from syncbrok.client.client import Client
    from syncbrok.client.connection import Answer, Connection
    from syncbrok.client.errors import BadSignature, ClientError, Refused, Unreachable
    from syncbrok.client.inbox import Inbox
    from syncbrok.client.messages import Draft, Pending, Published
    from syncbrok.client.received import Received, Refuse, messages_of
    from syncbrok.client.sync import SyncClient
    from syncbrok.client.webhooks import check_secret, verify

__all__ = [
    "Answer",
    "BadSignature",
    "Client",
    "ClientError",
    "Connection",
    "Draft",
    "Inbox",
    "Pending",
    "Published",
    "Received",
    "Refuse",
    "Refused",
    "SyncClient",
    "Unreachable",
    "check_secret",
    "messages_of",
    "verify",
]

_IN: Final = {
    "client": ("Client",),
    "connection": ("Answer", "Connection"),
    "errors": ("BadSignature", "ClientError", "Refused", "Unreachable"),
    "inbox": ("Inbox",),
    "messages": ("Draft", "Pending", "Published"),
    "received": ("Received", "Refuse", "messages_of"),
    "sync": ("SyncClient",),
    "webhooks": ("check_secret", "verify"),
}
_MODULES: Final = {name: module for module, names in _IN.items() for name in names}


def __getattr__(name: str) -> Any:
    """Each is imported when it is asked for: aiohttp takes a third of a second, which a command and a receiver that
    only verifies do not need."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return found
