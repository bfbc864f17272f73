"""What stands in the stream is read as it was written; a batch in pieces is whole or was never there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncbrok.cluster.stream_messages import (
    PIECE_BYTES,
    AppendNames,
    NotOurs,
    PieceBuffer,
    StreamKind,
    StreamMessage,
    headers_of,
    message_of,
    pieces_of,
)

NUMBERS = st.integers(0, 1 << 62)
TEXTS = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30)
MESSAGES = st.builds(
    StreamMessage,
    st.sampled_from(StreamKind),
    NUMBERS,
    TEXTS.filter(bool),
    st.binary(max_size=100),
    first=NUMBERS,
    last=NUMBERS,
    batch=NUMBERS,
    piece=st.just(1),
    pieces=st.just(1),
    node=TEXTS,
    url=TEXTS,
    log=TEXTS,
    generation=NUMBERS,
    sequence=NUMBERS,
)


@given(MESSAGES)
def test_a_message_is_read_as_it_was_written(message: StreamMessage) -> None:
    """Headers and body."""
    assert message_of(headers_of(message), message.body, message.sequence) == message


@pytest.mark.parametrize(
    "headers", [None, {}, {"Sb-StreamKind": "other", "Sb-Epoch": "1", "Sb-N": "a.b.1"}, {"Sb-StreamKind": "beat"}]
)
def test_what_nobody_of_ours_wrote_is_told(headers: dict[str, str] | None) -> None:
    """Only Syncbrok may write to its stream: the place is named."""
    with pytest.raises(NotOurs, match="message 7 of the stream"):
        message_of(headers, b"", 7)


def test_a_long_batch_goes_in_pieces_and_comes_whole() -> None:
    """Pieces of 4 MiB, only the last one says where the batch ends."""
    body = bytes(range(256)) * (PIECE_BYTES // 128)
    batch = StreamMessage(StreamKind.BATCH, 3, "", body + b"end", first=10, last=20, batch=4)
    sent = pieces_of(batch, AppendNames("a", "r"))
    assert [(one.piece, one.pieces, one.last) for one in sent] == [(1, 3, 0), (2, 3, 0), (3, 3, 20)]
    assert len({one.n for one in sent}) == 3
    pieces = PieceBuffer()
    assert [pieces.add(one) for one in sent[:2]] == [None, None]
    whole = pieces.add(sent[2])
    assert whole is not None
    assert whole._replace(n="") == batch


def test_a_claim_between_pieces_voids_them() -> None:
    """A writer that died between two pieces has appended nothing; the next leader's batch is whole."""
    batch = StreamMessage(StreamKind.BATCH, 3, "", bytes(PIECE_BYTES + 1), first=10, last=20, batch=4)
    dead = pieces_of(batch, AppendNames("a", "r"))
    mine = pieces_of(batch._replace(epoch=9, last=12), AppendNames("b", "r"))
    pieces = PieceBuffer()
    assert pieces.add(dead[0]) is None
    assert pieces.add(StreamMessage(StreamKind.CLAIM, 9, "b.r.0")) is not None
    assert pieces.add(mine[0]) is None
    whole = pieces.add(mine[1])
    assert whole is not None
    assert (whole.epoch, whole.last) == (9, 12)
    pieces.add(dead[0])
    with pytest.raises(NotOurs, match="follows none"):
        pieces.add(mine[1])
