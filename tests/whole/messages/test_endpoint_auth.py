"""RULES 18 and 19: a real broker that shows who it is, with credentials out of files, killed and started again."""

import json
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from syncbrok.frontends.from_yaml import read_queues_file
from syncbrok.model.errors import BadConfig
from tests.support.broker.process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.http.recorder import Received, Recorder

SECRET = "correct horse battery staple"
ONE = "/v1/queues/orders/subscribers/a"
FILE = """
queues:
  orders:
    subscribers:
      - name: a
        endpoint: {url}
        auth:
          oauth2: {{token_url: "{tokens}", client_id: broker, client_secret: "file:secrets/client", scope: hooks}}
          mtls: {{cert: "file:a.crt", key: "file:a.key"}}
          ca: "file:{ca}"
"""


def test_who_the_broker_is_comes_out_of_files_and_outlives_a_crash(tmp_path: Path) -> None:
    """The token, the certificate and the authority are those of before after kill -9; another secret in the file is
    taken at the next start; a restart on the same file does not take back what an operator has set since. In the log,
    the answers and the output stands nothing of them."""
    authority = Authority(tmp_path)
    shown = authority.signs("a")
    (tmp_path / "secrets").mkdir()
    secret = tmp_path / "secrets" / "client"
    secret.write_text(f"{SECRET}\n")
    asked: list[Received] = []

    def give(request: Received) -> int:
        asked.append(request)
        return 200

    with Recorder(tls=authority.verifying()) as recorder, Recorder(give, tls=authority.verifying()) as tokens:
        tokens.body = json.dumps({"access_token": "t0ken", "token_type": "bearer", "expires_in": 60}).encode()
        file = FILE.format(url=recorder.url, tokens=tokens.url, ca=authority.file)
        with BrokerProcess(tmp_path / "log", queues=file) as broker:

            def published() -> Received:
                broker.request("POST", "/v1/queues/orders/messages", b"x", {"Prefer": "wait=20"})
                return recorder.requests[-1]

            for given in (SECRET, SECRET, "another one"):
                secret.write_text(f"{given}\n")
                broker.kill()
                broker.start()
                assert published().headers["authorization"] == "Bearer t0ken"
                assert asked[-1].headers["authorization"].startswith("Basic ")
                assert parse_qs(asked[-1].body.decode())["scope"] == ["hooks"]
            auth = broker.request("GET", ONE).json()["auth"]
            assert auth["oauth2"]["client_secret"] == auth["mtls"]["key"] == auth["ca"] == "set"
            assert broker.request("PATCH", ONE, {"auth": {**auth, "oauth2": None}}).status == 400
            changed = {"bearer": "byhand", "mtls": auth["mtls"], "ca": "set"}
            assert broker.request("PATCH", ONE, {"auth": changed}).status == 200
            broker.kill()
            broker.start()
            assert published().headers["authorization"] == "Bearer byhand"
            said = broker.output().encode() + b"".join(
                broker.request("GET", path).body for path in (ONE, "/v1/queues/orders/subscribers", "/metrics")
            )
            log = b"".join(one.read_bytes() for one in broker.storage.iterdir() if not one.name.startswith("secrets"))
    key = shown.key.read_text().splitlines()[1]
    assert len({one.headers["authorization"] for one in asked}) == 2
    assert not [secret for secret in (SECRET, "another one", "byhand", "t0ken", key) if secret.encode() in said + log]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """The start is refused with file, line and key, and what it lacks."""
    (tmp_path / "a.crt").write_text("x")
    queues = tmp_path / "queues.yml"
    text = FILE.format(url="https://h/", tokens="https://h/", ca="/nowhere/ca.pem")
    queues.write_text(text)
    with pytest.raises(BadConfig) as refused:
        read_queues_file(queues, {})
    assert "queues.yml:7: queues.orders.subscribers[0].auth: file " in refused.value.detail
    assert "secrets/client cannot be read: No such file" in refused.value.detail
    queues.write_text(text.replace("secrets/client", "secrets\\0client"))
    with pytest.raises(BadConfig, match="cannot be read: embedded null byte"):
        read_queues_file(queues, {})
