"""What goes wrong, as clients see it: one status and one problem type for each error, and nothing changed by it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiohttp import web

from syncbrok.frontends.over_http.requests import problems
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.routes import Reply, Route
from syncbrok.model import errors
from syncbrok.model.errors import SyncbrokError
from tests.support.http.api import Api, Serve, raw
from tests.support.polling import eventually
from tests.support.space.fake_space import FakeSpace

STATUSES = {
    errors.Malformed: 400,
    errors.BadSetting: 400,
    errors.BadName: 400,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.UnknownQueue: 404,
    errors.UnknownSubscriber: 404,
    errors.UnknownMessage: 404,
    errors.Conflict: 409,
    errors.IdempotencyConflict: 409,
    errors.SubscriberStopped: 409,
    errors.Gone: 410,
    errors.TooLarge: 413,
    errors.UnknownParent: 422,
    errors.Overloaded: 429,
    errors.Draining: 503,
    errors.LogUnavailable: 503,
    errors.LogFull: 507,
}
PUBLISHES = ("/v1/queues/orders/messages", "/v1/queues/orders/messages:batch", "/msg")


@pytest.fixture
def space() -> FakeSpace:
    return FakeSpace()


@pytest.fixture
async def api(space: FakeSpace, served: Serve) -> AsyncIterator[Api]:
    async with served(space.channels, space) as running:
        assert (await running.post("/v1/queues", {"name": "orders"})).status == 201
        yield running


async def publish(api: Api, path: str) -> Any:
    headers = {"queue": "orders"} if path == "/msg" else {}
    if path.endswith(":batch"):
        headers["Content-Type"] = "application/x-ndjson"
    return await api.post(path, b'{"content":"x"}', headers)


def every_error() -> Iterator[type[SyncbrokError]]:
    waiting = [errors.ClientFault, errors.BrokerFault]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if not kind.__module__.startswith("syncbrok.pipeline"):  # never raised in a broker, which does not import it
            yield kind


def test_every_error_has_its_row() -> None:
    """One table. A new error class without a status of its own is one somebody forgot."""
    assert not [kind.__name__ for kind in every_error() if kind not in problems.TABLE]
    assert {kind: row.status for kind, row in problems.TABLE.items() if kind in STATUSES} == STATUSES


def test_problem_types_are_stable() -> None:
    """INTERFACES 3: a stable ``type``. Clients compare it: a change here breaks them."""
    types = {kind.slug for kind in problems.TABLE}
    assert types >= {
        *(
            "bad-name",
            "bad-request",
            "bad-setting",
            "conflict",
            "draining",
            "forbidden",
            "gone",
            "idempotency-conflict",
        ),
        *(
            "log-failed",
            "log-full",
            "lost",
            "malformed",
            "method-not-allowed",
            "overloaded",
            "request-timeout",
            "too-large",
        ),
        *("headers-too-large", "unauthorized", "unknown-message", "unknown-parent", "unknown-queue", "unknown-route"),
        *("unknown-subscriber", "unsupported-media-type"),
    }


@pytest.mark.parametrize("kind", STATUSES)
@pytest.mark.parametrize("path", PUBLISHES)
@pytest.mark.parametrize("later", [False, True])
async def test_each_refusal_of_a_publish_has_its_status(
    api: Api, space: FakeSpace, kind: type[SyncbrokError], path: str, later: bool
) -> None:
    """INTERFACES 3, answers of a publish; RULES 1: each names the policy. Refused at once or by the receipt alike."""
    refusal = kind("what happened", detail_of="this")
    space.refuse, space.refuse_later = (None, refusal) if later else (refusal, None)
    reply = await publish(api, path)
    problem = reply.problem(STATUSES[kind], kind.slug)
    assert problem["detail"] == "what happened"
    assert problem["detail_of"] == "this"
    assert reply.headers["Syncbrok-Sync"] == "always"
    assert ("Retry-After" in reply.headers) == (reply.status in (429, 503))
    assert ("WWW-Authenticate" in reply.headers) == (reply.status == 401)


async def test_retry_after_is_in_whole_seconds(api: Api, space: FakeSpace) -> None:
    """RFC 9110, 10.2.3: a number of seconds, never too early."""
    space.refuse = errors.Overloaded("full", retry_after_s=1.2)
    assert (await publish(api, PUBLISHES[0])).headers["Retry-After"] == "2"
    space.refuse = errors.Overloaded("full")
    assert (await publish(api, PUBLISHES[0])).headers["Retry-After"] == "1"


async def test_a_broker_that_stops_says_when_to_come_again(api: Api, space: FakeSpace) -> None:
    """A publish refused while draining carries Retry-After, the short way and the long one, as readiness does."""
    space.refuse = errors.Draining("it is stopping")
    for headers in ({}, {"Prefer": "wait=1"}):
        reply = await api.publish("orders", b"x", headers)
        reply.problem(503, "draining")
        assert reply.headers["Retry-After"] == "1"
    space.state, space.ready = "draining", False
    assert (await api.get("/readyz")).headers["Retry-After"] == "1"


async def test_members_cannot_replace_what_a_problem_says_of_itself(api: Api, space: FakeSpace) -> None:
    """RFC 9457: type, title, status and detail are the problem's; whatever an error carries is beside them."""
    space.refuse = errors.Conflict("it differs", status=200, title="x", type="y", raw=b"\xff", path=object)
    (await publish(api, PUBLISHES[0])).problem(409, "conflict")


@pytest.mark.parametrize("path", PUBLISHES)
async def test_what_nobody_foresaw_is_500_without_a_trace(
    api: Api, space: FakeSpace, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client learns that it was the broker's fault and nothing about its insides; the log has the trace."""
    space.refuse = ZeroDivisionError("secret inside")
    with caplog.at_level(logging.ERROR, "syncbrok"):
        reply = await publish(api, path)
    reply.problem(500, "internal")
    assert b"secret" not in reply.body
    assert b"Zero" not in reply.body
    (record,) = [one for one in caplog.records if one.message == "syncbrok.http.failed"]
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_reads_that_break_are_problems_too(api: Api, space: FakeSpace) -> None:
    """Reading fails in the same words as writing."""
    space.break_with = errors.LogUnavailable("the log has failed")
    (await api.get("/v1/queues/orders")).problem(503, "log-failed")


async def test_no_route_and_wrong_method_are_problems(api: Api) -> None:
    """What aiohttp refuses itself has the same form as our refusals."""
    (await api.get("/v1/nothing")).problem(404, "unknown-route")
    (await api.post("/v1/queues/orders/nothing", b"")).problem(404, "unknown-route")
    reply = await api.request("PUT", "/v1/queues")
    assert reply.problem(405, "method-not-allowed")["allowed"] == ["GET", "HEAD", "POST"]
    assert reply.headers["Allow"] == "GET, HEAD, POST"


async def test_names_are_never_paths(api: Api) -> None:
    """INTERFACES 5: names are never used as paths, and one that looks like a path is no name."""
    for name in ("..%2f..%2fetc", "%2e%2e", "a%2Fb", "a%00b", "%20b", "x" * 129):
        (await api.publish(name, b"x")).problem(400, "bad-name")
        (await api.get(f"/v1/queues/{name}")).problem(400, "bad-name")
    for name in ("..%2f..%2fetc", "%2e%2e", ".hidden", "a%00b", "a%20b", "%C3%A4", "%7Ba%7D", "{a}", "x" * 129):
        (await api.get(f"/v1/queues/orders/subscribers/{name}")).problem(400, "bad-name")
    (await api.post("/v1/queues", {"name": "../../etc"})).problem(400, "bad-name")


async def test_ids_that_are_none_are_malformed(api: Api) -> None:
    """400 for what cannot be an id, 404 for one that was never issued here."""
    issued_nowhere = "01a1fba6-f093-8000-8000-000104aafc26"
    for tail in ("", "/content", "/tree", "/critical-path"):
        for none in ("not-an-id", f"{{{issued_nowhere}}}", f"%7B{issued_nowhere}%7D"):
            (await api.get(f"/v1/messages/{none}{tail}")).problem(400, "malformed")
        (await api.get(f"/v1/messages/{issued_nowhere}{tail}")).problem(404, "unknown-message")
    (await api.delete("/v1/messages/not-an-id")).problem(400, "malformed")
    (await api.post("/v1/messages/not-an-id/replay", {})).problem(400, "malformed")


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"7", b"\xff", b'{"name":"x"}}'])
async def test_bodies_that_are_no_object_are_malformed(api: Api, space: FakeSpace, body: bytes) -> None:
    """Bad JSON changes nothing."""
    put = len(space.put_items)
    for path in ("/v1/queues", "/v1/queues/orders/purge", "/v1/queues/orders/subscribers"):
        (await api.post(path, body)).problem(400, "malformed")
    (await api.request("PATCH", "/v1/queues/orders", body)).problem(400, "malformed")
    assert len(space.put_items) == put


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "limit=1e2", "after=-1", "after=x", "after=" + "9" * 16]
)
async def test_paging_is_checked(api: Api, query: str) -> None:
    """Lists take ``limit`` and ``after``; what is out of bounds is a mistake, not another number."""
    (await api.get(f"/v1/queues/orders/messages?{query}")).problem(400, "malformed")
    (await api.get(f"/v1/queues/orders/dead-letters?{query}")).problem(400, "malformed")


async def test_other_queries_are_checked(api: Api, space: FakeSpace) -> None:
    """A state, direction, depth or switch that does not exist is named, not passed over."""
    id_ = (await api.publish("orders", b"x")).json()["id"]
    put = len(space.put_items)
    for path in (
        "/v1/queues/orders/messages?state=lost",
        f"/v1/messages/{id_}/tree?direction=sideways",
        f"/v1/messages/{id_}/tree?depth=0",
        "/v1/messages",
        "/v1/messages?key=",
    ):
        (await api.get(path)).problem(400, "malformed")
    (await api.delete("/v1/queues/orders?force=perhaps")).problem(400, "malformed")
    (await api.post("/v1/queues/orders/purge?dry_run=perhaps")).problem(400, "malformed")
    assert len(space.put_items) == put


async def test_every_setting_is_suggested(api: Api) -> None:
    """A name misspelt is answered with the one that was meant, also of what stands beside the settings."""
    assert "did you mean 'name'?" in (await api.post("/v1/queues", {"name": "x", "nam": "y"})).json()["detail"]
    assert "'name'" not in (await api.patch("/v1/queues/orders", {"nam": "y"})).json()["detail"], "it cannot be changed"
    subscribers = "/v1/queues/orders/subscribers"
    for method, path in (("POST", subscribers), ("PATCH", f"{subscribers}/s-1")):
        for wrong, meant in (("secrt", "secret"), ("starts", "start"), ("endpiont", "endpoint")):
            given = {"endpoint": "http://127.0.0.1:20000/", wrong: "x"}
            problem = (await api.request(method, path, given)).problem(400, "bad-setting")
            assert f"did you mean {meant!r}?" in problem["detail"]


async def test_a_publisher_that_waits_is_told_the_truth_when_nobody_can_wait(api: Api, space: FakeSpace) -> None:
    """The message is accepted by then: refusing to wait must not look like refusing the message."""
    space.ended.set()
    assert (await api.publish("orders", b"x", {"Prefer": "wait=5"})).status == 200

    async def wait(*_: object) -> bool:
        raise errors.Overloaded("too many wait")

    space.wait = wait  # type: ignore[method-assign]
    reply = await api.publish("orders", b"x", {"Prefer": "wait=5"})
    assert reply.status == 202
    assert reply.headers["Location"] == f"/v1/messages/{reply.json()['id']}"


async def test_readiness_follows_the_space(api: Api, space: FakeSpace) -> None:
    """INTERFACES 3: readyz answers 503 while recovering or draining; healthz only says that the process runs."""
    space.break_with = RuntimeError("nobody builds statistics of ten thousand queues for a probe")
    assert (await api.get("/readyz")).json() == {"status": "serving"}
    for state in ("starting", "draining", "failed"):
        space.state, space.ready = state, False
        assert (await api.get("/readyz")).problem(503, "draining")["state"] == state
        assert (await api.get("/healthz")).json() == {"status": "ok"}


async def test_weaker_policies_are_named(space: FakeSpace, served: Serve) -> None:
    """RULES 1: 202 under a weaker policy, and every answer to a publish says which."""
    space.sync = "interval:50"
    async with served(space.channels, space, sync="interval:50") as api:
        await api.post("/v1/queues", {"name": "orders"})
        for path, status in zip(PUBLISHES, (202, 202, 200), strict=True):
            reply = await publish(api, path)
            assert (reply.status, reply.headers["Syncbrok-Sync"]) == (status, "interval:50")
        assert (await api.publish("nothing", b"x")).headers["Syncbrok-Sync"] == "interval:50"


async def test_a_stopping_server_lets_answers_finish(space: FakeSpace, served: Serve) -> None:
    """Shutdown: what is under way is answered, then the connections close."""
    async with served(space.channels, space, stop_timeout_s=5.0) as api:
        await api.post("/v1/queues", {"name": "orders"})
        slow = asyncio.ensure_future(api.publish("orders", b"x", {"Prefer": "wait=30"}))
        await eventually(lambda: space.waited_s, "a publisher that waits")
        stopping = asyncio.ensure_future(api.server.stop())
        space.ended.set()
        assert (await slow).status == 200
        await stopping
        assert api.server.connections == 0


async def test_an_event_source_that_may_come_again_is_cut_off(served: Serve, space: FakeSpace) -> None:
    """INTERFACES 3: an EventSource comes again, with the id it has, where its connection breaks, and never after an
    answer that is not 200. So what is over soon (429, 503) is not told to it; what stays, it is told."""
    refusals = {"/v1/full": errors.Overloaded("full"), "/v1/stops": errors.Draining("stopping")}
    refusals["/v1/wrong"] = errors.Malformed("never")

    async def refuse(_: HttpContext, request: web.Request) -> web.StreamResponse:
        raise refusals[request.path]

    streams = [Route("GET", path, refuse, "read", "extra", "x", {200: Reply("x")}, lasts=True) for path in refusals]
    async with served(space, space, *streams) as api:
        for path, wanted in (("/v1/full", 429), ("/v1/stops", 503), ("/v1/wrong", 400)):
            assert (await api.get(path)).status == wanted, "whoever does not say that it is one gets the answer"
            asked = f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n"
            answer = await raw(api, asked.encode())
            assert answer[:12] == (b"HTTP/1.1 400" if wanted == 400 else b"")
