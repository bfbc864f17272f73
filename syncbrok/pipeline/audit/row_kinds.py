"""The kinds of rows that pass between the steps of the audit."""

from typing import Final

from syncbrok.pipeline.audit.fact_scan import BAD, CLAIM
from syncbrok.pipeline.audit.row_encoding import FOUND

EVENT_KINDS: Final = {
    "accepted": {
        "message": "bigint", "queue": "string", "time_us": "bigint", "named": "bigint", "parents": "array<bigint>",
        "key": "string", "is_same": "boolean", "policy": "int", "not_before_us": "bigint", "expires_us": "bigint",
        "only": "bigint", "own": "boolean",
    },
    "row": {
        "message": "bigint", "seq": "bigint", "pos": "int", "s": "bigint", "attempt": "int", "outcome": "int",
        "good": "boolean", "after": "bigint", "due_us": "bigint",
    },
    "claim": CLAIM,
    "bad": BAD,
}  # fmt: skip
"""what comes in. ``named``: the sequence that the message's id says; ``own``: it stands in its own record"""

HISTORY_KINDS: Final = {
    # How a message stood, for its children.
    "history": {
        "message": "bigint", "record": "bigint", "queue": "bigint", "doubt": "bigint", "ended": "bigint",
        "ended_for_all": "bigint", "complete": "bigint", "only": "bigint", "last_counted": "bigint",
        "follows": "boolean", "counted": "binary", "events": "binary", "entries": "string",
    },
    # A parent of a message, and what the message has done. ``is_apart``: it went to one that did not count.
    "edge": {
        "parent": "bigint", "child": "bigint", "record": "bigint", "queue": "bigint", "own": "boolean",
        "is_same": "boolean", "policy": "int", "first_counted": "bigint", "first_uncounted": "bigint",
        "is_replayed": "boolean", "is_apart": "boolean", "is_waiting": "boolean", "follows": "boolean",
        "ended": "bigint", "cancelled": "bigint",
        "events": "binary", "entries": "string", "rearmed": "string",
    },
    # One that ended badly before its record was gone: since when that is known, and from when on it may be mended.
    "bad": {**BAD, "mended": "bigint"},
    # A delivery that has not ended.
    "open": {
        "message": "bigint", "s": "bigint", "record": "bigint", "queue": "string", "time_us": "bigint",
        "policy": "int", "not_before_us": "bigint", "expires_us": "bigint", "is_rearmed": "boolean",
        "retry_us": "bigint", "touched": "bigint",
    },
    # A message of a key at a subscriber (``key_history.KeyedDelivery``). ``done``: its end, -1 where that was at some
    # time before it was carried. ``armed``: replays, as JSON; "" for none.
    "line": {
        "queue": "bigint", "key": "string", "s": "bigint", "message": "bigint", "stands": "bigint", "counts": "boolean",
        "since": "bigint", "doubt": "bigint", "end_seq": "bigint", "end_pos": "bigint", "ended_for_all": "bigint",
        "done": "bigint", "is_open": "boolean", "first_after": "bigint", "armed": "string", "events": "binary",
    },
    "found": FOUND,
    "count": dict.fromkeys(
        ("messages", "edges", "deliveries", "attempts", "attempts_judged", "ends", "keyed", "chained", "complete",
         "waiting"), "bigint",
    ),
}  # fmt: skip
"""the rows that come out. ``follows``: the message counts no subscriber, so its end follows from its parents'
(``end_propagation``)"""
