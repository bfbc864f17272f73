"""``signatures`` and ``rotate-secret`` over HTTP to a real Space (INTERFACES 3, RULES 19)."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from syncbrok.model.message import CONSUMER_SCHEME
from syncbrok.model.signature_settings import KEY, OLD_KEY, OLD_KEY_UNTIL
from tests.support.http.api import Api
from tests.support.http.space import ENDPOINT, HttpSpace, MakeHttpSpace
from tests.support.space.spaces import consumers_of, running_space

PASSWORD = "correct horse battery staple"
OTHER = "another one of some length"
GITHUB = {"scheme": "hmac", "header": "x-hub-signature-256", "form": "sha256={hex}", "signed": "{body}"}
ONE = "/v1/queues/orders/subscribers/a"


@pytest.fixture
async def running(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[HttpSpace]:
    async with http_space(tmp_path) as made:
        await made.api.post("/v1/queues", {"name": "orders"})
        yield made


async def declare(api: Api, **given: Any) -> Any:
    return await api.post("/v1/queues/orders/subscribers", {"name": "a", "endpoint": ENDPOINT, **given})


def kept(running: HttpSpace, sequence: int = 0) -> dict[str, str]:
    """The credentials that are in force for the one subscriber, or those of another fact."""
    settings = running.space.view.subscriber("orders", "a").settings
    return dict(running.space.space.credentials(1, sequence or settings.credentials))


def on_disk(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in directory.rglob("*") if file.is_file() and file.name[:7] != "secrets")


async def test_a_secret_is_kept_and_never_shown(running: HttpSpace, tmp_path: Path) -> None:
    """RULES 19: not in an answer, not in the log; declared again alike it is 200, with another secret 409."""
    api = running.api
    signed = {"signatures": [{**GITHUB, "secret": PASSWORD}]}
    made = await declare(api, **signed)
    assert made.status == 201, made
    assert made.json()["signatures"] == [{**GITHUB, "hash": "sha256", "secret": "set"}]
    assert kept(running) == {"signatures:x-hub-signature-256": PASSWORD}
    assert (await declare(api, **signed)).status == 200
    other = await declare(api, signatures=[{**GITHUB, "secret": OTHER}])
    assert other.problem(409, "conflict")["differs"] == ["signatures"]
    for path in (ONE, "/v1/queues/orders/subscribers", "/v1/queues/orders", "/metrics"):
        assert PASSWORD.encode() not in (await api.get(path)).body
    assert PASSWORD.encode() not in on_disk(tmp_path)
    assert PASSWORD in (tmp_path / "secrets.json").read_text()


async def test_what_is_answered_can_be_given_back(running: HttpSpace) -> None:
    """The word set, or nothing, means the secret that is there; where there is none it is 400 and changes nothing."""
    api = running.api
    (await declare(api, signatures=[GITHUB])).problem(400, "bad-setting")
    await declare(api, signatures=[{**GITHUB, "secret": PASSWORD}])
    shown = (await api.get(ONE)).json()["signatures"]
    assert (await api.patch(ONE, {"signatures": shown})).json()["signatures"] == shown
    changed = [{**GITHUB, "form": "{hex}"}, {"scheme": "v1"}]
    assert (await api.patch(ONE, {"signatures": changed})).json()["signatures"][0]["form"] == "{hex}"
    assert kept(running) == {"signatures:x-hub-signature-256": PASSWORD}
    (await api.patch(ONE, {"signatures": [{**GITHUB, "header": "x-y"}]})).problem(400, "bad-setting")
    assert (await api.patch(ONE, {"signatures": [{**GITHUB, "secret": OTHER}]})).status == 200
    assert kept(running) == {"signatures:x-hub-signature-256": OTHER}
    assert (await api.patch(ONE, {"signatures": [{"scheme": "v1"}]})).status == 200
    assert kept(running) == {}


async def test_a_header_is_named_once_and_groups_sign_nothing(running: HttpSpace) -> None:
    """400 where the signature's header is one of ``headers``, and where consumers come for their messages."""
    api, space = running.api, running.space.space
    space.handle(CONSUMER_SCHEME, consumers_of(space))
    signed = [{**GITHUB, "secret": PASSWORD}]
    (await declare(api, signatures=signed, headers={GITHUB["header"]: "x"})).problem(400, "bad-setting")
    await declare(api, signatures=signed)
    (await api.patch(ONE, {"headers": {GITHUB["header"]: "x"}})).problem(400, "bad-setting")
    group = {"name": "g", "pull": True, "signatures": signed}
    problem = (await api.post("/v1/queues/orders/subscribers", group)).problem(400, "bad-setting")
    assert "signatures" in problem["detail"]


async def test_a_key_pair_is_made_once_and_rotated(running: HttpSpace) -> None:
    """v1a: the public key is shown, and stays when all else changes; rotated, both sign for ``grace``, or at once the
    new one alone."""
    api = running.api
    made = (await declare(api, signatures=[{"scheme": "v1a"}, {"scheme": "v1"}])).json()
    public = made["signatures"][0]["public_key"]
    assert public.startswith("whpk_")
    first = kept(running)[KEY]
    assert (await declare(api, signatures=[{"scheme": "v1a"}, {"scheme": "v1"}])).status == 200
    await api.patch(ONE, {"signatures": [{"scheme": "v1a"}], "window": 3})
    assert kept(running) == {KEY: first}
    (await api.post(f"{ONE}/rotate-secret")).problem(409, "conflict")  # it has no v1 by now
    rotated = await api.post(f"{ONE}/rotate-secret", {"scheme": "v1a", "grace": "1h"})
    assert rotated.json()["public_key"] == (await api.get(ONE)).json()["signatures"][0]["public_key"] != public
    now = kept(running)
    assert (now[OLD_KEY], int(now[OLD_KEY_UNTIL]) > 0) == (first, True)
    assert now[KEY] != first
    await api.post(f"{ONE}/rotate-secret", {"scheme": "v1a", "grace": 0})
    assert kept(running).keys() == {KEY}
    (await api.patch(ONE, {"signatures": [{"scheme": "v1a", "public_key": public}]})).problem(400, "bad-setting")


async def test_the_grace_of_a_secret_is_chosen(running: HttpSpace) -> None:
    """rotate-secret: 0 s to 7 d, a day where nothing is said."""
    api = running.api
    await declare(api, secret="whsec_" + "A" * 32)
    keys = running.space.space.signing_keys
    for grace, count in (("24h", 2), ("7d", 2), (0, 1), ("1h", 2), (None, 2)):
        await api.post(f"{ONE}/rotate-secret", {} if grace is None else {"grace": grace})
        assert len(keys(1)) == count, grace
    for wrong in ("8d", -1, "long"):
        (await api.post(f"{ONE}/rotate-secret", {"grace": wrong})).problem(400, "bad-setting")
    (await api.post(f"{ONE}/rotate-secret", {"scheme": "v2"})).problem(400, "bad-setting")


async def test_taking_the_secret_away_leaves_the_rest(running: HttpSpace) -> None:
    """``"secret": null`` is about v1 alone."""
    api = running.api
    await declare(api, secret="whsec_" + "A" * 32, signatures=[{"scheme": "v1"}, {**GITHUB, "secret": PASSWORD}])
    assert (await api.patch(ONE, {"secret": None})).json()["secret"] is None
    assert running.space.space.signing_keys(1) == ()
    assert kept(running) == {"signatures:x-hub-signature-256": PASSWORD}


async def test_after_a_crash_credentials_are_those_of_the_log(tmp_path: Path) -> None:
    """RULES 19: the file is written before the fact. Where the fact was not, the next start goes on with those of the
    last one; and what is over is gone from the file soon."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await running.subscribe("q", "a")
    file = tmp_path / "secrets.json"
    assert not file.exists()
    from syncbrok.space.state import secrets_file

    file.touch(0o600)
    file.write_bytes(
        secrets_file.encode({1: secrets_file.Kept(credentials={99: {"signatures:x": PASSWORD}})}, (), b"k" * 32)
    )
    async with running_space(tmp_path) as running:
        with pytest.raises(LookupError):
            running.space.credentials(1, 99)
    assert json.loads(file.read_text())["subscribers"] == {}
