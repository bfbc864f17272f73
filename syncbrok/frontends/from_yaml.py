"""Queues and subscribers out of a file, ``queues.yml``: at the start, and again on SIGHUP.

Every entry (a queue, a subscriber) has a hash of what the file says about it, and one for each of its keys; the Space
keeps them as a fact. An entry is applied again only when it has changed in the file, and then only its changed keys. So
neither a restart nor a change of another key reverts changes made over HTTP (RULES 18). Queues and subscribers that are
not in the file are named in the log and left alone.

The original's file is read as well. Its subscribers get the original's delivery::

    Storage: storage/
    Queues:
      orders:
        urls: [http://127.0.0.1:20000/]
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from syncbrok.model import limits
from syncbrok.model.auth_settings import NAME as AUTH
from syncbrok.model.credentials import NONE
from syncbrok.model.errors import BadConfig, BadSetting, BrokerFault, ClientFault, UnknownQueue
from syncbrok.model.file_entry import entry_hash, key_hashes
from syncbrok.model.message import PULL_ENDPOINT, Format, QueueSettings, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId, parse_queue_name
from syncbrok.model.settings import (
    QUEUE_SETTINGS,
    SUBSCRIBER_SETTINGS,
    Setting,
    as_group,
    parse_queue_changes,
    parse_start,
    parse_subscriber_changes,
    parse_switch,
    suggest,
    take_credentials,
)
from syncbrok.model.units import expected, parse_endpoint, parse_secret
from syncbrok.space.channels import FROM_FILE, Channels, Declared, DeclareQueue, FromFile, Subscribe
from syncbrok.space.state.registry import subscriber_id
from syncbrok.yaml_file import YamlEntry, read_yaml_file

_log = logging.getLogger("syncbrok.yaml")
_AT_ONCE: Final = 1_000
_NAMED_MAX: Final = 100
_QUEUE_KEYS: Final = tuple(setting.name for setting in QUEUE_SETTINGS)
_FILE: Final = "file:"
"""before a path, in the place of a value of ``auth``"""
_SUBSCRIBER_KEYS: Final = (*(setting.name for setting in SUBSCRIBER_SETTINGS), "secret", "start", "pull")


class SubscriberEntry(NamedTuple):
    """``given`` are the settings that the file names, under their external names, without the secret and with ``set``
    in place of credentials; ``open`` are those that have credentials, with them."""

    id: SubscriberId
    settings: SubscriberSettings
    secret: str | None
    start: str
    given: Mapping[str, Any]
    said: FromFile
    where: str
    credentials: Mapping[str, str] = NONE
    open: Mapping[str, Any] = MappingProxyType({})


class QueueEntry(NamedTuple):
    name: QueueName
    settings: QueueSettings
    given: Mapping[str, Any]
    said: FromFile
    where: str
    subscribers: tuple[SubscriberEntry, ...]

    def settings_over(self, defaults: QueueSettings) -> QueueSettings:
        """Its settings, with the scope of ``defaults`` where the entry says none."""
        return self.settings if "scope" in self.given else replace(self.settings, scope=defaults.scope)


class QueuesFile(NamedTuple):
    """``storage`` is the directory that the original's ``Storage: path`` names."""

    queues: tuple[QueueEntry, ...]
    storage: Path | None = None

    @property
    def entries(self) -> frozenset[str]:
        """``queue`` and ``queue/subscriber`` for all it declares."""
        queues = {str(queue.name) for queue in self.queues}
        return frozenset(queues | {f"{queue.name}/{one.id}" for queue in self.queues for one in queue.subscribers})


class Applied(NamedTuple):
    """The result for a file's entries (``queue``, ``queue/subscriber``). ``undeclared``: running, but not in the file.
    ``left_out``: subscribers of a queue that was deleted over HTTP and so is not declared again (RULES 18)."""

    created: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    undeclared: tuple[str, ...]
    left_out: tuple[str, ...] = ()


_DEFAULTS: Final = QueueSettings()
Existing = Callable[[], Iterable[tuple[str, Sequence[str]]]]
"""The queues that exist, each with the ids of its subscribers."""


# -- reading ----------------------------------------------------------------------------------------------------------


def read_queues_file(path: Path, variables: Mapping[str, str]) -> QueuesFile:
    """The whole file, or ``BadConfig`` naming file, line and key of the first mistake."""
    top = read_yaml_file(path, variables)
    if {"Storage", "Queues"} & set(top.mapping()):
        return _original(top)
    queues = top.mapping(("queues",)).get("queues")
    return QueuesFile(tuple(_queue(name, entry) for name, entry in queues.mapping().items()) if queues else ())


def _queue(name: str, entry: YamlEntry) -> QueueEntry:
    settings = entry.mapping((*_QUEUE_KEYS, "subscribers"))
    subscribers = settings.pop("subscribers", None)
    fields = _fields(settings, parse_queue_changes)
    given = _given(QUEUE_SETTINGS, settings, fields)
    return QueueEntry(
        _named(name, entry),
        QueueSettings(**fields),
        given,
        _from_file(given),
        entry.where,
        _distinct((_subscriber(one), one) for one in (subscribers.items() if subscribers else ())),
    )


def _subscriber(entry: YamlEntry) -> SubscriberEntry:
    if not entry.is_mapping:
        raise entry.wrong("expected a mapping such as {endpoint: https://billing.example/hooks}")
    settings = entry.mapping(_SUBSCRIBER_KEYS)
    secret_entry, start_entry = settings.pop("secret", None), settings.pop("start", None)
    pull = settings.pop("pull", None)
    hidden = _Hidden({}, {}, Path(entry.file).parent)
    fields = _fields(settings, partial(_parse_hiding, hidden))
    if pull is not None and pull.read(parse_switch):
        if "endpoint" in settings:
            raise entry.wrong("a group has no endpoint, its consumers come for its messages: leave out one of the two")
        if "name" not in settings:
            raise entry.wrong("expected a name, by which the consumers of a group ask for messages")
        fields = as_group(fields)
    elif "endpoint" not in settings:
        raise entry.wrong("expected an endpoint, the URL its messages are posted to, or pull: true")
    secret = secret_entry.read(parse_secret) if secret_entry else None
    start = start_entry.read(parse_start) if start_entry else "now"
    given = _given(SUBSCRIBER_SETTINGS, settings, fields) | ({"start": start} if start_entry else {})
    given |= {"pull": True} if fields["endpoint"] == PULL_ENDPOINT else {}
    made = SubscriberSettings(**fields)
    said = _from_file(given, secret)
    return SubscriberEntry(subscriber_id(made), made, secret, start, given, said, entry.where, *hidden[:2])


class _Hidden(NamedTuple):
    """The values of an entry's settings that nobody is shown; and those settings with them. ``directory``: that of the
    file."""

    credentials: dict[str, str]
    settings: dict[str, Any]
    directory: Path


def _parse_hiding(hidden: _Hidden, given: dict[str, Any]) -> dict[str, Any]:
    """As ``parse_subscriber_changes``, of settings with their credentials, which are put aside."""
    if AUTH in given:
        given[AUTH] = _with_files(given[AUTH], hidden.directory)
    as_given = dict(given)
    credentials = take_credentials(given)
    if credentials:
        hidden.credentials.update(credentials)
        hidden.settings.update(as_given)
    return parse_subscriber_changes(given)


def _with_files(value: Any, directory: Path) -> Any:
    """``value`` with the content of a file in the place of each ``file:PATH``, without the line end behind it. A path
    begins at the ``directory`` of the file that names it. Raises ``BadSetting``."""
    if isinstance(value, Mapping):
        return {name: _with_files(one, directory) for name, one in value.items()}
    if not isinstance(value, str) or not value.startswith(_FILE):
        return value
    path = directory / value.removeprefix(_FILE)
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        raise BadSetting(f"file {path} cannot be read: it is no UTF-8") from None
    except (OSError, ValueError) as problem:  # a zero byte in a path is a ValueError
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise BadSetting(f"file {path} cannot be read: {why}") from None


def _original(top: YamlEntry) -> QueuesFile:
    entries = top.mapping(("Storage", "Queues"))
    storage = entries.get("Storage")
    if storage is not None and storage.is_mapping:
        storage = _in_any_case(storage, "path")
    queues = []
    for name, entry in entries["Queues"].mapping().items() if "Queues" in entries else ():
        urls = _in_any_case(entry, "urls")
        subscribers = _distinct((_original_subscriber(one), one) for one in (urls.items() if urls else ()))
        queues.append(QueueEntry(_named(name, entry), QueueSettings(), {}, _from_file({}), entry.where, subscribers))
    return QueuesFile(tuple(queues), None if storage is None else storage.read(_path))


def _original_subscriber(entry: YamlEntry) -> SubscriberEntry:
    settings = SubscriberSettings(entry.read(parse_endpoint), format=Format.ORIGINAL)
    given = {"endpoint": settings.endpoint, "format": "original"}
    return SubscriberEntry(subscriber_id(settings), settings, None, "now", given, _from_file(given), entry.where)


def _in_any_case(entry: YamlEntry, name: str) -> YamlEntry | None:
    for key, value in entry.mapping().items():
        if key.lower() != name:
            raise value.wrong(f"unknown key{suggest(key, (name,))}")
        return value
    return None


def _named(name: str, entry: YamlEntry) -> QueueName:
    try:
        return parse_queue_name(name)
    except ClientFault as wrong:
        raise entry.wrong(wrong.detail) from None


def _fields(settings: Mapping[str, YamlEntry], parse: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, entry in settings.items():
        # One at a time, so that the mistake is named in its own line; the key stands in front of it already.
        fields |= entry.read(lambda value, name=name: _unprefixed(name, value, parse))  # type: ignore[misc]
    return fields


def _unprefixed(name: str, value: Any, parse: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    try:
        return parse({name: value})
    except BadSetting as wrong:
        raise BadSetting(wrong.detail.removeprefix(f"{name}: "), **wrong.members) from None


def _given(rows: Iterable[Setting], settings: Mapping[str, YamlEntry], fields: Mapping[str, Any]) -> dict[str, Any]:
    return {row.name: row.render(fields[row.field]) for row in rows if row.name in settings}


def _distinct(entries: Iterator[tuple[SubscriberEntry, YamlEntry]]) -> tuple[SubscriberEntry, ...]:
    found: dict[SubscriberId, SubscriberEntry] = {}
    for subscriber, entry in entries:
        first = found.setdefault(subscriber.id, subscriber)
        if first is not subscriber:
            what = "name" if subscriber.settings.name else "endpoint"
            raise entry.wrong(f"the same {what} as {first.where}; give each subscriber a name of its own")
    return tuple(found.values())


def _path(value: Any) -> Path:
    if not isinstance(value, str) or not value:
        raise expected("a path", value)
    return Path(value)


def _from_file(given: Mapping[str, Any], secret: str | None = None) -> FromFile:
    """Hashes of an entry, and of each key that it names (RULES 18)."""
    return FromFile(entry_hash(given, secret), key_hashes(given, secret))


# -- applying ---------------------------------------------------------------------------------------------------------


async def apply_queues(
    file: QueuesFile, channels: Channels, existing: Existing, defaults: QueueSettings = _DEFAULTS
) -> Applied:
    """Hand every entry to the Space and wait until it is durable; ``defaults``: of a queue. Raises ``BadConfig`` where
    the Space refuses one (those before it stay applied), and what its channels raise."""
    declarations = [
        _Item(queue.name, DeclareQueue(queue.name, queue.settings_over(defaults), queue.said, FROM_FILE), queue.where)
        for queue in file.queues
    ]
    subscriptions = [
        _Item(
            f"{queue.name}/{one.id}",
            Subscribe(
                queue.name, one.settings, one.secret, one.start, one.said, credentials=one.credentials, by=FROM_FILE
            ),
            one.where,
        )
        for queue in file.queues
        for one in queue.subscribers
    ]
    outcomes = await _put_all(channels.queues.put, declarations)
    outcomes |= await _put_all(channels.subscribers.put, subscriptions)
    created, changed, unchanged, left_out = (
        tuple(entry for entry, what in outcomes.items() if what == wanted)
        for wanted in ("created", "changed", "unchanged", "left out")
    )
    applied = Applied(created, changed, unchanged, tuple(_undeclared(file.entries, existing())), left_out)
    _log_applied(applied)
    return applied


async def reload_queues(
    path: Path,
    variables: Mapping[str, str],
    channels: Channels,
    existing: Existing,
    defaults: QueueSettings = _DEFAULTS,
) -> bool:
    """Read and apply the file again. A file with a mistake changes nothing: it is logged, and False returned."""
    try:
        await apply_queues(read_queues_file(path, variables), channels, existing, defaults)
    except (BadConfig, BrokerFault) as wrong:
        _log.error("syncbrok.yaml.refused", extra={"yaml_mistake": wrong.detail})
        return False
    return True


class _Item(NamedTuple):
    entry: str
    item: DeclareQueue | Subscribe
    where: str


async def _put_all(put: Callable[[Any], "asyncio.Future[Declared]"], items: Sequence[_Item]) -> dict[str, str]:
    """Put all items and return the result of each, by entry. They go in bounded parts, each one commit or few. Every
    receipt is awaited, also behind one that is refused."""
    outcomes: dict[str, str] = {}
    for at in range(0, len(items), _AT_ONCE):
        part = items[at : at + _AT_ONCE]
        receipts = await asyncio.gather(*(put(one.item) for one in part), return_exceptions=True)
        for (entry, _, where), receipt in zip(part, receipts, strict=True):
            if isinstance(receipt, UnknownQueue):
                outcomes[entry] = "left out"
            elif isinstance(receipt, ClientFault):
                raise BadConfig(f"{where}: {receipt.detail}") from receipt
            elif isinstance(receipt, BaseException):
                raise receipt
            else:
                outcomes[entry] = receipt.what
    return outcomes


def _undeclared(declared: frozenset[str], existing: Iterable[tuple[str, Sequence[str]]]) -> Iterator[str]:
    for queue, subscribers in existing:
        if queue not in declared:
            yield queue
        else:
            yield from (entry for id_ in subscribers if (entry := f"{queue}/{id_}") not in declared)


def _log_applied(applied: Applied) -> None:
    _log.info(
        "syncbrok.yaml.applied",
        extra={
            "yaml_created": applied.created[:_NAMED_MAX],
            "yaml_changed": applied.changed[:_NAMED_MAX],
            "yaml_unchanged": len(applied.unchanged),
        },
    )
    if applied.left_out:
        _log.warning("syncbrok.yaml.queue_deleted", extra={"yaml_left_out": applied.left_out[:_NAMED_MAX]})
    if applied.undeclared:
        extra = {"yaml_undeclared": applied.undeclared[:_NAMED_MAX], "yaml_undeclared_count": len(applied.undeclared)}
        _log.warning("syncbrok.yaml.undeclared", extra=extra)


assert limits.channel_items_max >= _AT_ONCE
