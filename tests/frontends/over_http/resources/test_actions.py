"""``GET /v1/actions``: who did what, found by person, kind, queue and time (INTERFACES 3)."""

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from syncbrok.model.tokens import ADMIN, PUBLISH, READ, Token, parse_scopes
from tests.support.http.space import ENDPOINT, HttpSpace, MakeHttpSpace
from tests.support.polling import eventually
from tests.support.space.spaces import REFUSED

PATH = "/v1/actions"
QUEUE = "/v1/queues/shop.q"


def token(name: str, scopes: Any) -> Token:
    return Token(name, sha256(name.encode()).hexdigest(), *parse_scopes(scopes))


def of(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


TOKENS = (
    token("ops", [ADMIN, READ, PUBLISH]),
    token("shop", {ADMIN: ["shop.*"], READ: ["shop.*"], PUBLISH: ["shop.*"]}),
)
OPS, SHOP = of("ops"), of("shop")


@pytest.fixture
async def made(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[HttpSpace]:
    """What ops and shop have done in two queues, among messages: see ``DONE``."""
    async with http_space(tmp_path, tokens=TOKENS) as made:
        made.consumer.answer = lambda _: REFUSED
        api, view = made.api, made.space.view
        await api.post("/v1/queues", {"name": "shop.q", "retry": ["1h"]}, OPS)
        await api.post(f"{QUEUE}/subscribers", {"endpoint": ENDPOINT, "name": "a"}, OPS)
        await api.post("/v1/queues", {"name": "bills"}, OPS)
        for _ in range(3):
            id_ = (await api.post(f"{QUEUE}/messages", b"x", SHOP)).json()["id"]
        await eventually(lambda: view.subscriber("shop.q", "a").retrying == 3, "all were tried")
        await api.request("PATCH", f"{QUEUE}/subscribers/a", {"paused": True}, SHOP)
        await api.request("DELETE", f"/v1/messages/{id_}", None, SHOP)
        await api.request("DELETE", f"/v1/messages/{id_}/content", None, OPS)
        await api.request("DELETE", "/v1/queues/bills", None, OPS)
        yield made


DONE = [
    ("queue_set", "ops", "shop.q", None),
    ("subscriber_set", "ops", "shop.q", "a"),
    ("queue_set", "ops", "bills", None),
    ("subscriber_set", "shop", "shop.q", "a"),
    ("cancel", "shop", "shop.q", None),
    ("erased", "ops", "shop.q", None),
    ("queue_deleted", "ops", "bills", None),
]


async def found(made: HttpSpace, query: str = "", headers: dict[str, str] = OPS) -> list[Any]:
    """Everything that is found, page by page, two at a time."""
    actions: list[Any] = []
    after = 0
    while after is not None:
        reply = await made.api.get(f"{PATH}?limit=2&after={after}&{query}", headers)
        assert reply.status == 200, reply
        assert len(reply.json()["actions"]) <= 2
        actions += reply.json()["actions"]
        after = reply.json()["next"]
    return actions


def short(actions: list[Any]) -> list[tuple[str, str, str, str | None]]:
    return [(one["action"], one["by"], one["queue"], one["subscriber"]) for one in actions]


async def test_what_people_did_is_read_from_either_end(made: HttpSpace) -> None:
    """INTERFACES 1 and 3: the newest first, or the oldest; each once, messages and attempts apart; the message that a
    cancel and an erasure were about is named."""
    oldest = await found(made, "order=asc")
    assert short(oldest) == DONE
    assert short(await found(made)) == DONE[::-1]
    assert [one["sequence"] for one in oldest] == sorted(one["sequence"] for one in oldest)
    assert oldest[4]["message"] == oldest[5]["message"] is not None
    assert [one["messages"] for one in oldest] == [0, 0, 0, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("by=shop", [3, 4]),
        ("by=nobody", []),
        ("action=queue_set", [0, 2]),
        ("queue=bills", [2, 6]),
        ("queue=never", []),
        ("by=ops&queue=shop.q&action=erased", [5]),
        ("since=2020-01-01T00:00:00Z&by=shop", [3, 4]),
        ("until=2020-01-01T00:00:00Z", []),
    ],
)
async def test_it_is_found_by_person_kind_queue_and_time(made: HttpSpace, query: str, expected: list[int]) -> None:
    """INTERFACES 3: all that is given must be true; a queue that is deleted is found by its name."""
    assert short(await found(made, f"{query}&order=asc")) == [DONE[at] for at in expected]


async def test_a_stretch_between_two_sequences(made: HttpSpace) -> None:
    """INTERFACES 3: ``since`` is inclusive, ``until`` is not, in both orders."""
    at = [one["sequence"] for one in await found(made, "order=asc")]
    between = f"since={at[2]}&until={at[5]}"
    assert short(await found(made, f"{between}&order=asc")) == DONE[2:5]
    assert short(await found(made, between)) == DONE[2:5][::-1]


async def test_a_token_for_some_queues_is_told_of_those(made: HttpSpace) -> None:
    """INTERFACES 1: no other queue and no other's name; asked for another's name it finds nothing."""
    seen = await found(made, "order=asc", SHOP)
    assert [(one["action"], one["by"]) for one in seen] == [
        ("queue_set", None),
        ("subscriber_set", None),
        ("subscriber_set", "shop"),
        ("cancel", "shop"),
        ("erased", None),
    ]
    assert await found(made, "by=ops", SHOP) == []
    assert len(await found(made, "by=shop", SHOP)) == 2
    (await made.api.get(f"{PATH}?queue=bills", SHOP)).problem(403, "forbidden")
    for wrong in ("action=odd", "order=up", "since=yesterday"):
        assert (await made.api.get(f"{PATH}?{wrong}", OPS)).status == 400


async def test_a_job_is_told_once_with_its_number(made: HttpSpace) -> None:
    """RULES 34: as it began, not as it goes on; and who cancelled it, where somebody did."""
    await made.api.request("PATCH", f"{QUEUE}/subscribers/a", {"paused": False}, OPS)
    job = await made.api.post(f"{QUEUE}/subscribers/a/recover", {"state": "all"}, SHOP)
    assert job.status == 202, job
    (told,) = await found(made, "action=recover")
    assert (told["job"], told["by"], told["queue"], told["subscriber"]) == (job.json()["id"], "shop", "shop.q", "a")
