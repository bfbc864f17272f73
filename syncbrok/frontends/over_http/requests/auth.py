"""Bearer tokens: who may do what, where there are some. Only their SHA-256 is known here."""

import time
from collections.abc import Callable, Sequence
from hashlib import sha256

from syncbrok.model.errors import Forbidden, Unauthorized, WrongToken
from syncbrok.model.tokens import ANY_SCOPE, Token
from syncbrok.model.units import render_time


def now_us() -> int:
    return time.time_ns() // 1_000


class Tokens:
    """The tokens of a deployment that has some; of two with one hash the last one counts."""

    def __init__(self, tokens: Sequence[Token], clock_us: Callable[[], int] = now_us) -> None:
        # By its digest: how long a look-up takes says nothing of a token, whose digest nobody can choose.
        self._known = {bytes.fromhex(token.sha256): token for token in tokens}
        self._clock_us = clock_us
        self._expires_us = [token.expires_us for token in tokens if token.expires_us]

    def check(self, authorization: str, scope: str, or_scope: str | None = None, queue: str | None = None) -> Token:
        """The token; ``authorization``: the header, "" without one; ``scope``: ``ANY_SCOPE`` for any. Raises
        ``Unauthorized`` without one, ``WrongToken`` with one that is unknown or has expired, and ``Forbidden`` where it
        has neither ``scope`` nor ``or_scope``, or not in ``queue``."""
        kind, _, secret = authorization.partition(" ")
        if kind.lower() != "bearer" or not secret:
            raise Unauthorized("this broker asks for a token")
        found = self._find(secret)
        if found is None:
            raise WrongToken("this token is not known here")
        if found.expires_us and found.expires_us <= self._clock_us():
            raise WrongToken(f"token {found.name!r} has expired, at {render_time(found.expires_us)}")
        if scope != ANY_SCOPE and scope not in found.scopes and or_scope not in found.scopes:
            raise Forbidden(f"token {found.name!r} may not do this: it needs the scope {scope!r}", scope=scope)
        if queue is not None and found.narrowed:
            check_queue(found, queue, scope, or_scope)
        return found

    def narrows(self, authorization: str) -> bool:
        """Whether this is a token that is for some queues only."""
        found = self._find(authorization.partition(" ")[2])
        return found is not None and bool(found.narrowed)

    def _find(self, secret: str) -> Token | None:
        return self._known.get(sha256(secret.strip().encode("utf-8", "surrogateescape")).digest())

    def next_expiry_us(self) -> int:
        """When the next of them expires; 0: none will."""
        now = self._clock_us()
        return min((at for at in self._expires_us if at > now), default=0)


def check_queue(token: Token, queue: str, scope: str, or_scope: str | None = None) -> None:
    """Raises ``Forbidden`` where the token has neither scope in the queue, whether there is such a queue or not."""
    if not token.may(scope, queue) and not (or_scope is not None and token.may(or_scope, queue)):
        what = f"token {token.name!r} may not do this in queue {queue[:128]!r}: it needs the scope {scope!r} there"
        raise Forbidden(what, scope=scope)
