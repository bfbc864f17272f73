"""A client of the broker, over HTTP: publish, wait, consume, verify.

    async with Client("http://127.0.0.1:10000") as broker:
        customer = await broker.publish("shop", {"customer": 1})
        await broker.publish("shop", {"card": 1}, parents=[customer])

``Client`` is for asyncio, ``SyncClient`` for everything else; both have the same words. ``verify`` checks the signature
of a webhook. It needs nothing of the broker but its address.
"""

from syncbrok.client.client import Client
from syncbrok.client.errors import BadSignature, ClientError, Refused, Unreachable
from syncbrok.client.messages import Draft, Pending, Published
from syncbrok.client.received import Received, Refuse
from syncbrok.client.sync import SyncClient
from syncbrok.client.webhooks import check_secret, verify

__all__ = [
    "BadSignature",
    "Client",
    "ClientError",
    "Draft",
    "Pending",
    "Published",
    "Received",
    "Refuse",
    "Refused",
    "SyncClient",
    "Unreachable",
    "check_secret",
    "verify",
]
