"""A subscriber that starts in the past: what came before it, told from the log, takes its place in the cursor. Pure."""

from syncbrok.delivery.books import Books
from syncbrok.delivery.cursor import Cursor
from syncbrok.delivery.gates import Gates
from syncbrok.delivery.ledger import ONLY
from syncbrok.delivery.lifecycle import MessageState
from syncbrok.model.facts import Reason


class CatchingUp:
    """Messages from before a subscriber's time, and those of its that wait for one another there."""

    def __init__(self, books: Books, gates: Gates) -> None:
        self._books = books
        self._gates = gates

    def take_up(self, cursor: Cursor, sequence: int, parents: tuple[int, ...]) -> None:
        """A message from before the subscriber's time: it goes when it could go to anybody, after its parents here.

        Messages that nobody was to get any more (cancelled, expired, dead of a parent) are passed by.
        """
        if cursor.history_taken and cursor.history_taken.discard(sequence):
            return
        ledger = self._books.ledger
        bad = ledger.bad.get(sequence)
        if bad is not None and (bad.state is not MessageState.DEAD or bad.reason is Reason.PARENT_FAILED):
            return
        state = ledger.state(sequence)
        if ledger.flags(sequence) & ONLY:
            return
        waits_here = [parent for parent in parents if not cursor.finished(parent)]
        if waits_here:
            cursor.behind.setdefault(waits_here[-1], []).append((sequence, parents))
            cursor.parked.add(sequence)
        elif state < MessageState.COMPLETE and (
            state is not MessageState.PENDING or not self._gates.open_at(sequence, cursor)
        ):
            cursor.parked.add(sequence)
        else:
            cursor.ready.add(sequence)

    def ended(self, cursor: Cursor, sequence: int) -> None:
        """A message has ended at a subscriber that catches up: those behind it there may be next."""
        for child, parents in cursor.behind.pop(sequence, ()):
            if cursor.parked.discard(child):
                self.take_up(cursor, child, parents)
        self._books.activate(cursor)
