"""Values that stand in many bodies and answers, with what JSON Schema says of them; and the tables of settings as
fields."""

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import UNSET, Meta

from syncbrok.model import limits
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.model.settings import Setting
from syncbrok.space.queries.search import DELIVERY_STATES, MESSAGE_STATES

QueueText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=limits.queue_name_chars_max,
        pattern=r"^[^/\u0000-\u001f\u007f-\u009f]+$",
        description="No slash, no code point of Cc, Cf, Cs, Zl or Zp, no blank at either end, not . or ..; compared by "
        "code point. New ones do not begin with syncbrok.",
    ),
]
SubscriberText = Annotated[str, Meta(pattern="^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$")]
IdText = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]
BreakerText = Annotated[
    str,
    Meta(
        description="Its circuit breaker, or that of its origin where that is not closed.",
        extra_json_schema={"enum": ["closed", "open", "probing"]},
    ),
]
ChangedBy = Annotated[
    str | None,
    Meta(
        description="Who declared or changed it last: a token's name, `local` where none is needed, `file`. Null: not "
        "known, or a token that yours, which is for some queues only, may not know of."
    ),
]
MessageStateText = Annotated[str, Meta(extra_json_schema={"enum": [*MESSAGE_STATES]})]
DeliveryStateText = Annotated[str, Meta(extra_json_schema={"enum": [*DELIVERY_STATES]})]
TreeStateText = Annotated[str, Meta(extra_json_schema={"enum": [*MESSAGE_STATES, "gone"]})]
ScopeText = Annotated[str, Meta(extra_json_schema={"enum": [one.name.lower() for one in Scope]})]
ParentFailureText = Annotated[str, Meta(extra_json_schema={"enum": [one.name.lower() for one in ParentFailure]})]
TimeText = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Base64Text = Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})]
SecretText = Annotated[str, Meta(pattern="^whsec_", description="Standard Webhooks: base64 of 24 to 64 bytes.")]
Start = Annotated[
    Any,
    Meta(
        description="Where it begins: now, beginning, or a sequence.",
        extra_json_schema={
            "anyOf": [
                {"type": "string", "enum": ["now", "beginning"]},
                {"type": "integer", "minimum": 1},
                {"type": "string"},
            ]
        },
    ),
]
Duration = float | str


def described(row: Setting) -> Meta:
    """The description of a setting's value outside, as its row has it."""
    return Meta(extra_json_schema={**row.schema, "description": row.doc, "examples": [row.example]})


def answered(rows: Iterable[Setting]) -> list[tuple[str, Any]]:
    """Fields of an answer that tells every setting, as ``msgspec.defstruct`` takes them."""
    return [(row.name, Annotated[Any, described(row)]) for row in rows]


def given(rows: Iterable[Setting]) -> list[tuple[str, Any, Any]]:
    """Fields of a body in which each setting may be left out."""
    return [(*field, UNSET) for field in answered(rows)]
