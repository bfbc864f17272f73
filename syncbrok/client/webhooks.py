"""Checking a webhook: Standard Webhooks 1.0, as the broker signs (INTERFACES 3)."""

import base64
import hmac
import time
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Protocol

from syncbrok.client.errors import BadSignature

SECRET_BYTES_MIN = 24
"""of a key: the least that Standard Webhooks 1.0 takes; a shorter one can be guessed, the empty one everybody has"""
_PREFIX = "whsec_"


class Headers(Protocol):
    """A mapping, or what a web framework has instead."""

    def items(self) -> Iterable[tuple[str, str]]: ...


def check_secret(secret: str) -> str:
    """``secret`` as given, where it is one: ``whsec_`` and base64 of 24 bytes or more. Raises ``ValueError``, which
    does not repeat it, for any other, an empty one too. For the start of a receiver: better it does not start than
    that it believes everybody."""
    _key(secret)
    return secret


def verify(
    body: bytes,
    headers: Headers,
    secrets: str | Sequence[str],
    *,
    tolerance_s: float = 300.0,
    now_s: float | None = None,
) -> str:
    """The id of the message, once the signature over ``{id}.{timestamp}.{body}`` is right under one of ``secrets``
    (``whsec_...``; two while one is being rotated). ``body`` must be the bytes as they came. ``tolerance_s`` is how old
    the attempt may be, against replays by others. Raises ``BadSignature``, and ``ValueError`` for a secret that is
    none or has less than 24 bytes (see ``check_secret``), or where there is no secret."""
    keys = [_key(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    if not keys:
        raise ValueError("no secret is given: without one nothing can be told to be genuine")
    given = {name.lower(): value for name, value in headers.items()}
    id_, timestamp, signatures = (given.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (id_ and timestamp and signatures):
        raise BadSignature("it is not signed: webhook-id, webhook-timestamp and webhook-signature are needed")
    _check_time(timestamp, tolerance_s, time.time() if now_s is None else now_s)
    signed = f"{id_}.{timestamp}.".encode() + body
    for key in keys:
        right = hmac.new(key, signed, sha256).digest()
        for signature in signatures.split(" "):
            version, _, encoded = signature.partition(",")
            if version == "v1" and hmac.compare_digest(base64.b64encode(right), encoded.encode("utf-8", "replace")):
                return id_
    raise BadSignature("the signature is not that of this body under this secret")


def _check_time(timestamp: str, tolerance_s: float, now_s: float) -> None:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15):
        raise BadSignature("webhook-timestamp is not a number of seconds")
    if abs(now_s - int(timestamp)) > tolerance_s:
        raise BadSignature(f"webhook-timestamp is more than {tolerance_s:g} s away from now")


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.strip().removeprefix(_PREFIX), validate=True)
    except ValueError:  # binascii.Error is one; so is what is not ASCII
        raise ValueError("a secret is whsec_ and base64, as the broker was given it") from None
    if len(key) < SECRET_BYTES_MIN:
        raise ValueError(
            f"a secret is whsec_ and base64 of {SECRET_BYTES_MIN} bytes or more, this one has {len(key)}: "
            "with it anybody could sign"
        )
    return key
