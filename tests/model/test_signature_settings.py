"""The setting ``signatures``: what is taken, what is shown, and that no secret is in either."""

from typing import Any

import pytest

from syncbrok.model.errors import BadSetting
from syncbrok.model.message import Signature, SubscriberSettings
from syncbrok.model.settings import parse_subscriber_changes, render_subscriber, take_credentials

SECRET = "correct horse battery staple"
STRIPE = {
    "scheme": "hmac",
    "hash": "sha256",
    "header": "Stripe-Signature",
    "form": "t={timestamp},v1={hex}",
    "signed": "{timestamp}.{body}",
    "secret": SECRET,
}


def read(*schemes: Any) -> tuple[tuple[Signature, ...], dict[str, str]]:
    given: dict[str, Any] = {"signatures": list(schemes)}
    credentials = take_credentials(given)
    return parse_subscriber_changes(given)["signatures"], credentials


def test_a_secret_is_taken_out_and_shown_as_set() -> None:
    """RULES 19: what becomes a setting, and so a fact and an answer, has the word set; and is read
    back from there."""
    signatures, credentials = read({"scheme": "v1"}, STRIPE)
    assert credentials == {"signatures:stripe-signature": SECRET}
    shown = render_subscriber(SubscriberSettings("http://a/", signatures=signatures))["signatures"]
    assert shown == [{"scheme": "v1"}, {**STRIPE, "header": "stripe-signature", "secret": "set"}]
    assert read(*shown) == (signatures, {})


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [{"scheme": "v1"}, {"scheme": "v1"}],
        [STRIPE, {**STRIPE, "header": "stripe-signature"}],
        [{"scheme": "v2"}],
        ["v1"],
        [{"scheme": "v1", "secret": SECRET}],
        [{**STRIPE, "secret": "fifteen bytes.."}],
        [{**STRIPE, "secret": 5_000_000_000_000_000}],
        [{**STRIPE, "hash": "md5"}],
        [{**STRIPE, "header": "Authorization"}],
        *(
            [{**STRIPE, "header": header}]
            for header in ("Expect", "Keep-Alive", "User-Agent", "HTTP2-Settings", "ce-id")
        ),
        [{**STRIPE, "header": "webhook-signature"}],
        [{**STRIPE, "form": "t={timestamp}"}],
        [{**STRIPE, "form": "{hex} {base64}"}],
        [{**STRIPE, "form": "{body}{hex}"}],
        [{**STRIPE, "form": "{hex}\r\nx: y"}],
        [{**STRIPE, "signed": "{timestamp}"}],
        [{**STRIPE, "signed": "{body}{"}],
        [{"scheme": "v1a", "public_key": "whpk_AAAA"}],
        [{"scheme": "v1"}] * 5,
        {"scheme": "v1"},
    ],
)
def test_a_scheme_that_cannot_be_is_refused_without_its_secret(wrong: Any) -> None:
    """A mistake is told in words of the setting; the words never hold a secret (RULES 19)."""
    with pytest.raises(BadSetting) as refused:
        read(*wrong) if isinstance(wrong, list) else parse_subscriber_changes({"signatures": wrong})
    assert refused.value.detail.startswith("signatures: ")
    assert not any(secret in refused.value.detail for secret in (SECRET, "fifteen", "5000000", "5_000"))
