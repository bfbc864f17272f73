"""Where an archive lies outside of Spark's file systems: a folder of this machine, or a bucket of S3. No Spark, no jar.

Endpoint and credentials are those of every AWS program: ``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN`` and ``AWS_REGION`` (or ``AWS_DEFAULT_REGION``) of the environment, or
options of these names. Without keys the machine's own are looked for (a profile, a role). They go to the tasks with
what the tasks are to read, so a place is a value, and its ``repr`` keeps what is secret.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from syncbrok.model.errors import BadSetting

if TYPE_CHECKING:
    from pyarrow import fs

PREFIX: Final = "AWS_"
_KNOWN: Final = (
    "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_ALLOW_HTTP", "AWS_PROFILE",
)  # fmt: skip
_S3: Final = re.compile(r"^s3[an]?://(?=[^/])", re.IGNORECASE)
_FILE: Final = re.compile(r"^file:/+", re.IGNORECASE)


class ArchivePlace(NamedTuple):
    """A folder, ``uri``: an absolute path, or ``s3://BUCKET/KEY``. ``settings``: the AWS settings for a bucket."""

    uri: str
    settings: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.uri

    def __repr__(self) -> str:
        return f"<ArchivePlace {self.uri}>"

    @property
    def in_bucket(self) -> bool:
        """Whether it is in a bucket."""
        return self.uri.startswith("s3://")

    @property
    def root(self) -> str:
        """The folder, as its file system names it."""
        return self.uri.removeprefix("s3://")

    def full(self, path: str) -> str:
        """The file ``path`` below the folder, as its file system names it."""
        return f"{self.root}/{path}" if path else self.root

    def for_delta(self) -> dict[str, str]:
        """The settings as delta-rs takes them."""
        told = dict(self.settings)
        if told.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            told.setdefault("AWS_ALLOW_HTTP", "true")
        return told

    def file_system(self) -> "fs.FileSystem":
        """The file system of the folder."""
        from pyarrow import fs  # noqa: PLC0415  # of archives alone: who reads a log needs none of it

        if not self.in_bucket:
            return fs.LocalFileSystem()
        told = dict(self.settings)
        named: dict[str, Any] = {
            "access_key": told.get("AWS_ACCESS_KEY_ID"),
            "secret_key": told.get("AWS_SECRET_ACCESS_KEY"),
            "session_token": told.get("AWS_SESSION_TOKEN"),
            "region": told.get("AWS_REGION") or told.get("AWS_DEFAULT_REGION"),
        }
        scheme, found, host = told.get("AWS_ENDPOINT_URL", "").partition("://")
        if found:
            named |= {"scheme": scheme, "endpoint_override": host.rstrip("/")}
        return fs.S3FileSystem(**{name: value for name, value in named.items() if value})


def is_bucket(path: str) -> bool:
    """Whether ``path`` names a folder in a bucket of S3."""
    return _S3.match(path) is not None


def place_in(path: str, given: Mapping[str, str] | None = None) -> ArchivePlace:
    """The folder that a path, a ``file:`` URL or one of S3 names. ``given``: settings that win over the environment's,
    in any case. Raises ``BadSetting`` for a setting that there is not, and where one is given for no bucket."""
    own = {name.upper(): value for name, value in (given or {}).items()}
    unknown = sorted(own.keys() - set(_KNOWN))
    if unknown:
        raise BadSetting(f"unknown options {', '.join(unknown)}; of S3 there are {', '.join(_KNOWN)}")
    if not is_bucket(path):
        if own:
            raise BadSetting(f"{', '.join(sorted(own))} is for a bucket of S3, and {path} is none")
        return ArchivePlace(str(Path(_FILE.sub("/", path)).resolve()))
    told = {name: value for name in _KNOWN if (value := os.environ.get(name))} | own
    return ArchivePlace(_S3.sub("s3://", path).rstrip("/"), tuple(sorted(told.items())))
