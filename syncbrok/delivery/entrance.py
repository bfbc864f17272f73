"""How a message comes into the books: its row, its edges, its first state."""

from array import array
from collections.abc import Iterable

from syncbrok.delivery.books import DUE, EXPIRES, Books, QueueBook
from syncbrok.delivery.cursor import TriedState
from syncbrok.delivery.gates import Gates
from syncbrok.delivery.ledger import HAS_DEAD, HAS_EXPIRED, KEY_EDGE, ONLY, PER_SUBSCRIBER, POLICY_SHIFT, SAME
from syncbrok.delivery.lifecycle import MessageEvent, MessageState
from syncbrok.model.facts import Carried, Outcome, Published, PublishedRun, Reason
from syncbrok.model.message import Scope
from syncbrok.model.names import MessageId, sequence_of


class Entrance:
    """Takes in messages as they are accepted, and those that retention carries along."""

    def __init__(self, books: Books, gates: Gates) -> None:
        self._books = books
        self._gates = gates
        self._open_before: tuple[tuple[MessageId, ...], tuple[int, ...]] = ((), ())
        """parents of the last message of ``published_all``, and which of them were not complete"""

    def published(self, fact: Published) -> None:
        self._open_before = ((), ())
        self._published(fact)

    def _published(self, fact: Published) -> None:
        book = self._books.queues.get(fact.queue)
        ledger = self._books.ledger
        sequence = fact.sequence
        if book is None or (sequence <= ledger.newest and ledger.knows(sequence)):
            return
        cursors = book.cursors
        book.accepted += 1
        book.last_sequence = sequence
        if fact.parents or fact.key or fact.due_us or fact.expires_us or fact.only:
            left = 1 if fact.only else len(cursors)
            self._enter(fact, book, left)
        elif cursors:
            book.waiting += 1
            ledger.accept(sequence, fact.queue, 0, len(cursors), MessageEvent.RELEASED, ())
        else:
            ledger.pass_by(sequence)
        if cursors:
            book.backlog.sequences.append(sequence)
            self._books.one_more(cursors)

    def published_all(self, facts: Iterable[Published]) -> None:
        """As ``published`` for each, in order. Plain messages, each to another of many queues, are most of what comes
        one by one, and none of them costs more than two calls."""
        queues, ledger, one_more = self._books.queues, self._books.ledger, self._books.one_more
        self._open_before = ((), ())
        # Queues of plain messages up to before ``following`` whose rows are still to be made.
        neighbours: list[int] = []
        left: list[int] = []
        following = ledger.newest + 1
        for fact in facts:
            sequence, number = fact[0], fact[3]
            book = queues.get(number)
            if (
                book is None
                or not book.cursors
                or sequence < following
                or (fact.parents or fact.key or fact.due_us or fact.expires_us or fact.only)
            ):
                self._accept_neighbours(neighbours, left, following)
                self._published(fact)
                following = ledger.newest + 1
                continue
            if sequence > following:
                self._accept_neighbours(neighbours, left, following)
            following = sequence + 1
            cursors = book.cursors
            book.accepted += 1
            book.waiting += 1
            book.last_sequence = sequence
            book.backlog.sequences.append(sequence)
            neighbours.append(number)
            left.append(len(cursors))
            one_more(cursors)
        self._accept_neighbours(neighbours, left, following)

    def _accept_neighbours(self, queues: list[int], left: list[int], following: int) -> None:
        """The rows of plain messages up to before ``following``; the lists are emptied."""
        if queues:
            self._books.ledger.accept_run(following - len(queues), array("I", queues), array("H", left))
            queues.clear()
            left.clear()

    def published_run(self, run: PublishedRun) -> None:
        """As ``published`` for each message of the run, in order."""
        book = self._books.queues.get(run.queue)
        ledger = self._books.ledger
        if book is None:
            return
        if run.sequence <= ledger.newest:  # recovery may tell what is known, in whole or in part
            for message in run.messages():
                self.published(message)
            return
        cursors, count = book.cursors, run.size
        book.accepted += count
        book.last_sequence = run.last
        if not cursors:
            ledger.pass_by(run.last)
            return
        book.waiting += count
        ledger.accept_run(run.sequence, array("I", (run.queue,)) * count, array("H", (len(cursors),)) * count)
        book.backlog.extend(run.sequence, count)
        self._books.one_more(cursors)

    def _enter(self, fact: Published, book: QueueBook, left: int, *, carried: bool = False) -> None:
        """A row for a message that is not plain: with parents, a key, a time, or for one subscriber alone. ``carried``:
        it had not ended when its record went."""
        ledger = self._books.ledger
        edges, flags = self._edges(fact, has_key=bool(fact.key and left))
        if left == 0:
            flags &= ~SAME  # with no subscriber to judge a parent at, it is judged by all, or a chain would break here
        if fact.only:
            flags |= ONLY
            ledger.only[fact.sequence] = fact.only
        event, reason = self._gates.judge(fact.queue, flags, edges)
        dies = event is MessageEvent.ENDED_DEAD
        if dies:
            event = MessageEvent.BLOCKED
        if fact.due_us:  # whether it is over the clock alone says, never the record's time (RULES 25)
            event = MessageEvent.DELAYED
            self._books.wheel.add(fact.due_us, DUE, fact.sequence)
        book.waiting += 1
        ledger.accept(fact.sequence, fact.queue, flags, left, event, edges)
        if fact.expires_us:
            self._books.wake_at(fact.expires_us, EXPIRES, fact.sequence)
        if dies:
            self._gates.doom(fact.sequence, Outcome.DEAD, reason)
        elif event is MessageEvent.PARENT_BAD:
            self._gates.hold(fact.sequence)
        elif event is MessageEvent.RELEASED and left == 0:
            if edges or carried:
                # By a row, as where its parents end later: recovery may know already of a parent that had not ended
                # when this was published or carried, and by the row that is still to come this one was cancelled.
                self._gates.doom(fact.sequence, Outcome.SKIPPED, Reason.NONE)
            else:
                self._gates.end(fact.sequence, MessageEvent.SKIPPED)
        else:
            self._gates.wait_on_ended(fact.sequence)

    def _edges(self, fact: Published, *, has_key: bool) -> tuple[tuple[int, ...], int]:
        """Parents that are not complete, and the chain of its key; the flags that go with them. (A message that nobody
        gets keeps no other of its key back.)"""
        ledger = self._books.ledger
        flags = int(fact.parent_failure) << POLICY_SHIFT | (SAME if fact.scope is Scope.SAME else 0)
        edges = self._open_parents(fact.parents)
        if flags & SAME and any(ledger.queue(parent) == fact.queue for parent in edges):
            flags |= PER_SUBSCRIBER
        if has_key:
            chain = self._books.keys.add(fact.queue, fact.key, fact.sequence)
            if chain:
                edges += (chain | KEY_EDGE,)
                flags |= PER_SUBSCRIBER
        return edges, flags

    def _open_parents(self, parents: tuple[MessageId, ...]) -> tuple[int, ...]:
        """Those that are not complete. Lines of a batch often have all parents in common, so the next one looks only
        at those that were open for the one before: what is complete stays so while messages are published."""
        state, before = self._books.ledger.state, self._open_before
        known = before[1]
        if parents != before[0]:
            known = tuple(dict.fromkeys([sequence_of(parent) for parent in parents]))
        found = tuple([parent for parent in known if state(parent) is not MessageState.COMPLETE])
        self._open_before = (parents, found)
        return found

    def carried(self, fact: Carried) -> None:
        """A message whose own record is gone: its row as it stood. Known already while the record was there."""
        message = fact.message
        book = self._books.queues.get(message.queue)
        if book is None or self._books.ledger.knows(message.sequence):
            return
        self._open_before = ((), ())
        ended = dict(fact.ended)
        counted = [
            cursor
            for cursor in book.cursors
            if cursor.counts(message.sequence) and message.only in (0, cursor.subscriber.number)
        ]
        open_at = [cursor for cursor in counted if cursor.subscriber.number not in ended]
        # A delay that is over is so as soon as the scheduler is told the time.
        self._enter(message, book, len(open_at), carried=True)
        for cursor in counted:
            cursor.remember(message.sequence)
        for cursor in open_at:
            cursor.block(message.sequence)
        for number, outcome in fact.ended:
            self._ended_before(message.sequence, number, outcome, book)
        for tried in fact.tried:
            cursor_tried = self._books.cursors.get(tried.subscriber)
            if cursor_tried is not None and tried.subscriber not in ended:
                self._books.try_again(cursor_tried, message.sequence, TriedState(tried.attempts, tried.due_us))
        if self._books.ledger.state(message.sequence) is MessageState.PENDING:
            self._gates.released(message.sequence)

    def _ended_before(self, sequence: int, number: int, outcome: Outcome, book: QueueBook) -> None:
        """A delivery of a carried message had ended. Where its row is still in the log, that says why."""
        if outcome is Outcome.EXPIRED:
            self._books.ledger.mark(sequence, HAS_EXPIRED)
        elif outcome is Outcome.DEAD:
            self._books.ledger.mark(sequence, HAS_DEAD)
            cursor = self._books.cursors.get(number)
            if cursor is not None:
                cursor.dead[sequence] = Reason.NONE
                book.dead += 1
