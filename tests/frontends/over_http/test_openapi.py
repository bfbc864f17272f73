"""The description of the HTTP interface is the interface: one table makes both."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web

from syncbrok.delivery.consumers import Consumers
from syncbrok.frontends.over_http.app import make_app
from syncbrok.frontends.over_http.consuming import pull, streams
from syncbrok.frontends.over_http.leases import Leases
from syncbrok.frontends.over_http.requests import render
from syncbrok.frontends.over_http.requests.context import HttpContext, HttpOptions
from syncbrok.frontends.over_http.requests.problems import TABLE
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.frontends.over_http.resources import events, page
from syncbrok.model.budget import Budget
from syncbrok.model.settings import QUEUE_SETTINGS, SUBSCRIBER_SETTINGS
from tests.support.http.api import Api, Serve
from tests.support.space.fake_space import FakeSpace


async def hello(_context: HttpContext, _request: web.Request) -> web.StreamResponse:
    return render.json({"hello": True})


def consumers() -> Consumers:
    return Consumers(lambda *_: None, lambda _: False, Budget("leases", 8), lambda _: None)


EXTRA = Route(
    "GET", "/v1/hello/{queue}", hello, "read", "extra", "Says hello", {200: Reply("Hello.")}, operation="say_hello"
)


def stream_routes(leases: Leases) -> tuple[Route, ...]:
    consumers: Any = None
    return streams.routes(streams.Streams(leases, consumers, consumers))


@pytest.fixture
async def api(served: Serve) -> AsyncIterator[Api]:
    space = FakeSpace()
    leases = Leases(space.channels.subscribers, consumers(), lambda *_: 1)
    async with served(space.channels, space, EXTRA, *pull.routes(leases), *stream_routes(leases)) as running:
        yield running


@pytest.fixture
async def document(api: Api) -> Any:
    return (await api.get("/openapi.json")).json()


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


async def test_every_route_is_described_and_every_description_routed(document: Any) -> None:
    """INTERFACES 3: OpenAPI 3.1 of all the above."""
    space = FakeSpace()
    leases = Leases(space.channels.subscribers, consumers(), lambda *_: 1)
    app = make_app(space.channels, space, HttpOptions(), (EXTRA, *pull.routes(leases), *stream_routes(leases)))  # type: ignore[arg-type]
    registered = {
        (route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None
    }
    described = {(method, path) for method, path, _ in operations(document)}
    assert document["openapi"].startswith("3.1.")
    assert {(method, path) for method, path in registered if method != "HEAD"} == described
    assert {path for method, path in registered if method == "HEAD"} == {
        path for method, path in described if method == "GET"
    }


async def test_the_fixed_routes_are_there(document: Any) -> None:
    """INTERFACES 2 and 3, word for word; the events and the page are added by others."""
    queue, subscriber = "/v1/queues/{queue}", "/v1/queues/{queue}/subscribers/{subscriber}"
    expected = {
        *(("POST", path) for path in ("/msg", "/queue", "/subscrib", "/v1/queues")),
        *(
            ("GET", path)
            for path in (
                "/v1/queues",
                "/healthz",
                "/readyz",
                "/metrics",
                "/openapi.json",
                "/v1/messages",
                "/v1/history",
                "/v1/actions",
                "/v1/subscribers",
                "/v1/token",
            )
        ),
        *((method, queue) for method in ("GET", "PATCH", "DELETE")),
        *((method, f"{queue}/subscribers") for method in ("GET", "POST")),
        *((method, subscriber) for method in ("GET", "PATCH", "DELETE")),
        *(("POST", f"{subscriber}/{tail}") for tail in ("test", "retry", "filter", "rotate-secret")),
        *(
            ("POST", f"{queue}/{tail}")
            for tail in ("purge", "messages", "messages:batch", "dead-letters/replay", "cancel")
        ),
        *(("GET", f"{queue}/{tail}") for tail in ("messages", "dead-letters")),
        *(("GET", "/v1/jobs"), ("GET", "/v1/jobs/{job}"), ("DELETE", "/v1/jobs/{job}")),
        *(("DELETE", f"{queue}/dead-letters"), ("POST", f"{queue}/replay")),
        ("POST", f"{queue}/subscribers/{{subscriber}}/recover"),
        *(("POST", f"{queue}/erase"), ("GET", "/v1/log/erased")),
        ("GET", "/v1/queues/{queue}/subscribers/{subscriber}/deliveries"),
        *(("GET", f"/v1/messages/{{id}}{tail}") for tail in ("", "/content", "/tree", "/critical-path")),
        *(("DELETE", f"/v1/messages/{{id}}{tail}") for tail in ("", "/content")),
        *(("POST", f"/v1/messages/{{id}}/{tail}") for tail in ("replay", "retry")),
        ("POST", f"{queue}/pull"),
        ("GET", f"{queue}/stream"),
        *(("POST", f"/v1/leases{which}:{verb}") for which in ("", "/{lease}") for verb in ("ack", "nack", "extend")),
    }
    assert {(method, path) for method, path, _ in operations(document)} == expected | {("GET", EXTRA.path)}


def test_only_files_of_the_pages_are_not_described() -> None:
    """INTERFACES 3: a route without a name in the description is a file that everybody may load."""
    more = (*page.routes(), *events.ROUTES)
    assert {one.path.split("/")[1] for one in more if not one.operation} == {"web"}
    assert all(one.scope is None and one.method == "GET" for one in more if not one.operation)


async def test_the_document_holds_together(document: Any) -> None:
    """Every reference leads somewhere, every schema is used, every path parameter is described, ids are unique."""
    schemas = document["components"]["schemas"]
    references = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert references == set(schemas)
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    for _, path, operation in operations(document):
        named = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path))
        assert any(status.startswith("2") for status in operation["responses"])


async def test_every_route_refuses_parameters_that_are_not_described(api: Api, document: Any) -> None:
    """Bad input: what a route does not know is a 400 that names what it does, and the description names the same."""
    checked = 0
    for method, path, operation in operations(document):
        if path.startswith("/v1/"):
            known = sorted(one["name"] for one in operation["parameters"] if one["in"] == "query")
            reply = await api.request(method, re.sub(r"\{\w+\}", "x", path) + "?dryrun=true")
            problem = reply.problem(400, "malformed")
            assert (problem["parameter"], problem["known"]) == ("dryrun", known), (method, path)
            assert all(name in problem["detail"] for name in known) or "did you mean" in problem["detail"]
            checked += 1
    assert checked > 20
    assert (await api.get("/healthz?probe=1")).status == 200, "no route of ours: whoever watches may say more"


async def test_settings_are_described_from_their_table(document: Any) -> None:
    """One table serves YAML, JSON, flags and this document."""
    schemas = document["components"]["schemas"]
    for name, rows, more in (
        ("QueueSettings", QUEUE_SETTINGS, set()),
        ("NewQueue", QUEUE_SETTINGS, {"name"}),
        ("SubscriberSettings", SUBSCRIBER_SETTINGS, {"secret", "start", "from_file"}),
        ("NewSubscriber", SUBSCRIBER_SETTINGS, {"pull", "secret", "start", "from_file"}),
    ):
        assert set(schemas[name]["properties"]) == {row.name for row in rows} | more
        for row in rows:
            assert schemas[name]["properties"][row.name]["description"] == row.doc


async def test_described_statuses_are_ones_that_can_be_answered(document: Any) -> None:
    """A status in the description that the table of errors does not have is a mistake in one of them."""
    known = {row.status for row in TABLE.values()}
    for method, path, operation in operations(document):
        for status, reply in operation["responses"].items():
            if "application/problem+json" in reply.get("content", {}):
                assert int(status) in known, (method, path, status)


async def test_what_becomes_of_a_body_is_described(api: Api, document: Any) -> None:
    """A route that takes a body can refuse it as too slow, too large or of a form it does not take, and says so."""
    packed = {"Content-Encoding": "gzip"}
    with_body = [one for one in operations(document) if "requestBody" in one[2]]
    for method, path, operation in with_body:
        assert {"408", "413", "415"} <= set(operation["responses"]), (method, path)
        real = path.replace("{id}", "0197f3c2-6a3b-8000-8000-00022b1c9d10")
        reply = await api.request(method, re.sub(r"\{\w+\}", "x", real), b"{}", {**packed, "queue": "x"})
        reply.problem(415, "unsupported-media-type")
    assert len(with_body) > 15


async def test_routes_of_others_are_served_like_ours(api: Api) -> None:
    """The place where the web page and the events are added."""
    assert (await api.get("/v1/hello/orders")).json() == {"hello": True}
    assert (await api.request("HEAD", "/v1/hello/orders")).status == 200


async def test_metrics_show_the_report(api: Api) -> None:
    """INTERFACES 3: Prometheus. Counters end in _total, histograms have their buckets, answers count by status."""
    assert (await api.get("/v1/nothing")).status == 404
    reply = await api.get("/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = set(reply.body.decode().splitlines())
    assert {
        "syncbrok_ready 1.0",
        "syncbrok_delivered_total 1.0",
        "syncbrok_waiting_messages 6.0",
        'syncbrok_commit_seconds_bucket{le="0.001"} 3.0',
        'syncbrok_commit_seconds_bucket{le="+Inf"} 6.0',
        "syncbrok_commit_seconds_count 6.0",
        'syncbrok_http_answers_total{status="404"} 1.0',
    } <= lines
