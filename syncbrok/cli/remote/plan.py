"""The requests that would make a running broker match a ``queues.yml``. Pure: reads and asks nothing.

A setting that the file does not name is compared with its default, except ``paused``, which is the operator's, and
``start``, which was decided when the subscriber was added, and ``scope``, whose default is the broker's own
(``defaults`` in its configuration), which a plan does not know. The broker takes a secret and ``paused`` that the file
names only if the file has not said the same before (RULES 18), since an operator may have changed either since. So only
the broker can tell what becomes of them, and it is told them even where nothing differs: else it would not know, the
next time, what the file has said. So it is told an endpoint that has what nobody is shown: a plan cannot compare that.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from syncbrok.frontends.from_yaml import QueueEntry, QueuesFile, SubscriberEntry
from syncbrok.model.auth_settings import NAME as AUTH
from syncbrok.model.file_entry import PAUSED
from syncbrok.model.settings import render_queue, render_subscriber
from syncbrok.model.signature_settings import NAME as SIGNATURES
from syncbrok.model.units import endpoint_scheme, parse_duration_s, shown_endpoint

_NOT_COMPARED = ("start", "secret", PAUSED)
_SCOPE = "scope"
_ENDPOINT = "endpoint"
_PARTLY_SHOWN = (_ENDPOINT, AUTH)
_DURATIONS = ("retry", "timeout", "idempotency_window")


class PlanStep(NamedTuple):
    """``what`` is ``create``, ``change``, ``delete``, or where nothing else differs ``secret`` or ``paused``, which are
    sent for the broker to decide. ``entry`` is ``queue`` or ``queue/subscriber``; ``changes`` maps settings to (now,
    then), and so does ``if_said_anew`` those that stay where the file has said the same before. Of what is there
    already, as far as the broker says it: ``changed_by``, who declared or changed it last; ``unsaid``, the changed
    settings that the file does not name; ``holds``, how much there is of what goes with it."""

    what: str
    entry: str
    method: str
    path: tuple[str, ...]
    body: Mapping[str, Any] | None
    changes: Mapping[str, tuple[Any, Any]]
    if_said_anew: Mapping[str, tuple[Any, Any]] = MappingProxyType({})
    changed_by: str | None = None
    unsaid: frozenset[str] = frozenset()
    holds: Mapping[str, int] = MappingProxyType({})


class Running(NamedTuple):
    """A queue as the broker answers it, and its subscribers."""

    queue: Mapping[str, Any]
    subscribers: Sequence[Mapping[str, Any]]


def plan(file: QueuesFile, running: Mapping[str, Running], *, prune: bool) -> list[PlanStep]:
    """Steps in the order to be taken. Only with ``prune`` anything is deleted (RULES 18)."""
    steps: list[PlanStep] = []
    for entry in file.queues:
        there = running.get(entry.name)
        steps += _queue(entry, None if there is None else there.queue)
        known = {} if there is None else {one["id"]: one for one in there.subscribers}
        for subscriber in entry.subscribers:
            steps += _subscriber(entry.name, subscriber, known.get(subscriber.id))
    return [*steps, *_pruned(file, running)] if prune else steps


def _queue(entry: QueueEntry, there: Mapping[str, Any] | None) -> Iterator[PlanStep]:
    wanted = render_queue(entry.settings)
    if there is None:
        body = {"name": entry.name, **entry.given}
        yield PlanStep(
            "create", entry.name, "POST", (), body, {name: (None, value) for name, value in entry.given.items()}
        )
        return
    if _SCOPE not in entry.given:
        del wanted[_SCOPE]
    changes = _changes(wanted, there)
    if changes:
        body = {name: then for name, (_, then) in changes.items()}
        yield PlanStep(
            "change", entry.name, "PATCH", (entry.name,), body, changes,
            changed_by=_changed_by(there), unsaid=frozenset(changes.keys() - entry.given.keys()),
        )  # fmt: skip


def _subscriber(queue: str, entry: SubscriberEntry, there: Mapping[str, Any] | None) -> Iterator[PlanStep]:
    name, path = f"{queue}/{entry.id}", (queue, "subscribers")
    secret = {} if entry.secret is None else {"secret": entry.secret}
    paused = {PAUSED: entry.given[PAUSED]} if PAUSED in entry.given else {}
    from_file = {"from_file": True} if secret or paused or entry.open else {}
    shown = render_subscriber(entry.settings)
    if there is None:
        changes = {given: (None, shown[given] if given in _PARTLY_SHOWN else it) for given, it in entry.given.items()}
        yield PlanStep("create", name, "POST", path, {**entry.given, **entry.open, **secret, **from_file}, changes)
        return
    there = {**there, _ENDPOINT: shown_endpoint(there[_ENDPOINT])}  # an older broker shows all of it
    wanted = {given: value for given, value in shown.items() if given not in _NOT_COMPARED}
    changes = _changes(wanted, there)
    unsaid = frozenset(changes.keys() - entry.given.keys())
    full = {} if shown[_ENDPOINT] == entry.settings.endpoint else {_ENDPOINT: entry.settings.endpoint}
    body = {given: then for given, (_, then) in changes.items()} | paused | secret | from_file
    body |= full | dict(entry.open)
    if_said_anew = _changes(paused, there)
    if secret and not there["secret"]:
        changes["secret"] = (None, "set")
    if body:
        what = "change" if changes else "secret" if secret or entry.open or full else "paused"
        yield PlanStep(
            what, name, "PATCH", (*path, entry.id), body, changes, if_said_anew, _changed_by(there), unsaid
        )  # fmt: skip


def _changes(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (there.get(name), value) for name, value in wanted.items() if _differs(name, there.get(name), value)}


def _differs(name: str, now: Any, then: Any) -> bool:
    """Durations are compared as such: another version may write 60s as 1m. The public key is the broker's to make."""
    if name == SIGNATURES and now is not None:
        now, then = ([{**one, "public_key": None} for one in value] for value in (now, then))
    if name in _DURATIONS and now is not None and then is not None:
        now, then = (
            [parse_duration_s(one) for one in (value if name == "retry" else [value])] for value in (now, then)
        )
    return bool(now != then)


def _pruned(file: QueuesFile, running: Mapping[str, Running]) -> Iterator[PlanStep]:
    """Subscribers of TCP frontends and groups made by their first pull come and go without the file: neither they nor
    their queues are pruned."""
    for name, there in running.items():
        own = [one for one in there.subscribers if not _is_declared(one)]
        if name not in file.entries:
            if not own:
                yield _delete(name, (name,), there.queue, ("subscribers", "waiting"))
            continue
        for one in there.subscribers:
            entry = f"{name}/{one['id']}"
            if entry not in file.entries and one not in own:
                yield _delete(entry, (name, "subscribers", one["id"]), one, ("backlog",))


def _delete(entry: str, path: tuple[str, ...], there: Mapping[str, Any], figures: Sequence[str]) -> PlanStep:
    told = there.get("statistics", {})
    holds = {figure: told[figure] for figure in figures if told.get(figure)}
    return PlanStep("delete", entry, "DELETE", path, None, {}, changed_by=_changed_by(there), holds=holds)


def _changed_by(there: Mapping[str, Any]) -> str | None:
    """None where an older broker does not say it, or the token may not know."""
    told: str | None = there.get("statistics", {}).get("changed_by")
    return told


def _is_declared(subscriber: Mapping[str, Any]) -> bool:
    """An older broker does not say it: then it is a webhook that was declared, and nothing else."""
    is_webhook = endpoint_scheme(subscriber["endpoint"]) in ("http", "https")
    return bool(subscriber.get("declared", is_webhook))
