"""The nodes that are there: each tells the others where it stands, once a second, and keeps what it hears from them.

It is told beside the stream and not kept. What people are shown rests on it, and where a node looks for segments that
it lacks: what it gets there it verifies.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from syncbrok.cluster.election import Role

_SUBJECT: Final = "nodes"
_HEARD_S: Final = 5.0
"""who was not heard for longer is not there"""
ARCHIVES: Final = ("nobody", "leader", "pipeline")


class NodeReport(NamedTuple):
    """The report of a node on itself. ``first`` and ``sequence``: the first and the last of the log that it has, both 0
    while it has none open. ``archive``: who archives its log before retention drops anything, a word of ``ARCHIVES``;
    empty where it does not say (a node of before)."""

    node: str
    url: str
    pid: int
    role: str
    epoch: int
    sequence: int
    first: int = 0
    archive: str = ""


class Told(Protocol):
    """The questions to the engine that stand here (``engine.Engine``)."""

    def announce(self, told: bytes, subject: str) -> None: ...

    def hear(self, heard: Callable[[bytes], None], subject: str) -> None: ...


def archives_differ(nodes: Iterable[NodeReport]) -> str:
    """In words, where nodes have another ``storage.archive`` than others; empty where they do not. Whoever leads drops
    what its own setting lets go, so one that archives nothing would drop what the others wait for."""
    told = {one.node: one.archive for one in nodes if one.archive}
    if len(set(told.values())) < 2:
        return ""
    return ", ".join(f"{node}: {archive}" for node, archive in sorted(told.items()))


def as_of(epoch: int, nodes: Iterable[NodeReport]) -> list[NodeReport]:
    """The reports as they read at ``epoch``: of an older one nobody leads any longer. A leader that was stopped, or has
    yielded, is heard for some seconds after another one leads, and two leaders would be shown."""
    led = Role.LEADING.value
    return [one._replace(role=Role.FENCED.value) if one.role == led and one.epoch < epoch else one for one in nodes]


class Membership:
    """From any thread."""

    def __init__(self, engine: Told, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._heard: dict[str, tuple[float, NodeReport]] = {}

    def listen(self) -> None:
        """Hear the others from now on. Raises ``OSError``."""
        self._engine.hear(self._take, _SUBJECT)

    def announce(self, report: NodeReport) -> None:
        """Tell the others, and this one. Raises ``OSError``."""
        self._engine.announce(json.dumps(report._asdict()).encode(), _SUBJECT)

    def nodes(self) -> list[NodeReport]:
        """The nodes that were heard lately, by name."""
        with self._lock:
            since_s = self._clock_s() - _HEARD_S
            return [one for at_s, one in sorted(self._heard.values(), key=lambda two: two[1].node) if at_s >= since_s]

    def _take(self, told: bytes) -> None:
        try:
            given: dict[str, Any] = json.loads(told)
            report = NodeReport(
                str(given["node"]), str(given["url"]), int(given["pid"]), str(given["role"]), int(given["epoch"]),
                int(given["sequence"]), int(given.get("first", 0)), str(given.get("archive", "")),
            )  # fmt: skip
        except (ValueError, KeyError, TypeError):
            return  # of a version that tells something else
        with self._lock:
            self._heard[report.node] = (self._clock_s(), report)
