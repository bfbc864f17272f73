"""Signatures of Standard Webhooks 1.0: ``v1,`` and the base64 of HMAC-SHA256 over ``{id}.{timestamp}.{body}``.

While a secret is being rotated there are two, and a request carries one signature for each, separated by a space.
"""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from hmac import digest

from syncbrok.model.units import SECRET_PREFIX, parse_secret


def secret_key(secret: str) -> bytes:
    """The key bytes of a secret as people write it, ``whsec_...``; raises ``BadSetting``, never showing it."""
    return b64decode(parse_secret(secret).removeprefix(SECRET_PREFIX))


def signatures(keys: Sequence[bytes], message_id: str, timestamp_s: str, body: bytes) -> str:
    """The value of ``webhook-signature``: one signature per key, in the order of the keys. ``timestamp_s`` is the
    Unix time of the attempt in seconds, as it stands in ``webhook-timestamp``."""
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    return " ".join("v1," + b64encode(digest(key, signed, "sha256")).decode("ascii") for key in keys)
