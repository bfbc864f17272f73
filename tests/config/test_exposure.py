"""The broker is open to others only on purpose, and a token that is taken out of the file opens nothing any more."""

import hashlib
import http.client
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from syncbrok.config import beside_tokens, load_config, refuse_exposed
from syncbrok.model.errors import BadConfig
from tests.support.broker.process import ROOT, BrokerProcess
from tests.support.polling import eventually_blocking


def of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


TOKENS = f"tokens: [{{name: ci, sha256: {of('secret')}, scopes: [read]}}]"


def configured(tmp_path: Path, text: str, **variables: str):
    file = tmp_path / "broker.yml"
    file.write_text(text)
    return load_config(file, variables, {})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "broker.example"])
@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("", "http.host"),
        ("insecure: plaintext", "http.host"),
        ("insecure: no", "http.host"),
        (TOKENS, "http.host"),
        ("tls: {cert: c, key: k}", "http.host"),
    ],
)
def test_a_listener_open_to_others_is_refused(tmp_path: Path, host: str, more: str, key: str) -> None:
    """INTERFACES 1, http.insecure: without tokens it starts only with open, with tokens and in clear with plaintext."""
    text = f"http: {{host: '{host}'{', ' if more else ''}{more}}}\n"
    with pytest.raises(BadConfig) as refused:
        refuse_exposed(configured(tmp_path, text))
    assert refused.value.members["key"] == key
    for word in (host, "http.insecure", "SYNCBROK_HTTP_INSECURE", "--insecure", "127.0.0.1"):
        assert word in refused.value.detail


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http: {host: localhost}",
        "http: {host: '::1'}",
        "http: {host: 0.0.0.0, insecure: open}",
        f"http: {{host: 0.0.0.0, insecure: plaintext, {TOKENS}}}",
        f"http: {{host: 0.0.0.0, insecure: open, {TOKENS}}}",
        f"http: {{host: 0.0.0.0, tls: {{cert: c, key: k}}, {TOKENS}}}",
        "http: {host: 0.0.0.0, tls: {cert: c, key: k, client_ca: a}}",
        "http: {host: 0.0.0.0, tls: {cert: c, key: k}, insecure: open}",
        "frontends: {framed: {host: 0.0.0.0, tls: {cert: c, key: k, client_ca: a}}}",
        "frontends: {framed: {}, topics: {host: 127.0.0.2}}",
        "http: {insecure: open}\nfrontends: {msgpack_bus: {host: 0.0.0.0}}",
    ],
)
def test_what_is_on_loopback_or_on_purpose_starts(tmp_path: Path, text: str) -> None:
    """INTERFACES 1, http.insecure."""
    refuse_exposed(configured(tmp_path, text))


@pytest.mark.parametrize("more", ["", "http: {insecure: plaintext}\n", f"http: {{{TOKENS}}}\n"])
@pytest.mark.parametrize("name", ["framed", "topics", "multiplexed", "msgpack_bus"])
def test_a_format_without_tokens_is_open_only_on_purpose(tmp_path: Path, name: str, more: str) -> None:
    """INTERFACES 1, http.insecure: the TCP formats know no tokens; beside tokens on loopback they are named."""
    with pytest.raises(BadConfig, match=f"frontends.{name}.host is 0.0.0.0"):
        refuse_exposed(configured(tmp_path, f"{more}frontends: {{{name}: {{host: 0.0.0.0}}}}\n"))
    on_loopback = configured(tmp_path, f"{more}frontends: {{{name}: {{}}}}\n")
    refuse_exposed(on_loopback)
    assert beside_tokens(on_loopback) == ([name] if TOKENS in more else [])


@pytest.mark.parametrize("nothing", ["", "\n"])
def test_the_hash_of_nothing_is_no_token(tmp_path: Path, nothing: str) -> None:
    """INTERFACES 1, tokens: a variable that was empty when it was hashed must not make a token that anybody has."""
    text = f"http: {{tokens: [{{name: ci, sha256: {of(nothing).upper()}, scopes: [read]}}]}}"
    with pytest.raises(BadConfig, match="sha256 of nothing"):
        configured(tmp_path, text)


def test_the_variable_and_the_flag_say_it_too(tmp_path: Path) -> None:
    """INTERFACES 1: SYNCBROK_HTTP_INSECURE, --insecure; SYNCBROK_HTTP_ORIGINS and _HOSTS take lists with commas."""
    lists = {
        "SYNCBROK_HTTP_ORIGINS": "https://a.example, http://b.example:8080",
        "SYNCBROK_HTTP_HOSTS": "a.example,box",
    }
    found = configured(tmp_path, "", SYNCBROK_HTTP_INSECURE="plaintext", **lists).http
    assert (found.insecure, found.hosts) == ("plaintext", ("a.example", "box"))
    assert found.origins == ("https://a.example", "http://b.example:8080")
    assert load_config(None, {}, {"--insecure": "open"}).http.insecure == "open"
    for wrong in ("origins: [shop.example]", "origins: ['https://a/b']", "hosts: ['a:80']", "insecure: maybe"):
        with pytest.raises(BadConfig):
            configured(tmp_path, f"http: {{{wrong}}}")


def test_the_command_refuses_in_words(tmp_path: Path) -> None:
    """INTERFACES 1: exit code 2, and nothing is made."""
    command = [sys.executable, "-m", "syncbrok", "serve", "--host", "0.0.0.0", "--port", "0", "--storage"]
    ended = subprocess.run(
        [*command, str(tmp_path / "storage")], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert "--insecure" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "storage").exists()


def test_tokens_are_read_again(tmp_path: Path) -> None:
    """INTERFACES 1, tokens: after SIGHUP those of the file are valid and no others. A stream that is open ends with its
    token. A file with a mistake, or one that would leave the broker open, changes nothing."""

    def tokens(*secrets: str) -> str:
        rows = ", ".join(f"{{name: {one}, sha256: {of(one)}, scopes: [read]}}" for one in secrets)
        return f"http: {{host: 127.0.0.1, tokens: [{rows}]}}\n"

    with BrokerProcess(tmp_path / "storage", config=tokens("old", "both")) as broker:
        file = next(tmp_path.glob("*--config.yml"))

        def read_again(text: str, logged: str) -> None:
            seen = broker.output().count(logged)
            file.write_text(text)
            broker.process.send_signal(signal.SIGHUP)
            eventually_blocking(lambda: broker.output().count(logged) > seen, logged)

        def status(secret: str) -> int:
            return broker.request("GET", "/v1/queues", headers={"Authorization": f"Bearer {secret}"}).status

        assert [status(one) for one in ("old", "both", "new")] == [200, 200, 401]
        asked = urllib.request.Request(f"{broker.url}/v1/events", headers={"Authorization": "Bearer old"})
        with urllib.request.urlopen(asked, timeout=20) as stream:
            assert stream.readline().startswith(b"retry:")
            read_again(tokens("new", "both"), "syncbrok.broker.tokens_changed")
            with pytest.raises(http.client.IncompleteRead):  # the stream of a token that is gone is cut off
                stream.read()
        assert [status(one) for one in ("old", "both", "new")] == [401, 200, 200]
        read_again("http: {tokens: [{name: x}]}\n", "syncbrok.broker.config_not_reloaded")
        assert [status(one) for one in ("old", "both", "new")] == [401, 200, 200]
        read_again(tokens("new") + "logging: {level: debug}\n", "syncbrok.broker.config_needs_restart")
        assert [status(one) for one in ("old", "both", "new")] == [401, 401, 200]
