"""SIGHUP reads the configuration again: what of it applies without a restart."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Final

from syncbrok.config import Config, TokenConfig, refuse_exposed
from syncbrok.frontends.over_http.requests.context import Token
from syncbrok.model.errors import BadConfig

_log: Final = logging.getLogger("syncbrok.broker")


def http_tokens(tokens: Sequence[TokenConfig]) -> tuple[Token, ...]:
    """The tokens of a configuration as the HTTP frontend takes them."""
    return tuple(Token(one.name, one.sha256, one.scopes) for one in tokens)


class Reload:
    """``config`` is what the broker runs on, ``read`` reads it again, ``set_tokens`` is the HTTP frontend's."""

    def __init__(
        self, config: Config, read: Callable[[], Config], set_tokens: Callable[[Sequence[Token]], None]
    ) -> None:
        self._config = config
        self._read = read
        self._set_tokens = set_tokens

    async def run(self) -> None:
        """Apply the tokens of the file as it is now; a token that is gone opens nothing any more. A file that cannot be
        read, or would leave the broker open, changes nothing. Other changes are logged: they need a restart."""
        try:
            found = await asyncio.to_thread(self._read)
            refuse_exposed(replace(self._config, http=replace(self._config.http, tokens=found.http.tokens)))
        except (BadConfig, OSError) as wrong:
            _log.error("syncbrok.broker.config_not_reloaded", extra={"why": str(wrong)})
            return
        before = self._config.http.tokens
        if found.http.tokens != before:
            self._set_tokens(http_tokens(found.http.tokens))
            known = {one.name: one for one in found.http.tokens}
            _log.info(
                "syncbrok.broker.tokens_changed",
                extra={
                    "tokens": len(known),
                    "added": [name for name in known if name not in {one.name for one in before}],
                    "removed": [one.name for one in before if one.name not in known],
                    "changed": [one.name for one in before if one.name in known and known[one.name] != one],
                },
            )
            self._config = replace(self._config, http=replace(self._config.http, tokens=found.http.tokens))
        waiting = [one.name for one in fields(found) if getattr(found, one.name) != getattr(self._config, one.name)]
        if waiting:
            _log.warning("syncbrok.broker.config_needs_restart", extra={"sections": waiting})
