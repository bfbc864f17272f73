"""Bearer tokens: what one lets its bearer do, and in which queues. Only its SHA-256 is known. Pure.

A scope is for all queues, or narrowed by patterns: names of queues, where a ``*`` at the end stands for anything.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from syncbrok.model import limits
from syncbrok.model.errors import BadName, BadSetting

PUBLISH: Final = "publish"
CONSUME: Final = "consume"
READ: Final = "read"
ADMIN: Final = "admin"
SCOPES: Final = (PUBLISH, CONSUME, READ, ADMIN)
EVERYWHERE: Final = "*"
ANY_SCOPE: Final = "any"
"""no scope of a token: what any token may do that is known here"""

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}", re.ASCII)
_OF_NOTHING: Final = frozenset(sha256(one).hexdigest() for one in (b"", b"\n", b"\r\n"))
"""the SHA-256 of a token that is not there, as ``sha256sum`` says it"""


class QueuePatterns(NamedTuple):
    """Queues by their names, and by how these begin."""

    names: frozenset[str]
    prefixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, patterns: Sequence[str]) -> "QueuePatterns | None":
        """None where they are all queues."""
        if EVERYWHERE in patterns:
            return None
        prefixes = (one[:-1] for one in patterns if one.endswith(EVERYWHERE))
        return cls(frozenset(one for one in patterns if not one.endswith(EVERYWHERE)), tuple(sorted({*prefixes})))

    def match(self, queue: str) -> bool:
        return queue in self.names or queue.startswith(self.prefixes)

    @property
    def texts(self) -> list[str]:
        """The patterns as they are written."""
        return [*sorted(self.names), *(f"{prefix}{EVERYWHERE}" for prefix in self.prefixes)]


_NOT_NARROWED: Final[Mapping[str, QueuePatterns]] = MappingProxyType({})


class Token(NamedTuple):
    """A token without its text. ``sha256``: 64 lower-case hex digits; ``scopes`` are of ``SCOPES``."""

    name: str
    sha256: str
    scopes: frozenset[str]
    narrowed: Mapping[str, QueuePatterns] = _NOT_NARROWED
    """the scopes that are for some queues only"""
    created_us: int = 0
    """0: it is configured"""
    expires_us: int = 0
    """0: never"""

    def may(self, scope: str, queue: str) -> bool:
        """Whether it has the scope in the queue."""
        patterns = self.narrowed.get(scope)
        return scope in self.scopes and (patterns is None or patterns.match(queue))

    def sees(self, queue: str) -> bool:
        """Whether its bearer may name messages of the queue as parents: who reads or fills it may know of them."""
        return self.may(READ, queue) or self.may(PUBLISH, queue)

    def reach(self, *scopes: str | None) -> QueuePatterns | None:
        """The queues in which it has one of these; None: all."""
        granted = [self.narrowed.get(scope) for scope in scopes if scope is not None and scope in self.scopes]
        some = [one for one in granted if one is not None]
        if len(some) < len(granted):
            return None
        prefixes = tuple(prefix for one in some for prefix in one.prefixes)
        return QueuePatterns(frozenset[str]().union(*(one.names for one in some)), prefixes)

    @property
    def is_operator(self) -> bool:
        """Whether it has the scope that creates tokens, ``admin``, in all queues."""
        return ADMIN in self.scopes and ADMIN not in self.narrowed

    @property
    def patterns(self) -> dict[str, list[str]]:
        """Its scopes and where it has each."""
        return {
            scope: self.narrowed[scope].texts if scope in self.narrowed else [EVERYWHERE]
            for scope in SCOPES
            if scope in self.scopes
        }


def parse_token_name(name: Any) -> str:
    """The name of a token that is created: one that can stand in a path. Raises ``BadName``."""
    return parse_name("token", name)


def parse_name(of: str, name: Any) -> str:
    """The name of a token or of another thing (``of``) that is named in this way. Raises ``BadName``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        what = f"a {of}'s name has 1 to 128 letters, digits, '_', '.' and '-' and begins with a letter or a digit"
        raise BadName(f"{str(name)[:80]!r}: {what}", name=str(name)[:80])
    return name


def parse_digest(value: Any) -> str:
    """The SHA-256 of a token. Raises ``BadSetting``, which does not repeat it: it may be the token."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", value):
        raise BadSetting(
            "expected sha256 as 64 hex digits (printf %s TOKEN | sha256sum | cut -c1-64)", setting="sha256"
        )
    if value.lower() in _OF_NOTHING:
        what = "this is the sha256 of nothing: was the variable empty that was hashed?"
        raise BadSetting(what, setting="sha256")
    return value.lower()


def parse_scopes(scopes: Any, queues: Any = None) -> tuple[frozenset[str], Mapping[str, QueuePatterns]]:
    """``Token.scopes`` and ``Token.narrowed``. ``scopes``: a list, each narrowed by the patterns ``queues`` (a list;
    None: all), or an object that gives each its own patterns. Raises ``BadSetting``."""
    if isinstance(scopes, dict):
        if queues is not None:
            raise BadSetting("queues: scopes says already in which queues each is for; leave one out", setting="queues")
        given = {scope: _patterns(patterns) for scope, patterns in scopes.items()}
    elif isinstance(scopes, list) and all(isinstance(one, str) for one in scopes):
        given = dict.fromkeys(scopes, None if queues is None else _patterns(queues))
    else:
        given = {}
    if not given or not all(scope in SCOPES for scope in given):
        what = f'expected a list of {", ".join(SCOPES)}, or an object such as {{"publish": ["shop.*"]}}'
        raise BadSetting(f"scopes: {what}, found {str(scopes)[:80]!r}", setting="scopes")
    return frozenset(given), {scope: one for scope, one in given.items() if one is not None}


def _patterns(given: Any) -> QueuePatterns | None:
    most = limits.token_patterns_max
    if (
        not isinstance(given, list)
        or not 1 <= len(given) <= most
        or not all(isinstance(one, str) and 1 <= len(one) <= limits.queue_name_chars_max + 1 for one in given)
    ):
        what = f"expected a list of 1 to {most} names of queues, where a * at the end stands for anything"
        raise BadSetting(f"queues: {what}, found {str(given)[:80]!r}", setting="queues")
    return QueuePatterns.of(given)
