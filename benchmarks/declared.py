"""A ``queues.yml`` with many subscribers: a broker has them all when it serves."""

from collections.abc import Sequence


def declared(queues: int, subscribers: int, ports: Sequence[int], secret: str = "") -> str:
    """Queues ``q0`` and so on, each with so many subscribers: an endpoint each, on the ports of 127.0.0.1 in turn, all
    with the ``secret`` if there is one. At about 50 bytes each, 20,000 subscribers fit into the MiB that a file may
    have."""
    rows = ["queues:"]
    number = 0
    for queue in range(queues):
        rows.append(f"  q{queue}:\n    subscribers:")
        for _ in range(subscribers):
            endpoint = f"endpoint: http://127.0.0.1:{ports[number % len(ports)]}/{number}"
            rows.append(f"    - {{{endpoint}, secret: {secret}}}" if secret else f"    - {endpoint}")
            number += 1
    return "\n".join(rows) + "\n"
