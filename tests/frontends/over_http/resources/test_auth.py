"""``auth`` of a subscriber over HTTP to a real Space (INTERFACES 3, RULES 19)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from tests.support.certificates import Authority
from tests.support.http.space import ENDPOINT, HttpSpace, MakeHttpSpace

PASSWORD = "correct horse battery staple"
ONE = "/v1/queues/orders/subscribers/a"


@pytest.fixture
async def running(tmp_path: Path, http_space: MakeHttpSpace) -> AsyncIterator[HttpSpace]:
    async with http_space(tmp_path) as made:
        await made.api.post("/v1/queues", {"name": "orders"})
        yield made


async def declare(running: HttpSpace, auth: Any, **given: Any) -> Any:
    body = {"name": "a", "endpoint": ENDPOINT, **given, "auth": auth}
    return await running.api.post("/v1/queues/orders/subscribers", body)


def kept(running: HttpSpace) -> dict[str, str]:
    settings = running.space.view.subscriber("orders", "a").settings
    return dict(running.space.space.credentials(1, settings.credentials))


def on_disk(directory: Path) -> bytes:
    return b"".join(one.read_bytes() for one in directory.iterdir() if one.is_file() and one.name[:7] != "secrets")


async def test_a_password_is_kept_and_never_shown(running: HttpSpace, tmp_path: Path) -> None:
    """RULES 19: not in an answer, not in the log; what an answer shows can be given back and means what is there."""
    auth = {"basic": {"username": "me", "password": PASSWORD}}
    assert (await declare(running, auth)).status == 201
    shown = (await running.api.get(ONE)).json()["auth"]
    assert shown == {"basic": {"username": "me", "password": "set"}}
    assert (await running.api.patch(ONE, {"auth": shown})).json()["auth"] == shown
    assert kept(running) == {"auth:basic.password": PASSWORD}
    other = await declare(running, {"basic": {"username": "me", "password": "another"}})
    assert other.problem(409, "conflict")["differs"] == ["auth"]
    (await running.api.patch(ONE, {"auth": {"bearer": "set"}})).problem(400, "bad-setting")
    assert (await running.api.patch(ONE, {"auth": {"bearer": "t0ken"}})).json()["auth"] == {"bearer": "set"}
    assert kept(running) == {"auth:bearer": "t0ken"}
    for path in (ONE, "/v1/queues/orders/subscribers", "/v1/queues/orders", "/metrics", "/v1/space"):
        body = (await running.api.get(path)).body
        assert PASSWORD.encode() not in body
        assert b"t0ken" not in body
    assert PASSWORD.encode() not in on_disk(tmp_path)
    assert (await running.api.patch(ONE, {"auth": None})).json()["auth"] is None
    assert kept(running) == {}


async def test_certificates_are_tried_when_they_are_given(running: HttpSpace, tmp_path: Path) -> None:
    """400, and nothing changed, where no connection could be made with them: found now, not at the first message."""
    authority = Authority(tmp_path)
    one, other = authority.signs("one"), authority.signs("other")
    key = load_pem_private_key(one.key.read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")).decode()  # type: ignore[union-attr]
    cert, ca = one.cert.read_text(), authority.file.read_text()
    tls = {"endpoint": ENDPOINT.replace("http:", "https:")}
    for wrong, why in (
        ({"mtls": {"cert": cert, "key": other.key.read_text()}}, "key of that certificate"),
        ({"mtls": {"cert": cert, "key": locked}}, "without a passphrase"),
        ({"mtls": {"cert": cert, "key": cert}}, "without a passphrase"),
        ({"ca": one.key.read_text()}, "ca: expected certificates"),
        ({"ca": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"}, "ca: expected certificates"),
        ({"ca": "-----BEGIN CERTIFICATE-----\nÄÄÄÄ\n-----END CERTIFICATE-----"}, "ca: expected certificates"),
    ):
        assert why in (await declare(running, wrong, **tls)).problem(400, "bad-setting")["detail"]
    whole = {"mtls": {"cert": cert, "key": one.key.read_text()}, "ca": f"# Autorität\n{ca}"}
    assert (await declare(running, whole)).problem(400, "bad-setting")["setting"] == "auth"
    assert (await declare(running, whole, **tls)).status == 201
    (await running.api.patch(ONE, {"endpoint": ENDPOINT})).problem(400, "bad-setting")
    (await running.api.patch(ONE, {"auth": {"mtls": {"cert": other.cert.read_text(), "key": "set"}}})).problem(
        400, "bad-setting"
    )
    assert kept(running)["auth:mtls.cert"] == cert
