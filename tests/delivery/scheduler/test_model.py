"""The scheduler against the rules, over thousands of histories: random publishes, answers, crashes and checkpoints.

The oracle is ``OrderChecker``, which proves the promises from the facts alone and shares no code with the scheduler,
and a few sentences that can be said about the end of every history.
"""

from itertools import combinations

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from syncbrok.delivery.scheduler.cursor import Cursor
from syncbrok.delivery.scheduler.key_chains import KeyChain
from syncbrok.delivery.scheduler.lifecycle import MessageState
from syncbrok.log.offline.order import check
from syncbrok.model import limits
from syncbrok.model.facts import ALL_SUBSCRIBERS, Outcome, Outcomes, RearmedEntry, Reason
from syncbrok.model.message import ParentFailure, RetryPolicy, Scope
from syncbrok.model.names import sequence_of
from tests.support.delivery.confirmed import JudgedLog
from tests.support.delivery.factlog import BROKEN, OK, dead_letters, declared

queues = st.integers(1, 3)
picks = st.integers(0, 1_000)


class History(RuleBasedStateMachine):
    """Three queues, two to four subscribers, and whatever hypothesis thinks of."""

    def __init__(self) -> None:
        super().__init__()
        self.log = JudgedLog(RetryPolicy((5.0,), 0.0))
        for queue in (1, 2, 3):
            self.log.queue(queue, window=3)
        self.log.subscriber(1, 1)
        self.log.subscriber(2, 1)
        self.log.subscriber(3, 2)
        self.next_subscriber = 4
        self.replay = 0
        self.segments: list[int] = []

    @rule(
        queue=queues,
        parents=st.lists(picks, max_size=3),
        policy=st.sampled_from(ParentFailure),
        scope=st.sampled_from(Scope),
        key=st.sampled_from(["", "", "", "a", "b"]),
        delay_s=st.sampled_from([0, 0, 0, 3]),
        expires_s=st.sampled_from([0, 0, 0, 20]),
    )
    def publish(
        self,
        queue: int,
        parents: list[int],
        policy: ParentFailure,
        scope: Scope,
        key: str,
        delay_s: int,
        expires_s: int,
    ) -> None:
        known = [message.sequence for message in self.log.messages()]
        chosen = {known[pick % len(known)] for pick in parents} if known else set()
        self.log.publish(queue, *chosen, policy=policy, scope=scope, key=key, delay_s=delay_s, expires_s=expires_s)

    @rule(queue=queues, count=st.integers(1, 6))
    def publish_a_run(self, queue: int, count: int) -> None:
        self.log.publish_run(queue, count)

    @rule(limit=st.integers(1, 10))
    def take(self, limit: int) -> None:
        self.log.take(limit)

    @precondition(lambda self: self.log.out)
    @rule(pick=picks, well=st.sampled_from([True, True, False]))
    def answer(self, pick: int, well: bool) -> None:
        self.log.answer(self.log.out[pick % len(self.log.out)], OK if well else BROKEN)

    @rule()
    def commit(self) -> None:
        self.log.rows += self.log.scheduler.take_pending_ends(self.log.now_us, 100)
        self.log.commit()

    @rule(seconds=st.sampled_from([1, 4, 20]))
    def later(self, seconds: int) -> None:
        self.log.later(seconds)

    @rule()
    def crash(self) -> None:
        """Everything that is not durable is lost: answers, attempts that are out, rows asked for. How a message ended
        is not, wherever it is known from."""
        ended = self.log.scheduler.ended
        before = {sequence: state for sequence, state in self.log.states().items() if ended(sequence)}
        self.log.restart()
        after = self.log.states()
        assert {sequence: after[sequence] for sequence in before} == before

    @rule()
    def roll(self) -> None:
        self.segments.append(self.log.roll())

    @precondition(lambda self: self.segments)
    @rule(pick=picks)
    def drop_the_oldest(self, pick: int) -> None:
        """Retention; the next crash finds no checkpoint, the next but one may."""
        opened = self.segments[pick % len(self.segments)]
        self.log.drop_before(opened)
        self.segments = [one for one in self.segments if one > self.log.gone + 1]

    @rule(pick=picks)
    def crash_behind_a_checkpoint(self, pick: int) -> None:
        self.log.restart(through=self.log.gone + 1 + pick % (len(self.log.facts) - self.log.gone))

    @rule()
    def checkpoint_of_now(self) -> None:
        """A checkpoint of the running scheduler, with attempts out and rows under way, and a crash right after."""
        parts = self.log.scheduler.checkpoint()
        facts, self.log.rows, self.log.out = self.log.facts, [], []
        fresh = type(self.log.scheduler)()
        fresh.restore(parts, declared(facts))
        self.log.scheduler = fresh

    @precondition(lambda self: self.log.messages())
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        known = self.log.messages()
        sequence = known[pick % len(known)].sequence
        if not self.log.scheduler.ended(sequence):
            self.log.commit()
        if not self.log.scheduler.ended(sequence):
            self.log.end_all(sequence, Outcome.DROPPED, Reason.CANCELLED)

    @rule(queue=queues, key=st.sampled_from(["a", "b"]), policy=st.sampled_from(ParentFailure))
    def cancel_the_newest_of_a_key(self, queue: int, key: str, policy: ParentFailure) -> None:
        """One of a key ends early, and another comes behind it."""
        scheduler = self.log.scheduler
        waiting = [
            one.sequence
            for one in self.log.messages()
            if (one.queue, one.key) == (queue, key) and not scheduler.ended(one.sequence)
        ]
        if len(waiting) > 1:
            self.log.commit()
            if not scheduler.ended(waiting[-1]):
                self.log.end_all(waiting[-1], Outcome.DROPPED, Reason.CANCELLED)
        self.log.publish(queue, policy=policy, key=key)

    @invariant()
    def a_chain_holds_what_has_not_ended(self) -> None:
        """RULES 6: every message of a key that waits for somebody is in its chain, once and in order; nothing else."""
        keys = self.log.scheduler.state.keys
        chains = [chain for chain in keys.numbered.values() if isinstance(chain, KeyChain)]
        assert len(chains) == keys.several
        assert all(chain.waiting == len(keys.waiting(chain)) > 0 for chain in chains)
        alone = keys.numbered.keys() - {chain.number for chain in chains}
        waiting = [*alone, *(message for chain in chains for message in keys.waiting(chain))]
        has_key = {message.sequence for message in self.log.messages() if message.key}
        unended = self.log.scheduler.unended(None, None, 10_000)
        keyed = [message for message in unended if message in has_key and self.log.scheduler.state.table.left(message)]
        assert sorted(waiting) == keyed

    @rule(queue=queues, counts=st.booleans(), start=st.sampled_from([None, 1]))
    def subscribe(self, queue: int, counts: bool, start: int | None) -> None:
        if self.next_subscriber < 7:
            self.log.subscriber(self.next_subscriber, queue, counts=counts, start=None if counts else start)
            self.next_subscriber += 1

    @rule(pick=picks, counts=st.booleans())
    def count_otherwise(self, pick: int, counts: bool) -> None:
        """RULES 3: it counts from now on, or frees what waits only for it."""
        cursors = self.log.scheduler.state.cursors
        subscriber = cursors[sorted(cursors)[pick % len(cursors)]].subscriber
        if subscriber.settings.counts != counts:
            self.log.count_otherwise(subscriber.number)

    @rule(together=st.integers(1, 4))
    def feed(self, together: int) -> None:
        """A few messages out of the log, for whoever lags."""
        self.log.feed_once(together)

    @rule(pick=picks)
    def lag(self, pick: int) -> None:
        """RULES 14: one that does not count has more than it can take, and is told no more as it comes."""
        uncounted = [cursor for cursor in self.log.scheduler.state.cursors.values() if not cursor.is_counted]
        if uncounted:
            uncounted[pick % len(uncounted)].history_done = False

    @rule(pick=picks)
    def unsubscribe(self, pick: int) -> None:
        numbers = sorted(self.log.scheduler.state.cursors)
        if len(numbers) > 2:
            self.log.unsubscribe(numbers[pick % len(numbers)])

    @rule(pick=picks, paused=st.booleans())
    def pause(self, pick: int, paused: bool) -> None:
        cursors = self.log.scheduler.state.cursors
        subscriber = cursors[sorted(cursors)[pick % len(cursors)]].subscriber
        self.log.change(subscriber.number, paused=paused)

    @rule(pick=picks, cut=st.integers(0, 3), well=st.booleans())
    def replay_dead_letters(self, pick: int, cut: int, well: bool) -> None:
        """The first ``cut`` of them in a slice of their own, which is worked before the rest is written."""
        cursors = self.log.scheduler.state.cursors
        number = sorted(cursors)[pick % len(cursors)]
        dead = sorted(dead_letters(self.log.scheduler, number))
        if not dead:
            return
        self.replay += 1
        made = {fact.sequence: fact for fact in self.log.messages()}
        entries = []
        for sequence in dead:
            if not self.log.scheduler.ended(sequence) or not self.log.can_be_read(sequence):
                continue
            fact = made[sequence]
            above = [sequence_of(parent) for parent in fact.parents]
            parents = tuple(p for p in above if p in dead or not self.log.scheduler.ended(p))
            entries.append(
                RearmedEntry(
                    sequence, fact.queue, (number,), parents, (self.log.tries(sequence, number),), fact.parent_failure
                )
            )
        if entries[:cut]:
            self.log.rearm(self.replay, *entries[:cut])
            for _ in range(3):
                for attempt in self.log.take(10):
                    self.log.answer(attempt, OK if well else BROKEN)
                self.commit()
                self.log.later(6)
        if entries[cut:]:
            self.log.rearm(self.replay, *entries[cut:])

    @precondition(lambda self: self.log.messages())
    @rule(pick=picks, whom=st.lists(picks, min_size=1, max_size=2))
    def replay_one(self, pick: int, whom: list[int]) -> None:
        """Of any message that has ended, to some of those it counts, whether they have had it or not."""
        known = self.log.messages()
        fact = known[pick % len(known)]
        counted = self.log.scheduler.counted(fact.sequence)
        if not counted or not self.log.scheduler.ended(fact.sequence) or not self.log.can_be_read(fact.sequence):
            return
        self.replay += 1
        numbers = tuple(sorted({counted[one % len(counted)] for one in whom}))
        parents = tuple(p for p in map(sequence_of, fact.parents) if not self.log.scheduler.ended(p))
        attempts = tuple(self.log.tries(fact.sequence, number) for number in numbers)
        self.log.rearm(
            self.replay,
            RearmedEntry(fact.sequence, fact.queue, numbers, parents, attempts, fact.parent_failure),
        )

    @invariant()
    def windows_hold(self) -> None:
        """RULES 15: never more out than the window."""
        for cursor in self.log.scheduler.state.cursors.values():
            assert len(cursor.in_flight) <= cursor.window

    @invariant()
    def a_delivery_stands_in_one_place(self) -> None:
        """RULES 9: from that place its state follows, so two of them would be two states."""
        state = self.log.scheduler.state
        for cursor in state.cursors.values():
            for places in combinations((cursor.blocked, cursor.eligible, cursor.due), 2):
                assert not set(places[0]) & set(places[1])
            assert set(cursor.due) <= cursor.retrying.keys()
            assert not cursor.unconfirmed & cursor.in_flight.keys()
            # One that was out when its message was cancelled may be out still while a replay sends it anew.
            twice = cursor.in_flight.keys() & {*cursor.blocked, *cursor.eligible, *cursor.due}
            assert all(sequence in state.replays for sequence in twice), twice

    @invariant()
    def outcomes_under_way_are_counted(self) -> None:
        """RULES 24: attempts stop while too many outcomes are not durable; one that is counted for ever would be one
        step towards that."""
        state = self.log.scheduler.state
        assert state.unconfirmed == sum(len(cursor.unconfirmed) for cursor in state.cursors.values())

    @invariant()
    def the_books_count_right(self) -> None:
        """The number of messages waiting is the number of messages that have not ended."""
        state = self.log.scheduler.state
        assert state.table.open == len(self.log.scheduler.unended(None, None, 10_000))
        assert state.table.open == sum(queue_state.waiting for queue_state in state.queues.values())

    @invariant()
    def what_a_scrape_shows_is_kept_right(self) -> None:
        """RULES 20 and 21: dead letters and replays are counted where they change, not when somebody looks."""
        scheduler = self.log.scheduler
        for queue, queue_state in scheduler.state.queues.items():
            letters = 0
            for cursor in (*queue_state.cursors, *queue_state.uncounted):
                dead = scheduler.subscriber_statistics(cursor.number).dead_letters
                assert dead == len(dead_letters(scheduler, cursor.number))
                letters += dead
            shown = scheduler.queue_statistics(queue)
            assert shown.dead_letters == letters
            assert shown.waiting == queue_state.waiting + len(scheduler.replaying(queue))

    def _let_every_hold_end(self) -> None:
        """RULES 12: nothing stays on hold for ever, in a replay or not; one may wait for another's end."""
        for _ in self.log.messages():
            self.log.feed()
            if all(map(self.log.scheduler.ended, self.log.states())):
                break
            self.log.later(limits.retention_default_s)
            self.log.pump()
        assert all(map(self.log.scheduler.ended, self.log.states())), self.log.states()
        assert not check(self.log.facts)

    def _all_has_come_to_those_who_do_not_count(self) -> None:
        """RULES 14: each has been sent all that has completed since it is there, and waits for nobody any more."""
        table = self.log.scheduler.state.table
        for cursor in self.log.scheduler.state.cursors.values():
            if cursor.is_counted:
                continue
            assert cursor.history_done
            for one in self.log.messages():
                if (
                    one.queue != cursor.queue
                    or not cursor.backfill_covers(one.sequence)
                    or not self.log.can_be_read(one.sequence)
                ):
                    continue
                if self.log.scheduler.message_state(one.sequence) == "complete" and not self._waits_at(
                    one.sequence, cursor
                ):
                    assert cursor.finished(one.sequence), (cursor.number, one.sequence)
                    assert one.sequence not in cursor.passed
            waits = [one for one in cursor.blocked if not self._waits_at(one, cursor)]
            assert all(table.state(one) < MessageState.COMPLETE for one in waits), set(cursor.blocked)

    def _waits_at(self, sequence: int, cursor: Cursor) -> bool:
        """RULES 10, 12: all that a message counted are gone, so it is complete; who does not count gets it after its
        parent, which is on hold."""
        blocker = self.log.scheduler.blocked_at(sequence, cursor.number)
        return blocker is not None and not self.log.scheduler.ended(blocker.message)

    def teardown(self) -> None:
        """Whatever happened: the facts keep every promise, and once all is well everything ends."""
        self.log.commit()
        violations = check(self.log.facts)
        assert not violations, violations
        for cursor in list(self.log.scheduler.state.cursors.values()):
            if cursor.subscriber.settings.paused:
                self.log.change(cursor.subscriber.number, paused=False)
        for attempt in list(self.log.out):
            self.log.answer(attempt)
        for _ in range(8):
            self.log.feed()
            self.log.pump()
            self.log.later(30)
        self.log.feed()
        self.log.pump()
        violations = check(self.log.facts)
        assert not violations, violations
        left = self.log.scheduler.unended(None, None, 1_000)
        states = {self.log.scheduler.message_state(sequence) for sequence in left}
        assert states <= {"held", "waiting"}, self.log.states()
        assert not states or "held" in states, self.log.states()
        live = self.log.states()
        self._all_has_come_to_those_who_do_not_count()
        self.log.restart()
        self.log.feed()
        assert self.log.pump() == []
        assert self.log.states() == live
        self._let_every_hold_end()
        for _ in range(8):  # what ended last lets others go
            self.log.feed()
            self.log.pump()
            self.log.later(30)
        self._all_has_come_to_those_who_do_not_count()  # nothing waits for anybody any more
        assert not check(self.log.facts)
        assert not any(
            row.subscriber == ALL_SUBSCRIBERS and row.attempt
            for fact in self.log.facts
            if isinstance(fact, Outcomes)
            for row in fact.rows
        )


TestHistories = History.TestCase
TestHistories.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
