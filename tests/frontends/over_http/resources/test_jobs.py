"""Jobs over HTTP (INTERFACES 3, RULES 34): what is answered, and what is refused with nothing changed."""

import logging
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from syncbrok.model import limits
from syncbrok.model.tokens import ADMIN, PUBLISH, READ, Token
from tests.support.http.api import Api
from tests.support.http.space import ENDPOINT, ONCE, HttpSpace, MakeHttpSpace
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, REFUSED

QUEUE = "/v1/queues/q"
LETTERS = f"{QUEUE}/dead-letters"
ONE = f"{QUEUE}/subscribers/a"


@pytest.fixture
async def running(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[HttpSpace]:
    """Queue q, whose subscriber a refuses everything."""
    async with http_space(tmp_path) as made:
        await made.api.post("/v1/queues", {"name": "q", **ONCE})
        await made.api.post("/v1/queues", {"name": "other", **ONCE})
        await made.api.post(f"{QUEUE}/subscribers", {"endpoint": ENDPOINT, "name": "a"})
        made.consumer.answer = lambda _: REFUSED
        yield made


async def dead(running: HttpSpace, count: int = 3) -> list[str]:
    """Ids of so many that died."""
    ids = [(await running.api.post(f"{QUEUE}/messages", b"x")).json()["id"] for _ in range(count)]
    statistics = lambda: running.space.view.queue("q").dead_letters  # noqa: E731
    await eventually(lambda: statistics() == count, "they died")
    return ids


async def over(api: Api, reply: Any) -> Any:
    """The job of a 202, once it is over."""
    assert reply.status == 202, reply
    where = reply.headers["Location"]
    assert where == f"/v1/jobs/{reply.json()['id']}"
    until_s = time.monotonic() + 30.0  # a disk may take a second for a commit
    while not (shown := (await api.get(where)).json())["ended_at"]:
        assert time.monotonic() < until_s, shown
    return shown


async def test_a_recover_is_a_job(running: HttpSpace) -> None:
    """202 and where it is; a dry run 200, by body or query; listed, the newest first."""
    api = running.api
    await dead(running)
    for reply in (await api.post(f"{ONE}/recover", {"dry_run": True}), await api.post(f"{ONE}/recover?dry_run", {})):
        assert (reply.status, reply.json()) == (200, {"dry_run": True, "total": 3, "from": 1})
    running.consumer.answer = lambda _: ACKNOWLEDGED
    first = await over(api, await api.post(f"{ONE}/recover", {"until": 4, "reason": "status"}))
    second = await over(api, await api.post(f"{ONE}/recover", {}))
    assert (first["done"], first["until"], first["reasons"], first["kind"]) == (0, 4, ["status"], "recover")
    assert (second["done"], second["state"], second["queue"], second["subscriber"]) == (3, "done", "q", "a")
    assert second["by"] == "local"
    page = (await api.get("/v1/jobs?limit=1")).json()
    assert ([one["id"] for one in page["jobs"]], page["next"]) == ([second["id"]], second["id"])
    page = (await api.get(f"/v1/jobs?after={page['next']}")).json()
    assert ([one["id"] for one in page["jobs"]], page["next"]) == ([first["id"]], None)
    (await api.delete(f"/v1/jobs/{first['id']}")).problem(409, "conflict")


async def test_a_dry_run_of_all_counts_what_the_job_sends(running: HttpSpace) -> None:
    """RULES 34: of all of a time what has not ended, as it waits for another subscriber, is passed over: by the job,
    and by the dry run that says how much it is."""
    api = running.api
    running.consumer.answer = lambda _: ACKNOWLEDGED
    ids = [(await api.post(f"{QUEUE}/messages", b"x")).json()["id"] for _ in range(3)]
    await eventually(lambda: running.space.view.subscriber("q", "a").delivered == 3, "it has them")
    await api.post(f"{QUEUE}/subscribers", {"endpoint": ENDPOINT, "name": "paused", "paused": True})
    waiting = (await api.post(f"{QUEUE}/messages", b"x")).json()
    await eventually(lambda: running.space.view.subscriber("q", "a").delivered == 4, "and another one")
    for more, total in (({}, 3), ({"until": waiting["sequence"]}, 3), ({"since": waiting["sequence"]}, 0)):
        dry = (await api.post(f"{ONE}/recover", {"state": "all", "dry_run": True, **more})).json()
        assert dry["total"] == total, more
    done = await over(api, await api.post(f"{ONE}/recover", {"state": "all"}))
    assert (done["done"], done["total"]) == (len(ids), 3)


async def test_a_selection_may_be_large(running: HttpSpace) -> None:
    """INTERFACES 3, DESIGN 1, bounded: as many ids as one may name fit the body, however JSON is written; one more is
    refused for its number."""
    (letter,) = await dead(running, 1)
    for path, body in (("replay", {}), ("cancel", {}), ("erase", {}), ("dead-letters", {})):
        ask = running.api.delete if path == "dead-letters" else running.api.post
        many = {"ids": [letter] * limits.replay_ids_max, "dry_run": True, **body}
        assert (await ask(f"{QUEUE}/{path}", many)).status == 200, path
        (await ask(f"{QUEUE}/{path}", {**many, "ids": [*many["ids"], letter]})).problem(400, "bad-setting")


async def test_a_selection_is_replayed(running: HttpSpace) -> None:
    """Those ids and no others; they must be of the queue that the path names."""
    api = running.api
    ids = await dead(running)
    running.consumer.answer = lambda _: ACKNOWLEDGED
    (await api.post("/v1/queues/other/replay", {"ids": ids[:1]})).problem(400, "bad-setting")
    done = await over(api, await api.post(f"{QUEUE}/replay", {"ids": ids[:2] * 2}))
    assert (done["total"], done["done"], done["choice"]) == (2, 2, None)
    letters = (await api.get(LETTERS)).json()["dead_letters"]
    assert [one["id"] for one in letters] == ids[2:]


async def test_dead_letters_are_dropped(running: HttpSpace) -> None:
    """202; then the list is empty, and a replay finds nothing."""
    api = running.api
    await dead(running)
    assert (await api.delete(LETTERS, {"dry_run": True})).json()["total"] == 3
    done = await over(api, await api.delete(LETTERS, {"subscriber": "a"}))
    assert (done["kind"], done["total"], done["done"]) == ("drop_dead_letters", 3, 3)
    assert (await api.get(LETTERS)).json()["dead_letters"] == []
    assert (await api.post(f"{LETTERS}/replay", {})).json()["messages"] == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{ONE}/recover", {"state": "alive"}),
        (f"{ONE}/recover", {"since": "yesterday"}),
        (f"{ONE}/recover", {"since": -1}),
        (f"{ONE}/recover", {"reason": "no reason"}),
        (f"{ONE}/recover", {"reason": ["status", 7]}),
        (f"{ONE}/recover", {"reason": "status", "state": "all"}),
        (f"{ONE}/recover", {"sinc": 1}),
        (f"{QUEUE}/replay", {}),
        (f"{QUEUE}/replay", {"ids": []}),
        (f"{QUEUE}/replay", {"ids": [7]}),
    ],
)
async def test_what_is_wrong_is_said_and_changes_nothing(running: HttpSpace, path: str, body: Any) -> None:
    """A clear 400, and no job."""
    assert (await running.api.post(path, body)).status == 400
    assert (await running.api.get("/v1/jobs")).json()["jobs"] == []


async def test_what_is_not_there_is_not_found(running: HttpSpace) -> None:
    """404, with what lists those there are."""
    api = running.api
    for job in ("job-7", "7", "job-x", "job-" + "9" * 40):
        (await api.get(f"/v1/jobs/{job}")).problem(404, "unknown-job")
        (await api.delete(f"/v1/jobs/{job}")).problem(404, "unknown-job")
    (await api.post(f"{QUEUE}/subscribers/nobody/recover", {})).problem(404, "unknown-subscriber")
    (await api.post("/v1/queues/nowhere/replay", {"ids": ["0197f3c2-6a3b-8000-8000-00022b1c9d10"]})).problem(
        404, "unknown-queue"
    )


async def test_messages_of_a_queue_are_erased(running: HttpSpace) -> None:
    """RULES 32: by key, by time or by ids; what has not ended is refused unless ``force``; an archive is told."""
    api = running.api
    running.consumer.answer = lambda _: ACKNOWLEDGED
    keyed = [(await api.post(f"{QUEUE}/messages", b"hers", {"Syncbrok-Key": "anna"})).json()["id"] for _ in range(3)]
    others = [(await api.post(f"{QUEUE}/messages", b"his")).json()["id"] for _ in range(3)]
    await eventually(lambda: running.space.view.queue("q").waiting == 0, "all have arrived")
    dry = await api.post(f"{QUEUE}/erase", {"key": "anna", "dry_run": True})
    assert (dry.status, dry.json()["total"], dry.json()["waiting"]) == (200, 3, 0)
    assert (await api.post(f"{QUEUE}/erase", {"key": "nobody"})).json()["total"] == 0
    done = await over(api, await api.post(f"{QUEUE}/erase", {"key": "anna"}))
    assert (done["kind"], done["total"], done["done"], done["failed"]) == ("erase", 3, 3, 0)
    for id_ in keyed:
        (await api.get(f"/v1/messages/{id_}/content")).problem(410, "erased")
    told = (await api.get("/v1/log/erased?limit=1")).json()
    assert ([sorted(one["ids"]) for one in told["erased"]], told["next"]) == ([sorted(keyed)], None)
    assert (await api.get(f"/v1/log/erased?after={told['erased'][0]['sequence']}")).json()["erased"] == []
    for _ in range(2):  # again, it is done already
        done = await over(api, await api.post(f"{QUEUE}/erase", {"ids": others[:1]}))
        assert (done["done"], done["failed"]) == (1, 0)

    running.consumer.answer = lambda _: None
    waits = (await api.post(f"{QUEUE}/messages", b"waits")).json()
    dry = (await api.post(f"{QUEUE}/erase", {"before": waits["sequence"] + 1, "dry_run": True})).json()
    assert (dry["total"], dry["waiting"]) == (7, 1), "it says what it would refuse"
    refused = await api.post(f"{QUEUE}/erase", {"before": waits["sequence"] + 1})
    assert refused.problem(409, "conflict")["waiting"] == 1
    assert (await api.get(f"/v1/messages/{others[1]}/content")).body == b"his"
    done = await over(api, await api.post(f"{QUEUE}/erase", {"before": waits["sequence"] + 1, "force": True}))
    assert (done["done"], done["failed"]) == (7, 0), "those that are erased already too"
    shown = (await api.get(f"/v1/messages/{waits['id']}")).json()
    assert (shown["state"], shown["deliveries"][0]["reason"]) == ("dropped", "erased")
    for body in ({}, {"key": "a", "before": 1}, {"key": ""}, {"ids": []}, {"before": "once"}):
        assert (await api.post(f"{QUEUE}/erase", body)).status == 400


async def test_who_did_it_is_logged_and_named(
    tmp_path: Path, http_space: MakeHttpSpace, caplog: pytest.LogCaptureFixture
) -> None:
    """INTERFACES 1: what manages something, with the name of its token; what reads, publishes or is refused is not. A
    dry run says that it was one."""
    caplog.set_level(logging.INFO)
    operator = Token("ops", sha256(b"secret").hexdigest(), frozenset({ADMIN, READ, PUBLISH}))
    async with http_space(tmp_path, tokens=(operator,)) as made:
        api = made.api
        api.headers["Authorization"] = "Bearer secret"
        await api.post("/v1/queues", {"name": "q", **ONCE})
        await api.post(f"{QUEUE}/subscribers", {"endpoint": ENDPOINT, "name": "a"})
        await api.post(f"{QUEUE}/messages", b"x")
        await api.get("/v1/queues")
        assert (await api.delete("/v1/queues/nowhere")).status == 404
        assert (await api.post(f"{ONE}/recover", {"dry_run": True})).status == 200
        job = await over(api, await api.post(f"{ONE}/recover", {}))
        assert job["by"] == "ops"
    lines = [vars(one) for one in caplog.records if one.msg == "syncbrok.http.managed"]
    assert [(one["by"], one["method"], one["path"], one["status"]) for one in lines] == [
        ("ops", "POST", "/v1/queues", 201),
        ("ops", "POST", f"{QUEUE}/subscribers", 201),
        ("ops", "POST", f"{ONE}/recover", 200),
        ("ops", "POST", f"{ONE}/recover", 202),
    ]
    assert [one.get("dry_run") for one in lines] == [None, None, True, None]


async def test_a_place_that_is_refused_changes_no_setting(running: HttpSpace) -> None:
    """RULES 34: settings and a ``start`` are changed together, or, where there are too many jobs, neither is."""
    api = running.api
    running.consumer.answer = lambda _: ACKNOWLEDGED
    made = [(await api.post(f"{QUEUE}/messages", b"x")).json()["id"] for _ in range(limits.jobs_unfinished_max)]
    await eventually(lambda: running.space.view.queue("q").waiting == 0, "all have arrived")
    await api.patch(ONE, {"paused": True})
    before = (await api.get(ONE)).json()["window"]
    for id_ in made:  # a job of one that is paused is not over
        assert (await api.post(f"{QUEUE}/replay", {"ids": [id_]})).status == 202
    (await api.patch(ONE, {"window": 7, "start": "beginning"})).problem(429, "overloaded")
    assert (await api.get(ONE)).json()["window"] == before
    assert (await api.patch(ONE, {"window": 7})).json()["window"] == 7


async def test_one_that_is_told_its_past_may_seek_the_beginning(running: HttpSpace) -> None:
    """Nothing lies before the beginning: no row is written for it, which the log could not hold, and the space goes
    on."""
    api = running.api
    await dead(running)
    await api.post(f"{QUEUE}/subscribers", {"endpoint": ENDPOINT, "name": "b", "start": "beginning", "paused": True})
    reply = await api.patch(f"{QUEUE}/subscribers/b", {"start": "beginning"})
    assert reply.status == 200, reply
    assert (await api.get(f"/v1/jobs/{reply.json()['job']}")).json()["kind"] == "recover"
    assert (await api.post(f"{QUEUE}/messages", b"x")).status == 201


@pytest.mark.parametrize("nothing", [0, "0", 0.0, "1970-01-01T00:00:00Z", 1])
async def test_before_the_first_message_there_is_nothing(running: HttpSpace, nothing: object) -> None:
    """It is a bound like any other, and not none: nothing is erased, dropped or sent."""
    api = running.api
    ids = await dead(running)
    for reply in (
        await api.post(f"{QUEUE}/erase", {"before": nothing}),
        await api.delete(LETTERS, {"before": nothing}),
        await api.post(f"{ONE}/recover", {"until": nothing}),
    ):
        done = await over(api, reply)
        assert (done["total"], done["done"], done["failed"]) == (0, 0, 0)
    assert (await api.get(f"/v1/messages/{ids[0]}/content")).body == b"x"
    assert len((await api.get(LETTERS)).json()["dead_letters"]) == len(ids)
