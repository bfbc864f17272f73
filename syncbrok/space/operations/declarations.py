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
from syncbrok.model.credentials import NONE, of_settings, setting_of
from syncbrok.model.errors import BadSetting, Conflict, Overloaded
from syncbrok.model.event_types import EVENTS_QUEUE, EventType
from syncbrok.model.facts import (
    FileApplied,
    Outcome,
    Outcomes,
    QueueSet,
    Reason,
    Row,
    SubscriberDeleted,
    SubscriberSet,
)
from syncbrok.model.file_entry import SECRET, key_hashes
from syncbrok.model.header_settings import in_the_clear, without_values
from syncbrok.model.message import PULL_ENDPOINT, DisabledBy, Queue, QueueSettings, Subscriber, SubscriberSettings
from syncbrok.model.names import parse_queue_name, parse_subscriber_id, refuse_reserved
from syncbrok.model.settings import (
    QUEUE_SETTINGS,
    SUBSCRIBER_SETTINGS,
    check_together,
    parse_start,
    refuse_types,
    refuse_webhook_only,
)
from syncbrok.model.signature_settings import V1A
from syncbrok.model.units import parse_endpoint, parse_secret, read_setting
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
from syncbrok.space.operations.credential_changes import (
    Settled,
    changed_settings,
    settle,
    with_another_key,
    without_old_key,
)
from syncbrok.space.operations.shown_endpoints import as_it_stands, meant, refuse_hidden
from syncbrok.space.state.file_changes import changed_keys, with_settings
from syncbrok.space.state.registry import Registry, subscriber_id
from syncbrok.space.state.secret_store import SecretStore, make_secret
from syncbrok.space.state.secrets_file import Kept

S = TypeVar("S", QueueSettings, SubscriberSettings)
K = TypeVar("K", Subscriber, Subscriber | None)

_log = logging.getLogger(__name__)

_ROOM_AFTER_S: Final = 60.0
_queue_fields: Final = frozenset(field.name for field in fields(QueueSettings))
_subscriber_fields: Final = frozenset(field.name for field in fields(SubscriberSettings))
_WITH_CREDENTIALS: Final = frozenset(setting.field for setting in SUBSCRIBER_SETTINGS if setting.hide is not None)
_not_changed: Final = frozenset(
    {"name", "start", "disabled_us", "disabled_by", "secret_count", "declared", "credentials"}
)
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
        first_sequence: Callable[[], int],
    ) -> None:
        """``first_sequence``: of the first record that retention has left."""
        self._registry = registry
        self._secret_store = secret_store
        self._schemes = schemes
        self._statistics = statistics
        self._forget = forget
        self._first_sequence = first_sequence
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
            batch.add(QueueSet(batch.sequence, batch.time_us, number, item.name, settings, item.by))
        self._applied(batch, item.name, item.applied)
        return Declared(what, item.name)

    def change_queue(self, item: ChangeQueue, batch: CommitBatch) -> Declared:
        queue = self._registry.queue(item.name)
        settings = _changed(queue.settings, item.changes, _queue_fields)
        if settings == queue.settings:
            return Declared("unchanged", item.name)
        batch.claim(item.name)
        batch.add(QueueSet(batch.sequence, batch.time_us, queue.number, queue.name, settings, item.by))
        return Declared("changed", item.name)

    # -- subscribers ----------------------------------------------------------------------------------------------

    def subscribe(self, item: Subscribe, batch: CommitBatch) -> Declared:
        item = item._replace(settings=meant(self._registry, item.queue, item.settings))
        id_ = parse_subscriber_id(subscriber_id(item.settings))
        entry = f"{item.queue}/{id_}"
        item = item._replace(applied=self._marked(item.applied, item.credentials))
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
        known = _as_kept_now(self._registry.find_subscriber(queue.number, id_))
        refuse_hidden(item.settings, known)
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
        settled = settle(replace(item.settings, credentials=0), item.credentials, None, NONE)
        batch.claim(item.queue)
        number = self._next_subscriber(batch)
        settings = replace(settled.settings, start=start, disabled_us=0, secret_count=0)
        made: list[QueueSet] = []
        if self._registry.find(item.queue) is None:
            made.append(QueueSet(batch.sequence, batch.time_us, queue.number, queue.name, queue.settings, item.by))
        sequence = batch.sequence + len(made)
        settings = self._keep(batch, sequence, number, settings, item.secret, settled.credentials)
        fact = SubscriberSet(sequence, batch.time_us, number, queue.number, id_, sequence, settings, item.by)
        batch.add(*made, fact)
        gone_through = self._first_sequence() - 1
        if start is not None and start <= gone_through:  # who judges the whole log knows then that it could not get it
            gone = Row(gone_through, number, 0, Outcome.DROPPED, Reason.RETENTION, 0, batch.now_us, 0, 0, 0)
            batch.add(Outcomes(batch.sequence, batch.time_us, (gone,)))
        self._applied(batch, entry, item.applied)
        return Declared("created", id_)

    def _declare(self, known: Subscriber, item: Subscribe, batch: CommitBatch) -> Declared:
        """A group that its first pull made, or that an older version knows, is declared: as it is said now, but for
        where it stands."""
        old = known.settings
        if old.endpoint != item.settings.endpoint:
            return self._subscribe_again(known, item)
        settings = replace(item.settings, start=old.start, secret_count=old.secret_count, credentials=old.credentials)
        settled = self._settled(known, settings, item.credentials)
        batch.claim(item.queue)
        self._set(known, settled.settings, batch, item.secret, settled.credentials, item.by)
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
            credentials=old.credentials,
        )
        new = self._settled(known, new, item.credentials).settings
        if item.comes_to_take:
            new = replace(new, counts=old.counts, declared=old.declared)
        other_secret = item.secret is not None and not self._secret_store.holds(known.number, item.secret)
        other_start = item.start is not None and self._start(item.start) != old.start
        others = changed_settings(item.credentials, self._credentials(known))
        if new == old and not other_secret and not other_start and not others:
            return Declared("unchanged", known.id)
        differs = _differences(old, new) + ["secret"] * other_secret
        differs += [name for name in others if name not in differs]
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
        settled = self._settled(known, new, of_settings(item.credentials, names))
        batch.claim(item.queue)
        what = "unchanged"
        if settled != (known.settings, self._credentials(known)) or secret is not None:
            self._set(known, settled.settings, batch, secret, settled.credentials, item.by)
            what = "changed"
        self._applied(batch, entry, applied)
        return Declared(what, known.id)

    def change_subscriber(self, item: ChangeSubscriber, batch: CommitBatch) -> Declared:
        known = _as_kept_now(self._registry.subscriber(item.queue, item.id))
        said: FromFile | None = None
        item = item._replace(applied=self._marked(item.applied, item.credentials))
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
        settings, credentials = self._with_changed(known, settings, item)
        entry = f"{item.queue}/{known.id}"
        same = settings == known.settings and credentials == self._credentials(known)
        if same and not other_secret:
            self._applied(batch, entry, said)
            return Declared("unchanged", known.id)
        batch.claim(item.queue)
        if item.applied is None and (other_secret or item.without_secret):
            self._had_secret(known, entry, batch)
        self._set(known, settings, batch, item.secret if other_secret else None, credentials, item.by)
        if item.without_secret:
            # Forgotten after the fact: a crash before it must not leave one that is counted and not there.
            batch.after.append(lambda: self._secret_store.forget_secrets(known.number))
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
        settings = as_it_stands(settings, known.settings)
        refuse_hidden(settings, known)
        self._check(settings, changes)
        return settings

    def _with_changed(self, known: Subscriber, settings: SubscriberSettings, item: ChangeSubscriber) -> Settled:
        """With the credentials of changed settings; of others they stay, even where they are lost."""
        if item.credentials or any(name in item.changes for name in _WITH_CREDENTIALS):
            return self._settled(known, settings, item.credentials)
        check_together(settings)
        return Settled(settings, self._credentials(known))

    def _only_new(
        self, known: Subscriber, item: ChangeSubscriber, applied: FromFile
    ) -> tuple[ChangeSubscriber, FromFile | None]:
        """``item`` without what its file has said before: an operator may have changed that since (of a subscriber
        without a secret, or that has lost it, the file's is taken). And what is to be kept of what the file says, None
        where it is known."""
        entry = f"{item.queue}/{known.id}"
        before = self._registry.last_applied(entry)
        told = dict(before.keys or ()) if before is not None else {}
        again = {name for name, hash_ in applied.keys.items() if told.get(name) == hash_}
        changes = {name: value for name, value in item.changes.items() if name not in again}
        credentials = {name: one for name, one in item.credentials.items() if setting_of(name) not in again}
        keep = item.secret is not None and self._is_kept(known, entry, item.secret)
        keep = keep or (SECRET in again and bool(self._secret_store.kept(known.number).secrets))
        said = FromFile("", {**told, **applied.keys}) if len(again) < len(applied.keys) else None
        secret = None if keep else item.secret
        return item._replace(changes=changes, secret=secret, credentials=credentials), said

    def _marked(self, said: FromFile | None, credentials: Mapping[str, str]) -> FromFile | None:
        """The hashes of a file, keyed where settings have credentials: nobody guesses a password by them."""
        if said is None or not credentials:
            return said
        mark = self._secret_store.mark
        keys = {
            name: mark(name, said.keys.get(name, ""), of_settings(credentials, {name}))
            for name in {setting_of(name) for name in credentials}
        }
        return FromFile(said.hash and mark("", said.hash, credentials), {**said.keys, **keys})

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
        if self._secret_store.kept(known.number).secrets and told is not None and SECRET not in told:
            newest = self._secret_store.newest(known.number).secrets[0]
            self._applied(batch, entry, FromFile("", {**told, **key_hashes({}, newest)}))

    def rotate_secret(self, item: RotateSecret, batch: CommitBatch) -> str:
        known = self._registry.subscriber(item.queue, item.id)
        if item.scheme not in {one.scheme for one in known.settings.signatures}:
            what = f"its deliveries are not signed by {item.scheme}: name that in signatures first"
            raise Conflict(what, queue=item.queue, subscriber=item.id)
        if item.scheme == V1A:
            return self._rotate_key(known, item, batch)
        secret = make_secret() if item.secret is None else parse_secret(item.secret)
        if self._secret_store.holds(known.number, secret):
            raise Conflict("this is the secret it signs with already", queue=item.queue, subscriber=item.id)
        batch.claim(item.queue)
        self._had_secret(known, f"{item.queue}/{known.id}", batch)
        kept = self._secret_store.rotated(known.number, secret, batch.now_us, item.grace_s)
        self._stage(batch, known.number, kept)
        self._add(known, replace(known.settings, secret_count=len(kept.secrets)), batch, item.by)
        return secret

    def _rotate_key(self, known: Subscriber, item: RotateSecret, batch: CommitBatch) -> str:
        if item.secret is not None:
            raise BadSetting("secret: the keys of v1a are the broker's to make: leave it out", setting=SECRET)
        settled = self._settled(known, known.settings, NONE)
        until_us = batch.now_us + int(item.grace_s * 1e6) if item.grace_s else 0
        settled, public = with_another_key(settled, until_us)
        batch.claim(item.queue)
        self._set(known, settled.settings, batch, None, settled.credentials, item.by)
        return public

    def retire_secret(self, number: int, batch: CommitBatch) -> None:
        """The old secret, or the old key pair, has stopped signing: forget it."""
        known = self._registry.subscriber_numbered(number)
        if known is None:
            return
        had = self._credentials(known)
        credentials = without_old_key(had, batch.now_us)
        kept = self._secret_store.kept(number)
        secret_over = known.settings.secret_count > 1 and 0 < kept.until_us <= batch.now_us
        if not secret_over and credentials == had:
            return
        batch.claim(self._registry.queue_name(known.queue))
        kept, settings = (self._secret_store.newest(number) if secret_over else kept), known.settings
        if secret_over:
            settings = replace(settings, secret_count=1)
        if credentials != had:
            kept, settings = _with_credentials(kept, settings, batch.sequence, credentials)
        self._stage(batch, number, kept)
        self._add(known, settings, batch)

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
        batch.add(SubscriberDeleted(batch.sequence, batch.time_us, known.number, item.by))
        batch.after.append(lambda: self.forget(known))
        return dropped

    def forget(self, subscriber: Subscriber) -> None:
        """Let go of a subscriber that is deleted, durably."""
        self._forget(subscriber)
        self._secret_store.forget(subscriber.number)

    # -- parts ----------------------------------------------------------------------------------------------------

    def _set(
        self,
        known: Subscriber,
        settings: SubscriberSettings,
        batch: CommitBatch,
        secret: str | None,
        credentials: Mapping[str, str],
        by: str,
    ) -> None:
        if settings.endpoint != known.settings.endpoint:
            settings = replace(settings, disabled_us=0)  # the new endpoint has not said that it wants no more
            batch.after.append(lambda: self._forget(known))
        self._add(known, self._keep(batch, batch.sequence, known.number, settings, secret, credentials), batch, by)

    def _keep(
        self,
        batch: CommitBatch,
        sequence: int,
        number: int,
        settings: SubscriberSettings,
        secret: str | None,
        credentials: Mapping[str, str],
    ) -> SubscriberSettings:
        """The settings, naming what is kept with them: a new secret, and these credentials. ``sequence`` is that of
        the fact that will have them."""
        before = kept = self._secret_store.kept(number)
        if secret is not None:
            kept = kept._replace(secrets=(secret,), until_us=0)
            settings = replace(settings, secret_count=1)
        others = credentials != kept.credentials.get(settings.credentials, NONE)
        if others:
            kept, settings = _with_credentials(kept, settings, sequence, credentials)
        if kept != before:
            self._stage(batch, number, kept)
        if others and not credentials:
            batch.after.append(lambda: self._secret_store.forget_credentials(number))
        return settings

    def _settled(self, known: Subscriber, settings: SubscriberSettings, given: Mapping[str, str]) -> Settled:
        return settle(settings, given, known.settings, self._credentials(known))

    def _credentials(self, known: Subscriber) -> dict[str, str]:
        """The credentials that it has, with those that an older version left in its settings; none where they are
        lost."""
        there = self._registry.subscriber_numbered(known.number)
        clear = {} if there is None else in_the_clear(there.settings.headers)
        try:
            return clear | dict(self._secret_store.credentials(known.number, known.settings.credentials))
        except LookupError:
            return clear

    def _add(self, known: Subscriber, settings: SubscriberSettings, batch: CommitBatch, by: str = "") -> None:
        """``by``: who asked for it, none for the broker itself."""
        since = known.since
        if settings.counts and not known.settings.counts:  # from now on; what came before it gets uncounted (RULES 3)
            since = batch.sequence
            settings = replace(
                settings, start=known.settings.start or known.since, declared=settings.endpoint == PULL_ENDPOINT
            )
        place = (known.number, known.queue, known.id, since)
        batch.add(SubscriberSet(batch.sequence, batch.time_us, *place, settings, by))
        if bool(settings.disabled_us) != bool(known.settings.disabled_us):
            kind = EventType.ENDPOINT_DISABLED if settings.disabled_us else EventType.ENDPOINT_ENABLED
            reason = settings.disabled_by.name.lower() if settings.disabled_us else None
            self.events.about(batch, kind, known, {"reason": reason, "by": by or None})

    def _stage(self, batch: CommitBatch, number: int, kept: Kept) -> None:
        """Have what is kept of a subscriber fsynced before the batch, and in force once that is durable (RULES 19)."""
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


def _as_kept_now(known: K) -> K:
    """The subscriber with the words in place of values that an older version left in its settings."""
    if known is None or not in_the_clear(known.settings.headers):
        return known
    return replace(known, settings=replace(known.settings, headers=without_values(known.settings.headers)))


def _changed(settings: S, changes: Mapping[str, Any], allowed: AbstractSet[str]) -> S:
    for name in changes:
        if name not in allowed:
            raise BadSetting(f"{name!r} cannot be changed", setting=name)
    return replace(settings, **changes)


def _with_credentials(
    kept: Kept, settings: SubscriberSettings, sequence: int, credentials: Mapping[str, str]
) -> tuple[Kept, SubscriberSettings]:
    """Both, with these credentials under the sequence of the fact that will name them; the others stay until that fact
    is durable."""
    if not credentials:
        return kept, replace(settings, credentials=0)
    kept = kept._replace(credentials={**kept.credentials, sequence: credentials})
    return kept, replace(settings, credentials=sequence)


def _differences(old: QueueSettings | SubscriberSettings, new: QueueSettings | SubscriberSettings) -> list[str]:
    """The settings that differ, by the names that clients know them by."""
    settings = QUEUE_SETTINGS if isinstance(old, QueueSettings) else SUBSCRIBER_SETTINGS
    return [one.name for one in settings if getattr(old, one.field) != getattr(new, one.field)]
