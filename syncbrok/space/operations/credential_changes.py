"""The credentials of a subscriber (``credentials`` of ``model``) after a change of its settings: which stay, which are
given, which the broker makes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from syncbrok.delivery.webhook.endpoint_tls import check_credentials
from syncbrok.delivery.webhook.key_pair import make_key, public_key
from syncbrok.model.auth_settings import OF_TLS
from syncbrok.model.credentials import setting_of
from syncbrok.model.errors import BadSetting
from syncbrok.model.message import Signature, SubscriberSettings
from syncbrok.model.settings import check_together, credential_names
from syncbrok.model.signature_settings import KEY, NAME, OLD_KEY, OLD_KEY_UNTIL, V1A


class Settled(NamedTuple):
    """The settings of a subscriber with what the broker itself adds, and all its credentials by name."""

    settings: SubscriberSettings
    credentials: dict[str, str]


def settle(
    settings: SubscriberSettings,
    given: Mapping[str, str],
    old: SubscriberSettings | None,
    had: Mapping[str, str],
) -> Settled:
    """``settings`` with the credentials that are given, and otherwise those that it had as ``old``. Raises
    ``BadSetting`` where one is missing, or where settings do not go together."""
    check_together(settings)
    settings, keys = _with_key(settings, () if old is None else old.signatures, had)
    there = {**had, **given}
    credentials = {}
    for name in credential_names(settings):
        if name not in there:
            raise BadSetting(
                f"{name.replace(':', ': ')}: a value is needed, for none is kept here that it could stay as",
                setting=setting_of(name),
            )
        credentials[name] = there[name]
    if not OF_TLS.isdisjoint(given):
        check_credentials(credentials)
    return Settled(settings, credentials | keys)


def changed_settings(given: Mapping[str, str], had: Mapping[str, str]) -> list[str]:
    """The names of the settings of which another credential is given than it had."""
    return sorted({setting_of(name) for name, value in given.items() if had.get(name) != value})


def with_another_key(settled: Settled, until_us: int) -> tuple[Settled, str]:
    """The same, signing with a new key pair, and until then with the present one too (0: not at all); and the new
    public key."""
    private = make_key()
    public = public_key(private)
    keys = {KEY: private}
    if until_us:
        keys |= {OLD_KEY: settled.credentials[KEY], OLD_KEY_UNTIL: str(until_us)}
    credentials = {name: value for name, value in settled.credentials.items() if name not in _KEYS}
    return Settled(_signed_by(settled.settings, public), credentials | keys), public


def without_old_key(credentials: Mapping[str, str], now_us: int) -> dict[str, str]:
    """The same without a key that has stopped signing."""
    over = 0 < int(credentials.get(OLD_KEY_UNTIL, 0)) <= now_us
    return {name: value for name, value in credentials.items() if not over or name not in (OLD_KEY, OLD_KEY_UNTIL)}


_KEYS = (KEY, OLD_KEY, OLD_KEY_UNTIL)


def _with_key(
    settings: SubscriberSettings, before: Sequence[Signature], had: Mapping[str, str]
) -> tuple[SubscriberSettings, dict[str, str]]:
    """The settings with the public key of a key pair where they sign with one, and the keys: those it had, or new
    ones."""
    wanted = next((one for one in settings.signatures if one.scheme == V1A), None)
    if wanted is None:
        return settings, {}
    known = next((one for one in before if one.scheme == V1A), None)
    keys = {name: had[name] for name in _KEYS if name in had}
    if wanted.public_key and (known is None or wanted.public_key != known.public_key):
        raise BadSetting(f"{NAME}: the public key is the broker's to make: leave it out", setting=NAME)
    if known is not None and KEY in keys:
        return _signed_by(settings, known.public_key), keys
    keys = {KEY: make_key()}
    return _signed_by(settings, public_key(keys[KEY])), keys


def _signed_by(settings: SubscriberSettings, public: str) -> SubscriberSettings:
    return replace(
        settings,
        signatures=tuple(one._replace(public_key=public) if one.scheme == V1A else one for one in settings.signatures),
    )
