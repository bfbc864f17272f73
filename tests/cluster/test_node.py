"""A node refuses for good only what the engine says again and again: a server with damaged files may lead for a moment,
and say that there is no stream, or that it ends long before it does. (Seen of a real one: 450 messages, and for two
seconds ``first=1, last=6``.)"""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cluster.engine import EngineUnfit, StreamMissing, StreamState
from syncbrok.cluster.node import Node, NodeRefused, NodeRun, NodeSettings, NodeStopped
from syncbrok.cluster.stream_messages import EraseOrder, StreamKind, StreamMessage, log_name
from syncbrok.cluster.vault import make_key
from tests.support.cluster.memory_engine import MemoryEngine
from tests.support.cluster.replicated_places import IDENTITY, HeldReplicated, take_over
from tests.support.log.journals import append_snapshot, opened, publish

BIRTH = StreamMessage(StreamKind.BIRTH, 0, "init.1", log=log_name(IDENTITY), generation=1, sequence=1)


class DamagedEngine:
    """``says``: what each question is answered with by turns, before it is answered as it should be: ``missing``,
    ``empty``, ``unborn``, ``short``."""

    def __init__(self, says: list[str]) -> None:
        self.memory = MemoryEngine(1)
        self.memory.messages = [BIRTH]
        self.says = says
        self.unfit = ""
        self.followed: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    def connect(self) -> None:
        """It is."""

    def close(self) -> None:
        """Nothing to close."""

    def announce(self, told: bytes, subject: str) -> None:
        """A node that follows does."""
        self.followed()

    def _next(self, *kinds: str) -> str:
        return self.says.pop(0) if self.says and self.says[0] in kinds else ""

    def verify(self) -> None:
        if self.unfit:
            raise EngineUnfit(self.unfit)
        if self._next("missing"):
            raise StreamMissing("the engine has no stream")

    def first(self) -> StreamMessage | None:
        said = self._next("empty", "unborn")
        return None if said == "empty" else BIRTH._replace(log="") if said else BIRTH

    def state(self) -> StreamState:
        right = self.memory.state()
        return right._replace(first=0, last=0) if self._next("short") else right


def node_of(directory: Path, engine: DamagedEngine, records: int, certain_s: float = 60.0) -> Node:
    """With so many records in its files, all of which are in the stream."""
    make_key(directory / "cluster.key")
    storage = directory / "storage"
    storage.mkdir()
    journal: Any = opened(HeldReplicated, storage, identity=IDENTITY)
    take_over(engine.memory, journal)
    append_snapshot(journal)
    for _ in range(records):
        publish(journal)
    journal.close()

    def open_standby(_: object) -> Any:
        again: Any = opened(HeldReplicated, storage, identity=IDENTITY)
        return SimpleNamespace(
            journal=again, apply=lambda _: None, close=again.close, save=lambda: None, save_both=lambda: False
        )

    healing: Any = SimpleNamespace(heal=lambda _: None)
    settings = NodeSettings("b", "http://b", {}, 60.0, directory / "cluster.key", storage)
    run = NodeRun("run", lambda: time.monotonic_ns() // 1_000, lambda: 0.5, again_s=0.001, certain_s=certain_s)
    real: Any = engine
    return Node(real, settings, open_standby, lambda *_: healing, tuple, lambda _: None, run)


@pytest.mark.parametrize("said", ["missing", "empty", "unborn", "short"])
def test_what_one_server_says_for_a_moment_is_not_believed(tmp_path: Path, said: str) -> None:
    """It is asked again, and the node follows."""
    engine = DamagedEngine([said] * 4)
    node = node_of(tmp_path, engine, 5)
    engine.followed = node.stop
    with pytest.raises(NodeStopped):
        node.until_leading()
    assert not engine.says


@pytest.mark.parametrize(
    ("said", "why"),
    [("missing", "no stream"), ("empty", "birth of a log"), ("unborn", "birth of a log"), ("short", "lost its end")],
)
def test_what_it_says_all_along_is(tmp_path: Path, said: str, why: str) -> None:
    """The node refuses, after so long."""
    engine = DamagedEngine([said] * 1_000_000)
    with pytest.raises(NodeRefused, match=why):
        node_of(tmp_path, engine, 5, certain_s=0.1).until_leading()


def test_how_it_is_set_up_is_certain_at_once(tmp_path: Path) -> None:
    """Settings do not come and go."""
    engine = DamagedEngine([])
    engine.unfit = "replicas is 1, and must be 3"
    with pytest.raises(NodeRefused, match="replicas is 1"):
        node_of(tmp_path, engine, 0).until_leading()


@pytest.mark.parametrize(("erased", "cut"), [(0, True), (-5, False), (None, False)])
def test_a_stream_that_erasing_cut_is_not_the_whole_log(tmp_path: Path, erased: int | None, cut: bool) -> None:
    """RULES 32: what an erasure made the stream forget is still part of the log, in the files of the nodes: who finds
    no peer must not take the stream's beginning for the log's, and throw its own files away. After retention alone it
    is."""
    engine = DamagedEngine([])
    node = node_of(tmp_path, engine, 3)
    memory = engine.memory
    roll = next(one for one in memory.messages if one.kind is StreamKind.ROLL)
    memory.purge(roll.sequence)
    if erased is not None:
        order = EraseOrder(roll.first + erased, 1).message()
        memory.messages = [
            *memory.messages[: roll.sequence],
            *[
                one._replace(sequence=at)
                for at, one in enumerate([order, *memory.messages[roll.sequence :]], roll.sequence + 1)
            ],
        ]
    told: list[bool] = []
    engine.first = lambda: roll  # type: ignore[method-assign]
    node._healing = lambda _, is_cut: told.append(is_cut) or SimpleNamespace(heal=lambda _: None)  # type: ignore[assignment,func-returns-value,return-value]
    engine.followed = node.stop
    with pytest.raises(NodeStopped):
        node.until_leading()
    assert told[:1] == [cut]
