"""Signatures of Standard Webhooks by a key pair: ``v1a,`` and the base64 of ed25519 over ``{id}.{timestamp}.{body}``.

Receivers have the public key alone, so none of them can sign as the broker does. ``cryptography`` is loaded with the
first key: it takes 20 ms of a start, and few have one.
"""

from base64 import b64decode, b64encode
from binascii import b2a_base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PRIVATE = "whsk_"
_PUBLIC = "whpk_"


def make_key() -> str:
    """A private key as Standard Webhooks writes it: ``whsk_`` and base64."""
    return _PRIVATE + b64encode(_library().generate().private_bytes_raw()).decode()


def public_key(private_key: str) -> str:
    """The public key, ``whpk_`` and base64, of a private one as ``make_key`` made it."""
    return _PUBLIC + b64encode(_read(private_key).public_key().public_bytes_raw()).decode()


class KeySigner:
    """Signs with one private key; stands beside ``signing.Signer``."""

    __slots__ = ("_sign",)

    def __init__(self, private_key: str) -> None:
        self._sign = _read(private_key).sign

    def sign(self, begin: bytes, body: bytes) -> str:
        """One signature over ``begin`` and ``body``, one after the other."""
        return "v1a," + b2a_base64(self._sign(begin + body), newline=False).decode("ascii")


def _library() -> "type[Ed25519PrivateKey]":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    return Ed25519PrivateKey


def _read(private_key: str) -> "Ed25519PrivateKey":
    return _library().from_private_bytes(b64decode(private_key.removeprefix(_PRIVATE), validate=True))
