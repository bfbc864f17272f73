"""A receiver's memory of what it has applied, in its own database and in its own transactions.

    inbox = Inbox(connection, "billing")
    with inbox.apply(request.headers) as new:
        if new:
            connection.execute("insert into payment values (?)", (amount,))

What is applied and that it was applied are durable together or not at all. So a message that comes again after a crash
is applied once, and an answer of 2xx after the block is the truth. ``connection`` is one of ``sqlite3`` or of psycopg 3
(PostgreSQL); workers may share a database, each with a connection of its own.

Each delivery says which message had been delivered here before it (``syncbrok-previous``), and up to where all has
ended (``syncbrok-complete-through``): RULES 24. What the broker has delivered and this inbox does not hold is a gap:
the database was restored from a backup, for instance. The first of the two names some of them at once. It cannot name
one that came through at a late retry, behind a later message: ``compare`` with the broker's list finds those.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from syncbrok.client.received import Received
from syncbrok.client.webhooks import Headers

_DELIVERED: Final = "delivered"
_TABLES: Final = (
    """create table if not exists syncbrok_inbox
    (stream text not null, sequence bigint not null, primary key (stream, sequence))""",
    """create table if not exists syncbrok_gap
    (stream text not null, sequence bigint not null, primary key (stream, sequence))""",
    # nothing up to ``base`` is missed; up to ``checked`` all has been compared
    """create table if not exists syncbrok_stream
    (stream text primary key, base bigint not null, checked bigint not null)""",
)


class Database(Protocol):
    """The part of a database connection that is used: ``sqlite3`` and psycopg 3 have it."""

    def execute(self, statement: str, values: Any = (), /) -> Any: ...


class Inbox:
    """The inbox of one subscriber, or of one group. ``stream`` names it where several share a database. Used by one
    thread at a time, as its connection is."""

    def __init__(self, connection: Database, stream: str) -> None:
        """Makes its three tables where they are not there."""
        self._connection = connection
        self._stream = stream
        self._is_sqlite = isinstance(connection, sqlite3.Connection)
        self._through = 0
        with self._transaction():
            for table in _TABLES:
                connection.execute(table)

    @contextmanager
    def apply(self, message: Headers | Received) -> Iterator[bool]:
        """Give whether the message is new, and note it as applied when the block ends. ``message``: the headers of the
        request, or a message that was pulled.

        Within a transaction of the caller's that is durable with it; without one the block is one. An exception in the
        block undoes all of the block, the note too, and goes on. Raises ``ValueError`` where a header is missing or is
        not a number."""
        sequence, previous, through, is_replay = _place(message)
        with self._transaction():
            # Writes first: another worker with the same message waits here for this one.
            noted = self._execute(
                "insert into syncbrok_inbox values (?, ?) on conflict do nothing", self._stream, sequence
            )
            self._execute("delete from syncbrok_gap where stream = ? and sequence = ?", self._stream, sequence)
            if not is_replay:
                self._look_before(previous, through)
            yield noted.rowcount == 1
        self._through = max(self._through, through)

    def gaps(self) -> list[int]:
        """The sequences that the broker had delivered here and that were not applied, in order. One that is applied
        later is none any more: recovering that range with ``"state": "all"`` sends it again."""
        asked = "select sequence from syncbrok_gap where stream = ? order by sequence"
        return [row[0] for row in self._execute(asked, self._stream)]

    def uncompared(self) -> tuple[int, int] | None:
        """(after, through): what to ask ``Client.deliveries`` for and to give to ``compare``; None where nothing more
        has ended, as far as this object was told."""
        row = self._execute("select checked from syncbrok_stream where stream = ?", self._stream).fetchone()
        return (row[0], self._through) if row is not None and row[0] < self._through else None

    def compare(self, through: int, deliveries: Iterable[Mapping[str, Any]]) -> list[int]:
        """Note as gaps what the broker has delivered up to ``through`` and is not here; those, in order.
        ``deliveries``: what ``uncompared`` asks for, each with ``sequence`` and ``state``."""
        delivered = sorted(int(one["sequence"]) for one in deliveries if one["state"] == _DELIVERED)
        with self._transaction():
            found = [
                one
                for one in delivered
                if one <= through
                and not self._execute(
                    "select 1 from syncbrok_inbox where stream = ? and sequence = ?", self._stream, one
                ).fetchone()
            ]
            for one in found:
                self._execute("insert into syncbrok_gap values (?, ?) on conflict do nothing", self._stream, one)
            self._execute(
                "update syncbrok_stream set checked = ? where stream = ? and checked < ?",
                *(through, self._stream, through),
            )
        return found

    def forget(self, through: int) -> int:
        """Forget what was applied up to this sequence; how many that were. One of them that is sent again would be new:
        forget only what no replay will send any more, because the broker's retention is over, for instance."""
        with self._transaction():
            self._execute(
                "update syncbrok_stream set base = ? where stream = ? and base < ?", through, self._stream, through
            )
            gone = self._execute(
                "delete from syncbrok_inbox where stream = ? and sequence <= ?", self._stream, through
            ).rowcount
        return int(gone)

    def _look_before(self, previous: int, through: int) -> None:
        """Note a gap, unless it lies before the first message ever seen: an inbox may begin late."""
        base = max(previous, through)
        self._execute("insert into syncbrok_stream values (?, ?, ?) on conflict do nothing", self._stream, base, base)
        if previous:
            self._execute(
                "insert into syncbrok_gap select stream, ? from syncbrok_stream where stream = ? and base < ? and not"
                " exists (select 1 from syncbrok_inbox where stream = ? and sequence = ?) on conflict do nothing",
                *(previous, self._stream, previous, self._stream, previous),
            )

    def _execute(self, statement: str, *values: object) -> Any:
        return self._connection.execute(statement if self._is_sqlite else statement.replace("?", "%s"), values)

    def _transaction(self) -> AbstractContextManager[Any]:
        """A transaction, or a part of the one that is open, which alone is undone by an exception."""
        if self._is_sqlite:
            return _savepoint(self._connection)
        nested: AbstractContextManager[Any] = self._connection.transaction()  # type: ignore[attr-defined]
        return nested


@contextmanager
def _savepoint(connection: Database) -> Iterator[None]:
    connection.execute("savepoint syncbrok_inbox")  # outside of a transaction it begins one, and its release commits
    try:
        yield
    except BaseException:
        connection.execute("rollback to syncbrok_inbox")
        connection.execute("release syncbrok_inbox")
        raise
    connection.execute("release syncbrok_inbox")


def _place(message: Headers | Received) -> tuple[int, int, int, bool]:
    """(sequence, previous, complete through, whether a replay sent it); 0 for what is not known."""
    if isinstance(message, Received):
        return message.sequence, message.previous, message.complete_through, message.replay > 0
    found = {name.lower(): value for name, value in message.items()}
    if "syncbrok-sequence" not in found:
        raise ValueError("the request has no header syncbrok-sequence: is the subscriber's format raw?")
    numbers = [_number(found, f"syncbrok-{name}") for name in ("sequence", "previous", "complete-through")]
    return numbers[0], numbers[1], numbers[2], "syncbrok-replay" in found


def _number(headers: dict[str, str], name: str) -> int:
    text = headers.get(name, "0")
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"header {name} is not a number: {text[:40]!r}")
    return int(text)
