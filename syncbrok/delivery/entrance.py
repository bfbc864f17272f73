"""How a message comes into the books: its row, its edges, its first state."""

from array import array

from syncbrok.delivery.books import DUE, EXPIRES, Books, QueueBook
from syncbrok.delivery.cursor import TriedState
from syncbrok.delivery.gates import Gates
from syncbrok.delivery.ledger import HAS_DEAD, HAS_EXPIRED, KEY_EDGE, ONLY, PER_SUBSCRIBER, POLICY_SHIFT, SAME
from syncbrok.delivery.lifecycle import MessageEvent, MessageState
from syncbrok.model.facts import Attributes, Carried, Extras, Messages, Outcome, Reason
from syncbrok.model.message import Scope
from syncbrok.model.names import MessageId, sequence_of


class Entrance:
    """Takes in messages as they are accepted, and those that retention carries along."""

    def __init__(self, books: Books, gates: Gates) -> None:
        self._books = books
        self._gates = gates
        self._queues, self._left = array("I"), array("H")
        """rows of messages without extras that are still to be made: they end before the next message looked at"""
        self._open_before: tuple[tuple[MessageId, ...], tuple[int, ...]] = ((), ())
        """parents of the last message that had any, and which of them were not complete"""

    def published(self, messages: Messages) -> None:
        """Messages that are durable, in order."""
        self._open_before = ((), ())
        ledger = self._books.ledger
        if messages.sequence > ledger.newest:
            self._take_in(messages)
            return
        for one in messages.messages():  # recovery may tell what is known, in whole or in part
            if one.sequence > ledger.newest or not ledger.knows(one.sequence):
                self._take_in(Messages.of(one))

    def _take_in(self, messages: Messages) -> None:
        first, extras = messages.sequence, messages.extras
        queues, following = self._books.queues, first
        for end, attributes in messages.stretches:
            start, following = following, first + end
            book = queues.get(attributes.queue)
            if book is None:
                self._make_rows(start)
                continue
            cursors, count = book.cursors, following - start
            book.accepted += count
            book.last_sequence = following - 1
            done = start
            for sequence in range(start, following) if extras else ():
                more = extras.get(sequence - first)
                if more is not None and (more.parents or more.key or more.due_us or more.expires_us or more.only):
                    if done < sequence:
                        self._add_rows(book, done, sequence - done)
                    self._make_rows(sequence)
                    self._enter(sequence, attributes, more, book, 1 if more.only else len(cursors))
                    done = sequence + 1
            if done < following:
                self._add_rows(book, done, following - done)
            if cursors:
                if count == 1:
                    book.backlog.sequences.append(start)
                else:
                    book.backlog.extend(start, count)
                self._books.one_more(cursors)
        self._make_rows(following)

    def _add_rows(self, book: QueueBook, first: int, count: int) -> None:
        """Rows for messages without extras. (What has no subscriber needs none: it is complete.)"""
        if not book.cursors:
            self._make_rows(first)
            self._books.ledger.pass_by(first + count - 1)
            return
        book.waiting += count
        number, left = book.queue.number, len(book.cursors)
        if count == 1:
            self._queues.append(number)
            self._left.append(left)
        else:
            self._queues.extend(array("I", (number,)) * count)
            self._left.extend(array("H", (left,)) * count)

    def _make_rows(self, following: int) -> None:
        """Those that are still to be made, up to before ``following``."""
        queues, left = self._queues, self._left
        if not queues:
            return
        ledger, first = self._books.ledger, following - len(queues)
        if first > ledger.newest:
            ledger.accept_run(first, queues, left)
        else:
            ledger.accept(first, queues[0], 0, left[0], MessageEvent.RELEASED, ())
        self._queues, self._left = array("I"), array("H")

    def _enter(
        self,
        sequence: int,
        attributes: Attributes,
        extras: Extras,
        book: QueueBook,
        left: int,
        *,
        carried: bool = False,
    ) -> None:
        """A row for a message with parents, a key, a time, or for one subscriber alone. ``carried``: it had not ended
        when its record went."""
        ledger, queue = self._books.ledger, attributes.queue
        edges, flags = self._edges(sequence, attributes, extras, has_key=bool(extras.key and left))
        if left == 0:
            flags &= ~SAME  # with no subscriber to judge a parent at, it is judged by all, or a chain would break here
        if extras.only:
            flags |= ONLY
            ledger.only[sequence] = extras.only
        event, reason = self._gates.judge(queue, flags, edges)
        dies = event is MessageEvent.ENDED_DEAD
        if dies:
            event = MessageEvent.BLOCKED
        if extras.due_us:  # whether it is over the clock alone says, never the record's time (RULES 25)
            event = MessageEvent.DELAYED
            self._books.wheel.add(extras.due_us, DUE, sequence)
        book.waiting += 1
        ledger.accept(sequence, queue, flags, left, event, edges)
        if extras.expires_us:
            self._books.wake_at(extras.expires_us, EXPIRES, sequence)
        if dies:
            self._gates.doom(sequence, Outcome.DEAD, reason)
        elif event is MessageEvent.PARENT_BAD:
            self._gates.hold(sequence)
        elif event is MessageEvent.RELEASED and left == 0:
            if edges or carried:
                # By a row, as where its parents end later: recovery may know already of a parent that had not ended
                # when this was published or carried, and by the row that is still to come this one was cancelled.
                self._gates.doom(sequence, Outcome.SKIPPED, Reason.NONE)
            else:
                self._gates.end(sequence, MessageEvent.SKIPPED)
        else:
            self._gates.wait_on_ended(sequence)

    def _edges(
        self, sequence: int, attributes: Attributes, extras: Extras, *, has_key: bool
    ) -> tuple[tuple[int, ...], int]:
        """Parents that are not complete, and the chain of its key; the flags that go with them. (A message that nobody
        gets keeps no other of its key back.)"""
        ledger = self._books.ledger
        flags = int(attributes.parent_failure) << POLICY_SHIFT | (SAME if attributes.scope is Scope.SAME else 0)
        edges = self._open_parents(extras.parents)
        if flags & SAME and any(ledger.queue(parent) == attributes.queue for parent in edges):
            flags |= PER_SUBSCRIBER
        if has_key:
            chain = self._books.keys.add(attributes.queue, extras.key, sequence)
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
        one = Messages.of(message)
        self._enter(message.sequence, one.attributes_at(0), one.extras_at(0), book, len(open_at), carried=True)
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
            self._gates.opened(message.sequence)

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
