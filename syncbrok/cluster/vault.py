"""Seals what only the nodes of a cluster may read, for its way through the stream: AES-256-GCM with the key of the
cluster, a file that ``syncbrok cluster init`` makes and the operator copies to each node.

What is sealed is bound to the log, so that it cannot be put into the stream of another one.

The file has a key a line. The first one seals, each of them unseals: so a new key is put before the old one and the
file copied to each node in turn, while the nodes run. It is read each time that it is needed.
"""

import base64
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from syncbrok.log.segments.files import sync_directory
from syncbrok.model.errors import BadConfig, LogDiverged

_PREFIX: Final = b"syncbrok-cluster-key-1:"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


def make_key(path: Path) -> None:
    """Write a new key, readable by its owner alone; it is on the disk when this returns, since what is sealed with it
    outlives this machine. Raises ``OSError``, ``FileExistsError`` where there is one, and ``LogFailed``."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(_PREFIX + base64.b64encode(os.urandom(_KEY_BYTES)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)


def add_key(path: Path, new: Path | None) -> None:
    """Put a new key before those of the file, or the one in the file ``new``; it seals from now on. Raises
    ``BadConfig`` and ``OSError``."""
    key = os.urandom(_KEY_BYTES) if new is None else read_keys(new)[0]
    _replace(path, [key, *(one for one in read_keys(path) if one != key)])


def keep_first_key(path: Path) -> int:
    """Leave but the key that seals in the file; how many are gone. Raises ``BadConfig`` and ``OSError``."""
    keys = read_keys(path)
    _replace(path, keys[:1])
    return len(keys) - 1


def _replace(path: Path, keys: list[bytes]) -> None:
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(b"".join(_PREFIX + base64.b64encode(key) + b"\n" for key in keys))
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    sync_directory(path.parent)


def read_keys(path: Path) -> list[bytes]:
    """The keys in the file, the one that seals first. Raises ``BadConfig`` where it cannot be read, may be read by
    others, or holds no key."""
    try:
        lines = path.read_bytes().split(b"\n")
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as problem:
        what = f"cluster.key: {path} cannot be read: {problem.strerror}"
        raise BadConfig(f"{what}; copy it from the node where `syncbrok cluster init` made it") from problem
    if mode & 0o077:
        raise BadConfig(f"{path} may be read by others (mode {mode:04o}); set it to 0600")
    keys = [_key_of(one.strip()) for one in lines if one.strip()]
    if not keys or not all(keys):
        raise BadConfig(f"{path} holds no key of a cluster; `syncbrok cluster init` makes one")
    return keys


def _key_of(line: bytes) -> bytes:
    """Empty where it is none."""
    try:
        key = base64.b64decode(line.removeprefix(_PREFIX), validate=True)
    except ValueError:
        return b""
    return key if line.startswith(_PREFIX) and len(key) == _KEY_BYTES else b""


class Vault:
    """``log``: the log's 16 bytes. Made by ``open``."""

    def __init__(self, path: Path, log: bytes) -> None:
        self._path = path
        self._log = log

    @classmethod
    def open(cls, path: Path, log: bytes) -> Self:
        """Raises as ``read_keys``."""
        read_keys(path)
        return cls(path, log)

    def seal(self, secret: bytes) -> bytes:
        """``secret``, for the stream. Raises as ``read_keys``."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(read_keys(self._path)[0]).encrypt(nonce, secret, self._log)

    def unseal(self, sealed: bytes) -> bytes:
        """The bytes that were sealed. Raises ``LogDiverged`` where it was sealed with another key, or changed since."""
        return self._unseal(sealed)[1]

    def is_old(self, sealed: bytes) -> bool:
        """Whether it was sealed with another key than the one that seals now. Raises as ``unseal``."""
        return self._unseal(sealed)[0] > 0

    def _unseal(self, sealed: bytes) -> tuple[int, bytes]:
        """Which key of the file it was sealed with, and what was sealed."""
        for number, key in enumerate(read_keys(self._path)):
            with suppress(InvalidTag):
                return number, AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._log)
        what = "the secrets in the stream cannot be read with this node's cluster.key"
        raise LogDiverged(f"{what}: copy that of the other nodes here")
