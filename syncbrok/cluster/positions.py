"""How far each broker has the log in its file: whoever follows tells it as it goes on, whoever leads listens.

It is told beside the stream and may get lost, so it is told again every fifth of a lease.
"""

import json
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

SUBJECT: Final = "positions"


def _nothing() -> None:
    pass


class Teller(Protocol):
    """The questions to the engine that stand here (``engine.Engine``)."""

    def announce(self, told: bytes, subject: str) -> None: ...

    def hear(self, heard: Callable[[bytes], None], subject: str) -> None: ...


def tell_position(engine: Teller, node: str, generation: int, sequence: int) -> None:
    """``node`` has the log through ``sequence`` in its file. Raises ``OSError``."""
    engine.announce(json.dumps({"node": node, "generation": generation, "sequence": sequence}).encode(), SUBJECT)


class Positions:
    """The positions of the other nodes, from any thread. A ``Copies``. ``generation``: of the stream; what is told of
    another is not heard."""

    def __init__(
        self,
        engine: Teller,
        node: str,
        generation: Callable[[], int],
        patience_s: float,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``node``: this one, which is none of the others."""
        self._engine = engine
        self._node = node
        self._generation = generation
        self.patience_s = patience_s
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._of: dict[str, int] = {}
        self._heard_s = clock_s()
        self._changed: Callable[[], object] = _nothing

    def begin(self) -> None:
        """Hear the others from now on. Raises ``OSError``."""
        self._engine.hear(self._take, SUBJECT)

    def confirmed_through(self) -> tuple[int, float]:
        """See ``Copies``."""
        with self._lock:
            return max(self._of.values(), default=0), self._heard_s

    def listen(self, changed: Callable[[], object]) -> None:
        """See ``Copies``."""
        self._changed = changed

    def _take(self, told: bytes) -> None:
        try:
            given: dict[str, Any] = json.loads(told)
            node, generation, sequence = str(given["node"]), int(given["generation"]), int(given["sequence"])
        except (ValueError, KeyError, TypeError):
            return  # of a version that tells something else
        if node == self._node or generation != self._generation():
            return
        with self._lock:
            self._of[node] = sequence
            self._heard_s = self._clock_s()
        self._changed()
