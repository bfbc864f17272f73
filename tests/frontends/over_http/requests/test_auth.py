"""Who may do what, where tokens are configured; and that no web page acts for its reader."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest

from syncbrok.model.tokens import SCOPES, Token
from tests.support.http.api import Api, Serve
from tests.support.polling import eventually
from tests.support.space.fake_space import FakeSpace

OPEN = ("/healthz", "/readyz", "/openapi.json")
NEEDS = (
    ("POST", "/v1/queues/orders/messages", "publish"),
    ("POST", "/v1/queues/orders/messages:batch", "publish"),
    ("POST", "/msg", "publish"),
    ("GET", "/v1/queues", "read"),
    ("GET", "/v1/queues/orders/messages", "read"),
    ("GET", "/v1/messages/01a1fba6-f093-8000-8000-000104aafc26/content", "read"),
    ("GET", "/metrics", "read"),
    ("POST", "/v1/queues", "admin"),
    ("POST", "/queue", "admin"),
    ("POST", "/subscrib", "admin"),
    ("DELETE", "/v1/messages/01a1fba6-f093-8000-8000-000104aafc26", "admin"),
    ("POST", "/v1/queues/orders/dead-letters/replay", "admin"),
)


def token(name: str, *scopes: str) -> Token:
    return Token(name, hashlib.sha256(f"secret of {name}".encode()).hexdigest(), frozenset(scopes))


@pytest.fixture
def space() -> FakeSpace:
    return FakeSpace()


@pytest.fixture
async def api(space: FakeSpace, served: Serve) -> AsyncIterator[Api]:
    tokens = (*(token(scope, scope) for scope in SCOPES), token("all", *SCOPES))
    async with served(space.channels, space, tokens=tokens) as running:
        assert (await running.post("/v1/queues", {"name": "orders"}, bearer("all"))).status == 201
        space.put_items.clear()
        yield running


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer secret of {name}"}


@pytest.mark.parametrize(("method", "path", "scope"), NEEDS)
async def test_each_route_asks_for_its_scope(api: Api, space: FakeSpace, method: str, path: str, scope: str) -> None:
    """Scoped tokens. 401 without a known one, 403 with one that lacks the scope; nothing changes."""
    for headers in ({}, bearer("nobody"), {"Authorization": "Basic eDp5"}, {"Authorization": "Bearer "}):
        reply = await api.request(method, path, b"", headers)
        reply.problem(401, "unauthorized")
        assert reply.headers["WWW-Authenticate"].startswith("Bearer")
    for other in {*SCOPES} - {scope}:
        assert (await api.request(method, path, b"", bearer(other))).problem(403, "forbidden")["scope"] == scope
    assert space.put_items == []
    for name in (scope, "all"):
        assert (await api.request(method, path, b"", bearer(name))).status not in (401, 403)


async def test_health_is_open(api: Api) -> None:
    """Whatever watches the broker needs no token."""
    for path in OPEN:
        assert (await api.get(path)).status == 200


async def test_the_scheme_is_read_in_any_case(api: Api) -> None:
    """RFC 9110, 11.1: the scheme is case-insensitive."""
    assert (await api.get("/v1/queues", {"Authorization": "bearer secret of read"})).status == 200


async def test_bytes_that_are_no_text_are_no_token(api: Api) -> None:
    """A token of any bytes is refused, not stumbled over."""
    (await api.get("/v1/queues", {"Authorization": "Bearer caf\u00e9"})).problem(401, "unauthorized")


async def test_what_does_not_exist_is_not_hidden_behind_a_token(api: Api) -> None:
    """The routes are public (they are in /openapi.json); 404 and 405 say no more than that."""
    (await api.get("/v1/nothing")).problem(404, "unknown-route")
    (await api.request("PUT", "/v1/queues")).problem(405, "method-not-allowed")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_pages_of_other_sites_cannot_act(space: FakeSpace, site: str, served: Serve) -> None:
    """A page somewhere on the web may send simple requests to its reader's loopback: they change nothing here. The
    broker's own page and programs are not concerned."""
    async with served(space.channels, space) as api:
        for path in ("/v1/queues", "/v1/queues/orders/messages", "/v1/queues/orders/messages:batch", "/queue"):
            reply = await api.post(path, b'{"name":"orders"}', {"Sec-Fetch-Site": site, "queue": "orders"})
            reply.problem(403, "forbidden")
        assert space.put_items == []
        assert (await api.get("/v1/queues", {"Sec-Fetch-Site": site})).status == 200
        for name, own in enumerate(({"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {})):
            assert (await api.post("/v1/queues", {"name": f"q{name}"}, own)).status == 201


async def test_a_body_that_comes_later_is_its_tokens(api: Api) -> None:
    """DESIGN 1, bounded: what a token's body takes is counted for the token, though the head was its address's; where
    head and body come apart it was answered 500."""
    head = b"POST /v1/queues HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret of all\r\nConnection: close\r\n"
    for body in (b'{"name":"later"}', b'{"name":"later"}' + b" " * 60_000):
        reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body))
        await writer.drain()
        await eventually(lambda: api.server.connections and not api.server.fast_path_connections, "the head is read")
        writer.write(body)
        answer = await reader.read()
        writer.close()
        assert answer.split(b" ", 2)[1] in (b"201", b"200"), answer
