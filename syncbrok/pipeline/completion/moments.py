"""The end of a delivery as one number, for Spark.

A hash aggregate keeps values of fixed width only: a minimum of structs or texts makes Spark sort everything instead. So
an end is packed into 64 bits, the record first, and the least is the earliest.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from syncbrok.model.facts import Outcome, Reason
from syncbrok.model.names import SEQUENCE_MAX

_OUTCOME_BITS: Final = 3
_REASON_BITS: Final = 5
assert max(Outcome) < 1 << _OUTCOME_BITS
assert max(Reason) < 1 << _REASON_BITS
assert SEQUENCE_MAX < 1 << 63 - _OUTCOME_BITS - _REASON_BITS

ENDS: Final = tuple(outcome.name.lower() for outcome in Outcome if outcome not in (Outcome.FAILED, Outcome.LATE))
"""the outcomes that end a delivery"""
BAD: Final = ("dead", "expired")
BY_OPERATOR: Final = ("cancelled", "purged", "queue_deleted")


def packed(record: Column, outcome: Column, reason: Column) -> Column:
    """``record`` (a sequence), ``outcome`` and ``reason`` (their names) as one number."""
    code = f.shiftleft(_code(outcome, Outcome), _REASON_BITS) + _code(reason, Reason)
    return f.shiftleft(record, _OUTCOME_BITS + _REASON_BITS) + code


def packed_as(record: Column, outcome: Outcome, reason: Reason) -> Column:
    """The same where outcome and reason are known beforehand."""
    return f.shiftleft(record, _OUTCOME_BITS + _REASON_BITS) + f.lit((outcome << _REASON_BITS) + reason)


def record_of(end: Column) -> Column:
    return f.shiftright(end, _OUTCOME_BITS + _REASON_BITS)


def outcome_of(end: Column) -> Column:
    return _name(f.shiftright(end, _REASON_BITS).bitwiseAND((1 << _OUTCOME_BITS) - 1), Outcome)


def reason_of(end: Column) -> Column:
    """Its name; null where there is none (``delivered``)."""
    return _name(end.bitwiseAND((1 << _REASON_BITS) - 1), Reason)


def good(outcome: Column, reason: Column) -> Column:
    """Whether the end counts as acknowledged: not dead, not expired, not dropped by an operator (RULES 10, 12)."""
    return ~(outcome.isin(*BAD) | f.coalesce(reason.isin(*BY_OPERATOR), f.lit(False)))


def _code(name: Column, names: type[Outcome] | type[Reason]) -> Column:
    """The most frequent first, as the enums have it."""
    members = list(names)
    found = f.when(name == members[0].name.lower(), f.lit(int(members[0])))
    for member in members[1:]:
        found = found.when(name == member.name.lower(), f.lit(int(member)))
    return found.otherwise(f.lit(0)).cast("bigint")


def _name(code: Column, names: type[Outcome] | type[Reason]) -> Column:
    """Null for 0."""
    places = {int(member): member.name.lower() for member in names}
    texts = [f.lit(places.get(place) if place else None) for place in range(1, max(places) + 1)]
    return f.when(code > 0, f.get(f.array(*texts), (code - 1).cast("int")))
