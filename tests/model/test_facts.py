"""Messages as columns: in pieces they are the same messages."""

from hypothesis import given
from hypothesis import strategies as st

from syncbrok.model.facts import PARENTS_TOGETHER, Attributes, Extras, Messages
from syncbrok.model.message import ParentFailure, Scope
from syncbrok.model.names import MessageId

PLAIN = Attributes(1, Scope.ALL, ParentFailure.FAIL, "")


def named(counts: list[int]) -> Messages:
    """Messages of which each names so many parents."""
    size = len(counts)
    extras = {
        at: Extras(1, 1, tuple(MessageId(bytes(16)) for _ in range(count))) for at, count in enumerate(counts) if count
    }
    ids = b"".join(number.to_bytes(16) for number in range(size))
    return Messages(7, 0, ids, [(size, PLAIN)], [b"%d" % number for number in range(size)], extras)


@given(st.lists(st.sampled_from((0, 1, 64, 500, PARENTS_TOGETHER, 3_000)), min_size=1, max_size=150))
def test_pieces_have_few_messages_and_few_parents(counts: list[int]) -> None:
    """DESIGN 1, bounded: a turn of the loop takes a piece. 64 messages with 64 parents each took 50 ms of it."""
    whole = named(counts)
    pieces = list(whole.parts(64))
    assert [one for piece in pieces for one in piece.messages()] == list(whole.messages())
    for piece in pieces:
        assert 0 < piece.size <= 64
        assert piece.parents <= PARENTS_TOGETHER or piece.size == 1
    assert sum(piece.parents for piece in pieces) == whole.parents == sum(counts)
