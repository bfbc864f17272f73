"""Whatever is asked, in whatever form: an answer of ours, never a failure of the broker.

Two ways of asking: 5,000 requests made up here, half a millisecond each, which mix what is wrong and know this broker's
headers, ids and tokens; and more than 5,000 cases of schemathesis, which takes the description at its word and judges
each answer by it. Of its phases that with every bound is here (2 ms a case). The one that draws at random needs 11 ms a
case, and those that follow links: `python -m tests.soak --what openapi`.
"""

import hashlib
import random
from pathlib import Path
from typing import Any

import orjson
import pytest

from syncbrok.model.tokens import SCOPES, Token, parse_digest, parse_scopes
from tests.support.broker.process import BrokerProcess
from tests.support.http.api import Api, Reply
from tests.support.http.openapi_cases import ask
from tests.support.http.space import ENDPOINT, ONCE, MakeHttpSpace

REQUESTS = {"nobody": 2_000, "admin": 1_500, "shop": 1_500}
"""5,000 in all, by whose token they have; without tokens everybody may do everything"""
UNKNOWN = "01a1fba6-f093-8000-8000-000104aafc26"
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        7,
        2**63,
        2**70,
        1.5,
        1e308,
        "",
        "x",
        "now",
        "all",
        "same",
        "fail",
        "raw",
        "5s",
        "-5s",
    ),
    *("soon", "a" * 200, "caf\u00e9", "a\nb", "\u0000", "../../etc", "http://127.0.0.1:20000/", "ftp://x", [], [1], {}),
    *([{}], {"a": "b"}, {"host": "x"}, ["5s", 1], [["5s"]], {"x": None}, "whsec_" + "QUJD" * 10, "#1", ["#1"]),
    *(
        UNKNOWN,
        [UNKNOWN],
        "2026-07-01T12:00:00Z",
        "99999999999999999999",
        "1e400",
        "NaN",
        "%00",
        "\ud7ff",
        "\U0001f600",
    ),
)
HEADERS = (
    *("Syncbrok-Parent", "Syncbrok-Parent-Failure", "Syncbrok-Key", "Idempotency-Key", "Syncbrok-Delay", "Prefer"),
    *("Syncbrok-Deliver-At", "Syncbrok-Expires", "Syncbrok-Forward-X", "ce-id", "ce-source", "ce-type", "traceparent"),
    *(
        "ce-specversion",
        "ce-causationid",
        "Content-Encoding",
        "queue",
        "endpoint",
        "ParentId",
        "Last-Event-ID",
        "Range",
    ),
)
MEDIA = ("application/json", "application/x-ndjson", "application/cloudevents-batch+json", "text/plain", "x")


class Fuzz:
    """Makes requests out of the description of the interface and a seed."""

    def __init__(self, document: Any, seed: int) -> None:
        self._random = random.Random(seed)
        self._schemas = document["components"]["schemas"]
        self._operations = [
            (method.upper(), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]
        self.ids: list[str] = [UNKNOWN]

    def request(self) -> tuple[str, str, bytes | None, list[tuple[str, str]]]:
        pick = self._random.choice
        method, path, operation = pick(self._operations)
        path = path.replace("{queue}", pick(["orders", "orders", "other", "nothing", "..%2fx", "a%20b"]))
        path = path.replace("{subscriber}", pick(["billing", "billing", "nobody", "%00"]))
        path = path.replace("{id}", pick([*self.ids, "x"]))
        named = [one["name"] for one in operation["parameters"] if one["in"] == "query"]
        asked = [f"{name}={self._text()}" for name in named if self._random.random() < 0.4]
        query = f"?{'&'.join(asked)}" if asked else ""
        headers = [(name, self._header()) for name in HEADERS if self._random.random() < 0.08]
        if self._random.random() < 0.7:
            headers.append(("Content-Type", pick(MEDIA)))
        return method, path + query, self._body(operation), headers

    def _text(self) -> str:
        value = self._random.choice(VALUES)
        text = value if isinstance(value, str) else orjson.dumps(str(value)).decode()
        return "".join(character if character.isalnum() and character.isascii() else "" for character in text)

    def _header(self) -> str:
        value = self._random.choice([*VALUES, "orders", "wait=0.01", "1.0", "gzip"])
        text = value if isinstance(value, str) else str(value)
        return "".join(character for character in text if character.isprintable()).strip()

    def _body(self, operation: Any) -> bytes | None:
        kind = self._random.random()
        if kind < 0.1:
            return None
        if kind < 0.2:
            return self._random.randbytes(self._random.randrange(40))
        names = ["name", "endpoint", "content", "x"]
        body = operation.get("requestBody", {})
        for media in (*body.get("content", {}).values(), *body.get("x-also-takes", {}).values()):
            reference = media["schema"].get("$ref", "")
            names += self._schemas.get(reference.rpartition("/")[2], {}).get("properties", {})
        objects = [
            {name: self._random.choice(VALUES) for name in self._random.sample(names, min(len(names), 3))}
            for _ in range(self._random.randrange(1, 4))
        ]
        if kind < 0.6:
            return _json(objects[0])
        return b"\n".join(map(_json, objects)) if kind < 0.8 else _json(objects)


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # a number that JSON has and orjson does not
        return b'{"n": 1e999}'


def check(reply: Reply, asked: Any) -> None:
    assert reply.status < 500, (asked, reply)
    assert reply.status == 404 or "aiohttp" not in reply.headers.get("Server", ""), (asked, reply)
    if reply.status >= 400:
        problem = reply.json()
        assert problem["status"] == reply.status, (asked, reply)
        assert problem["type"].startswith("urn:syncbrok:problem:"), (asked, reply)


def tokens_of(who: str) -> tuple[Token, ...]:
    """Where somebody has a token: one that may do everything, and one for the queue ``orders`` alone."""
    scopes = frozenset(SCOPES)
    if who == "nobody":
        return ()
    digests = {name: parse_digest(hashlib.sha256(name.encode()).hexdigest()) for name in ("admin", "shop")}
    narrowed = parse_scopes(["publish", "consume", "read", "admin"], ["orders"])
    return Token("admin", digests["admin"], scopes), Token("shop", digests["shop"], *narrowed)


@pytest.mark.parametrize("who", REQUESTS)
async def test_no_request_makes_the_broker_fail(tmp_path: Path, seed: int, http_space: MakeHttpSpace, who: str) -> None:
    """No 5xx, every refusal a problem document, and the broker goes on: what the description says, asked at random,
    without tokens, by one who may do everything, and by one who may in one queue."""
    async with http_space(tmp_path, tokens=tokens_of(who)) as made:
        api: Api = made.api
        as_admin = {} if who == "nobody" else {"Authorization": "Bearer admin"}
        api.headers = as_admin
        await declare(api, as_admin)
        fuzz = Fuzz((await api.get("/openapi.json")).json(), seed)
        api.headers = {} if who == "nobody" else {"Authorization": f"Bearer {who}"}
        seen = set()
        for _ in range(REQUESTS[who]):
            method, path, body, headers = asked = fuzz.request()
            reply = await api.request(method, path, body, headers)
            check(reply, asked)
            seen.add(reply.status)
            found = reply.headers.get("Location", "").rpartition("/v1/messages/")[2]
            if found:
                fuzz.ids = [UNKNOWN, *fuzz.ids[-20:], found]
            if path.startswith("/v1/queues/orders") and method == "DELETE":
                await declare(api, as_admin)
        assert {200, 201, 400, 403 if who == "shop" else 404} <= seen, "the requests are too much alike to say anything"
        assert (await api.get("/readyz")).status == 200


async def declare(api: Api, headers: dict[str, str]) -> None:
    asking = {**headers, "Content-Type": "application/json"}
    await api.request("POST", "/v1/queues", {"name": "orders", **ONCE}, asking)
    await api.request("POST", "/v1/queues/orders/subscribers", {"endpoint": ENDPOINT, "name": "billing"}, asking)


@pytest.mark.parametrize("token", ["", "admin"])
def test_the_description_is_kept(tmp_path: Path, seed: int, token: str) -> None:
    """Each bound, type and missing member of each route, asked by schemathesis of a real broker, with and without
    tokens: no 5xx, and every answer has a status, headers, a content type and a body as /openapi.json says."""
    digest = hashlib.sha256(b"admin").hexdigest()
    tokens = f"http: {{tokens: [{{name: admin, sha256: {digest}, scopes: [publish, consume, read, admin]}}]}}\n"
    with BrokerProcess(tmp_path / "log", config=tokens if token else "") as broker:
        asked = ask(broker.url, tmp_path, seed, token=token)
        assert not asked.wrong, asked.wrong
        assert asked.cases > 2_500
        assert broker.request("GET", "/readyz").status == 200
