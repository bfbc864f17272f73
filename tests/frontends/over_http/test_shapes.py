"""What is answered is what ``/openapi.json`` says, member by member."""

from pathlib import Path
from typing import Any

from syncbrok.delivery.consumers import Consumers
from syncbrok.frontends.over_http.consuming import pull
from syncbrok.frontends.over_http.leases import Leases
from syncbrok.frontends.over_http.resources import log_readers, page
from syncbrok.model.budget import Budget
from tests.support.http.api import Serve
from tests.support.http.space import ENDPOINT, ONCE
from tests.support.space.spaces import REFUSED, Consumer, running_space

QUEUE = "/v1/queues/{queue}"
SUBSCRIBER = f"{QUEUE}/subscribers/{{subscriber}}"
LINES = {"Content-Type": "application/x-ndjson"}
WAIT = {"Prefer": "wait=20", "Syncbrok-Key": "k"}
ASKED: tuple[tuple[str, str, Any, Any], ...] = (
    ("POST", "/v1/queues", {"name": "orders", **ONCE}, None),
    ("POST", f"{QUEUE}/subscribers", {"name": "billing", "endpoint": ENDPOINT}, None),
    ("POST", f"{QUEUE}/messages", b"{}", WAIT),
    ("POST", f"{QUEUE}/messages:batch", b'{"content": "a", "parents": []}\n', LINES),
    ("POST", f"{QUEUE}/messages:batch", b'{"contents": "a"}\n', LINES),
    ("GET", "/v1/queues", None, None),
    ("GET", QUEUE, None, None),
    ("GET", f"{QUEUE}/subscribers", None, None),
    ("GET", SUBSCRIBER, None, None),
    ("GET", "/v1/subscribers", None, None),
    ("GET", f"{SUBSCRIBER}/deliveries", None, None),
    ("GET", f"{QUEUE}/messages", None, None),
    ("GET", "/v1/messages/{id}", None, None),
    ("GET", "/v1/messages/{id}/tree", None, None),
    ("GET", "/v1/messages/{id}/critical-path", None, None),
    ("GET", f"{QUEUE}/dead-letters", None, None),
    ("GET", "/v1/overview", None, None),
    ("GET", "/v1/history", None, None),
    ("GET", "/v1/actions", None, None),
    ("GET", "/v1/token", None, None),
    ("PUT", "/v1/log/readers/{reader}", {"sequence": 0, "hold": True}, None),
    ("GET", "/v1/log/readers", None, None),
    ("GET", "/healthz", None, None),
    ("GET", "/readyz", None, None),
    ("PATCH", SUBSCRIBER, {"paused": False}, None),
    ("POST", f"{SUBSCRIBER}/rotate-secret", {}, None),
    ("POST", f"{SUBSCRIBER}/retry", {}, None),
    ("POST", f"{SUBSCRIBER}/filter", {"filter": "true"}, None),
    ("POST", "/v1/messages/{id}/replay", {"dry_run": True}, None),
    ("POST", "/v1/messages/{id}/retry", {}, None),
    ("POST", f"{QUEUE}/cancel", {"ids": [], "dry_run": True}, None),
    ("POST", f"{QUEUE}/purge", {"dry_run": True}, None),
    ("DELETE", SUBSCRIBER, None, None),
    ("DELETE", QUEUE, None, None),
    ("DELETE", QUEUE, None, None),
)
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def misfits(schema: Any, value: Any, components: Any, at: str = "") -> list[str]:
    """The places where ``value`` is not what ``schema`` says, none where it fits. Of the words of JSON Schema it reads
    those that answers are described with. A member that is not described is a misfit too."""
    if "$ref" in schema:
        return misfits(components[schema["$ref"].rpartition("/")[2]], value, components, at)
    if "anyOf" in schema:
        return [] if any(not misfits(one, value, components) for one in schema["anyOf"]) else [f"{at}: {value!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: {value!r}"]
    wanted = TYPES.get(schema.get("type", ""), (object,))
    if type(value) not in wanted and object not in wanted:
        return [f"{at}: {value!r} is no {schema['type']}"]
    if isinstance(value, list):
        return [
            one
            for number, item in enumerate(value)
            for one in misfits(schema["items"], item, components, f"{at}[{number}]")
        ]
    if not isinstance(value, dict):
        return []
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    found = [f"{at}.{name} is missing" for name in schema.get("required", ()) if name not in value]
    for name, member in value.items():
        described = properties.get(name, others)
        found += misfits(described, member, components, f"{at}.{name}") if described else [f"{at}.{name} is unknown"]
    return found


def test_the_judge_sees_a_misfit() -> None:
    """A member that is missing, unknown or of another type; null and a list where neither may be."""
    of = {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/A"}}, "required": ["a"]}
    components = {"A": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}
    assert not misfits(of, {"a": None}, components)
    for wrong in ({}, {"a": "1"}, {"a": True}, {"a": 1, "b": 2}, []):
        assert misfits(of, wrong, components), wrong


async def test_answers_are_what_is_described(tmp_path: Path, served: Serve) -> None:
    """INTERFACES 3: OpenAPI of all of it. A real Space with a dead letter, whose answers have all their members."""
    consumer = Consumer()
    consumer.answer = lambda _: REFUSED
    consumers = Consumers(lambda *_: None, lambda _: False, Budget("leases", 8), lambda _: None)
    async with running_space(tmp_path, consumer) as running:
        running.space.handle("http", consumer)
        leases = Leases(running.space.channels.subscribers, consumers, lambda *_: 1)
        more = (*page.routes(), *pull.routes(leases), *log_readers.routes(running.space.log_readers))
        async with served(running.space.channels, running.view, *more) as api:
            document = (await api.get("/openapi.json")).json()
            id_ = ""
            for method, path, body, headers in ASKED:
                real = path.format(queue="orders", subscriber="billing", id=id_, reader="warehouse")
                asked = {**body, "ids": [id_]} if isinstance(body, dict) and "ids" in body else body
                reply = await api.request(method, real, asked, headers)
                replies = document["paths"][path][method.lower()]["responses"]
                (content,) = replies[str(reply.status)]["content"].values()
                found = reply.json()
                wrong = misfits(content["schema"], found, document["components"]["schemas"])
                if reply.status >= 400:  # a problem has other members that say what to mend
                    wrong = [one for one in wrong if not one.endswith("is unknown")]
                assert not wrong, (method, real, found)
                if (method, path) == ("POST", f"{QUEUE}/messages"):
                    id_ = found["id"]
