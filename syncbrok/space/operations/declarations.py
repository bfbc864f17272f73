"""Declaring, changing and deleting queues and subscribers: each a step that puts facts into a batch (RULES 14 to 19).

What needs more than one batch (a forced deletion, a purge) stands in ``operations``.
"""

import logging
from collections.abc import Callable, Container, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, replace
from typing import Any, Final, TypeVar

from syncbrok.delivery.filtering.message_filter import compile_filter
from syncbrok.delivery.scheduler.queries import SubscriberStatistics
from syncbrok.model import limits
from syncbrok.model.errors import BadSetting, Conflict, Overloaded
from syncbrok.model.event_types import EVENTS_QUEUE, EventType
from syncbrok.model.facts import FileApplied, QueueSet, SubscriberDeleted, SubscriberSet
from syncbrok.model.file_entry import PAUSED, SECRET, key_hashes
from syncbrok.model.message import PULL_ENDPOINT, DisabledBy, Queue, QueueSettings, Subscriber, SubscriberSettings
from syncbrok.model.names import parse_queue_name, parse_subscriber_id, refuse_reserved
from syncbrok.model.settings import (
    QUEUE_SETTINGS,
    SUBSCRIBER_SETTINGS,
    parse_start,
    read_setting,
    refuse_types,
    refuse_webhook_only,
)
from syncbrok.model.units import parse_endpoint, parse_secret
from syncbrok.space.channels import (
    ChangeQueue,
    ChangeSubscriber,
    Declared,
    DeclareQueue,
    FromFile,
    RotateSecret,
    Subscribe,
    Unsubscribe,
)
from syncbrok.space.commit.commit_batch import CommitBatch
from syncbrok.space.operations.broker_events import BrokerEvents
from syncbrok.space.state.file_changes import changed_keys, with_settings
from syncbrok.space.state.registry import Registry, subscriber_id
from syncbrok.space.state.secret_store import SecretStore, make_secret
from syncbrok.space.state.secrets_file import Kept

S = TypeVar("S", QueueSettings, SubscriberSettings)

_log = logging.getLogger(__name__)

_ROOM_AFTER_S: Final = 60.0
_queue_fields: Final = frozenset(field.name for field in fields(QueueSettings))
_subscriber_fields: Final = frozenset(field.name for field in fields(SubscriberSettings))
_not_changed: Final = frozenset({"name", "start", "disabled_us", "disabled_by", "secret_count", "declared"})
"""fields of a subscriber that its identity, its first fact or the broker itself decides"""


class Declarations:
    """``schemes`` are what comes before the colon of an endpoint that some handler takes besides webhooks.
    ``statistics`` are a subscriber's (number); ``forget`` is told of one that is gone or goes elsewhere."""

    def __init__(
        self,
        registry: Registry,
        secret_store: SecretStore,
        schemes: AbstractSet[str],
        statistics: Callable[[int], SubscriberStatistics],
        forget: Callable[[Subscriber], None],
        events: BrokerEvents,
    ) -> None:
        self._registry = registry
        self._secret_store = secret_store
        self._schemes = schemes
        self._statistics = statistics
        self._forget = forget
        self.events = events
        """those that tell of what is declared, and of all else"""

    # -- queues ---------------------------------------------------------------------------------------------------

    def declare_queue(self, item: DeclareQueue, batch: CommitBatch) -> Declared:
        parse_queue_name(item.name)
        queue = self._registry.find(item.name)
        if self._is_applied(batch, item.name, item.applied, is_there=queue is not None):
            return Declared("unchanged", item.name)  # whatever became of it since (RULES 18)
        settings = item.settings
        if queue is not None and item.applied is not None:
            names = changed_keys(self._registry.last_applied(item.name), item.applied.keys, QUEUE_SETTINGS)
            settings = with_settings(queue.settings, settings, names, QUEUE_SETTINGS)
        if queue is not None and queue.settings != settings and item.applied is None:
            raise Conflict(f"queue {item.name!r} exists with other settings; change it instead", queue=item.name,
                           differs=_differences(queue.settings, settings))  # fmt: skip
        if queue is not None and queue.settings == settings and item.applied is None:
            return Declared("unchanged", item.name)
        if queue is None:
            refuse_reserved(item.name, "queue")
        batch.claim(item.name)
        what = "unchanged"
        if queue is None or queue.settings != settings:
            what = "created" if queue is None else "changed"
            number = self._next_queue(batch) if queue is None else queue.number
            batch.add(QueueSet(batch.sequence, batch.time_us, number, item.name, settings))
        self._applied(batch, item.name, item.applied)
        return Declared(what, item.name)

    def change_queue(self, item: ChangeQueue, batch: CommitBatch) -> Declared:
        queue = self._registry.queue(item.name)
        settings = _changed(queue.settings, item.changes, _queue_fields)
        if settings == queue.settings:
            return Declared("unchanged", item.name)
        batch.claim(item.name)
        batch.add(QueueSet(batch.sequence, batch.time_us, queue.number, queue.name, settings))
        return Declared("changed", item.name)

    # -- subscribers ----------------------------------------------------------------------------------------------

    def subscribe(self, item: Subscribe, batch: CommitBatch) -> Declared:
        id_ = parse_subscriber_id(subscriber_id(item.settings))
        entry = f"{item.queue}/{id_}"
        there = self._registry.find(item.queue)
        is_there = there is not None and self._registry.find_subscriber(there.number, id_) is not None
        if self._is_applied(batch, entry, item.applied, is_there=is_there):
            return Declared("unchanged", id_)
        self._check(item.settings, ("endpoint", "filter"))
        if item.secret is not None:
            parse_secret(item.secret)
        if there is None and item.queue == EVENTS_QUEUE:
            there = Queue(self._next_queue(batch), EVENTS_QUEUE)
        queue = there or self._registry.queue(item.queue)
        refuse_types(item.queue, item.settings.types)
        known = self._registry.find_subscriber(queue.number, id_)
        if known is not None:
            if item.settings.declared and not known.settings.declared:
                return self._declare(known, item, batch)
            if item.applied is not None and item.applied.hash:
                return self._apply_again(known, item, item.applied, batch)
            return self._subscribe_again(known, item)
        refuse_reserved(id_, "subscriber")
        if item.comes_to_take and not item.settings.counts:
            self._check_room(item.queue, queue.number)
        start = self._start(item.start)
        batch.claim(item.queue)
        number = self._next_subscriber(batch)
        settings = replace(item.settings, start=start, disabled_us=0, secret_count=0)
        if item.secret is not None:
            settings = replace(settings, secret_count=1)
            self._keep_secret(batch, number, Kept((item.secret,)))
        made: list[QueueSet] = []
        if self._registry.find(item.queue) is None:
            made.append(QueueSet(batch.sequence, batch.time_us, queue.number, queue.name, queue.settings))
        sequence = batch.sequence + len(made)
        batch.add(*made, SubscriberSet(sequence, batch.time_us, number, queue.number, id_, sequence, settings))
        self._applied(batch, entry, item.applied)
        return Declared("created", id_)

    def _declare(self, known: Subscriber, item: Subscribe, batch: CommitBatch) -> Declared:
        """A group that its first pull made, or that an older version knows, is declared: as it is said now, but for
        where it stands."""
        old = known.settings
        if old.endpoint != item.settings.endpoint:
            return self._subscribe_again(known, item)
        batch.claim(item.queue)
        self._set(known, replace(item.settings, start=old.start, secret_count=old.secret_count), batch, item.secret)
        self._applied(batch, f"{item.queue}/{known.id}", item.applied)
        return Declared("changed", known.id)

    def _subscribe_again(self, known: Subscriber, item: Subscribe) -> Declared:
        """Declare a subscriber that is there. Where it starts was decided when it was added; paused by hand it stays,
        unless asked for outright."""
        old = known.settings
        paused = item.settings.paused or old.paused
        new = replace(
            item.settings,
            start=old.start,
            disabled_us=old.disabled_us,
            disabled_by=old.disabled_by,
            secret_count=old.secret_count,
            paused=paused,
        )
        if item.comes_to_take:
            new = replace(new, counts=old.counts, declared=old.declared)
        other_secret = item.secret is not None and not self._secret_store.holds(known.number, item.secret)
        other_start = item.start is not None and self._start(item.start) != old.start
        if new == old and not other_secret and not other_start:
            return Declared("unchanged", known.id)
        differs = _differences(old, new) + ["secret"] * other_secret
        mend = "change it instead" if differs else "delete it and subscribe again, or replay what it missed"
        what = f"subscriber {known.id!r} of queue {item.queue!r} exists with other settings; {mend}"
        differs += ["start"] * other_start
        raise Conflict(what, queue=item.queue, subscriber=known.id, differs=differs)

    def _apply_again(self, known: Subscriber, item: Subscribe, applied: FromFile, batch: CommitBatch) -> Declared:
        """A file's entry has changed: so do the keys that it says otherwise. Where it starts was decided when it was
        added, and a secret that the file says no more is kept: nobody takes unsigned deliveries for a line less."""
        entry = f"{item.queue}/{known.id}"
        names = changed_keys(self._registry.last_applied(entry), applied.keys, SUBSCRIBER_SETTINGS)
        new = with_settings(known.settings, item.settings, names, SUBSCRIBER_SETTINGS)
        secret = item.secret if SECRET in names else None
        if secret is not None and self._is_kept(known, entry, secret):
            secret = None
        batch.claim(item.queue)
        what = "unchanged"
        if new != known.settings or secret is not None:
            self._set(known, new, batch, secret)
            what = "changed"
        self._applied(batch, entry, applied)
        return Declared(what, known.id)

    def change_subscriber(self, item: ChangeSubscriber, batch: CommitBatch) -> Declared:
        known = self._registry.subscriber(item.queue, item.id)
        said: FromFile | None = None
        if item.applied is not None:
            item, said = self._only_new(known, item, item.applied)
        changes = dict(item.changes)
        settings = self._settings_changed(known, changes)
        if changes.get("paused") is False:
            settings = replace(settings, disabled_us=0)
        if item.secret is not None:
            parse_secret(item.secret)
        other_secret = item.secret is not None and not self._secret_store.holds(known.number, item.secret)
        if item.without_secret:
            settings = replace(settings, secret_count=0)
        entry = f"{item.queue}/{known.id}"
        if settings == known.settings and not other_secret:
            self._applied(batch, entry, said)
            return Declared("unchanged", known.id)
        batch.claim(item.queue)
        if item.applied is None and (other_secret or item.without_secret):
            self._had_secret(known, entry, batch)
        if item.without_secret:
            # Forgotten after the fact: a crash before it must not leave one that is counted and not there.
            batch.after.append(lambda: self._secret_store.forget(known.number))
        self._set(known, settings, batch, item.secret if other_secret else None)
        self._applied(batch, entry, said)
        return Declared("changed", known.id)

    def _settings_changed(self, known: Subscriber, changes: dict[str, Any]) -> SubscriberSettings:
        """Its settings with these changes. Raises ``BadSetting``."""
        if known.consumed:
            refuse_webhook_only(changes)
        refuse_types(self._registry.queue_name(known.queue), changes.get("types"))
        if "name" in changes and changes["name"] == known.settings.name:
            del changes["name"]
        settings = _changed(known.settings, changes, _subscriber_fields - _not_changed)
        self._check(settings, changes)
        return settings

    def _only_new(
        self, known: Subscriber, item: ChangeSubscriber, applied: FromFile
    ) -> tuple[ChangeSubscriber, FromFile | None]:
        """``item`` without what its file has said before: an operator may have changed that since (of a subscriber
        without a secret the file's is taken). And what is to be kept of what the file says, None where it is known."""
        entry = f"{item.queue}/{known.id}"
        before = self._registry.last_applied(entry)
        told = dict(before.keys or ()) if before is not None else {}
        again = {name for name, hash_ in applied.keys.items() if told.get(name) == hash_}
        changes = {name: value for name, value in item.changes.items() if name != PAUSED or PAUSED not in again}
        keep = item.secret is not None and self._is_kept(known, entry, item.secret)
        keep = keep or (SECRET in again and known.settings.secret_count > 0)
        said = FromFile("", {**told, **applied.keys}) if len(again) < len(applied.keys) else None
        return item._replace(changes=changes, secret=None if keep else item.secret), said

    def _is_kept(self, known: Subscriber, entry: str, secret: str) -> bool:
        """Whether a file's secret changes nothing: it signs with it. Where it is not known which secret the file said
        before, one that is being rotated out is that, and is not taken back."""
        before = self._registry.last_applied(entry)
        told = dict(before.keys or ()) if before is not None else {}
        return self._secret_store.holds(known.number, secret) or (
            SECRET not in told and self._secret_store.knows(known.number, secret)
        )

    def _had_secret(self, known: Subscriber, entry: str, batch: CommitBatch) -> None:
        """Its secret is to be another one, which no file says: a file that says the old one says nothing new."""
        before = self._registry.last_applied(entry)
        told = {} if before is None else None if before.keys is None else dict(before.keys)
        if self._secret_store.keys(known.number) and told is not None and SECRET not in told:
            newest = self._secret_store.newest(known.number).secrets[0]
            self._applied(batch, entry, FromFile("", {**told, **key_hashes({}, newest)}))

    def rotate_secret(self, item: RotateSecret, batch: CommitBatch) -> str:
        known = self._registry.subscriber(item.queue, item.id)
        secret = make_secret() if item.secret is None else parse_secret(item.secret)
        if self._secret_store.holds(known.number, secret):
            raise Conflict("this is the secret it signs with already", queue=item.queue, subscriber=item.id)
        batch.claim(item.queue)
        self._had_secret(known, f"{item.queue}/{known.id}", batch)
        kept = self._secret_store.rotated(known.number, secret, batch.now_us)
        self._keep_secret(batch, known.number, kept)
        self._add(known, replace(known.settings, secret_count=len(kept.secrets)), batch)
        return secret

    def retire_secret(self, number: int, batch: CommitBatch) -> None:
        """The old secret has stopped signing: forget it."""
        known = self._registry.subscriber_numbered(number)
        if known is None or known.settings.secret_count < 2:
            return
        batch.claim(self._registry.queue_name(known.queue))
        self._keep_secret(batch, number, self._secret_store.newest(number))
        self._add(known, replace(known.settings, secret_count=1), batch)

    def disable(self, number: int, why: DisabledBy, batch: CommitBatch) -> None:
        """Disable a subscriber that is not yet (RULES 14). Raises ``RetryNextBatch``."""
        known = self._registry.subscriber_numbered(number)
        if known is None or known.settings.disabled_us:
            return
        queue = self._registry.queue_name(known.queue)
        batch.claim(queue)
        self._add(known, replace(known.settings, disabled_us=max(1, batch.now_us), disabled_by=why), batch)
        told = {"queue": queue, "subscriber": known.id, "reason": why.name.lower()}
        batch.after.append(lambda: _log.warning("syncbrok.space.subscriber_disabled", extra=told))

    def unused(self, number: int, batch: CommitBatch) -> None:
        """End what a group does that nobody has used for ``idle_after`` (RULES 3): one that counts does so no more, one
        that nobody has declared goes."""
        known = self._registry.subscriber_numbered(number)
        if known is None or (known.settings.declared and not known.settings.counts):
            return
        queue = self._registry.queue_name(known.queue)
        batch.claim(queue)
        told = {"queue": queue, "subscriber": known.id}
        if known.settings.counts:
            self._add(known, replace(known.settings, counts=False, declared=True), batch)
            self.events.about(batch, EventType.GROUP_UNCOUNTED, known)
            batch.after.append(lambda: _log.warning("syncbrok.space.group_uncounted", extra=told))
            return
        batch.add(SubscriberDeleted(batch.sequence, batch.time_us, known.number))
        batch.after.append(lambda: self.forget(known))
        batch.after.append(lambda: _log.info("syncbrok.space.group_deleted", extra=told))

    def unsubscribe(self, item: Unsubscribe, batch: CommitBatch) -> int:
        known = self._registry.subscriber(item.queue, item.id)
        batch.claim(item.queue)
        now = self._statistics(known.number)
        dropped = now.backlog + now.blocked + now.in_flight + now.retrying
        batch.add(SubscriberDeleted(batch.sequence, batch.time_us, known.number))
        batch.after.append(lambda: self.forget(known))
        return dropped

    def forget(self, subscriber: Subscriber) -> None:
        """Let go of a subscriber that is deleted, durably."""
        self._forget(subscriber)
        self._secret_store.forget(subscriber.number)

    # -- parts ----------------------------------------------------------------------------------------------------

    def _set(self, known: Subscriber, settings: SubscriberSettings, batch: CommitBatch, secret: str | None) -> None:
        if settings.endpoint != known.settings.endpoint:
            settings = replace(settings, disabled_us=0)  # the new endpoint has not said that it wants no more
            batch.after.append(lambda: self._forget(known))
        if secret is not None:
            self._keep_secret(batch, known.number, Kept((secret,)))
            settings = replace(settings, secret_count=1)
        self._add(known, settings, batch)

    def _add(self, known: Subscriber, settings: SubscriberSettings, batch: CommitBatch) -> None:
        since = known.since
        if settings.counts and not known.settings.counts:  # from now on; what came before it gets uncounted (RULES 3)
            since = batch.sequence
            settings = replace(
                settings, start=known.settings.start or known.since, declared=settings.endpoint == PULL_ENDPOINT
            )
        batch.add(SubscriberSet(batch.sequence, batch.time_us, known.number, known.queue, known.id, since, settings))
        if bool(settings.disabled_us) != bool(known.settings.disabled_us):
            kind = EventType.ENDPOINT_DISABLED if settings.disabled_us else EventType.ENDPOINT_ENABLED
            reason = settings.disabled_by.name.lower() if settings.disabled_us else None
            self.events.about(batch, kind, known, {"reason": reason})

    def _keep_secret(self, batch: CommitBatch, number: int, kept: Kept) -> None:
        """Have the secret fsynced before the batch, and in force once the batch is durable (RULES 19)."""
        batch.before.append(self._secret_store.stage(number, kept))
        batch.after.append(lambda: self._secret_store.keep(number))
        batch.undo.append(lambda: self._secret_store.discard(number))

    def _is_applied(self, batch: CommitBatch, entry: str, applied: FromFile | None, *, is_there: bool) -> bool:
        """Whether the file says of the entry what it said when it was last applied. Where an older version applied it
        to what ``is_there`` still, its keys are learned on the way."""
        before = self._registry.last_applied(entry)
        if applied is None or before is None or before.hash != applied.hash or not applied.hash:
            return False
        if before.keys is None and is_there:
            self._applied(batch, entry, applied)
        return True

    def _applied(self, batch: CommitBatch, entry: str, applied: FromFile | None) -> None:
        if applied is not None:
            before = self._registry.last_applied(entry)
            hash_ = applied.hash or ("" if before is None else before.hash)
            keys = tuple(sorted(applied.keys.items()))
            batch.add(FileApplied(batch.sequence, batch.time_us, entry, hash_, keys))

    def _next_queue(self, batch: CommitBatch) -> int:
        given = sum(isinstance(fact, QueueSet) and fact.number > self._registry.last_queue_number
                    for fact in batch.facts)  # fmt: skip
        return self._registry.last_queue_number + 1 + given

    def _next_subscriber(self, batch: CommitBatch) -> int:
        given = sum(isinstance(fact, SubscriberSet) and fact.number > self._registry.last_subscriber_number
                    for fact in batch.facts)  # fmt: skip
        return self._registry.last_subscriber_number + 1 + given

    def _check_room(self, name: str, queue: int) -> None:
        """For one more in the queue (name and number) that does not count."""
        count = sum(not one.settings.counts for one in self._registry.subscribers(queue))
        if count >= limits.uncounted_per_queue_max:
            raise Overloaded(
                f"queue {name!r} has {count} subscribers that only take messages, at most "
                f"{limits.uncounted_per_queue_max}; delete groups that nobody uses, or declare this one",
                retry_after_s=_ROOM_AFTER_S,
            )

    def _check(self, settings: SubscriberSettings, names: Container[str]) -> None:
        """Raises ``BadSetting`` where one of these settings is wrong that only the broker can judge: an endpoint that
        no handler takes, a filter that does not compile."""
        if "endpoint" in names and settings.endpoint.partition(":")[0] not in self._schemes:
            parse_endpoint(settings.endpoint)
        if "filter" in names and settings.filter is not None:
            read_setting("filter", compile_filter, settings.filter)

    def _start(self, start: str | None) -> int | None:
        """The sequence to deliver from; None for now. Raises ``BadSetting``."""
        given = "now" if start is None else read_setting("start", parse_start, start)
        return None if given == "now" else 1 if given == "beginning" else int(given)


def _changed(settings: S, changes: Mapping[str, Any], allowed: AbstractSet[str]) -> S:
    for name in changes:
        if name not in allowed:
            raise BadSetting(f"{name!r} cannot be changed", setting=name)
    return replace(settings, **changes)


def _differences(old: QueueSettings | SubscriberSettings, new: QueueSettings | SubscriberSettings) -> list[str]:
    """The settings that differ, by the names that clients know them by."""
    settings = QUEUE_SETTINGS if isinstance(old, QueueSettings) else SUBSCRIBER_SETTINGS
    return [one.name for one in settings if getattr(old, one.field) != getattr(new, one.field)]
