"""Signatures: what we sign, the public library of Standard Webhooks verifies."""

import base64
import hmac
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from syncbrok.delivery.webhook.signing import Signer, secret_key, signatures, signed_begin
from syncbrok.model.errors import BadSetting

OLD = "whsec_" + base64.b64encode(bytes(range(24))).decode()
NEW = "whsec_" + base64.b64encode(bytes(range(100, 164))).decode()
ID = "0193b1b2-0000-8000-8000-000000000001"
BODY = json.dumps({"type": "order.paid", "who": "Zoë"}).encode()


def headers(secrets: list[str], body: bytes = BODY, at: str | None = None) -> dict[str, str]:
    now = at or str(int(datetime.now(UTC).timestamp()))
    return {
        "webhook-id": ID,
        "webhook-timestamp": now,
        "webhook-signature": signatures(
            [Signer(secret_key(secret)) for secret in secrets], signed_begin(ID, now), body
        ),
    }


def test_the_public_library_verifies_our_signature() -> None:
    """INTERFACES, "What a v1 subscriber receives": Standard Webhooks 1.0, symmetric signatures."""
    assert Webhook(OLD).verify(BODY, headers([OLD])) == json.loads(BODY)


def test_while_rotating_both_secrets_verify() -> None:
    """Two signatures, separated by a space, so that receivers change over when they like."""
    signed = headers([NEW, OLD])
    assert len(signed["webhook-signature"].split(" ")) == 2
    assert Webhook(OLD).verify(BODY, signed)
    assert Webhook(NEW).verify(BODY, signed)


@given(
    key=st.binary(min_size=1, max_size=200),
    begin=st.binary(max_size=100),
    body=st.one_of(st.binary(max_size=300), st.sampled_from([2_047, 2_048, 4_094, 4_095, 20_000]).map(bytes)),
)
def test_our_hmac_is_the_hmac(key: bytes, begin: bytes, body: bytes) -> None:
    """The begun hashes give what the standard library gives, for every length of key and body, again and again."""
    signer = Signer(key)
    expected = "v1," + base64.b64encode(hmac.digest(key, begin + body, "sha256")).decode()
    signed = [signer.sign(begin, body), signer.sign(b"", b"other"), signer.sign(begin, body)]
    assert signed[::2] == [expected, expected]


@pytest.mark.parametrize("field", ["webhook-id", "webhook-timestamp", "webhook-signature", "body"])
def test_whatever_is_tampered_with_is_rejected(field: str) -> None:
    """Every signed field is really signed."""
    signed, body = headers([OLD]), BODY
    if field == "body":
        body = BODY.replace(b"paid", b"free")
    elif field == "webhook-timestamp":
        signed[field] = str(int(signed[field]) + 1)
    else:
        # Not its last letter: two of the bits of that one say nothing.
        signed[field] = signed[field][:5] + ("B" if signed[field][5] == "A" else "A") + signed[field][6:]
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(body, signed)


def test_an_old_request_played_again_is_rejected() -> None:
    """The timestamp is the attempt's and is signed, so a receiver can refuse what is old."""
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(BODY, headers([OLD], at="1700000000"))


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_dG9vIHNob3J0", OLD.removeprefix("whsec_"), "whsec_!!!!"])
def test_a_bad_secret_is_refused_without_being_shown(secret: str) -> None:
    """RULES 19: a secret is never in an answer, not even in the one that refuses it."""
    with pytest.raises(BadSetting) as refused:
        secret_key(secret)
    assert not secret.removeprefix("whsec_") or secret not in str(refused.value)
