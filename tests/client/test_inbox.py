"""An inbox applies each message once and says what is missing, over crashes and with transactions of the caller's, in
SQLite and in PostgreSQL."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from syncbrok.client import Inbox
from syncbrok.client.received import received
from tests.support.postgres import postgres

Connect = Callable[[], Any]
OPEN = {"content": "", "headers": {}, "key": None, "content_type": None, "parents": [], "id": "a", "queue": "q"}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a real server, for all tests of this file."""
    with postgres(tmp_path_factory.mktemp("inbox")) as uri:
        yield uri


@pytest.fixture(params=["sqlite", "postgres"])
def connect(request: pytest.FixtureRequest, tmp_path: Path, uri: str) -> Iterator[Connect]:
    """Opens a connection to an empty database; in another way after each is closed."""
    if request.param == "sqlite":
        yield lambda: sqlite3.connect(tmp_path / "events.db")
        return
    with psycopg.connect(uri, autocommit=True) as admin:
        admin.execute("drop schema public cascade")
        admin.execute("create schema public")
    yield lambda: psycopg.connect(uri)


def _headers(sequence: int, previous: int | None = None, through: int | None = None) -> dict[str, str]:
    named = {"Syncbrok-Sequence": sequence, "Syncbrok-Previous": previous, "Syncbrok-Complete-Through": through}
    return {name: str(value) for name, value in named.items() if value is not None}


def _receive(connection: Any, sequence: int, previous: int | None = None, through: int | None = None) -> bool:
    """Receive it as a receiver does, in a transaction of the inbox; whether it was new."""
    with Inbox(connection, "billing").apply(_headers(sequence, previous, through)) as new:
        if new:
            connection.execute(f"insert into applied values ({sequence})")
    return new


def _made(connection: Any) -> Any:
    connection.execute("create table if not exists applied (sequence integer)")
    connection.commit()
    return connection


def _fail_behind(_applied: object) -> None:
    raise RuntimeError


def _applied(connection: Any) -> list[int]:
    return [row[0] for row in connection.execute("select sequence from applied order by sequence").fetchall()]


def test_a_duplicate_is_dropped_also_by_another_connection(connect: Connect) -> None:
    """What was applied is durable when the block ends, and is not new a second time."""
    with closing(_made(connect())) as first:
        assert _receive(first, 7)
        with closing(connect()) as other:
            assert not _receive(other, 7)
            assert _applied(other) == [7]


def test_an_exception_undoes_the_note_and_what_was_applied(connect: Connect) -> None:
    """A message whose work failed comes again as new, even where the caller goes on and commits its transaction."""
    with closing(_made(connect())) as connection:
        connection.execute("insert into applied values (1)")  # a transaction of the caller's is open
        inbox = Inbox(connection, "billing")
        with pytest.raises(RuntimeError), inbox.apply(_headers(7)):
            _fail_behind(connection.execute("insert into applied values (7)"))
        connection.commit()
        assert _applied(connection) == [1]
        assert _receive(connection, 7)


def test_it_shares_the_callers_transaction(connect: Connect) -> None:
    """Where the caller rolls back, the message was not applied and is new again."""
    with closing(_made(connect())) as connection:
        Inbox(connection, "billing")
        connection.commit()
        connection.execute("insert into applied values (1)")
        assert _receive(connection, 7)
        connection.rollback()
        assert _applied(connection) == []
        assert _receive(connection, 7)


def test_a_gap_is_told_until_it_is_closed(connect: Connect) -> None:
    """What had been delivered here and is not here is named; what came before the inbox began is not."""
    with closing(_made(connect())) as connection:
        inbox = Inbox(connection, "billing")
        _receive(connection, 10, 9, 9)
        assert inbox.gaps() == []
        _receive(connection, 12, 11, 11)
        assert inbox.gaps() == [11]
        assert _receive(connection, 11, 10)
        assert inbox.gaps() == []


def test_the_list_shows_what_the_header_cannot(connect: Connect) -> None:
    """11 came through at a late retry, after 12, and was lost: ``previous`` of 13 is 12. The list of deliveries up to
    ``complete_through`` shows it, and each is compared once."""
    with closing(_made(connect())) as connection:
        inbox = Inbox(connection, "billing")
        assert inbox.uncompared() is None
        for of in ((10, None, 9), (12, 10, 10), (13, 12, 12)):
            with inbox.apply(_headers(*of)):
                pass
        assert inbox.gaps() == []
        assert inbox.uncompared() == (9, 12)
        listed = [{"sequence": one, "state": "delivered"} for one in (10, 11, 12)]
        assert inbox.compare(12, [*listed, {"sequence": 9, "state": "dead"}]) == [11]
        assert (inbox.gaps(), inbox.uncompared()) == ([11], None)


def test_a_replay_says_nothing_of_where_the_inbox_begins(connect: Connect) -> None:
    """An old message that an operator sends again to a new inbox does not make all that came between a gap."""
    with closing(_made(connect())) as connection:
        inbox = Inbox(connection, "billing")
        with inbox.apply(_headers(3) | {"Syncbrok-Replay": "1"}) as new:
            assert new
        _receive(connection, 10, 9, 9)
        assert inbox.gaps() == []


def test_subscribers_that_share_a_database_do_not_meet(connect: Connect) -> None:
    """Each stream has its own messages, gaps and beginning."""
    with closing(_made(connect())) as connection:
        _receive(connection, 7, 6)
        with Inbox(connection, "shipping").apply(_headers(7)) as new:
            assert new
        _receive(connection, 9, 8)
        assert (Inbox(connection, "billing").gaps(), Inbox(connection, "shipping").gaps()) == ([8], [])


def test_what_is_forgotten_is_no_gap(connect: Connect) -> None:
    """The inbox is bounded by whoever says up to where nothing comes again."""
    with closing(_made(connect())) as connection:
        for sequence in range(1, 6):
            _receive(connection, sequence, sequence - 1 or None)
        inbox = Inbox(connection, "billing")
        assert inbox.forget(4) == 4
        _receive(connection, 6, 4)
        assert not _receive(connection, 5, 4)
        assert inbox.gaps() == []


def test_a_message_that_was_pulled_is_applied_as_one_that_was_posted(connect: Connect) -> None:
    """A group's members share an inbox: the same numbers stand in the message."""
    with closing(_made(connect())) as connection:
        inbox = Inbox(connection, "group")
        for shown in ({"sequence": 5, "complete_through": 4}, {"sequence": 8, "previous": 7, "complete_through": 7}):
            with inbox.apply(received({**OPEN, "attempt": 1, **shown})) as new:
                assert new
        assert (inbox.gaps(), inbox.uncompared()) == ([7], (4, 7))


@pytest.mark.parametrize(
    "wrong", [{"syncbrok-sequence": "-1"}, {}, {"syncbrok-sequence": "1", "syncbrok-previous": "x"}]
)
def test_what_is_no_number_is_refused(connect: Connect, wrong: dict[str, str]) -> None:
    """A bad header changes nothing and says which it was."""
    with closing(_made(connect())) as connection:
        inbox = Inbox(connection, "billing")
        with pytest.raises(ValueError, match="syncbrok-"), inbox.apply(wrong):
            pass
        assert _receive(connection, 1)
