"""The bytes of the file of secrets: JSON that people can read, with a checksum over all of it. Pure.

A secret with a flipped bit still looks like a secret, but every receiver would refuse its signatures. So a file is
believed only byte for byte as it was written. Version 1 had no checksum: it is read, and the next write makes it
version 2.
"""

import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from syncbrok.delivery.webhook.signing import secret_key
from syncbrok.model.errors import BadSetting, SyncbrokError
from syncbrok.model.tokens import Token, parse_digest, parse_scopes, parse_token_name

VERSION: Final = 2
_END: Final = re.compile(rb',\n "crc32c": "([0-9a-f]{8})"\n\}\Z')


class Kept(NamedTuple):
    """The secrets of one subscriber, the newest first. ``until_us``: when the second stops signing, 0 for no second.
    ``credentials``: by the sequence of the fact that they came with, the values by name; more than one such set only
    while it is not known whether the latest fact is durable."""

    secrets: tuple[str, ...] = ()
    until_us: int = 0
    credentials: Mapping[int, Mapping[str, str]] = MappingProxyType({})


def encode(kept: dict[int, Kept], tokens: Iterable[Token] = (), key: bytes = b"") -> bytes:
    """The file that holds these, by number of subscriber; and tokens, as their hashes. ``key``: of the hashes of what
    files of queues say, where there are credentials."""
    entries = {str(number): _said(one) for number, one in sorted(kept.items())}
    whole: dict[str, Any] = {"version": VERSION, "subscribers": entries}
    if of_tokens := [_token_entry(one) for one in tokens]:
        whole["tokens"] = of_tokens
    if key:
        whole["key"] = key.hex()
    said = json.dumps(whole, indent=1).encode()
    return said.removesuffix(b"\n}") + b',\n "crc32c": "%08x"\n}' % crc32c(said)


def decode(data: bytes) -> tuple[dict[int, Kept], bool]:
    """The secrets that ``encode`` was given, and whether they were written with a checksum. Raises ``ValueError``
    saying what is wrong; the text never holds a piece of a secret."""
    end = _END.search(data)
    if end is not None and crc32c(data[: end.start()] + b"\n}") != int(end[1], 16):
        raise ValueError("its checksum does not fit")
    try:
        said = json.loads(data)
        if end is None and (said["version"] != 1 or "crc32c" in said):
            raise ValueError("its checksum is missing")
        return {int(number): _entry(entry) for number, entry in said["subscribers"].items()}, end is not None
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError, BadSetting) as problem:
        raise ValueError("it is not as Syncbrok writes it") from problem
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise ValueError(f"it is not JSON from byte {_place(problem)} on") from problem


def decode_tokens(data: bytes) -> tuple[Token, ...]:
    """The tokens that ``encode`` was given, of what ``decode`` believes. Raises ``ValueError``, and shows no hash."""
    try:
        return tuple(map(_token_of, json.loads(data).get("tokens", ())))
    except (KeyError, TypeError, AttributeError, SyncbrokError) as problem:
        raise ValueError("its tokens are not as Syncbrok writes them") from problem


def _token_entry(token: Token) -> dict[str, Any]:
    times = {"created_us": token.created_us, "expires_us": token.expires_us}
    return {"name": token.name, "sha256": token.sha256, "scopes": token.patterns, **times}


def _token_of(entry: dict[str, Any]) -> Token:
    name, digest = parse_token_name(entry["name"]), parse_digest(entry["sha256"])
    return Token(name, digest, *parse_scopes(entry["scopes"]), int(entry["created_us"]), int(entry["expires_us"]))


def key_of(data: bytes) -> bytes:
    """The key in a file that ``decode`` has read; ``b""`` where it has none."""
    return bytes.fromhex(str(json.loads(data).get("key", "")))


def _said(kept: Kept) -> dict[str, Any]:
    credentials = {str(sequence): dict(values) for sequence, values in kept.credentials.items()}
    return {
        "secrets": kept.secrets,
        "until_us": kept.until_us,
        **({"credentials": credentials} if credentials else {}),
    }


def _entry(entry: dict[str, Any]) -> Kept:
    credentials = {
        int(sequence): {str(name): str(value) for name, value in values.items()}
        for sequence, values in entry.get("credentials", {}).items()
    }
    kept = Kept(tuple(map(str, entry["secrets"])), int(entry["until_us"]), credentials)
    if not kept.credentials:
        kept.secrets[0]
    for secret in kept.secrets:
        # Older versions took shorter ones; whoever verifies with one must go on getting what it signs.
        secret_key(secret, bytes_min=0)
    return kept


def _place(problem: json.JSONDecodeError | UnicodeDecodeError) -> int:
    return problem.pos if isinstance(problem, json.JSONDecodeError) else problem.start
