"""Messages with a mark in them, erased in a cluster of real processes, and every file that may still have the mark."""

import os
from pathlib import Path

from tests.support.cluster.broker_nodes import BrokerNode
from tests.support.cluster.broker_trio import BrokerTrio
from tests.support.crash.traffic import verified
from tests.support.polling import eventually_blocking

WITHIN_S = 20
CONFIG = f"storage: {{segment: 128KiB, erase_within: {WITHIN_S}s}}\n"


def publish(broker: BrokerNode, mark: bytes) -> str:
    """Its id. What has the mark in it: key, idempotency key, a header, and content of more than a segment's part."""
    keys = {"Idempotency-Key": f"idem-{mark.decode()}", "Syncbrok-Key": f"key-{mark.decode()}"}
    headers = {**keys, "Syncbrok-Forward-X-Whose": f"header-{mark.decode()}"}
    answer = broker.request("POST", "/v1/queues/q/messages", b"%s " % mark * 500, headers)
    assert answer.status == 201, answer.body
    return str(answer.json()["id"])


def fill(broker: BrokerNode, count: int = 40) -> None:
    """What stands around it, in several segments."""
    for number in range(count):
        assert broker.request("POST", "/v1/queues/q/messages", b"%d" % number * 5_000).status == 201


def erase(broker: BrokerNode, id_: str) -> None:
    assert broker.request("DELETE", f"/v1/messages/{id_}/content").status == 200
    assert broker.request("GET", f"/v1/messages/{id_}/content").status == 410


def holding(trio: BrokerTrio, mark: bytes, *, journals: bool = False) -> list[str]:
    """Files that have the mark: of every node and of every server of the engine, checkpoints and leftovers too.
    ``journals``: also those by which the servers agree, which each shortens by itself every few minutes."""
    roots = [one.storage for one in trio.brokers.values()] + [one.store for one in trio.engine.servers]
    paths = [Path(at) / name for root in roots for at, _, names in os.walk(root) for name in names]
    return [str(path) for path in paths if (journals or "_js_" not in path.parts) and mark in _bytes(path)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def sealed(broker: BrokerNode) -> dict[str, bytes]:
    paths = sorted(broker.storage.glob("[0-9]*.log"))
    return {path.name: path.read_bytes() for path in paths[:-1]}


def is_gone_everywhere(trio: BrokerTrio, mark: bytes) -> None:
    """No file has the mark, all nodes have the same bytes, and each log verifies."""
    eventually_blocking(
        lambda: not holding(trio, mark), lambda: f"it is gone, not from {holding(trio, mark)}", 6 * WITHIN_S
    )
    one, *others = trio.brokers.values()

    def alike() -> bool:
        return bool(sealed(one)) and all(sealed(other) == sealed(one) for other in others)

    eventually_blocking(alike, "all have the same bytes", 6 * WITHIN_S)
    for broker in trio.brokers.values():
        assert verified(broker.storage) == []
        assert "replicas differ" not in broker.output()
