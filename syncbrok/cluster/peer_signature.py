"""How a node shows another one that it is a node: it signs what it asks for with the key of the cluster.

    Authorization: Syncbrok-Node <HMAC-SHA-256 of "METHOD path", hexadecimal>

    Authorization: Syncbrok-Node <HMAC-SHA-256 of "METHOD path digest nonce"> <nonce>        (of one with a body)
    Content-Digest: sha-256=:...:                                                           (RFC 9530)

The signature is for one request and has no time in it, since nodes' clocks need not agree. Who overhears one without
TLS can ask for what it has overheard already, and for nothing else. What a node sends changes something, so it is for
once: the answer 401 to the first try has a nonce (``Syncbrok-Nonce``), which is over with the request that bears it.
While keys are changed a node knows several, signs with the first, and asks again with the next where that is not known
yet.
"""

import hashlib
import hmac
import secrets
import threading
from pathlib import Path
from typing import Final

from syncbrok.cluster.vault import read_keys

SCHEME: Final = "Syncbrok-Node"
NONCE: Final = "Syncbrok-Nonce"
_NONCE_BYTES: Final = 16


class PeerSignature:
    """The signatures of the requests between the nodes of one space. ``refresh`` reads the keys, in a thread;
    everything else may be called from any, the event loop's too."""

    def __init__(self, key: Path, space: str) -> None:
        self._key = key
        self._space = space
        self._keys: tuple[bytes, ...] = ()
        self._nonce = secrets.token_hex(_NONCE_BYTES)
        """which the next request with a body has to bear; another node's, and that of another run, is another one"""
        self._spending = threading.Lock()

    def refresh(self) -> None:
        """Read the file of the key again. Raises ``BadConfig``; then what was read before stays."""
        purpose = f"syncbrok nodes of the space {self._space}".encode()
        self._keys = tuple(hmac.digest(key, purpose, hashlib.sha256) for key in read_keys(self._key))

    def authorizations(self, method: str, path: str, digest: str = "", nonce: str = "") -> list[str]:
        """Authorization headers for this request, the one to try first before the others. ``digest``: its header
        ``Content-Digest``, where it has a body. ``nonce``: that of the answer to the try before."""
        behind = nonce and f" {nonce}"
        return [f"{SCHEME} {_signed(key, method, path, digest, nonce)}{behind}" for key in self._keys]

    def is_node(self, authorization: str, method: str, path: str, digest: str = "") -> bool:
        """Whether a node has signed this request; of one with a body (``digest``) once. That the body is what
        ``digest`` says is for others to see to."""
        scheme, _, signed = authorization.partition(" ")
        if scheme.lower() != SCHEME.lower():
            return False
        given, _, nonce = signed.partition(" ")
        known = [
            hmac.compare_digest(_signed(key, method, path, digest, nonce).encode(), given.encode())
            for key in self._keys
        ]
        return any(known) and (not digest or self._spend(nonce))

    def challenge(self) -> dict[str, str]:
        """Headers of the answer to a request with a body that was not believed."""
        return {NONCE: self._nonce}

    def _spend(self, nonce: str) -> bool:
        with self._spending:
            if not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
                return False
            self._nonce = secrets.token_hex(_NONCE_BYTES)
            return True


def _signed(key: bytes, method: str, path: str, digest: str, nonce: str) -> str:
    return hmac.digest(key, " ".join(filter(None, (method, path, digest, nonce))).encode(), hashlib.sha256).hex()
