"""A client that a generator makes of the running broker's own description is complete, and works."""

import importlib
import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urljoin

import pytest

from tests.support.broker.process import BrokerProcess

PACKAGE = "generated_syncbrok"


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Where to import from, once ``generate`` has run."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / PACKAGE
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def generate(url: str, into: Path) -> str:
    """Generate the client, without files around it and without a formatter; what the generator says."""
    (config := into.with_suffix(".json")).write_text(json.dumps({"post_hooks": []}))
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--url", url, "--output-path", str(into)]
    command += ["--meta", "none", "--config", str(config), "--fail-on-warning"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def part(name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGE}.{name}")


def test_a_generated_client_works(tmp_path: Path, generated: Path) -> None:
    """INTERFACES 3: openapi-python-client makes a function of every route, without a warning; with them a queue is
    made, subscribed to, published to, with a parent and as a batch, and read."""
    with BrokerProcess(tmp_path / "storage") as broker:
        said = generate(f"{broker.url}/openapi.json", generated)
        assert "warning" not in said.lower()
        document = broker.request("GET", "/openapi.json").json()
        names = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
        assert sorted(names) == sorted(path.stem for path in generated.glob("api/*/[!_]*.py"))
        assert not [path for path in document["paths"] if path.startswith("/web/")]

        (server,) = document["servers"]
        models, types = part("models"), part("types")
        at = urljoin(f"{broker.url}/openapi.json", server["url"]).rstrip("/")
        with part("client").Client(base_url=at, raise_on_unexpected_status=True) as client:
            queue = part("api.queues.declare_queue").sync(
                client=client, body=models.NewQueue(name="shop", retry=["1s"])
            )
            assert (queue.name, queue.scope) == ("shop", "all")
            subscriber = models.NewSubscriber(name="books", endpoint="http://127.0.0.1:9/", paused=True)
            assert part("api.subscribers.subscribe").sync("shop", client=client, body=subscriber).state == "paused"
            publish = part("api.messages.publish").sync
            first = publish("shop", client=client, body=types.File(BytesIO(b"invoice")), syncbrok_key="k")
            tried = {"syncbrok_parent": str(first.id), "syncbrok_deliver_at": "2100-01-01T00:00:00Z"}
            child = publish("shop", client=client, body=types.File(BytesIO(b"line")), **tried)
            assert child.parents == [first.id]
            batch = part("api.messages.publish_batch").sync(
                "shop", client=client, body=[{"data": [1]}, {"content": "x"}]
            )
            shown = part("api.messages.get_message").sync(child.id, client=client)
            assert (shown.state, shown.parents, shown.deliveries[0].state) == ("scheduled", [first.id], "paused")
            assert part("api.messages.get_content").sync(first.id, client=client).payload.read() == b"invoice"
            listed = part("api.messages.list_messages").sync("shop", client=client)
            assert [one.id for one in listed.messages] == [first.id, child.id, *batch.ids]
            problem = part("api.queues.get_queue").sync("nothing", client=client)
            assert (type(problem), problem.status) == (models.Problem, 404)
