"""Types of bodies and answers -> their JSON Schemas: the ``components`` of ``/openapi.json``."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from syncbrok.frontends.over_http.shapes.values import QueueText, SubscriberText

Schema = Mapping[str, Any]

QUEUE_NAME: Final[Schema] = msgspec.json.schema(QueueText)
SUBSCRIBER_NAME: Final[Schema] = msgspec.json.schema(SubscriberText)
_COMPONENTS: Final = "#/components/schemas/"


def reference(shape: type) -> Schema:
    """A reference to the component that describes ``shape``."""
    return {"$ref": _outside(f"{_COMPONENTS}{shape.__name__}")}


def components(shapes: Iterable[type]) -> dict[str, Schema]:
    """The schemas of ``shapes`` and of all that stand in them, by their names outside."""
    known = list(dict.fromkeys(shapes))
    _, found = msgspec.json.schema_components(known, ref_template=_COMPONENTS + "{name}")
    also = {one.__name__: getattr(one, "also", {}) for one in known}
    assert len(found) == len(set(map(_outside, found))), "a body and an answer have one name outside"
    return {_outside(name): _renamed({**schema, **also.get(name, {})}) for name, schema in sorted(found.items())}


def _outside(name: str) -> str:
    """The name of a type as clients read it."""
    return name.removesuffix("Answer").removesuffix("Body")


def _renamed(value: Any) -> Any:
    """``value`` with references as names are outside, without titles, which would only say the names again."""
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _outside(one) if name == "$ref" else _renamed(one)
        for name, one in value.items()
        if not (name == "title" and isinstance(one, str))
    }
