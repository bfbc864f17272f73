"""RULES 18 and 19: a real broker that signs as another sender, declared by its file, killed and started again."""

import hashlib
import hmac
import json
from pathlib import Path

from syncbrok.client import verify
from tests.support.broker.process import BrokerProcess
from tests.support.http.recorder import Received, Recorder
from tests.support.polling import eventually_blocking

SECRET = "correct horse battery staple"
OTHER = "another one of some length"
LOST, NEW = "whsec_" + "A" * 32, "whsec_" + "B" * 32
ONE = "/v1/queues/orders/subscribers/a"
FILE = """
queues:
  orders:
    subscribers:
      - name: a
        endpoint: {url}
        signatures:
          - scheme: v1a
          - {{scheme: hmac, header: X-Hub-Signature-256, form: "sha256={{hex}}", secret: {secret}}}
"""


def signed_with(request: Received, secret: str) -> bool:
    right = hmac.new(secret.encode(), request.body, hashlib.sha256).hexdigest()
    return request.headers["x-hub-signature-256"] == f"sha256={right}"


def test_what_a_file_signs_with_outlives_a_crash_and_an_operator(tmp_path: Path) -> None:
    """RULES 18, 19: the key pair and the secret are those of before after kill -9. A restart on the same file does not
    take back what an operator has set since. In the log, the answers and the output stands neither."""
    with Recorder() as recorder:
        url = recorder.url
        with BrokerProcess(tmp_path / "log", queues=FILE.format(url=url, secret=SECRET)) as broker:

            def published() -> Received:
                broker.request("POST", "/v1/queues/orders/messages", b"x", {"Prefer": "wait=20"})
                return recorder.requests[-1]

            public = broker.request("GET", ONE).json()["signatures"][0]["public_key"]
            for _ in range(2):
                request = published()
                assert signed_with(request, SECRET)
                assert verify(request.body, request.headers, public) == request.id
                broker.kill()
                broker.start()
            shown = broker.request("GET", ONE).json()["signatures"]
            assert broker.request("PATCH", ONE, {"signatures": [shown[0], {**shown[1], "secret": OTHER}]}).status == 200
            broker.kill()
            broker.start()
            request = published()
            assert signed_with(request, OTHER)
            assert verify(request.body, request.headers, public) == request.id
            said = broker.output().encode() + b"".join(
                broker.request("GET", path).body for path in (ONE, "/v1/queues/orders/subscribers", "/metrics")
            )
            log = b"".join(one.read_bytes() for one in broker.storage.iterdir() if not one.name.startswith("secrets"))
    assert not [secret for secret in (SECRET, OTHER, "whsk_") if secret.encode() in said + log]
    kept = json.loads((tmp_path / "log" / "secrets.json").read_text())
    (of_one,) = kept["subscribers"]["1"]["credentials"].values()
    assert of_one["signatures:x-hub-signature-256"] == OTHER


def test_nothing_goes_out_unsigned_where_the_secret_is_lost(tmp_path: Path) -> None:
    """RULES 19: somebody has deleted ``secrets.json``. The attempt fails and says why, and the endpoint hears nothing,
    since a request without a signature looks like anybody's. A new secret lets the message go, signed."""
    with Recorder() as recorder, BrokerProcess(tmp_path / "log") as broker:
        assert broker.request("POST", "/v1/queues", {"name": "orders"}).status == 201
        subscriber = {"name": "a", "endpoint": recorder.url, "secret": LOST, "retry": ["1s"] * 60}
        assert broker.request("POST", "/v1/queues/orders/subscribers", subscriber).status == 201
        broker.terminate()
        (tmp_path / "log" / "secrets.json").unlink()
        broker.start()
        assert "syncbrok.space.secret_missing" in broker.output()
        id_ = broker.request("POST", "/v1/queues/orders/messages", b"x").json()["id"]

        def failure() -> str:
            (delivery,) = broker.request("GET", f"/v1/messages/{id_}").json()["deliveries"]
            return str(delivery["attempts"])

        eventually_blocking(lambda: "set it again" in failure(), "an attempt has failed, and says why")
        assert not recorder.requests
        assert broker.request("PATCH", ONE, {"secret": NEW}).status == 200
        eventually_blocking(lambda: recorder.requests, "it goes out")
    request = recorder.requests[0]
    assert verify(request.body, request.headers, NEW) == request.id == id_
