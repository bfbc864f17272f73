"""Which settings of a file's entry are applied: those that it says otherwise than the last time (RULES 18). Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from syncbrok.model.facts import FileApplied
from syncbrok.model.file_entry import PAUSED, SECRET
from syncbrok.model.message import QueueSettings, SubscriberSettings
from syncbrok.model.settings import Setting

S = TypeVar("S", QueueSettings, SubscriberSettings)

_operators: Final = frozenset({PAUSED, SECRET})
"""what an operator changes beside the file: never applied but where the file itself says something else"""


def changed_keys(before: FileApplied | None, keys: Mapping[str, str], table: Sequence[Setting]) -> frozenset[str]:
    """The names of the keys in which an entry differs from its last application, ``before``; a key that is gone is
    among them. All keys, if those of ``before`` are not known: no file has named the entry yet, or an older version
    applied it."""
    applied = dict(before.keys or ()) if before is not None else {}
    changed = frozenset(name for name in applied.keys() | keys.keys() if applied.get(name) != keys.get(name))
    if before is None or before.keys is None or not before.hash:
        changed |= {setting.name for setting in table} - _operators
    return changed


def with_settings(old: S, given: S, names: frozenset[str], table: Sequence[Setting]) -> S:
    """``old`` with the settings of these names as ``given``: where a file does not name one, that is its default."""
    return replace(old, **{one.field: getattr(given, one.field) for one in table if one.name in names})
