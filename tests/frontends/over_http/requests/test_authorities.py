"""By which names the broker answers, and whose pages may ask it; the same on both ways of a publish."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from syncbrok.frontends.over_http.requests.authorities import Authorities, Misdirected
from syncbrok.model.errors import Forbidden, Malformed
from syncbrok.model.tokens import SCOPES, Token
from tests.frontends.over_http.requests.test_auth import bearer, token
from tests.support.http.api import Api, Serve, raw
from tests.support.space.fake_space import FakeSpace

SHOP = "https://shop.example"
OURS = (
    *("127.0.0.1", "127.0.0.1:10000", "10.1.2.3:80", "[::1]", "[::1]:10000", "[fd00::1]:9", "192.0.2.7"),
    *("localhost", "LOCALHOST:1", "localhost.", "a.localhost", "broker.localhost:10000", "broker.example", "box:10000"),
)
OTHERS = (
    *("attacker.example", "attacker.example:10000", "localhost.attacker.example", "127.0.0.1.attacker.example"),
    *("notlocalhost", "broker.example.attacker.example", "xbroker.example", "", ":10000", "user@127.0.0.1", "127.1"),
    *("2130706433", "0x7f000001", "[::1", "127.0.0.1:port", "broker.example/", "a b", "[v1.x]"),
    *("[::1]attacker.example", "[::1].attacker.example:80", "attacker.example[::1]"),
    f"{'a.' * 200}localhost",
)


@pytest.fixture
def space() -> FakeSpace:
    return FakeSpace()


@pytest.fixture
async def api(space: FakeSpace, served: Serve) -> AsyncIterator[Api]:
    async with served(space.channels, space, hosts=("broker.example",), machine_names=("box",), origins=(SHOP,)) as one:
        assert (await one.post("/v1/queues", {"name": "orders"})).status == 201
        space.put_items.clear()
        yield one


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def publish(api: Api, *headers: str, version: str = "1.1", more: str = "", close: bool = True) -> int:
    """The status of a publish written by hand; with ``more`` it goes the long way (aiohttp's)."""
    lines = [f"POST /v1/queues/orders/messages HTTP/{version}", *headers, "Content-Length: 1", *filter(None, [more])]
    if close:  # a second request that ends the connection on either way
        ending = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        return status(await raw(api, ("\r\n".join(lines) + "\r\n\r\nx" + ending).encode("latin-1")))
    return status(await raw(api, ("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\nx").encode("latin-1")))


def test_which_names_are_ours() -> None:
    """DESIGN 1, who may speak: an address, localhost, what is configured; never a name that somebody else's DNS may
    point here (rebinding)."""
    names = Authorities(["broker.example", "Box"], [SHOP])
    for _ in range(2):  # what was said of a name before is remembered
        assert [host for host in OURS if not names.answers_for(host)] == []
        assert [host for host in OTHERS if names.answers_for(host)] == []
    anything = Authorities([], [], any_host=True)
    anything.check_host(["attacker.example"], optional=False)


def test_there_is_one_host() -> None:
    """RFC 9112, 3.2: none or two are refused; HTTP/1.0 has none."""
    names = Authorities()
    names.check_host([], optional=True)
    for wrong in ([], ["127.0.0.1", "127.0.0.1"]):
        with pytest.raises(Malformed):
            names.check_host(wrong, optional=False)
    with pytest.raises(Misdirected):
        names.check_host(["attacker.example"], optional=True)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:10000", "127.0.0.1:10000"),
        ("http://127.0.0.1", "127.0.0.1:80"),
        ("http://127.0.0.1:80", "127.0.0.1"),
        ("https://broker.example", "broker.example"),
        ("https://broker.example", "BROKER.example:443"),
        ("http://[::1]:9", "[::1]:9"),
        (SHOP, "127.0.0.1:10000"),
        (f"{SHOP}:443", "127.0.0.1:10000"),
    ],
)
def test_the_page_of_this_broker_may_ask(origin: str, host: str) -> None:
    """DESIGN 1, who may speak: the origin is the request's own host, default ports filled in, or a configured one."""
    Authorities(["broker.example"], [SHOP]).check_origin(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("null", "127.0.0.1:10000"),
        ("", "127.0.0.1:10000"),
        ("http://127.0.0.1:10001", "127.0.0.1:10000"),
        ("http://localhost:10000", "127.0.0.1:10000"),
        ("https://127.0.0.1", "127.0.0.1:80"),
        ("http://shop.example", "127.0.0.1:10000"),
        (f"{SHOP}.attacker.example", "127.0.0.1:10000"),
        (f"{SHOP}@attacker.example", "127.0.0.1:10000"),
        (f"{SHOP}, http://attacker.example", "127.0.0.1:10000"),
        ("http://attacker.example@127.0.0.1:10000", "127.0.0.1:10000"),
        ("http://[::1]attacker.example", "[::1]"),
        ("file://", "127.0.0.1:10000"),
        ("chrome-extension://abc", "abc"),
        ("http://127.0.0.1:10000", ""),
    ],
)
def test_other_pages_may_not(origin: str, host: str) -> None:
    """DESIGN 1, who may speak: another port is another site, and so is what only looks like a configured one."""
    with pytest.raises(Forbidden):
        Authorities(["broker.example"], [SHOP]).check_origin(origin, host)


@pytest.mark.parametrize("more", ["", "Sec-Fetch-Site: none"], ids=["short way", "long way"])
async def test_both_ways_ask_for_the_name(api: Api, space: FakeSpace, more: str) -> None:
    """DESIGN 1, who may speak: a request for another name is refused before anything is looked at, whichever way it
    goes, and a head that was seen before is no exception."""
    for _ in range(2):
        for host in OTHERS:
            assert await publish(api, f"Host: {host}", more=more) in (421, 400), host
    assert space.put_items == []
    assert await publish(api, "Host: broker.example", more=more) == 201
    assert await publish(api, f"Host: 127.0.0.1:{api.server.port}", more=more) == 201
    assert await publish(api, "Host: 127.0.0.1", "Host: attacker.example", more=more) == 400
    assert await publish(api, version="1.0", more=more, close=False) == 201


async def test_the_target_names_the_broker_too(api: Api) -> None:
    """RFC 9112, 3.2.2: a target may name an authority itself, and then that is whom the request is for. It must be
    this broker, as Host must."""
    for authority, expected in [
        *(("attacker.example", 421), ("user@127.0.0.1", 421), ("127.0.0.1:1", 200), ("[::1]:1", 200)),
        ("broker.example", 200),
    ]:
        request = f"GET http://{authority}/v1/queues HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        assert status(await raw(api, request.encode())) == expected, authority
    watched = b"GET http://attacker.example/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert status(await raw(api, watched)) == 200


async def test_two_origins_are_none(api: Api, space: FakeSpace) -> None:
    """DESIGN 1, who may speak: no browser sends two; of two none is believed, whichever comes first."""
    own = f"http://127.0.0.1:{api.server.port}"
    for two in ((own, "http://attacker.example"), ("http://attacker.example", own), (own, own)):
        headers = [f"Host: 127.0.0.1:{api.server.port}", *(f"Origin: {one}" for one in two)]
        assert await publish(api, *headers, close=False) == 403
    assert space.put_items == []


async def test_a_refusal_says_what_to_do(api: Api) -> None:
    """INTERFACES 3: 421 with the name and the setting, on routes that exist and on others; what watches a broker may
    call it by any name."""
    for path in ("/v1/queues", "/v1/nothing", "/", "/openapi.json"):
        found = (await api.get(path, {"Host": "attacker.example"})).problem(421, "misdirected")
        assert "attacker.example" in found["detail"]
        assert "http.hosts" in found["mend"]
    for path in ("/healthz", "/readyz", "/metrics"):
        assert (await api.get(path, {"Host": "attacker.example"})).status == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_page_of_another_site_neither_reads_nor_writes(api: Api, space: FakeSpace, method: str) -> None:
    """DESIGN 1, who may speak: whatever it asks, and though it sends no Sec-Fetch-Site."""
    for origin in ("http://attacker.example", "null", f"http://localhost:{api.server.port}"):
        for path in ("/v1/queues", "/v1/queues/orders/messages", "/metrics", "/nothing"):
            reply = await api.request(method, path, b'{"name":"a"}', {"Origin": origin})
            reply.problem(403, "forbidden")
            assert "Access-Control-Allow-Origin" not in reply.headers
    assert space.put_items == []


async def test_a_page_of_another_site_gets_no_socket_by_its_origin(api: Api) -> None:
    """DESIGN 1, who may speak: browsers open sockets across sites without asking, and say only where from."""
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"{api.server.url}/v1/queues/orders/stream", origin="http://attacker.example")
        assert refused.value.status == 403


async def test_pages_of_configured_origins_may_ask_and_read(api: Api) -> None:
    """INTERFACES 1, http.origins: CORS answers for them, preflight and answer, and for nobody else."""
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    leave = await api.request("OPTIONS", "/v1/queues", None, {"Origin": SHOP, **asks})
    assert leave.status == 204
    assert leave.headers["Access-Control-Allow-Origin"] == SHOP
    assert "POST" in leave.headers["Access-Control-Allow-Methods"]
    assert leave.headers["Access-Control-Allow-Headers"] == "authorization,content-type"
    cross = {"Origin": SHOP, "Sec-Fetch-Site": "cross-site", "Content-Type": "application/json"}
    made = await api.post("/v1/queues", {"name": "cards"}, cross)
    assert made.status == 201
    assert made.headers["Access-Control-Allow-Origin"] == SHOP
    assert made.headers["Vary"] == "Origin"
    assert "Location" in made.headers["Access-Control-Expose-Headers"]
    other = await api.request("OPTIONS", "/v1/queues", None, {"Origin": "http://attacker.example", **asks})
    other.problem(403, "forbidden")
    own = await api.get("/v1/queues", {"Origin": api.server.url})
    assert own.status == 200
    assert "Access-Control-Allow-Origin" not in own.headers


async def test_from_a_page_json_is_called_json(api: Api) -> None:
    """DESIGN 1, who may speak: a browser asks leave for application/json, for text/plain it does not. Programs send no
    Origin and may call it what they like; contents of messages are of any type."""
    own = {"Origin": api.server.url}
    (await api.post("/v1/queues", {"name": "b"}, {**own, "Content-Type": "text/plain"})).problem(
        415, "unsupported-media-type"
    )
    assert (await api.post("/v1/queues", {"name": "b"}, {**own, "Content-Type": "application/json"})).status == 201
    assert (await api.post("/v1/queues", {"name": "c"}, {"Content-Type": "text/plain"})).status == 201
    assert (await api.publish("orders", b"x", {**own, "Content-Type": "text/plain"})).status == 201


async def test_with_tokens_any_name_does_unless_names_are_set(space: FakeSpace, served: Serve) -> None:
    """INTERFACES 1, http.hosts: a page of another site does not have the token."""
    asked = {"Host": "anything.example", **bearer("all")}
    tokens = (token("all", *SCOPES),)
    async with served(space.channels, space, tokens=tokens) as api:
        assert (await api.get("/v1/queues", asked)).status == 200
    async with served(space.channels, space, tokens=tokens, hosts=("broker.example",)) as api:
        (await api.get("/v1/queues", asked)).problem(421, "misdirected")


async def test_a_token_that_is_taken_away_opens_nothing_any_more(space: FakeSpace, served: Serve) -> None:
    """INTERFACES 1, tokens: at once and on both ways; and the names that are taken follow, heads that were seen before
    included."""
    async with served(space.channels, space, tokens=(token("all", *SCOPES),)) as api:
        api.headers |= bearer("all")
        assert (await api.post("/v1/queues", {"name": "orders"})).status == 201
        named = ("Host: anything.example", "Authorization: Bearer secret of all")
        assert await publish(api, *named) == 201
        api.server.set_tokens((token("other", *SCOPES),))
        (await api.get("/v1/queues")).problem(401, "unauthorized")
        assert await publish(api, *named) == 401
        api.server.set_tokens(())
        assert await publish(api, *named) == 421
        assert await publish(api, "Host: 127.0.0.1") == 201
        api.server.set_tokens([Token("all", token("all").sha256, frozenset({"read"}))])
        assert await publish(api, *named) == 403
