"""Creates tokens and takes them away. There is no fact of it: the file of secrets has them, and is fsynced before the
receipt; so a token that was taken away opens nothing any more, crash or not (INTERFACES 1).

There is always somebody who may create tokens, once there are any. And a broker that asks for them is not opened by
the last one going, unless it may be open.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol
from urllib.parse import quote

from syncbrok.model import limits
from syncbrok.model.errors import BadSetting, Conflict, UnknownToken
from syncbrok.model.event_types import EventType
from syncbrok.model.tokens import Token
from syncbrok.space.channels import CreateToken, RevokeToken
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.operations.broker_events import BrokerEvents
from syncbrok.space.state.secret_store import SecretStore

_log = logging.getLogger(__name__)

_CLAIM: Final = "/tokens"
"""no queue has this name"""


class StoredTokens(Protocol):
    """The tokens that were created: those in force, and who is told when they are others."""

    tokens_changed: Callable[[Sequence[Token]], None]

    def created_tokens(self) -> Sequence[Token]: ...


class TokenChanges:
    """Each method is a step of a batch."""

    def __init__(self, store: SecretStore, events: BrokerEvents) -> None:
        self._store = store
        self._events = events

    def create(self, item: CreateToken, batch: CommitBatch) -> None:
        """See ``CreateToken``."""
        batch.claim(_CLAIM)
        known, name = self._store.tokens, item.token.name
        if name in known:
            what = f"there is a token {name!r} already; revoke it first, or take another name"
            raise Conflict(what, token=name)
        if len(known) >= (most := limits.tokens_max):
            raise Conflict(f"there are {most} tokens, as many as may be; revoke some first", tokens_max=most)
        after = {**known, name: item.token}
        if not item.operator_elsewhere and not _operators(after, batch.now_us):
            what = "the first token needs the scope admin in all queues: with this one nobody could create another"
            raise BadSetting(f"{what}; syncbrok tokens create NAME --scope admin", setting="scopes")
        told = {"token": name, "scopes": item.token.patterns, "by": item.by}
        self._put(after, batch, "syncbrok.space.token_created", told)
        self._tell(batch, name, "created", item.token.patterns, item.by)

    def revoke(self, item: RevokeToken, batch: CommitBatch) -> None:
        """See ``RevokeToken``."""
        batch.claim(_CLAIM)
        if item.name not in self._store.tokens:
            raise UnknownToken(f"no token {item.name[:80]!r} was created here", token=item.name[:80])
        after = {name: one for name, one in self._store.tokens.items() if name != item.name}
        opens = not after and item.may_be_open
        if not item.operator_elsewhere and not opens and not _operators(after, batch.now_us):
            what = f"token {item.name!r} is the last that may create others: without it "
            what += "nobody could" if after else "everybody who can connect might do everything"
            raise Conflict(f"{what}; create another one with the scope admin first", token=item.name)
        self._put(after, batch, "syncbrok.space.token_revoked", {"token": item.name, "by": item.by})
        self._tell(batch, item.name, "revoked", {}, item.by)

    def _tell(self, batch: CommitBatch, name: str, change: str, scopes: Mapping[str, object], by: str) -> None:
        data = {"token": name, "change": change, "scopes": scopes or None, "by": by or None}
        self._events.emit(batch, EventType.TOKEN_CHANGED, f"/tokens/{quote(name, safe='')}", data, of_fact=False)

    def _put(self, tokens: Mapping[str, Token], batch: CommitBatch, event: str, told: Mapping[str, object]) -> None:
        batch.before.append(self._store.stage_tokens(tokens))
        batch.after += [self._store.keep_tokens, partial(_log.info, event, extra=told)]
        batch.undo.append(self._store.discard_tokens)


def _operators(tokens: Mapping[str, Token], now_us: int) -> list[Token]:
    return [one for one in tokens.values() if one.is_operator and not 0 < one.expires_us <= now_us]
