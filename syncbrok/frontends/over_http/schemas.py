"""What bodies and answers look like, as JSON Schema by name: the ``components`` of ``/openapi.json``."""

from collections.abc import Iterable
from typing import Any, Final

from syncbrok.frontends.over_http.requests.problems import TYPE_PREFIX
from syncbrok.model import limits
from syncbrok.model.settings import QUEUE_SETTINGS, SUBSCRIBER_SETTINGS, Setting

Schema = dict[str, Any]

QUEUE_NAME: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": limits.queue_name_chars_max,
    "pattern": r"^[^/\u0000-\u001f\u007f-\u009f]+$",
    "description": "No slash, no code point of Cc, Cf, Cs, Zl or Zp, no blank at either end, not . or ..; compared by "
    "code point. New ones do not begin with syncbrok.",
}
SUBSCRIBER_NAME: Final[Schema] = {"type": "string", "pattern": "^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$"}

_TEXT: Final[Schema] = {"type": "string"}
_INTEGER: Final[Schema] = {"type": "integer"}
_SWITCH: Final[Schema] = {"type": "boolean"}
_ID: Final[Schema] = {"type": "string", "format": "uuid"}
_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_NUMBER: Final[Schema] = {"type": "number"}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Schema, *, optional: Iterable[str] = ()) -> Schema:
    """An answer: every property is there but for ``optional``."""
    left_out = set(optional)
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in left_out],
    }


def _given(properties: Schema, required: Iterable[str] = ()) -> Schema:
    """A body: only what is named may be in it."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _page(name: str, item: str) -> Schema:
    cursor = {"anyOf": [_TEXT, _INTEGER, {"type": "null"}], "description": "Pass as `after`; null on the last page."}
    return _object({name: _list(_ref(item)), "next": cursor})


def _settings(rows: Iterable[Setting]) -> Schema:
    return {row.name: row.schema | {"description": row.doc, "examples": [row.example]} for row in rows}


_QUEUE: Final = _settings(QUEUE_SETTINGS)
_SUBSCRIBER: Final = _settings(SUBSCRIBER_SETTINGS)
_SECRET: Final[Schema] = {
    "type": "string",
    "pattern": "^whsec_",
    "description": "Standard Webhooks: base64 of 24 to 64 bytes.",
}
_FROM_FILE: Final[Schema] = {
    "type": "boolean",
    "default": False,
    "description": "secret and paused are what a file says: each is set only where it said something else before, or "
    "nothing.",
}
_START: Final[Schema] = {
    "anyOf": [{"type": "string", "enum": ["now", "beginning"]}, {"type": "integer", "minimum": 1}, _TEXT],
    "description": "Where it begins: now, beginning, or a sequence.",
}
_DURATION: Final[Schema] = {"anyOf": [_NUMBER, _TEXT]}
_ANSWERS: Final[dict[str, Schema]] = {
    "ack": {},
    "nack": {
        "delay": _DURATION | {"description": "Try it again no sooner than this, where the retry schedule is quicker."},
        "reason": _TEXT | {"description": "Kept with the attempt."},
    },
    "extend": {"lease": _DURATION | {"description": "From now on; 30 s by default."}},
}
_DELIVERED: Final = {"delivered": _INTEGER, "failed": _INTEGER}

SCHEMAS: Final[dict[str, Schema]] = {
    "Problem": {
        "type": "object",
        "description": "RFC 9457. Other members say what to mend.",
        "properties": {
            "type": {"type": "string", "description": f"Stable: {TYPE_PREFIX}SLUG."},
            "title": _TEXT,
            "status": _INTEGER,
            "detail": _TEXT,
            "mend": {"type": "string", "description": "What to do about it."},
            "line": {"type": "integer", "description": "Of the batch, from 1."},
            "errors": _list(_object({"line": _INTEGER, "detail": _TEXT})),
        },
        "required": ["type", "title", "status"],
    },
    "QueueSettings": _given(_QUEUE),
    "NewQueue": _given({"name": QUEUE_NAME, **_QUEUE}, ["name"]),
    "Queue": _object(
        {
            "name": QUEUE_NAME,
            **_QUEUE,
            "statistics": _object(
                {
                    "subscribers": _INTEGER,
                    "last_sequence": _INTEGER,
                    "waiting": _INTEGER,
                    "oldest_waiting": _or_null(_ID),
                    "dead_letters": _INTEGER,
                    "accepted": _INTEGER,
                    **_DELIVERED,
                    "dead": _INTEGER,
                }
            ),
        }
    ),
    "Queues": _page("queues", "Queue"),
    "SubscriberSettings": _given(
        {
            **_SUBSCRIBER,
            "secret": _or_null(_SECRET) | {"description": "null takes it away: no longer signed."},
            "from_file": _FROM_FILE,
        }
    ),
    "NewSubscriber": _given(
        {
            **_SUBSCRIBER,
            "pull": _SWITCH | {"description": "Instead of an endpoint: a group of this name, whose consumers pull."},
            "secret": _or_null(_SECRET),
            "start": _START,
            "from_file": _FROM_FILE,
        },
    ),
    "Subscriber": _object(
        {
            "id": SUBSCRIBER_NAME,
            "queue": QUEUE_NAME,
            **_SUBSCRIBER,
            "secret": {"enum": ["set", None]},
            "start": _START,
            "state": {"type": "string", "enum": ["active", "paused", "disabled"]},
            "since": {"type": "integer", "description": "It has been there since, or counted."},
            "declared": _SWITCH | {"description": "Somebody has said that it is to be there; else it came to take."},
            "counts_since": {
                "anyOf": [{"type": "integer"}, {"type": "null"}],
                "description": "It is counted by messages after this sequence; null: by none.",
            },
            "statistics": _object(
                {
                    "cursor": _INTEGER,
                    "backlog": _INTEGER,
                    "blocked": {"type": "integer", "description": "Passed by: they wait for parents, or their key."},
                    "in_flight": _INTEGER,
                    "retrying": _INTEGER,
                    "dead_letters": _INTEGER,
                    **_DELIVERED,
                    "last_status": _or_null(_INTEGER),
                    "last_reason": _or_null(_TEXT),
                    "last_attempt_at": _or_null(_TIME),
                    "failing_since": _or_null(_TIME),
                }
            ),
        }
    ),
    "Subscribers": _page("subscribers", "Subscriber"),
    "NewSecret": _given({"secret": _or_null(_SECRET)}),
    "Secret": _object({"id": SUBSCRIBER_NAME, "secret": _SECRET}),
    "Result": _object(
        {
            "subscriber": SUBSCRIBER_NAME,
            "state": _TEXT,
            "attempts": _INTEGER,
            "status": _or_null(_INTEGER),
            "latency_ms": _or_null(_NUMBER),
            "reason": _or_null(_TEXT),
            "detail": _or_null(_TEXT),
        }
    ),
    "Published": _object(
        {
            "id": _ID,
            "queue": QUEUE_NAME,
            "sequence": _INTEGER,
            "state": _TEXT,
            "parents": _list(_ID),
            "deliveries": _list(_ref("Result")),
        },
        optional=["deliveries"],
    ),
    "Line": {
        **_given(
            {
                "content": _TEXT,
                "content_base64": {"type": "string", "contentEncoding": "base64"},
                "data": {"description": "Any JSON; delivered as application/json."},
                "parents": {
                    "type": "array",
                    "maxItems": limits.parents_max,
                    "items": _TEXT,
                    "description": "Ids, or #n for line n of this batch, which must stand before this one.",
                },
                "key": _TEXT,
                "idempotency_key": _TEXT,
                "headers": {"type": "object", "additionalProperties": _TEXT},
                "parent_failure": _QUEUE["parent_failure"],
                "delay": {"anyOf": [_NUMBER, _TEXT]},
            }
        ),
        "oneOf": [{"required": [name]} for name in ("content", "content_base64", "data")],
    },
    "Batch": _object({"ids": _list(_ID)}),
    "Attempt": _object(
        {
            "attempt": {"type": "integer", "description": "0: ended without an attempt."},
            "time": _or_null(_TIME),
            "outcome": _TEXT,
            "status": _or_null(_INTEGER),
            "latency_ms": _NUMBER,
            "reason": _or_null(_TEXT),
            "detail": _or_null(_TEXT),
        }
    ),
    "Delivery": _object(
        {
            "subscriber": SUBSCRIBER_NAME,
            "endpoint": _TEXT,
            "state": _TEXT,
            "counted": _SWITCH,
            "reason": _or_null(_TEXT),
            "next_attempt_at": _or_null(_TIME),
            "blocked_by": _list(_ID),
            "attempts": _list(_ref("Attempt")),
        }
    ),
    "Message": _object(
        {
            "id": _ID,
            "queue": QUEUE_NAME,
            "sequence": _INTEGER,
            "state": _TEXT,
            "accepted_at": _TIME,
            "parents": _list(_ID),
            "blocked_by": _list(_ID),
            "waits_for": _or_null(_TEXT),
            "key": _or_null(_TEXT),
            "idempotency_key": _or_null(_TEXT),
            "scope": _TEXT,
            "parent_failure": _TEXT,
            "deliver_at": _or_null(_TIME),
            "expires_at": _or_null(_TIME),
            "root": {"type": "integer", "description": "Sequence of the root of its causal graph."},
            "depth": _INTEGER,
            "content_type": _or_null(_TEXT),
            "content_bytes": _INTEGER,
            "headers": {"type": "object", "additionalProperties": _TEXT},
            "deliveries": _list(_ref("Delivery")),
        }
    ),
    "Messages": _page("messages", "Message"),
    "Tree": _object(
        {
            "id": _ID,
            "direction": {"type": "string", "enum": ["up", "down"]},
            "depth": _INTEGER,
            "nodes": _list(
                _object(
                    {
                        "id": _ID,
                        "queue": QUEUE_NAME,
                        "sequence": _INTEGER,
                        "state": _TEXT,
                        "distance": _INTEGER,
                        "parents": _list(_ID),
                    }
                )
            ),
            "truncated": _SWITCH,
        }
    ),
    "DeadLetter": _object(
        {
            "id": _or_null(_ID),
            "queue": QUEUE_NAME,
            "sequence": _INTEGER,
            "subscriber": SUBSCRIBER_NAME,
            "reason": _TEXT,
            "status": _or_null(_INTEGER),
            "attempts": _INTEGER,
            "time": _or_null(_TIME),
            "detail": _or_null(_TEXT),
        }
    ),
    "DeadLetters": _page("dead_letters", "DeadLetter"),
    "Replay": _given(
        {
            "descendants": _SWITCH
            | {"default": False, "description": "Also again what had been delivered of those that come after."},
            "subscriber": _or_null(SUBSCRIBER_NAME)
            | {"description": "Only to this one, descendants too; null for all."},
            "dry_run": _SWITCH | {"default": False},
        }
    ),
    "ReplayPlan": _object(
        {
            "replay": {"anyOf": [_INTEGER, {"type": "null"}], "description": "Its number; null for a dry run."},
            "dry_run": _SWITCH,
            "messages": _INTEGER,
            "deliveries": _INTEGER,
            "left": {"type": "integer", "description": "Dead letters that stay, for they are another subscriber's."},
            "order": _list(_object({"id": _ID, "subscribers": _list(SUBSCRIBER_NAME)})),
        }
    ),
    "Retry": _given({"subscriber": _or_null(SUBSCRIBER_NAME) | {"description": "Only at this one; null for all."}}),
    "Retried": _object({"retried": _INTEGER}),
    "NoSettings": _given({}),
    "DryRun": _given({"dry_run": _SWITCH}),
    "Dropped": _object({"id": _ID, "dropped": _INTEGER, "dry_run": _SWITCH}, optional=["id", "dry_run"]),
    "Status": _object({"status": _TEXT}),
    "Pull": _given(
        {
            "max": {"type": "integer", "minimum": 1, "maximum": limits.pull_messages_max, "default": 100},
            "wait": _DURATION | {"description": "How long to wait for the first message; by default not at all."},
            "lease": _DURATION | {"description": "How long each message is lent; 30 s by default."},
            "group": SUBSCRIBER_NAME
            | {"description": "Whose messages: consumers of a group share them.", "default": "pull"},
            "start": _START | {"description": "Where a group that is new begins.", "default": "beginning"},
        }
    ),
    "Received": _object(
        {
            "lease": {"type": "string", "description": "Names the loan; to be acknowledged in time."},
            "id": _ID,
            "queue": QUEUE_NAME,
            "sequence": _INTEGER,
            "attempt": _INTEGER,
            "accepted_at": _TIME,
            "parents": _list(_ID),
            "key": _or_null(_TEXT),
            "content_type": _or_null(_TEXT),
            "headers": {"type": "object", "additionalProperties": _TEXT},
            "replay": {"type": "integer", "description": "Number of the replay it belongs to."},
            "content": _TEXT,
            "content_base64": {"type": "string", "contentEncoding": "base64"},
        },
        optional=["replay", "content", "content_base64"],
    ),
    "Pulled": _object({"messages": _list(_ref("Received"))}),
    **{
        f"Answer{many}{verb.capitalize()}": _given(
            {**({"leases": _list(_TEXT)} if many else {}), **members}, ["leases"] if many else []
        )
        for many in ("", "s")
        for verb, members in _ANSWERS.items()
    },
    "Answered": _object({"answered": _INTEGER, "over": _list(_TEXT)}),
}
