"""Signatures of Standard Webhooks 1.0: ``v1,`` and the base64 of HMAC-SHA256 over ``{id}.{timestamp}.{body}``; and
those of other senders, in a header and a form of their own.

While a secret is being rotated there are two, and a request carries one signature for each, separated by a space.
"""

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Protocol

from syncbrok.model.message import Signature
from syncbrok.model.signature_settings import pieces
from syncbrok.model.units import SECRET_BYTES_MIN, SECRET_PREFIX, parse_secret

_BLOCK_BYTES = 64
_PIECE_BYTES = 2_047
"""``hashlib`` lets others have the interpreter while it looks at more than this: to get it back from a thread that
reads the log takes longer than the looking"""


def secret_key(secret: str, bytes_min: int = SECRET_BYTES_MIN) -> bytes:
    """The key bytes of a secret as people write it, ``whsec_...``; raises ``BadSetting``, never showing it. For
    ``bytes_min`` see ``parse_secret``."""
    return b64decode(parse_secret(secret, bytes_min).removeprefix(SECRET_PREFIX))


class SignerLike(Protocol):
    """Makes one of the signatures in ``webhook-signature``."""

    def sign(self, begin: bytes, body: bytes) -> str:
        """One signature over ``begin`` and ``body``, one after the other."""


class Signer:
    """Signs with one key. The two hashes of HMAC (RFC 2104) are begun once and copied for each message, which takes
    half the time of ``hmac.digest``."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = (key if len(key) <= _BLOCK_BYTES else hashlib.sha256(key).digest()).ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def sign(self, begin: bytes, body: bytes) -> str:
        """One signature over ``begin`` and ``body``, one after the other."""
        inner = self._inner.copy()
        inner.update(begin)
        if len(body) <= _PIECE_BYTES:
            inner.update(body)
        else:
            view = memoryview(body)
            for at in range(0, len(body), _PIECE_BYTES):
                inner.update(view[at : at + _PIECE_BYTES])
        outer = self._outer.copy()
        outer.update(inner.digest())
        return "v1," + b2a_base64(outer.digest(), newline=False).decode("ascii")


def signed_begin(message_id: str, timestamp_s: str) -> bytes:
    """The bytes that are signed before those of the body. ``timestamp_s`` is the Unix time of the attempt in seconds,
    as it stands in ``webhook-timestamp``."""
    return f"{message_id}.{timestamp_s}.".encode()


class HeaderSigner:
    """Signs in a header of its own, as a sender does that people come from (``hmac`` among the ``signatures`` of a
    subscriber). The bytes of ``secret`` are the key, as they are."""

    __slots__ = ("_after", "_before", "_form", "_hash", "_key", "header")

    def __init__(self, signature: Signature, secret: str) -> None:
        self.header = signature.header
        self._hash = signature.hash
        self._key = secret.encode("utf-8", "surrogateescape")
        self._form = pieces(signature.form)
        signed = pieces(signature.signed)
        at = [place for _, place in signed].index("body")
        self._before = [*signed[:at], (signed[at][0], "")]
        self._after = signed[at + 1 :]

    def line(self, message_id: str, timestamp_s: str, body: bytes) -> str:
        """The header's line. ``timestamp_s``: that of ``webhook-timestamp``."""
        values = {"": "", "id": message_id, "timestamp": timestamp_s}
        signed = b"%b%b%b" % (_filled(self._before, values).encode(), body, _filled(self._after, values).encode())
        digest = hmac.digest(self._key, signed, self._hash)
        values |= {"hex": digest.hex(), "base64": b64encode(digest).decode("ascii")}
        return f"{self.header}: {_filled(self._form, values)}\r\n"


def _filled(form: Sequence[tuple[str, str]], values: dict[str, str]) -> str:
    return "".join([text + values[place] for text, place in form])


def signatures(signers: Sequence[SignerLike], begin: bytes, body: bytes) -> str:
    """The value of ``webhook-signature``: one signature per signer, in their order; ``begin``: see ``signed_begin``."""
    return " ".join([signer.sign(begin, body) for signer in signers])
