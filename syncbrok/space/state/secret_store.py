"""The signing secrets and the credentials of subscribers, and the hashes of tokens that were created, in
``secrets.json`` beside the log: mode 0600, never in a fact, an answer or a log line (RULES 19).

A change is staged, its file fsynced before the fact that needs it is written, and put in force when that fact is
durable. A crash between leaves a secret that no fact counts; the next start forgets it. Credentials (``credentials``
of ``model``) are kept by the sequence of the fact that they came with, the old ones beside the new until that fact is
durable: so after a crash they are those of the settings that the log has.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import os
import secrets
import stat
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import aiofiles
from aiofiles.os import wrap

from syncbrok.delivery.webhook.signing import secret_key
from syncbrok.log.segments.descriptors import naming, open_file, reading
from syncbrok.log.segments.files import NO_ROOM, opening_problem, unfinished
from syncbrok.model.credentials import NONE
from syncbrok.model.errors import BadConfig, LogCorrupt, LogFull
from syncbrok.model.message import Subscriber
from syncbrok.model.signature_settings import OLD_KEY_UNTIL
from syncbrok.model.tokens import Token
from syncbrok.model.units import SECRET_BYTES_MIN
from syncbrok.space.state.secrets_file import Kept, decode, decode_tokens, encode, key_of

FILE: Final = "secrets.json"

_log = logging.getLogger(__name__)
_secret_bytes: Final = 32
_NOTHING: Final = Kept()


def make_secret() -> str:
    """As Standard Webhooks writes them: ``whsec_`` and base64."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(_secret_bytes)).decode()


class SecretStore:
    """Secrets by number of subscriber. After ``stage`` call exactly one of ``keep`` and ``discard``. Methods that write
    the file are awaited by one caller at a time, the committer. ``close`` it."""

    def __init__(
        self,
        directory: Path,
        kept: dict[int, Kept],
        clock_us: Callable[[], int],
        tokens: Sequence[Token] = (),
        mark_key: bytes = b"",
    ) -> None:
        self._clock_us = clock_us
        self.tokens: Mapping[str, Token] = {one.name: one for one in tokens}
        """those in force, by their names"""
        self._staged_tokens: Mapping[str, Token] | None = None
        self.tokens_changed: Callable[[Sequence[Token]], None] = _nobody_listens
        """called with those in force whenever they are others; whoever asks for tokens sets it"""
        self._path = directory / FILE
        self._kept = kept
        self._staged: dict[int, Kept | None] = {}
        self.untidy = False
        """the file holds what it should not, or in an older form"""
        # A thread of its own, begun when the first secret is written: commits wait for it, and those that all share
        # may be held by a slow name server.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="syncbrok-secrets")
        self.replicate: Callable[[bytes], None] | None = None
        """called with what the file will hold, in the store's thread, before it is written: other nodes of a cluster
        must have it too before a fact needs it. May raise ``LogFull`` and ``LogFailed``."""
        self._keys: dict[int, tuple[bytes, ...]] = {}  # decoded once, since they are asked for at each attempt
        self._lost: set[int] = set()
        """subscribers whose facts count secrets that the file does not have"""
        self._mark_key = mark_key or secrets.token_bytes(_secret_bytes)
        self._has_marked = bool(mark_key)
        """facts have hashes by this key: the file keeps it"""

    @classmethod
    def open(cls, directory: Path, clock_us: Callable[[], int]) -> "SecretStore":
        """Raises ``BadConfig`` where others may read the file, ``LogCorrupt`` where it is damaged, and ``OSError``. One
        of an older version, without a checksum, is written again soon (``tidied``)."""
        data = _read(directory / FILE)
        if data is None:
            return cls(directory, {}, clock_us)
        kept, has_checksum, tokens = _believed(directory / FILE, data)
        secret_store = cls(directory, kept, clock_us, tokens, key_of(data))
        secret_store.untidy = not has_checksum
        return secret_store

    def keys(self, number: int) -> tuple[bytes, ...]:
        """The raw bytes that sign now, newest first: none, one, or two during a rotation. Raises ``LookupError`` where
        they are lost: an attempt without a signature would look like anybody's. Most subscribers have none, and then
        the clock is not read."""
        if number in self._lost:
            raise LookupError(f"its secret is not in {FILE} any more: set it again")
        kept = self._kept.get(number)
        if kept is None:
            return ()
        keys = self._keys.get(number)
        if keys is None:
            keys = self._keys[number] = _keys_of(kept)
        return keys[:1] if kept.until_us and kept.until_us <= self._clock_us() else keys

    def holds(self, number: int, secret: str) -> bool:
        """Whether this is the subscriber's newest secret."""
        return any(secrets.compare_digest(one, secret) for one in self.kept(number).secrets[:1])

    def knows(self, number: int, secret: str) -> bool:
        """Whether the subscriber signs with this secret, be it the one that is rotated out."""
        return any(secrets.compare_digest(one, secret) for one in self.kept(number).secrets)

    def kept(self, number: int) -> Kept:
        """The entry of the subscriber, an empty one where it is not known."""
        return self._kept.get(number, _NOTHING)

    def rotated(self, number: int, secret: str, now_us: int, grace_s: float) -> Kept:
        """The entry to stage so that ``secret`` signs from now on and the present one for so long."""
        kept = self.kept(number)
        if not kept.secrets or not grace_s:
            return kept._replace(secrets=(secret,), until_us=0)
        return kept._replace(secrets=(secret, kept.secrets[0]), until_us=now_us + int(grace_s * 1e6))

    def rotated_out(self, now_us: int) -> list[int]:
        """Numbers of subscribers whose old secret, or old key pair, has stopped signing."""
        return [
            number
            for number, kept in self._kept.items()
            if (kept.until_us and kept.until_us <= now_us)
            or any(0 < int(values.get(OLD_KEY_UNTIL, 0)) <= now_us for values in kept.credentials.values())
        ]

    def newest(self, number: int) -> Kept:
        """The entry to stage so that the old secret is forgotten."""
        kept = self.kept(number)
        return kept._replace(secrets=kept.secrets[:1], until_us=0)

    def credentials(self, number: int, sequence: int) -> Mapping[str, str]:
        """By name, those that came with the fact of this sequence. Raises ``LookupError`` where they are lost."""
        if not sequence:
            return NONE
        found = self.kept(number).credentials.get(sequence)
        if found is None:
            raise LookupError(f"its credentials are not in {FILE} any more: set them again")
        return found

    def mark(self, name: str, hash_: str, credentials: Mapping[str, str]) -> str:
        """A hash like ``hash_``, of the same setting with these credentials: keyed, since whoever reads the log could
        guess a password by a plain one. The key is in the file before a fact has such a hash."""
        said = json.dumps([name, hash_, sorted(credentials.items())]).encode()
        return hmac.digest(self._mark_key, said, hashlib.sha256).hex()[: len(hash_) or 16]

    def stage(self, number: int, kept: Kept | None) -> Callable[[], Awaitable[None]]:
        """A change to come; None forgets the subscriber. Returns what must be awaited before the fact is written; it
        raises ``LogFull`` and ``OSError``."""
        self._staged[number] = kept
        return partial(self._write, self._data())

    def keep(self, number: int) -> None:
        """The fact is durable."""
        self._keys.pop(number, None)
        kept = self._staged.pop(number)
        if kept is None or kept.secrets:
            self._lost.discard(number)
        if kept is None:
            self._kept.pop(number, None)
            return
        if len(kept.credentials) > 1:  # those before are of a setting that is over
            newest = max(kept.credentials)
            kept = kept._replace(credentials={newest: kept.credentials[newest]})
            self.untidy = True
        self._kept[number] = kept

    def discard(self, number: int) -> None:
        """The fact was not written. The file may hold the change until it is written again."""
        self._staged.pop(number)

    def stage_tokens(self, tokens: Mapping[str, Token]) -> Callable[[], Awaitable[None]]:
        """As ``stage``: all tokens that there are to be. Exactly one of ``keep_tokens`` and ``discard_tokens``
        follows."""
        self._staged_tokens = tokens
        return partial(self._write, self._data())

    def created_tokens(self) -> Sequence[Token]:
        """The tokens in force."""
        return (*self.tokens.values(),)

    def keep_tokens(self) -> None:
        """They are in the file: in force from now on."""
        assert self._staged_tokens is not None
        self.tokens, self._staged_tokens = self._staged_tokens, None
        self.tokens_changed(self.created_tokens())

    def discard_tokens(self) -> None:
        """As ``discard``."""
        self._staged_tokens = None

    def forget(self, number: int) -> None:
        """The subscriber is gone. The file follows with ``tidied``."""
        self._keep_only(number, _NOTHING)
        self._lost.discard(number)

    def forget_secrets(self, number: int) -> None:
        """The subscriber signs with no secret any more, and keeps its credentials. The file follows with ``tidied``."""
        self._keep_only(number, Kept(credentials=self.kept(number).credentials))
        self._lost.discard(number)

    def forget_credentials(self, number: int) -> None:
        """No setting of the subscriber has credentials any more. The file follows with ``tidied``."""
        self._keep_only(number, self.kept(number)._replace(credentials={}))

    def _keep_only(self, number: int, kept: Kept) -> None:
        """Only ``kept`` is left of the subscriber."""
        self._keys.pop(number, None)
        self.untidy = self._kept.pop(number, None) is not None or self.untidy
        if kept.secrets or kept.credentials:
            self._kept[number] = kept

    async def tidy(self) -> None:
        """Write the file without the secrets of deleted subscribers; if there is no room for it, do so another time.
        Raises ``OSError``."""
        if self.untidy:
            self.untidy = False
            try:
                await self._write(self._data())
            except LogFull:
                self.untidy = True

    def close(self) -> None:
        """End its thread; nothing is being written."""
        self._thread.shutdown(wait=True)

    def check(self, subscribers: Iterable[Subscriber]) -> None:
        """At the start: forget secrets that no fact counts, and note and log where one is missing."""
        counted: set[int] = set()
        versions: dict[int, int] = {}
        for subscriber in subscribers:
            if subscriber.settings.secret_count:
                counted.add(subscriber.number)
            if subscriber.settings.credentials:
                versions[subscriber.number] = subscriber.settings.credentials
        for number, kept in list(self._kept.items()):
            left = {one: values for one, values in kept.credentials.items() if one == versions.get(number)}
            secrets_left = kept.secrets if number in counted else ()
            if (left, secrets_left) != (kept.credentials, kept.secrets):
                self._keep_only(number, kept._replace(credentials=left, secrets=secrets_left))
        self._lost = {number for number in counted if not self.kept(number).secrets}
        missing = {number for number, sequence in versions.items() if sequence not in self.kept(number).credentials}
        missing |= self._lost
        for number in missing:
            _log.error("syncbrok.space.secret_missing", extra={"subscriber": number, "file": FILE})
        self._log_short(counted - missing)

    def _log_short(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            key_bytes = min(map(len, _keys_of(self._kept[number])))
            if key_bytes < SECRET_BYTES_MIN:
                short = {"subscriber": number, "bytes": key_bytes, "bytes_min": SECRET_BYTES_MIN}
                _log.warning("syncbrok.space.secret_short", extra=short)

    def _data(self) -> bytes:
        kept = {**self._kept, **self._staged}
        entries = {number: entry for number, entry in kept.items() if entry is not None}
        tokens = self.tokens if self._staged_tokens is None else self._staged_tokens
        self._has_marked = self._has_marked or any(entry.credentials for entry in entries.values())
        return encode(entries, tokens.values(), self._mark_key if self._has_marked else b"")

    async def _write(self, data: bytes) -> None:
        """The whole file or the old one, whatever happens; readable by the owner alone from its first byte on. Raises
        ``LogFull`` and ``OSError``."""
        try:
            if self.replicate is not None:
                await asyncio.get_running_loop().run_in_executor(self._thread, self.replicate, data)
            with naming(self._path):
                await self._replace(data)
        except OSError as problem:
            if problem.errno in NO_ROOM:
                raise LogFull("no room on the disk for the file of secrets; nothing was kept") from problem
            raise

    async def _replace(self, data: bytes) -> None:
        new = self._path.with_suffix(".new")
        await _unlink(new, executor=self._thread)
        with unfinished(new):
            file = await aiofiles.open(new, "xb", opener=open_file, executor=self._thread)
            try:
                await file.write(data)
                await file.flush()
                await _fsync(file.fileno(), executor=self._thread)
            finally:
                await file.close()
            await _rename(new, self._path, executor=self._thread)
        await _fsync_directory(self._path.parent, executor=self._thread)

    def __repr__(self) -> str:
        return f"<SecretStore subscribers={len(self._kept)}>"


def stored_tokens(directory: Path) -> tuple[Token, ...]:
    """The tokens that were created on the log of this directory. Raises ``BadConfig`` and ``LogCorrupt`` as
    ``SecretStore.open``, and ``LogFailed`` or ``LogFull`` where the file cannot be read."""
    path = directory / FILE
    try:
        data = _read(path)
    except OSError as problem:
        raise opening_problem(problem, directory) from problem
    return () if data is None else _believed(path, data)[2]


def _read(path: Path) -> bytes | None:
    """The file; None where there is none. Raises ``BadConfig`` where others may read it, and ``OSError``."""
    try:
        with reading(path) as file:
            data = file.read()
        mode = stat.S_IMODE(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):  # whoever opens the log says what is wrong with the directory
        return None
    if mode & 0o077:
        raise BadConfig(f"{path} may be read by others (mode {mode:04o}); set it to 0600")
    return data


def _believed(path: Path, data: bytes) -> tuple[dict[int, Kept], bool, tuple[Token, ...]]:
    """As ``decode``, and the tokens. Raises ``LogCorrupt``."""
    try:
        return (*decode(data), decode_tokens(data))
    except ValueError as problem:
        raise LogCorrupt(
            f"{path} is damaged: {problem}. Restore it from a backup; or remove it, start, and set each secret "
            "again: until then its deliveries are not signed; and create the tokens again",
            file=FILE,
        ) from problem


def _nobody_listens(_tokens: Sequence[Token]) -> None:
    """See ``SecretStore.tokens_changed``."""


async def put_secrets(directory: Path, data: bytes) -> None:
    """Make ``data`` the file of secrets in ``directory``, as another node of a cluster has it. Raises ``LogFull`` and
    ``OSError``."""
    store = SecretStore(directory, {}, lambda: 0)
    try:
        await store._write(data)  # noqa: SLF001
    finally:
        store.close()


def _keys_of(kept: Kept) -> tuple[bytes, ...]:
    """The signing keys of an entry. Raises ``BadSetting``. Short secrets of older versions still sign, or receivers
    that verify with them would get nothing any more; ``SecretStore.check`` names them."""
    return tuple(secret_key(secret, bytes_min=0) for secret in kept.secrets)


# Not those of ``aiofiles.os``: they hold what ``os`` had when they were imported, so whoever watches the calls of this
# process, to lose power between two of them, would miss these.
@wrap
def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


@wrap
def _rename(path: Path, to: Path) -> None:
    path.rename(to)


@wrap
def _fsync(descriptor: int) -> None:
    os.fsync(descriptor)


@wrap
def _fsync_directory(directory: Path) -> None:
    descriptor = open_file(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
