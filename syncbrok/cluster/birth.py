"""Makes the stream of a space and its first message: on purpose, and once. Nothing else invents a log."""

from syncbrok.cluster.engine import Engine, EngineUnfit, Fate
from syncbrok.cluster.stream_messages import StreamKind, StreamMessage, log_name
from syncbrok.model.journal import LogIdentity

_TRY_S = 10.0


def give_birth(engine: Engine, identity: LogIdentity, generation: int, name: str, through: int = 0) -> None:
    """Make the stream and write that it is this log's, made anew for the ``generation``-th time. ``name`` names this
    append and no other. ``through``: a log that there is will be put in, up to this record of it; nobody leads before
    it has that. Raises ``EngineUnfit`` where the stream is there already and holds anything but this very
    birth, and ``OSError`` where the engine does not answer: then asking again is safe."""
    engine.make_stream()
    birth = StreamMessage(StreamKind.BIRTH, 0, name, last=through, log=log_name(identity), generation=generation)
    fate, _ = engine.try_append(birth, 0, _TRY_S)
    if fate is Fate.STORED:
        return
    found = engine.from_leader(1)
    if found is None:
        raise OSError("the engine did not answer whether the birth of the log is stored; ask again")
    if found.n != name:
        raise EngineUnfit(f"the stream {engine.stream} holds a log already: nothing was changed")
