"""Signatures besides the secret of Standard Webhooks: a receiver verifies each as its sender's documents say."""

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from syncbrok.client import BadSignature, verify
from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.key_pair import make_key, public_key
from syncbrok.delivery.webhook.signing import secret_key
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.model.message import Format, Signature
from syncbrok.model.signature_settings import KEY, OLD_KEY, OLD_KEY_UNTIL
from tests.support.delivery.endpoint import TIME_US, Answers, Endpoint, Request, delivery, message, send, subscriber

NOW_S = TIME_US // 1_000_000
SECRET = "whsec_" + base64.b64encode(bytes(range(24))).decode()
ANOTHER = "correct horse battery staple"
STRIPE = Signature("hmac", "sha256", "stripe-signature", "t={timestamp},v1={hex}", "{timestamp}.{body}")
GITHUB = Signature("hmac", "sha256", "x-hub-signature-256", "sha256={hex}", "{body}")
SHOP = Signature("hmac", "sha512", "x-shop-hmac", "{base64}", "{id}|{body}|{timestamp}")
V1, V1A = Signature("v1"), Signature("v1a")
PRIVATE = make_key()
OLD = make_key()


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as running:
        yield running


async def sent(
    endpoint: Endpoint,
    signatures: tuple[Signature, ...],
    credentials: Mapping[str, str],
    kind: Format = Format.RAW,
    content: bytes = b'{"a":1}',
    **fields: Any,
) -> Request:
    """The request that a subscriber with a secret and these signatures gets."""
    handler = Webhook(
        AddressGuard(loopback_allowed=True),
        lambda _: (secret_key(SECRET),),
        clock_us=lambda: TIME_US,
        credentials=lambda number, sequence: credentials if (number, sequence) == (1, 5) else {},
    )
    answers = Answers()
    to = subscriber(endpoint.url, kind, signatures=signatures, credentials=5)
    send(handler, to, (delivery(of=message(content=content, **fields)),), answers.done)
    await answers.wait_for(1)
    await handler.close()
    return endpoint.requests[-1]


def as_stripe_says(body: bytes, header: str, secret: str) -> bool:
    """https://docs.stripe.com/webhooks, "Verify manually": split at the comma, then at the equals sign; HMAC-SHA256 by
    the endpoint's secret over the timestamp, a full stop and the body; compare with v1; look at the time."""
    parts = dict(one.split("=", 1) for one in header.split(","))
    expected = hmac.new(secret.encode(), f"{parts['t']}.".encode() + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, parts["v1"]) and abs(NOW_S - int(parts["t"])) <= 300


def as_github_says(body: bytes, header: str, secret: str) -> bool:
    """https://docs.github.com/webhooks, "Validating webhook deliveries": sha256= and HMAC-SHA256 of the body in hex."""
    return hmac.compare_digest("sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest(), header)


@pytest.mark.parametrize("kind", list(Format))
@pytest.mark.parametrize("content", [b"", b"\xff\x00 %b", b"x" * 40_000])
async def test_receivers_of_other_senders_verify_as_before(endpoint: Endpoint, kind: Format, content: bytes) -> None:
    """RULES 19: beside v1, in every format, whatever the content; and not under another secret."""
    names = [one.header for one in (STRIPE, GITHUB)]
    secrets = {f"signatures:{name}": ANOTHER for name in names}
    request = await sent(endpoint, (V1, STRIPE, GITHUB), secrets, kind, content)
    stripe, github = (request.headers[name] for name in names)
    assert as_stripe_says(request.body, stripe, ANOTHER)
    assert as_github_says(request.body, github, ANOTHER)
    assert not as_stripe_says(request.body, stripe, ANOTHER + "x")
    assert not as_github_says(request.body + b"x", github, ANOTHER)
    assert verify(request.body, request.headers, SECRET, now_s=NOW_S) == request.headers["webhook-id"]


async def test_the_form_of_a_signature_is_free(endpoint: Endpoint) -> None:
    """Another hash, base64, the id, text behind the content; and alone: then v1 is not there."""
    request = await sent(endpoint, (SHOP,), {"signatures:x-shop-hmac": ANOTHER})
    id_, at = request.headers["webhook-id"], request.headers["webhook-timestamp"]
    signed = f"{id_}|".encode() + request.body + f"|{at}".encode()
    expected = base64.b64encode(hmac.digest(ANOTHER.encode(), signed, "sha512")).decode()
    assert request.headers["x-shop-hmac"] == expected
    assert "webhook-signature" not in request.headers


async def test_a_publisher_cannot_forward_a_signature(endpoint: Endpoint) -> None:
    """Of a header that carries a signature there is one, the broker's."""
    secrets = {"signatures:x-hub-signature-256": ANOTHER}
    request = await sent(endpoint, (GITHUB,), secrets, headers=(("x-hub-signature-256", "sha256=00"),))
    (given,) = [value for name, value in request.pairs if name == "x-hub-signature-256"]
    assert as_github_says(request.body, given, ANOTHER)


async def test_a_key_pair_signs_beside_a_secret(endpoint: Endpoint) -> None:
    """Standard Webhooks 1.0, asymmetric: ed25519 over the same bytes, by the new key and by the one that is rotated
    out. Verified by the public key alone, by cryptography and by our client."""
    request = await sent(endpoint, (V1A, V1), {KEY: PRIVATE, OLD_KEY: OLD, OLD_KEY_UNTIL: str((NOW_S + 1) * 1_000_000)})
    head = request.headers
    versions = [one.split(",") for one in head["webhook-signature"].split(" ")]
    assert [version for version, _ in versions] == ["v1", "v1a", "v1a"]
    signed = f"{head['webhook-id']}.{head['webhook-timestamp']}.".encode() + request.body
    for private, (_, signature) in zip((PRIVATE, OLD), versions[1:], strict=True):
        public = base64.b64decode(public_key(private).removeprefix("whpk_"))
        Ed25519PublicKey.from_public_bytes(public).verify(base64.b64decode(signature), signed)
        with pytest.raises(InvalidSignature):
            Ed25519PublicKey.from_public_bytes(public).verify(base64.b64decode(signature), signed + b"x")
        assert verify(request.body, head, public_key(private), now_s=NOW_S) == head["webhook-id"]
    assert verify(request.body, head, [SECRET], now_s=NOW_S)
    assert verify(request.body, head, [public_key(make_key()), SECRET], now_s=NOW_S)
    for body, keys in ((request.body + b"x", public_key(PRIVATE)), (request.body, public_key(make_key()))):
        with pytest.raises(BadSignature):
            verify(body, head, keys, now_s=NOW_S)


@pytest.mark.parametrize("wrong", ["whpk_", "whpk_AAAA", "whpk_" + SECRET, "whpk_" + "A" * 43 + "!"])
def test_a_public_key_that_is_none_is_refused(wrong: str) -> None:
    """A receiver with half a key does not start, instead of believing nobody."""
    with pytest.raises(ValueError, match="public key"):
        verify(b"", {}, wrong)


async def test_without_its_credentials_nothing_goes_out(endpoint: Endpoint) -> None:
    """RULES 19: where the file of secrets has lost them attempts fail in words; unsigned nothing goes out."""

    def lost(_number: int, _sequence: int) -> Mapping[str, str]:
        raise LookupError("its credentials are lost")

    handler = Webhook(AddressGuard(loopback_allowed=True), lambda _: (), credentials=lost)
    answers = Answers()
    send(handler, subscriber(endpoint.url, credentials=5), (delivery(),), answers.done)
    (answer,) = await answers.wait_for(1)
    assert b"credentials are lost" in answer.detail
    assert endpoint.requests == []
    await handler.close()


async def test_a_key_pair_that_is_rotated_out_signs_no_longer_than_its_grace(endpoint: Endpoint) -> None:
    """RULES 19: at once, though the fact that it is over may come a minute later, or on a full disk not at all."""
    request = await sent(endpoint, (V1A,), {KEY: PRIVATE, OLD_KEY: OLD, OLD_KEY_UNTIL: str(NOW_S * 1_000_000)})
    assert verify(request.body, request.headers, public_key(PRIVATE), now_s=NOW_S)
    assert len(request.headers["webhook-signature"].split(" ")) == 1
