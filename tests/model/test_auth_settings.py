"""The setting ``auth``: what is taken, what is shown, and that nothing secret is in either, nor in an error."""

from typing import Any

import pytest

from syncbrok.model import limits
from syncbrok.model.errors import BadSetting
from syncbrok.model.message import EndpointAuth, SubscriberSettings
from syncbrok.model.settings import (
    check_together,
    credential_names,
    parse_subscriber_changes,
    render_subscriber,
    take_credentials,
)

SECRET = "correct horse battery staple"
PEM = f"-----BEGIN CERTIFICATE-----\n{SECRET}\n-----END CERTIFICATE-----\n"
OAUTH2 = {"token_url": "https://id.example/token", "client_id": "me", "client_secret": SECRET, "scope": "a b"}


def read(given: Any) -> tuple[EndpointAuth | None, dict[str, str]]:
    mapping: dict[str, Any] = {"auth": given}
    credentials = take_credentials(mapping)
    return parse_subscriber_changes(mapping)["auth"], credentials


@pytest.mark.parametrize(
    ("given", "shown", "credentials"),
    [
        (None, None, {}),
        (
            {"basic": {"username": "me", "password": SECRET}},
            {"basic": {"username": "me", "password": "set"}},
            {"auth:basic.password": SECRET},
        ),
        ({"bearer": "abc.def~/+="}, {"bearer": "set"}, {"auth:bearer": "abc.def~/+="}),
        ({"oauth2": OAUTH2}, {"oauth2": {**OAUTH2, "client_secret": "set"}}, {"auth:oauth2.client_secret": SECRET}),
        (
            {"oauth2": {name: value for name, value in OAUTH2.items() if name != "scope"}, "ca": PEM},
            {"oauth2": {**OAUTH2, "client_secret": "set", "scope": None}, "ca": "set"},
            {"auth:oauth2.client_secret": SECRET, "auth:ca": PEM},
        ),
        (
            {"mtls": {"cert": PEM, "key": PEM}, "bearer": "t"},
            {"bearer": "set", "mtls": {"cert": "set", "key": "set"}},
            {"auth:mtls.cert": PEM, "auth:mtls.key": PEM, "auth:bearer": "t"},
        ),
    ],
)
def test_what_is_secret_is_taken_out_and_shown_as_set(given: Any, shown: Any, credentials: dict[str, str]) -> None:
    """RULES 19: what becomes a setting, and so a fact and an answer, has the word set; and is read back from there."""
    auth, taken = read(given)
    assert taken == credentials
    settings = SubscriberSettings("https://a/", auth=auth)
    assert render_subscriber(settings)["auth"] == shown
    assert read(shown) == (auth, {})
    assert sorted(credential_names(settings)) == sorted(credentials)


@pytest.mark.parametrize(
    "wrong",
    [
        SECRET,
        {},
        [SECRET],
        {"digest": SECRET},
        {"basic": SECRET},
        {"basic": {"username": "a", "password": SECRET, SECRET: 1}},
        {"basic": {"password": SECRET}},
        {"basic": {"username": "a:b", "password": SECRET}},
        {"basic": {"username": "a", "password": f"{SECRET}\n"}},
        {"basic": {"username": "a", "password": None}},
        {"basic": {"username": "a", "password": 5}},
        {"bearer": SECRET},
        {"bearer": "a\r\nX-Forged: 1"},
        {"bearer": ""},
        {"bearer": "ä"},
        {"bearer": "a" * (limits.access_token_bytes_max + 1)},
        {"bearer": {"token": SECRET}},
        {"bearer": "a", "basic": {"username": "a", "password": "b"}},
        {"bearer": "a", "oauth2": OAUTH2},
        {"oauth2": {**OAUTH2, "token_url": "ftp://id.example/"}},
        {"oauth2": {**OAUTH2, "token_url": f"https://me:{SECRET.replace(' ', '')}@id.example/"}},
        {"oauth2": {**OAUTH2, "client_id": "a\nb"}},
        {"oauth2": {**OAUTH2, "scope": 7}},
        {"oauth2": {**OAUTH2, "grant": "password"}},
        {"mtls": {"cert": PEM}},
        {"mtls": {"cert": PEM, "key": SECRET}},
        {"ca": SECRET},
        {"ca": "file:/etc/passwd"},
        {"ca": PEM + "x" * limits.pem_bytes_max},
    ],
)
def test_what_cannot_be_is_refused_and_not_repeated(wrong: Any) -> None:
    """400 with the place of the mistake, and nothing of what may be a secret."""
    with pytest.raises(BadSetting) as refused:
        read(wrong)
    said = refused.value.detail + repr(refused.value.members)
    assert "auth" in said
    assert SECRET not in said
    assert SECRET.replace(" ", "") not in said
    assert "Forged" not in said


@pytest.mark.parametrize(
    "settings",
    [
        SubscriberSettings("http://a/", auth=EndpointAuth(has_authority=True)),
        SubscriberSettings("http://a/", auth=EndpointAuth("bearer", has_certificate=True)),
        SubscriberSettings("https://a/", auth=EndpointAuth("bearer"), headers=(("authorization", "x"),)),
        SubscriberSettings("consumer:pull", auth=EndpointAuth("bearer")),
    ],
)
def test_what_does_not_go_together_is_refused(settings: SubscriberSettings) -> None:
    """TLS where there is none, two who write one header, an endpoint that consumers have no need of."""
    with pytest.raises(BadSetting) as refused:
        check_together(settings)
    assert refused.value.members["setting"] == "auth"


def test_what_goes_together_is_taken() -> None:
    """An endpoint's scheme has no case; a header of one's own beside a certificate is one's own affair."""
    check_together(SubscriberSettings("HTTPS://a/", auth=EndpointAuth("basic", has_certificate=True)))
    check_together(
        SubscriberSettings("https://a/", auth=EndpointAuth(has_authority=True), headers=(("authorization", "x"),))
    )
