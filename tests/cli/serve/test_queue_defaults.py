"""INTERFACES 1, ``defaults``: the scope of queues that are made without one."""

from pathlib import Path

from tests.support.broker.process import BrokerProcess

QUEUES = "queues: {by-file: {}, by-file-all: {scope: all}}\n"


def test_a_queue_that_says_no_scope_has_that_of_the_file(tmp_path: Path) -> None:
    """Made by ``queues.yml``, over HTTP and by the original's routes; one that says it has its own; and what is there
    already keeps what it has, also over a restart with other defaults."""
    storage = tmp_path / "storage"
    with BrokerProcess(storage, queues=QUEUES, config="defaults: {scope: same}\n") as broker:
        broker.request("POST", "/v1/queues", {"name": "by-hand"})
        broker.request("POST", "/v1/queues", {"name": "by-hand-all", "scope": "all"})
        broker.request("POST", "/queue", headers={"Queue": "by-original"})
        expected = {"by-file": "same", "by-file-all": "all", "by-hand": "same", "by-hand-all": "all"}
        assert scopes(broker) == expected | {"by-original": "same"}
    with BrokerProcess(storage) as broker:
        assert scopes(broker) == expected | {"by-original": "same"}
        broker.request("POST", "/v1/queues", {"name": "later"})
        assert scopes(broker)["later"] == "all"


def scopes(broker: BrokerProcess) -> dict[str, str]:
    return {one["name"]: one["scope"] for one in broker.request("GET", "/v1/queues").json()["queues"]}
