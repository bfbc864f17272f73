"""Every route of ``/openapi.json``, asked by tokens of each scope that are for some queues only, about another's.

``ROWS`` says what each route answers; one without a row fails. Whoever adds a route decides here what a token for some
queues gets to hear of the others."""

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import aiohttp

from syncbrok.model.tokens import SCOPES
from tests.frontends.over_http.requests import test_reach
from tests.frontends.over_http.requests.test_reach import of, published
from tests.support.http.api import Api
from tests.support.http.space import ENDPOINT

api = test_reach.api
NAMED: Final = re.compile(r"\{(\w+)\}")


class Row(NamedTuple):
    """The answer to a token of one of ``scopes``; others are refused (403). 200: it says nothing of other queues.
    ``body``, ``headers``: with what it is asked."""

    scopes: str
    status: int
    body: Any = None
    headers: Mapping[str, str] = {}


QUEUE: Final = "/v1/queues/{queue}"
SUBSCRIBER: Final = f"{QUEUE}/subscribers/{{subscriber}}"
MESSAGE: Final = "/v1/messages/{id}"
LEASED: Final = {"leases": ["{lease}"]}
BILLS: Final = {"queue": "bills"}
ROWS: Final = {
    # A queue that the path names: 403, whether there is such a queue or not.
    **{("POST", f"{QUEUE}/{tail}"): Row("publish", 403) for tail in ("messages", "messages:batch")},
    **{("GET", f"{QUEUE}{tail}"): Row("read", 403) for tail in ("", "/messages", "/subscribers", "/dead-letters")},
    **{(method, QUEUE): Row("admin", 403) for method in ("PATCH", "DELETE")},
    **{("POST", f"{QUEUE}/{tail}"): Row("admin", 403)
       for tail in ("purge", "cancel", "subscribers", "dead-letters/replay", "replay", "erase")},
    ("DELETE", f"{QUEUE}/dead-letters"): Row("admin", 403),
    ("GET", SUBSCRIBER): Row("read", 403),
    ("GET", f"{SUBSCRIBER}/deliveries"): Row("read consume", 403),
    **{(method, SUBSCRIBER): Row("admin", 403) for method in ("PATCH", "DELETE")},
    **{("POST", f"{SUBSCRIBER}/{tail}"): Row("admin", 403)
       for tail in ("test", "retry", "filter", "rotate-secret", "recover")},
    ("POST", f"{QUEUE}/pull"): Row("consume", 403),
    ("GET", f"{QUEUE}/stream"): Row("consume", 403),
    # A queue that is named elsewhere: the same.
    ("POST", "/msg"): Row("publish", 403, b"x", BILLS),
    ("POST", "/queue"): Row("admin", 403, b"", BILLS),
    ("POST", "/subscrib"): Row("admin", 403, b"", {**BILLS, "endpoint": ENDPOINT}),
    ("POST", "/v1/queues"): Row("admin", 403, {"name": "bills.new"}),
    ("GET", "/v1/messages?queue=bills"): Row("read", 403),
    ("GET", "/v1/messages?queue=bills&subscriber=s"): Row("read", 403),
    ("GET", "/v1/history?queue=bills"): Row("read", 403),
    ("GET", "/v1/actions?queue=bills"): Row("read", 403),
    ("GET", "/v1/events?queue=bills"): Row("read", 403),
    # An id of another queue: as one that never was.
    **{("GET", f"{MESSAGE}{tail}"): Row("read", 404) for tail in ("", "/content", "/tree", "/critical-path")},
    **{("DELETE", f"{MESSAGE}{tail}"): Row("admin", 404) for tail in ("", "/content")},
    **{("POST", f"{MESSAGE}/{tail}"): Row("admin", 404) for tail in ("replay", "retry")},
    ("GET", "/v1/jobs/{job}"): Row("read", 404),
    ("DELETE", "/v1/jobs/{job}"): Row("admin", 404),
    **{("POST", f"/v1/leases/{{lease}}:{verb}"): Row("consume admin", 410, {}) for verb in ("ack", "nack", "extend")},
    # Lists: filtered.
    ("GET", "/v1/queues"): Row("read", 200),
    ("GET", "/v1/jobs"): Row("read", 200),
    ("GET", "/v1/actions"): Row("read", 200),
    ("GET", "/v1/actions?by=all"): Row("read", 200),
    ("GET", "/v1/subscribers?state=active"): Row("read", 200),
    ("GET", "/v1/messages?key=k"): Row("read", 200),
    ("GET", "/v1/messages?idempotency_key=i"): Row("read", 200),
    ("GET", "/v1/messages?text=classified"): Row("read", 200),
    ("GET", "/v1/messages?key=k&state=complete&order=asc"): Row("read", 200),
    ("GET", "/v1/messages?since=1"): Row("read", 200),
    ("GET", "/v1/history"): Row("read", 200),
    ("GET", "/v1/overview"): Row("read", 200),
    ("GET", "/v1/events"): Row("read", 200),
    **{("POST", f"/v1/leases:{verb}"): Row("consume admin", 200, LEASED) for verb in ("ack", "nack", "extend")},
    # About all queues at once, or about who may speak.
    ("GET", "/v1/log/erased"): Row("read", 403),
    **{("GET", f"/v1/log/segments{tail}"): Row("read", 403) for tail in ("", "/{first}", "/{first}/index")},
    ("GET", "/v1/log/readers"): Row("read", 403),
    ("PUT", "/v1/log/readers/{reader}"): Row("read", 403, {"sequence": 0}),
    ("DELETE", "/v1/log/readers/{reader}"): Row("admin", 403),
    ("GET", "/metrics"): Row("read", 403),
    ("GET", "/v1/tokens"): Row("admin", 403),
    ("POST", "/v1/tokens"): Row("admin", 403, {"name": "mine", "scopes": {"read": ["*"]}}),
    ("DELETE", "/v1/tokens/{token}"): Row("admin", 403),
    # For everybody: they tell nothing of queues.
    **{("GET", path): Row(" ".join(SCOPES), 200)
       for path in ("/healthz", "/readyz", "/openapi.json", "/", "/docs", "/v1/token")},
}  # fmt: skip


def route_of(asked: str) -> str:
    return asked.partition("?")[0]


async def others(api: Api) -> dict[str, str]:
    """Another queue with all that there can be in one: its subscriber, a delivered message, a job, a lease."""
    created = await api.post("/v1/queues/bills/subscribers", {"endpoint": ENDPOINT, "name": "s"}, of("all"))
    assert created.status == 201
    said = {"Syncbrok-Key": "k", "Idempotency-Key": "i", "Prefer": "wait=20"}
    assert (await api.post("/v1/queues/bills/pull", {"wait": 0}, of("all"))).status == 200
    reply = await api.publish("bills", b"classified", {**of("all"), **said})
    message = reply.json()["id"]
    assert reply.json()["state"] == "complete"
    (lent,) = (await api.post("/v1/queues/bills/pull", {"wait": 5}, of("all"))).json()["messages"]
    job = await api.post("/v1/queues/bills/replay", {"ids": [message]}, of("all"))
    assert job.status == 202, job
    await published(api, "shop.orders", **{"Syncbrok-Key": "k"})
    names = {
        "queue": "bills",
        "subscriber": "s",
        "id": message,
        "lease": lent["lease"],
        "token": "till",
        "first": "1",
        "reader": "r",
    }
    return {**names, "job": job.json()["id"]}


async def test_each_route_has_its_row(api: Api) -> None:
    """A route that is described and has no row here has not been thought about."""
    paths = (await api.get("/openapi.json")).json()["paths"]
    described = {(method.upper(), path) for path, operations in paths.items() for method in operations}
    rows = {(method, route_of(asked)) for method, asked in ROWS}
    assert described == rows


async def test_no_route_tells_a_narrowed_token_of_other_queues(api: Api) -> None:
    """INTERFACES 1, tokens: each route, by a token of each scope that is for ``shop.*``. What answers 200 has nothing
    of the other queue in it, what answers 404 and 410 says no more than for what never was."""
    named = await others(api)
    wrong = []
    for (method, asked), row in ROWS.items():
        path = NAMED.sub(lambda found: named[found[1]], asked)
        body = {"leases": [named["lease"]]} if row.body is LEASED else row.body
        for scope in SCOPES:
            headers = {**of(f"{scope}-only"), **row.headers}
            expected = row.status if scope in row.scopes.split() else 403
            if asked == "/v1/events" and expected == 200:
                status, told = await listened(api, headers)
            else:
                reply = await api.request(method, path, body, headers)
                status, told = reply.status, reply.body
            if status != expected:
                wrong.append(f"{method} {asked} by {scope}: {status}, not {expected}: {told[:120]!r}")
            if b"classified" in told or (
                status != 403 and route_of(asked) not in ("/", "/openapi.json") and b"bills" in told
            ):
                wrong.append(f"{method} {asked} by {scope} tells {told[:200]!r}")
    assert not wrong, "\n".join(wrong)
    still = (await api.get(f"/v1/messages/{named['id']}", of("all"))).json()
    assert not still["erased"]
    assert (await api.post(f"/v1/leases/{named['lease']}:ack", {}, of("all"))).status == 200, "nobody has answered it"


async def test_what_is_filtered_has_what_is_its_own(api: Api) -> None:
    """The same lists are not merely empty."""
    await others(api)
    for asked in ("/v1/queues", "/v1/messages?key=k", "/v1/messages?since=1", "/v1/overview"):
        reply = await api.get(asked, of("read-only"))
        assert b"shop.orders" in reply.body, asked


async def listened(api: Api, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """The first events from the beginning of the log on, up to one of its own."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{api.server.url}/v1/events?after=0", headers=headers) as stream,
    ):
        told = b""
        while stream.status == 200 and b"published" not in told:
            told += await stream.content.readany()
        return stream.status, told
