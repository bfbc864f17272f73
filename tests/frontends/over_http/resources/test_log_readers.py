"""The named readers of the log over HTTP (INTERFACES 3, ``/v1/log/readers``)."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from syncbrok.frontends.over_http.resources import log_readers
from tests.frontends.over_http.requests.test_reach import of, token
from tests.support.http.api import Api, Serve
from tests.support.space.spaces import running_space

PATH = "/v1/log/readers"
TOKENS = (token("reader", {"read": ["*"]}), token("some", {"read": ["shop.*"]}), token("admin", ["admin"]),
          token("half", {"read": ["*"], "admin": ["shop.*"]}), token("filler", ["publish"]))  # fmt: skip


@pytest.fixture
async def api(tmp_path: Path, served: Serve) -> AsyncIterator[Api]:
    async with running_space(tmp_path) as running:
        routes = log_readers.routes(running.space.log_readers)
        async with served(running.space.channels, running.view, *routes, tokens=TOKENS) as api:
            assert (await api.post("/v1/queues", {"name": "q"}, of("admin"))).status == 201
            yield api


async def test_a_reader_tells_its_place_and_is_listed(api: Api) -> None:
    """Whoever may read all of the log may say how far it has come: the answer, the list and ``/metrics`` say how many
    records are left. What is not given stays as it was."""
    told = (await api.request("PUT", f"{PATH}/warehouse", {"sequence": 1}, of("reader"))).json()
    assert (told["name"], told["sequence"], told["hold"], told["holding"]) == ("warehouse", 1, False, False)
    for _ in range(3):
        assert (await api.publish("q", b"x", of("filler"))).status == 201
    (listed,) = (await api.get(PATH, of("reader"))).json()["readers"]
    assert listed["lag"] >= told["lag"] + 3
    scraped = (await api.get("/metrics", of("reader"))).body.decode()
    assert f'syncbrok_log_reader_lag{{reader="warehouse"}} {float(listed["lag"])!r}' in scraped
    assert 'syncbrok_log_reader_hold{reader="warehouse"} 0.0' in scraped
    again = await api.request("PUT", f"{PATH}/warehouse", None, of("reader"))
    assert again.json()["sequence"] == 1
    for body in ({"sequence": -1}, {"sequence": "1"}, {"hold": 1}, {"place": 1}, [], {"sequence": 1 << 63}):
        (await api.request("PUT", f"{PATH}/warehouse", body, of("reader"))).problem(400, "malformed")
    (await api.request("PUT", f"{PATH}/-x", {}, of("reader"))).problem(400, "bad-name")
    (await api.request("PUT", f"{PATH}/warehouse", {"sequence": 1_000}, of("reader"))).problem(409, "conflict")
    assert [one["sequence"] for one in (await api.get(PATH, of("admin"))).json()["readers"]] == [1]


async def test_to_hold_retention_back_and_to_delete_needs_admin(api: Api) -> None:
    """``read`` without queues tells a place; ``admin`` in all queues lets it hold, after which the reader itself goes
    on with ``read``, saying so or not; to delete it needs ``admin`` too. Tokens for some queues have no say."""
    warehouse = f"{PATH}/warehouse"
    for name in ("reader", "half"):
        refused = (await api.request("PUT", warehouse, {"hold": True}, of(name))).problem(403, "forbidden")
        assert "admin" in refused["detail"]
    for method, body in (("GET", None), ("PUT", {})):
        path = PATH if method == "GET" else warehouse
        for name in ("some", "filler"):
            (await api.request(method, path, body, of(name))).problem(403, "forbidden")
    assert (await api.request("PUT", warehouse, {"hold": True}, of("admin"))).json()["holding"]
    going_on = await api.request("PUT", warehouse, {"sequence": 1, "hold": True}, of("reader"))
    assert (going_on.status, going_on.json()["holding"]) == (200, True)
    assert 'syncbrok_log_reader_hold{reader="warehouse"} 1.0' in (await api.get("/metrics", of("reader"))).body.decode()
    let_go = await api.request("PUT", warehouse, {"hold": False}, of("reader"))
    assert not let_go.json()["hold"]
    (await api.request("DELETE", warehouse, None, of("reader"))).problem(403, "forbidden")
    assert (await api.request("DELETE", warehouse, None, of("admin"))).status == 204
    (await api.request("DELETE", warehouse, None, of("admin"))).problem(404, "unknown-reader")
