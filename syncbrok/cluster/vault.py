"""Seals what only the nodes of a cluster may read, for its way through the stream: AES-256-GCM with the key of the
cluster, a file that ``syncbrok cluster init`` makes and the operator copies to each node.

What is sealed is bound to the log, so that it cannot be put into the stream of another one.
"""

import base64
import os
import stat
from pathlib import Path
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from syncbrok.model.errors import BadConfig, LogDiverged

_PREFIX: Final = b"syncbrok-cluster-key-1:"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


def make_key(path: Path) -> None:
    """Write a new key, readable by its owner alone. Raises ``OSError``; ``FileExistsError`` where there is one."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(_PREFIX + base64.b64encode(os.urandom(_KEY_BYTES)) + b"\n")
        file.flush()
        os.fsync(file.fileno())


class Vault:
    """``log``: the log's 16 bytes. Made by ``open``."""

    def __init__(self, key: bytes, log: bytes) -> None:
        self._cipher = AESGCM(key)
        self._log = log

    @classmethod
    def open(cls, path: Path, log: bytes) -> Self:
        """Raises ``BadConfig`` where the file cannot be read, may be read by others, or holds no key."""
        try:
            data = path.read_bytes()
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError as problem:
            what = f"cluster.key: {path} cannot be read: {problem.strerror}"
            raise BadConfig(f"{what}; copy it from the node where `syncbrok cluster init` made it") from problem
        if mode & 0o077:
            raise BadConfig(f"{path} may be read by others (mode {mode:04o}); set it to 0600")
        try:
            key = base64.b64decode(data.strip().removeprefix(_PREFIX), validate=True)
        except ValueError:
            key = b""
        if not data.startswith(_PREFIX) or len(key) != _KEY_BYTES:
            raise BadConfig(f"{path} holds no key of a cluster; `syncbrok cluster init` makes one")
        return cls(key, log)

    def seal(self, secret: bytes) -> bytes:
        """``secret``, for the stream."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, secret, self._log)

    def unseal(self, sealed: bytes) -> bytes:
        """What was sealed. Raises ``LogDiverged`` where it was sealed with another key, or changed since."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._log)
        except InvalidTag as problem:
            what = "the secrets in the stream cannot be read with this node's cluster.key"
            raise LogDiverged(f"{what}: copy that of the other nodes here") from problem
