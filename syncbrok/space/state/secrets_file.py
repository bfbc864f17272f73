"""The bytes of the file of secrets: JSON that people can read, with a checksum over all of it. Pure.

A secret with a flipped bit still looks like a secret, but every receiver would refuse its signatures. So a file is
believed only byte for byte as it was written. Version 1 had no checksum: it is read, and the next write makes it
version 2.
"""

import json
import re
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from syncbrok.delivery.webhook.signing import secret_key
from syncbrok.model.errors import BadSetting

VERSION: Final = 2
_END: Final = re.compile(rb',\n "crc32c": "([0-9a-f]{8})"\n\}\Z')


class Kept(NamedTuple):
    """The secrets of one subscriber, the newest first. ``until_us``: when the second stops signing, 0 for no second."""

    secrets: tuple[str, ...]
    until_us: int = 0


def encode(kept: dict[int, Kept]) -> bytes:
    """The file that holds these, by number of subscriber."""
    entries = {str(number): {"secrets": one.secrets, "until_us": one.until_us} for number, one in sorted(kept.items())}
    said = json.dumps({"version": VERSION, "subscribers": entries}, indent=1).encode()
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


def _entry(entry: dict[str, Any]) -> Kept:
    kept = Kept(tuple(map(str, entry["secrets"])), int(entry["until_us"]))
    kept.secrets[0]
    for secret in kept.secrets:
        # Older versions took shorter ones; whoever verifies with one must go on getting what it signs.
        secret_key(secret, bytes_min=0)
    return kept


def _place(problem: json.JSONDecodeError | UnicodeDecodeError) -> int:
    return problem.pos if isinstance(problem, json.JSONDecodeError) else problem.start
