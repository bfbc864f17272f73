"""SIGHUP reads the configuration again: what of it applies without a restart."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Final

from syncbrok.cli.serve.certificates import Certificates, read_certificates
from syncbrok.config import Config, refuse_exposed
from syncbrok.model.errors import BadConfig
from syncbrok.model.tokens import Token

_log: Final = logging.getLogger("syncbrok.broker")


class Reload:
    """``config`` is what the broker runs on, ``read`` reads it again, ``set_tokens`` is the HTTP frontend's,
    ``certificates`` are those that its listeners show."""

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config],
        set_tokens: Callable[[Sequence[Token]], None],
        certificates: Certificates,
        has_created: Callable[[], bool] = lambda: False,
    ) -> None:
        """``has_created``: whether there are tokens besides, which were created."""
        self._has_created = has_created
        self._config = config
        self._read = read
        self._set_tokens = set_tokens
        self._certificates = certificates

    async def run(self) -> None:
        """Apply the tokens of the file as it is now, and the certificates that it names: a token that is gone opens
        nothing any more, a certificate that was renewed is shown from the next connection on. A file that cannot be
        read, or would leave the broker open, changes nothing. Other changes are logged: they need a restart."""
        try:
            found = await asyncio.to_thread(self._read)
            after = _with_what_applies(self._config, found)
            refuse_exposed(after, has_tokens=self._has_created())
            certificates = await asyncio.to_thread(read_certificates, found)
        except (BadConfig, OSError) as wrong:
            _log.error("syncbrok.broker.config_not_reloaded", extra={"why": str(wrong)})
            return
        changed = self._certificates.replace(certificates)
        if changed:
            _log.info("syncbrok.broker.certificates_changed", extra={"listeners": changed})
        before = self._config.http.tokens
        if found.http.tokens != before:
            self._set_tokens(found.http.tokens)
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
        self._config = after
        waiting = [one.name for one in fields(found) if getattr(found, one.name) != getattr(self._config, one.name)]
        if waiting:
            _log.warning("syncbrok.broker.config_needs_restart", extra={"sections": waiting})


def _with_what_applies(config: Config, found: Config) -> Config:
    """``config`` with those settings of ``found`` that need no restart: tokens, and the files of a listener that speaks
    TLS before and after."""
    frontends = {
        one.name: replace(settings, tls=other.tls)
        for one in fields(config.frontends)
        if (settings := getattr(config.frontends, one.name)) is not None
        and (other := getattr(found.frontends, one.name)) is not None
        and None not in (settings.tls, other.tls)
    }
    tls = found.http.tls if None not in (config.http.tls, found.http.tls) else config.http.tls
    http = replace(config.http, tokens=found.http.tokens, tls=tls)
    return replace(config, http=http, frontends=replace(config.frontends, **frontends))
