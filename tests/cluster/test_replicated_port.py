"""What every journal promises, asked of the replicated one: the whole suite of the port, on a stream in memory whose
answers are lost now and then, and on three real servers. And what only this one promises."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from syncbrok.cluster.leadership import Fenced
from syncbrok.model.errors import LogDiverged, LogFailed
from tests.log.test_journal_port import *  # noqa: F403 (the suite)
from tests.log.test_journal_port_faults import *  # noqa: F403
from tests.support.cluster.nats_engine import NatsEngine
from tests.support.cluster.replicated_places import IDENTITY, HeldReplicated, OnEngine, Replicated, take_over
from tests.support.log.journal_places import Place
from tests.support.log.journals import message, opened


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsEngine]:
    with NatsEngine(tmp_path_factory.mktemp("engine")) as running:
        yield running


@pytest.fixture(params=[Replicated, OnEngine], ids=["in memory", "on an engine"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param is OnEngine:
        OnEngine.servers = request.getfixturevalue("servers").addresses
    made = request.param(tmp_path / "log")
    yield made
    made.close()


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[Replicated]:
    made = Replicated(tmp_path / "log")
    yield made
    made.close()


def one(journal: HeldReplicated) -> None:
    journal.append(journal.prepare([message(journal.id_key, journal.next_sequence)]))


def test_the_files_are_a_prefix_of_the_stream(replicated: Replicated) -> None:
    """Each batch is in the stream before it is in the files, as the same bytes; a node that follows has the same
    files."""
    journal = replicated.open()
    for _ in range(200):
        one(journal)
    replicated.engine.unsure = 0
    other = replicated.directory.with_name("other")
    other.mkdir()
    follower = opened(HeldReplicated, other, identity=IDENTITY)
    take_over(replicated.engine, follower)
    assert [section.first for section in follower.sections()] == [section.first for section in journal.sections()]
    for mine, its in zip(journal.sections(), follower.sections(), strict=True):
        written = [(at / mine.name).read_bytes()[: mine.bytes] for at in (replicated.directory, other)]
        assert written[0] == written[1]
        assert its.last == mine.last
    follower.close()


def test_who_was_passed_is_fenced_and_writes_nothing(replicated: Replicated) -> None:
    """Once another's message stands where the next one was to be, nothing is appended here any more."""
    replicated.engine.unsure = 0
    journal = replicated.open()
    one(journal)
    before, stream = list(journal.facts()), len(replicated.engine.messages)
    replicated.break_down()
    for _ in range(2):
        with pytest.raises(LogFailed) as failed:
            one(journal)
    assert isinstance(failed.value, Fenced | LogFailed)
    assert list(journal.facts()) == before
    assert len(replicated.engine.messages) == stream + 1


def test_a_longer_log_than_the_stream_is_refused(replicated: Replicated) -> None:
    """An engine that has lost its end, or all of it, is not believed; nothing here is cut back for it."""
    journal = replicated.open()
    for _ in range(20):
        one(journal)
    journal.close()
    facts = len(journal.sections())
    for kept in (1, len(replicated.engine.messages) - 1):
        del replicated.engine.messages[kept:]
        again = opened(HeldReplicated, replicated.directory, identity=IDENTITY)
        with pytest.raises(LogDiverged, match="the stream with"):
            take_over(replicated.engine, again)
        assert again.next_sequence == journal.next_sequence
        assert len(again.sections()) == facts
        again.close()
        replicated.engine.messages = [*replicated.engine.messages]
