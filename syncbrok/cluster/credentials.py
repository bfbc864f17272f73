"""The credentials with which a node comes to the engine, as a file says them: ``cluster.credentials``.

USER:PASSWORD                        one line: a user of the engine's own nats.conf
-----BEGIN NATS USER JWT----- ...    a file of NATS (``nsc``): a token, and the key that answers for it
"""

import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from syncbrok.model.errors import BadConfig

_BLOCKS: Final = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s+(\S+)\s+-{3,}END \1-{3,}")
_SEED_BYTES: Final = slice(2, 34)
"""of what a seed in base32 holds: behind two bytes that say whose it is, before two of a checksum"""


def login(path: Path | None) -> Mapping[str, Any]:
    """Arguments of ``nats.connect``; none without a file. Raises ``BadConfig`` for one that cannot be read, or holds
    neither form."""
    if path is None:
        return {}
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "it is not text"
        raise BadConfig(f"the credentials {path} cannot be read: {why}", key="cluster.credentials") from problem
    blocks = dict(_BLOCKS.findall(text))
    user, colon, password = text.partition(":")
    try:
        if blocks:
            return _with_token(blocks["NATS USER JWT"], blocks["USER NKEY SEED"])
        if colon and user and password and len(text.split()) == 1:
            return {"user": user, "password": password}
    except (KeyError, binascii.Error, ValueError):
        pass  # said below
    what = f"the credentials {path}: expected one line USER:PASSWORD, or a file of NATS with a token and its key"
    raise BadConfig(what, key="cluster.credentials")


def _with_token(token: str, seed: str) -> Mapping[str, Any]:
    """nats-py would want a library more for this one signature."""
    key = Ed25519PrivateKey.from_private_bytes(base64.b32decode(seed + "=" * (-len(seed) % 8))[_SEED_BYTES])
    return {
        "user": "-",  # is not sent: nats-py looks whether there is one before it signs
        "user_jwt_cb": lambda: bytearray(token.encode()),
        "signature_cb": lambda nonce: base64.b64encode(key.sign(nonce.encode())),
    }
