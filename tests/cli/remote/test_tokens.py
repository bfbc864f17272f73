"""``syncbrok tokens`` and ``/v1/tokens`` against a real broker: at once, without a restart (INTERFACES 1)."""

import http.client
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from syncbrok.cli.main import group
from tests.support.broker.commands import data
from tests.support.broker.process import BrokerProcess


def run(broker: BrokerProcess, token: str, *arguments: str, code: int = 0) -> Result:
    variables = {"SYNCBROK_URL": broker.url, "SYNCBROK_TOKEN": token}
    result = CliRunner().invoke(group, list(arguments), env=variables)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_tokens_from_the_first_to_the_last(tmp_path: Path) -> None:
    """INTERFACES 1, tokens: the first one closes the broker; one for some queues publishes there on both ways; revoked
    it opens nothing, its stream ends, and after kill -9 nothing of that is forgotten."""
    with BrokerProcess(tmp_path / "storage") as broker:
        refused = run(broker, "", "tokens", "create", "shop", "--scope", "publish", code=4).stderr
        assert "nobody could create another" in refused
        operator = run(broker, "", "tokens", "create", "op", "--scope", "admin", "--scope", "read").stdout.strip()
        assert operator.startswith("sbt_")
        assert broker.request("GET", "/v1/queues").status == 401
        for nobody in ("local", "file"):  # by which facts say that no token did it
            taken = run(broker, operator, "tokens", "create", nobody, "--scope", "read", code=4).stderr
            assert "take another name" in taken
        run(broker, operator, "queues", "create", "shop.orders")
        run(broker, operator, "queues", "create", "bills")
        made = run(broker, operator, "tokens", "create", "shop", "--scope", "publish", "--scope", "consume",
                   "--queue", "shop.*", "--expires", "90d", "--json")  # fmt: skip
        shop = data(made)["token"]
        for headers in ({}, {"Syncbrok-Delay": "1"}, {"Prefer": "wait=0"}):
            path = "/v1/queues/shop.orders/messages"
            assert broker.request("POST", path, b"x", bearer(shop) | headers).status in (201, 202, 200)
            other = broker.request("POST", "/v1/queues/bills/messages", b"x", bearer(shop) | headers)
            assert other.status == 403
        listed = data(run(broker, operator, "tokens", "list", "--json"))
        assert [(one["name"], one["scopes"]) for one in listed] == [
            ("op", {"read": ["*"], "admin": ["*"]}),
            ("shop", {"publish": ["shop.*"], "consume": ["shop.*"]}),
        ]
        assert "publish in shop.*, consume in shop.*" in run(broker, operator, "tokens", "list").stdout
        for text in (shop, operator):
            assert text not in broker.output() + (tmp_path / "storage/secrets.json").read_text()
        asked = urllib.request.Request(f"{broker.url}/v1/queues/shop.orders/stream", headers=bearer(shop))
        with urllib.request.urlopen(asked, timeout=20) as stream:
            stream.readline()
            assert run(broker, operator, "tokens", "revoke", "shop").stdout == "shop revoked\n"
            with pytest.raises((http.client.IncompleteRead, ConnectionError)):
                stream.read()
        broker.kill()
        broker.start()
        assert broker.request("POST", "/v1/queues/shop.orders/messages", b"x", bearer(shop)).status == 401
        assert broker.request("GET", "/v1/queues", None, bearer(operator)).status == 200
        metrics = broker.request("GET", "/metrics", None, bearer(operator)).body
        assert b'syncbrok_http_tokens_refused_total{why="wrong"} 1.0' in metrics
        assert '"event":"syncbrok.http.token_refused"' in broker.output()
        run(broker, operator, "tokens", "revoke", "nobody", code=3)
        run(broker, operator, "tokens", "revoke", "op")  # the last: on loopback it may be open
        assert broker.request("GET", "/v1/queues").status == 200


def test_a_token_that_expires_ends_its_stream(tmp_path: Path) -> None:
    """INTERFACES 1, tokens: after its time it is answered 401, and what is under way with it ends."""
    with BrokerProcess(tmp_path / "storage") as broker:
        operator = run(broker, "", "tokens", "create", "op", "--scope", "admin").stdout.strip()
        short = run(broker, operator, "tokens", "create", "short", "--scope", "read", "--expires", "2s").stdout.strip()
        asked = urllib.request.Request(f"{broker.url}/v1/events", headers=bearer(short))
        ended = pytest.raises((http.client.IncompleteRead, ConnectionError))
        with urllib.request.urlopen(asked, timeout=20) as stream, ended:
            stream.read()
        refused = broker.request("GET", "/v1/queues", None, bearer(short))
        assert (refused.status, "has expired" in refused.json()["detail"]) == (401, True)
        assert "has expired" in run(broker, operator, "tokens", "list").stdout


def test_a_broker_open_to_others_starts_with_a_token_that_was_created(tmp_path: Path) -> None:
    """INTERFACES 1, http.insecure: created tokens are tokens; and the last of them does not open it to everybody."""
    with BrokerProcess(tmp_path / "storage") as broker:
        operator = run(broker, "", "tokens", "create", "op", "--scope", "admin").stdout.strip()
        broker.kill()
    with BrokerProcess(tmp_path / "storage", config="http: {host: 0.0.0.0, insecure: plaintext}\n") as broker:
        assert broker.request("GET", "/v1/queues").status == 401
        refused = run(broker, operator, "tokens", "revoke", "op", code=4)
        assert "everybody who can connect might do everything" in refused.stderr
