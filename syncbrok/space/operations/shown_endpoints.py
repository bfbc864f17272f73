"""Endpoints that a client gives as they are shown, ``***`` in the place of what nobody is shown (RULES 19): what they
mean. Who reads a subscriber and writes it back changes nothing.
"""

from dataclasses import replace

from syncbrok.model.auth_settings import NAME as AUTH
from syncbrok.model.errors import BadSetting, Conflict
from syncbrok.model.message import Subscriber, SubscriberSettings
from syncbrok.model.units import HIDDEN, has_hidden, shown_endpoint
from syncbrok.space.state.registry import Registry, subscriber_id


def as_it_stands(settings: SubscriberSettings, known: SubscriberSettings) -> SubscriberSettings:
    """``settings`` with the endpoints of ``known`` where they are given, whole, as those are shown. A part of one means
    nothing: what is secret would go to another host by it."""
    if has_hidden(settings.endpoint) and settings.endpoint == shown_endpoint(known.endpoint):
        settings = replace(settings, endpoint=known.endpoint)
    auth, old = settings.auth, known.auth
    if auth and old and has_hidden(auth.token_url) and auth.token_url == shown_endpoint(old.token_url):
        settings = replace(settings, auth=auth._replace(token_url=old.token_url))
    return settings


def refuse_hidden(settings: SubscriberSettings, known: Subscriber | None) -> None:
    """Raise ``BadSetting`` where an endpoint is given as it is shown that ``known`` has not."""
    there = {} if known is None else _urls(known.settings)
    for name, url in _urls(settings).items():
        if has_hidden(url) and url != there.get(name):
            what = f"{HIDDEN} stands for what is not shown, and no {name} is there that is shown so: write it in full"
            raise BadSetting(f"{name}: {what}", setting=AUTH if name == _TOKEN_URL else name)


def meant(registry: Registry, queue: str, settings: SubscriberSettings) -> SubscriberSettings:
    """The settings of a subscriber that is declared, ``as_it_stands``. One without a name is found by its endpoint as
    that is shown; raises ``Conflict`` where several are shown alike."""
    there = registry.find(queue)
    if there is None:
        return settings
    if settings.name is not None or not has_hidden(settings.endpoint):
        known = registry.find_subscriber(there.number, subscriber_id(settings))
        return settings if known is None else as_it_stands(settings, known.settings)
    full = [as_it_stands(settings, one.settings) for one in registry.subscribers(there.number)]
    found = {subscriber_id(one): one for one in full if one.endpoint != settings.endpoint}
    found = {id_: one for id_, one in found.items() if registry.find_subscriber(there.number, id_) is not None}
    if len(found) > 1:
        what = f"the endpoints of {len(found)} subscribers of queue {queue!r} are shown like this one"
        raise Conflict(f"{what}: write it in full", queue=queue, setting="endpoint")
    return next(iter(found.values()), settings)


_TOKEN_URL = "token_url"  # noqa: S105  the name of a setting


def _urls(settings: SubscriberSettings) -> dict[str, str]:
    return {"endpoint": settings.endpoint, _TOKEN_URL: settings.auth.token_url if settings.auth else ""}
