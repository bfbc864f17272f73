"""Checking a webhook: Standard Webhooks 1.0, as the broker signs (INTERFACES 3)."""

import base64
import hmac
import time
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Protocol

from syncbrok.client.errors import BadSignature

SECRET_BYTES_MIN = 24
"""of a key: the least that Standard Webhooks 1.0 takes; a shorter one can be guessed, the empty one everybody has"""
_PREFIX = "whsec_"
_PUBLIC_PREFIX = "whpk_"
_PUBLIC_BYTES = 32

Verifier = Callable[[bytes, bytes], bool]
"""whether the second is a signature of the first"""


class Headers(Protocol):
    """A mapping, or what a web framework has instead."""

    def items(self) -> Iterable[tuple[str, str]]: ...


def check_secret(secret: str) -> str:
    """``secret`` as given, where it is one: ``whsec_`` and base64 of 24 bytes or more, or a public key (``whpk_...``)
    as the broker shows it. Raises ``ValueError``, which does not repeat it, for any other, an empty one too. For the
    start of a receiver: better it does not start than that it believes everybody."""
    _verifier(secret)
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
    (``whsec_...``, two while one is being rotated; or ``whpk_...``, the public key of ``v1a``). ``body`` must be the
    bytes as they came. ``tolerance_s`` is how old the attempt may be, against replays by others. Raises
    ``BadSignature``, and ``ValueError`` for a secret that is none or has less than 24 bytes (see ``check_secret``), or
    where there is no secret."""
    verifiers = [_verifier(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    if not verifiers:
        raise ValueError("no secret is given: without one nothing can be told to be genuine")
    given = {name.lower(): value for name, value in headers.items()}
    id_, timestamp, signatures = (given.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not (id_ and timestamp and signatures):
        raise BadSignature("it is not signed: webhook-id, webhook-timestamp and webhook-signature are needed")
    _check_time(timestamp, tolerance_s, time.time() if now_s is None else now_s)
    signed = f"{id_}.{timestamp}.".encode() + body
    for version, encoded in (one.partition(",")[::2] for one in signatures.split(" ")):
        try:
            signature = base64.b64decode(encoded, validate=True)
        except ValueError:
            continue
        if base64.b64encode(signature) != encoded.encode():
            continue  # another text for the same bytes
        if any(version == known and verifies(signed, signature) for known, verifies in verifiers):
            return id_
    raise BadSignature("the signature is not that of this body under this secret")


def _check_time(timestamp: str, tolerance_s: float, now_s: float) -> None:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15):
        raise BadSignature("webhook-timestamp is not a number of seconds")
    if abs(now_s - int(timestamp)) > tolerance_s:
        raise BadSignature(f"webhook-timestamp is more than {tolerance_s:g} s away from now")


def _verifier(secret: str) -> tuple[str, Verifier]:
    """The version of the signatures that it verifies, and how."""
    if secret.strip().startswith(_PUBLIC_PREFIX):
        return "v1a", _by_public_key(secret.strip().removeprefix(_PUBLIC_PREFIX))
    key = _key(secret)
    return "v1", lambda signed, signature: hmac.compare_digest(hmac.digest(key, signed, sha256), signature)


def _by_public_key(encoded: str) -> Verifier:
    # Imported where it is needed: nine of ten receivers have a secret, and importing it takes as long as all else.
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(encoded, validate=True))
    except ValueError:
        what = f"a public key is {_PUBLIC_PREFIX} and base64 of {_PUBLIC_BYTES} bytes, as the broker shows it"
        raise ValueError(what) from None

    def verifies(signed: bytes, signature: bytes) -> bool:
        try:
            key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True

    return verifies


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
