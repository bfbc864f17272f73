"""Hashes of a bootstrap file's entries, each a queue or a subscriber (RULES 18). Pure.

They are hashes of values, not of text: comments, order and ways to write 60s change nothing. The log keeps them, so a
secret (24 random bytes or more) goes into a hash only as the digest of a digest.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

SECRET: Final = "secret"  # noqa: S105 - the name of the key
PAUSED: Final = "paused"


def entry_hash(given: Mapping[str, Any], secret: str | None = None) -> str:
    """The hash of an entry: of all settings that the file names, under their external names, and of the secret."""
    return _hash(_with_mark(given, secret))[:32]


def key_hashes(given: Mapping[str, Any], secret: str | None = None) -> dict[str, str]:
    """A hash of each key that the file names, by the key's name."""
    return {name: _hash({name: value})[:16] for name, value in _with_mark(given, secret).items()}


def _with_mark(given: Mapping[str, Any], secret: str | None) -> dict[str, Any]:
    mark = {SECRET: hashlib.sha256(secret.encode()).hexdigest()} if secret else {}
    return {**given, **mark}


def _hash(given: Mapping[str, Any]) -> str:
    text = json.dumps(given, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
