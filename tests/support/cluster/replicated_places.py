"""Places of a replicated journal, for the tests of the port: its files, and the stream that they are a prefix of.

A crash leaves the files as they are on the disk and the stream as it is; who opens them next follows first, as a node
does, and then leads. In the middle of an append it may leave the batch in the stream and not in the files.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from syncbrok.cluster.election import Election, LeaseTimes
from syncbrok.cluster.engine import Engine, EngineServer
from syncbrok.cluster.following import Following
from syncbrok.cluster.leadership import Leadership
from syncbrok.cluster.replicated_journal import ReplicatedJournal
from syncbrok.cluster.stream_messages import AppendNames, StreamKind, StreamMessage
from syncbrok.log.reading.recent import Batch, OpeningBatch
from syncbrok.model.journal import JournalOptions, LogIdentity, PreparedBatch
from tests.support.cluster.memory_engine import MemoryEngine
from tests.support.cluster.nats_engine import append
from tests.support.log.journal_places import Files, HeldFiles
from tests.support.log.journals import opened
from tests.support.polling import eventually_blocking

IDENTITY = LogIdentity(bytes(range(16, 32)), bytes(range(16)))
CLAIM = StreamMessage(StreamKind.CLAIM, 0, "", node="a", url="http://a")
_RUNS = itertools.count(1)


class HeldReplicated(HeldFiles, ReplicatedJournal):
    """Full or slow when the test says so, as the one in files is: full is what is claimed before it is sent."""

    def _claim(self, batch: Batch | OpeningBatch) -> None:
        HeldFiles._take_room(self)
        super()._claim(batch)

    def _take_room(self) -> None:
        """What was claimed is there."""


def take_over(engine: Any, journal: ReplicatedJournal) -> Leadership:
    """Follow to the end of the stream, claim, and lead: what a node does whose patience is over."""
    times = LeaseTimes.of(2.0)
    election = Election(times, 1, lambda: 0.0, 0)
    leadership = Leadership(engine, election, AppendNames("a", f"r{next(_RUNS)}"), CLAIM, lambda: 0)
    following = Following(engine, journal, election, leadership, lambda _: None, lambda _: None, "a", lambda: 0)
    following.begin()
    while following.step():
        pass
    assert election.due(times.patience_us + times.jitter_us) is not None
    assert leadership.claim()
    journal.lead(leadership)
    return leadership


class Replicated(Files):
    """Behind an engine that is in memory, and now and then unsure."""

    refetches: ClassVar[bool] = True

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.engines = {directory: self._begun(())}
        """by the directory: what a crash leaves goes on with a stream of its own"""
        self.put(StreamMessage(StreamKind.BIRTH, 0, "init.1", generation=1))

    @property
    def engine(self) -> Any:
        return self.engines[self.directory]

    def _begun(self, messages: Sequence[StreamMessage]) -> Any:
        """An engine whose stream begins with these."""
        made = MemoryEngine(len(messages), unsure=30)
        made.messages = list(messages)
        return made

    def put(self, message: StreamMessage) -> None:
        """Another one appends to the stream."""
        self.engine.messages.append(message._replace(sequence=len(self.engine.messages) + 1))

    def stream(self) -> Sequence[StreamMessage]:
        found: Sequence[StreamMessage] = self.engine.messages
        return found

    def _open(self, options: JournalOptions, clock_us: Callable[[], int]) -> HeldReplicated:
        self.directory.mkdir(exist_ok=True)
        in_files = {"segment_bytes": 64 * 1024, "reserve_bytes": 4_096}
        journal: HeldReplicated = opened(
            HeldReplicated, self.directory, clock_us, IDENTITY, **options._asdict(), **in_files
        )
        take_over(self.engine, journal)
        return journal

    def break_down(self) -> None:
        """Another node has claimed meanwhile, and the disk here is gone too."""
        super().break_down()
        self.put(StreamMessage(StreamKind.CLAIM, 1 << 41, "b.r.1", node="b"))

    def _leave(self, left: Path, torn: PreparedBatch | None, written: int) -> None:
        super()._leave(left, torn, written)
        messages = list(self.stream())
        if torn is not None and written:  # it was in the stream before its first byte was written
            messages.append(StreamMessage(StreamKind.BATCH, 1, "torn", torn.data, torn.first, torn.last))
        self.engines[left] = self._begun([one._replace(sequence=at) for at, one in enumerate(messages, 1)])


def is_made(engine: Engine) -> bool:
    try:
        engine.make_stream()
    except OSError:
        return False
    return True


class OnEngine(Replicated):
    """Behind three real servers of NATS JetStream, which the test has started."""

    servers: ClassVar[Sequence[EngineServer]] = ()
    _spaces: ClassVar[Iterator[int]] = itertools.count(1)

    def _begun(self, messages: Sequence[StreamMessage]) -> Engine:
        made = Engine(f"port{next(self._spaces)}", self.servers)
        made.connect()
        eventually_blocking(lambda: is_made(made), "the stream is made: servers that have just begun take their time")
        for one in messages:
            append(made, one, one.sequence - 1)
        return made

    def put(self, message: StreamMessage) -> None:
        append(self.engine, message, self.engine.state().last)

    def stream(self) -> Sequence[StreamMessage]:
        found: list[StreamMessage] = []
        while more := self.engine.read(len(found), 10.0):
            found += more
        return found

    def close(self) -> None:
        super().close()
        for one in self.engines.values():
            one.close()
