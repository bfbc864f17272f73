"""How a node shows another one that it is a node: it signs what it asks for with the key of the cluster.

    Authorization: Syncbrok-Node <HMAC-SHA-256 of "METHOD path", hexadecimal>
    Content-Digest: sha-256=:...:                      (of a request with a body; "METHOD path digest" is signed then)

The signature is for one request and has no time in it, since nodes' clocks need not agree. Who overhears one without
TLS can ask for what it has overheard already, and for nothing else: what a node sends is signed with its digest (RFC
9530), and is such that sending it again changes nothing. While keys are changed a node knows several, signs with
the first, and asks again with the next where that is not known yet.
"""

import hashlib
import hmac
from pathlib import Path
from typing import Final

from syncbrok.cluster.vault import read_keys

SCHEME: Final = "Syncbrok-Node"


class PeerSignature:
    """The signatures of the requests between the nodes of one space. ``refresh`` reads the keys, in a thread;
    everything else may be called from any, the event loop's too."""

    def __init__(self, key: Path, space: str) -> None:
        self._key = key
        self._space = space
        self._keys: tuple[bytes, ...] = ()

    def refresh(self) -> None:
        """Read the file of the key again. Raises ``BadConfig``; then what was read before stays."""
        purpose = f"syncbrok nodes of the space {self._space}".encode()
        self._keys = tuple(hmac.digest(key, purpose, hashlib.sha256) for key in read_keys(self._key))

    def authorizations(self, method: str, path: str, digest: str = "") -> list[str]:
        """Authorization headers for this request, the one to try first before the others. ``digest``: its header
        ``Content-Digest``, where it has a body."""
        return [f"{SCHEME} {_signed(key, method, path, digest)}" for key in self._keys]

    def is_node(self, authorization: str, method: str, path: str, digest: str = "") -> bool:
        """Whether a node has signed this request. That the body is what ``digest`` says is for others to see to."""
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != SCHEME.lower():
            return False
        known = [hmac.compare_digest(_signed(key, method, path, digest).encode(), given.encode()) for key in self._keys]
        return any(known)


def _signed(key: bytes, method: str, path: str, digest: str) -> str:
    return hmac.digest(key, f"{method} {path}{digest and ' '}{digest}".encode(), hashlib.sha256).hex()
