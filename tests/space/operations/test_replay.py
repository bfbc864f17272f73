"""What operators do with messages: dead letters, replay, cancel, purge (RULES 12, 20 to 22)."""

from pathlib import Path

import pytest

from syncbrok.model.errors import Conflict, Gone, UnknownMessage, UnknownQueue, UnknownSubscriber
from syncbrok.model.facts import Outcome
from syncbrok.model.message import Message, ParentFailure
from syncbrok.model.names import MessageId, QueueName, SubscriberId, id_text, make_message_id
from syncbrok.space.channels import Cancel, DeleteQueue, PurgeQueue, Replay, ReplayPlan
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, NEVER_AGAIN, REFUSED, Consumer, Running, running_space

Q = QueueName("q")


class Failing(Consumer):
    """Refuses what is in ``bad`` (contents)."""

    def __init__(self, *bad: bytes) -> None:
        super().__init__(lambda delivery: REFUSED if delivery.message.content in self.bad else ACKNOWLEDGED)
        self.bad = set(bad)


async def family(running: Running) -> dict[str, MessageId]:
    """A dead parent with a child and a grandchild in another queue that died through it, a child that was delivered
    all the same, and one on hold."""
    await running.queue("q", subscribers=["a"])
    await running.queue("other", subscribers=["b"])
    made = {"parent": await running.publish("q", b"parent")}
    made["child"] = await running.publish("q", b"child", made["parent"])
    made["grandchild"] = await running.publish("other", b"grandchild", made["child"])
    made["anyway"] = await running.publish("q", b"anyway", made["parent"], parent_failure=ParentFailure.DELIVER)
    made["held"] = await running.publish("q", b"held", made["parent"], parent_failure=ParentFailure.HOLD)
    await running.ended(*(made[name] for name in ("parent", "child", "grandchild", "anyway")))
    return made


def order(plan: ReplayPlan, made: dict[str, MessageId]) -> list[str]:
    names = {id_: name for name, id_ in made.items()}
    return [names[id_] for id_, _ in plan.order]


async def test_a_replay_rearms_what_failed_through_it_in_causal_order(tmp_path: Path):
    """RULES 21: the message and always the descendants that failed through it, in causal order; the same ids, attempt
    numbers go on, the replay's number is with each; a child on hold goes out when its parent is mended (RULES 12)."""
    consumer = Failing(b"parent")
    async with running_space(tmp_path, consumer) as running:
        made = await family(running)
        assert await running.states(*made.values()) == ["dead", "dead", "dead", "complete", "held"]
        dry = await running.put(Replay(id=made["parent"], descendants=False, dry_run=True))
        assert order(dry, made) == ["parent", "child", "grandchild"]
        assert (dry.number, dry.messages, dry.deliveries) == (0, 3, 3)
        consumer.bad.clear()
        consumer.seen.clear()
        plan = await running.put(Replay(id=made["parent"], descendants=False))
        assert plan._replace(number=0, job=0) == dry
        await running.ended(*made.values())
        assert await running.states(*made.values()) == ["complete"] * 5
        assert consumer.contents.index(b"parent") < consumer.contents.index(b"child")
        assert consumer.contents.index(b"child") < consumer.contents.index(b"grandchild")
        assert sorted(consumer.contents) == [b"child", b"grandchild", b"held", b"parent"]
        again = {d.message.content: d for d in consumer.deliveries}
        assert (again[b"parent"].attempt.number, again[b"parent"].attempt.replay) == (2, plan.number)
        assert again[b"parent"].message.id == made["parent"]
        assert again[b"child"].attempt.number == 1


async def test_with_descendants_what_had_ended_goes_again_too(tmp_path: Path):
    """RULES 21: ``descendants`` also sends again what was delivered; completion does not go back for others."""
    consumer = Failing(b"parent")
    async with running_space(tmp_path, consumer) as running:
        made = await family(running)
        consumer.bad.clear()
        plan = await running.put(Replay(id=made["parent"], descendants=True, dry_run=True))
        assert order(plan, made) == ["parent", "child", "grandchild", "anyway"]
        await running.put(Replay(id=made["parent"], descendants=True))
        await running.ended(*made.values())
        await eventually(lambda: consumer.contents.count(b"anyway") == 2, "the delivered child went again")
        second = await running.put(Replay(id=made["anyway"]))
        assert (second.number, second.messages) == (2, 1)
        await eventually(lambda: consumer.contents.count(b"anyway") == 3, "and a third time")


async def test_a_replay_of_a_queues_dead_letters(tmp_path: Path):
    """RULES 20 and 21: a dead letter is (message, subscriber): only those go again, at that subscriber; narrowed to
    one subscriber the others stay."""
    consumer = Consumer()
    consumer.answer = lambda d: REFUSED if (d.message.content, d.attempt.subscriber) in bad else ACKNOWLEDGED
    bad = {(b"1", 1), (b"3", 1), (b"3", 2)}
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a", "b"])
        ids = [await running.publish("q", b"%d" % n) for n in range(5)]
        await running.ended(*ids)
        letters = await running.view.dead_letters("q", 0, 10)
        assert sorted((letter.id, letter.subscriber) for letter in letters.items) == sorted(
            [(ids[1], "a"), (ids[3], "a"), (ids[3], "b")]
        )
        bad.clear()
        consumer.seen.clear()
        plan = await running.put(Replay(queue=Q, subscriber=SubscriberId("b")))
        assert (plan.order, plan.deliveries) == (((ids[3], ("b",)),), 1)
        await eventually(lambda: consumer.seen == [(b"3", "b")], "the one letter of b")
        await running.ended(ids[3])
        plan = await running.put(Replay(queue=Q))
        assert plan.order == ((ids[1], ("a",)), (ids[3], ("a",)))
        await eventually(lambda: sorted(consumer.seen) == [(b"1", "a"), (b"3", "a"), (b"3", "b")], "the others")
        await eventually(lambda: running.view.queue("q").dead_letters == 0, "none is left")
        assert (await running.put(Replay(queue=Q))).messages == 0


async def test_a_message_goes_again_to_whoever_missed_it_and_else_to_all(tmp_path: Path):
    """RULES 21: replayed by its id a message goes to those who have not got it; where all have, to all; or to the one
    subscriber named."""
    consumer = Consumer(lambda d: REFUSED if d.attempt.subscriber in bad else ACKNOWLEDGED)
    bad = {1}
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a", "b"])
        id_ = await running.publish("q", b"m")
        await running.ended(id_)
        bad.clear()
        consumer.seen.clear()
        assert (await running.put(Replay(id=id_))).order == ((id_, ("a",)),)
        await running.ended(id_)
        assert (await running.put(Replay(id=id_))).order == ((id_, ("a", "b")),)
        await running.ended(id_)
        assert (await running.put(Replay(id=id_, subscriber=SubscriberId("b")))).order == ((id_, ("b",)),)
        await running.ended(id_)
        assert sorted(consumer.seen) == [(b"m", "a"), (b"m", "a"), (b"m", "b"), (b"m", "b")]


async def test_a_replay_that_fails_again_is_dead_again(tmp_path: Path):
    """RULES 21: gates hold inside the replayed set: a parent that fails again fails its children again."""
    consumer = Failing(b"parent")
    async with running_space(tmp_path, consumer) as running:
        made = await family(running)
        consumer.seen.clear()
        await running.put(Replay(id=made["parent"], descendants=False))
        await eventually(lambda: consumer.contents == [b"parent"], "the parent is tried again")
        await running.ended(made["parent"], made["child"], made["grandchild"])
        assert await running.states(made["parent"], made["child"], made["grandchild"]) == ["dead"] * 3
        assert consumer.contents == [b"parent"]
        report = await running.view.message(made["parent"])
        assert [row.attempt for row in report.deliveries[0].attempts] == [1, 2]


async def test_a_replay_survives_a_restart(tmp_path: Path):
    """RULES 21: a replay is a fact; what it re-armed and a restart interrupted goes out afterwards."""
    consumer = Failing(b"parent")
    async with running_space(tmp_path, consumer, drain_s=0.05) as running:
        made = await family(running)
        consumer.answer = lambda _: None
        await running.put(Replay(id=made["parent"], descendants=False))
        await eventually(lambda: consumer.held, "the parent is out")
    async with running_space(tmp_path) as running:
        await running.ended(*made.values())
        assert sorted(running.consumer.contents) == [b"child", b"grandchild", b"held", b"parent"]
        assert running.consumer.contents[0] == b"parent"
        assert {d.attempt.replay for d in running.consumer.deliveries if d.message.content != b"held"} == {1}


async def test_only_what_has_ended_is_replayed(tmp_path: Path):
    """What is still on its way is refused, in words; so is what was never there."""
    consumer = Consumer(lambda _: None)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a"])
        id_ = await running.publish("q", b"m")
        with pytest.raises(Conflict) as caught:
            await running.put(Replay(id=id_))
        assert caught.value.members["state"] == "pending"
        with pytest.raises(UnknownMessage):
            await running.put(Replay(id=MessageId(bytes(16))))
        with pytest.raises(UnknownQueue):
            await running.put(Replay(queue=QueueName("nowhere")))
        with pytest.raises(UnknownSubscriber):
            await running.put(Replay(queue=Q, subscriber=SubscriberId("z")))


async def test_what_a_deleted_queue_held_is_not_said_to_come_back(tmp_path: Path):
    """RULES 12, 16: a child on hold for a dead parent whose queue is deleted is told what can still be done, and a
    replay of the parent is refused, whatever has the queue's name now; a cancel ends the child."""
    async with running_space(tmp_path, Failing(b"parent")) as running:
        await running.queue("q", subscribers=["a"])
        await running.queue("other", subscribers=["b"])
        parent = await running.publish("q", b"parent")
        child = await running.publish("other", b"child", parent, parent_failure=ParentFailure.HOLD)
        await running.ended(parent)
        await running.put(DeleteQueue(Q, force=True))
        for _ in range(2):
            assert (await running.view.message(child)).waits_for == (
                f"is held for parent {id_text(parent)} in queue q, which ended dead and cannot be replayed, for its "
                "queue has been deleted: cancel this message, or wait for its deadline"
            )
            for asked in (Replay(id=parent), Replay(id=parent, subscriber=SubscriberId("a"), dry_run=True)):
                with pytest.raises(Conflict) as caught:
                    await running.put(asked)
                assert caught.value.members == {"id": id_text(parent), "queue": "q"}
            await running.queue("q", subscribers=["a"])
        await running.put(Cancel(child))
        await running.ended(child)
        assert await running.states(child) == ["dropped"]


async def test_a_wide_replay_is_written_in_slices(tmp_path: Path):
    """RULES 20 and 21: a cascade of thousands is re-armed in slices of one replay, parents before children."""
    consumer = Failing(b"root")
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", NEVER_AGAIN, subscribers=["a"])
        lines = [Message(b"root")] + [Message(b"%d" % n, parents=(n // 2,)) for n in range(2_500)]
        ids = (await running.publish_all("q", *lines)).ids
        await running.ended(*ids)
        assert running.view.queue("q").dead_letters == 2_501
        consumer.bad.clear()
        consumer.seen.clear()
        plan = await running.put(Replay(id=ids[0], descendants=False))
        assert (plan.messages, len(plan.order)) == (2_501, 1_000)
        await running.ended(*ids)
        assert running.view.queue("q").dead_letters == 0
        at = {content: place for place, content in enumerate(consumer.contents)}
        assert len(at) == len(consumer.contents) == 2_501
        assert all(at[lines[line.parents[0]].content] < at[line.content] for line in lines[1:])


async def test_a_chain_of_parents_keeps_its_order_where_a_key_does_not(tmp_path: Path):
    """RULES 12, 14 and 21: in a replay and at a subscriber that starts in the past the next goes when the one before
    has ended, well or badly. (``docs/http.md`` advises it where the order of a key is not enough.)"""
    consumer = Consumer(lambda _: REFUSED)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", NEVER_AGAIN, subscribers=["a"])
        ids: list[MessageId] = []
        for number in range(3):
            ids.append(await running.publish("q", b"%d" % number, *ids[-1:], parent_failure=ParentFailure.DELIVER))
        await running.ended(*ids)
        consumer.answer = lambda _: None
        for again in ("replay", "late"):
            consumer.seen.clear()
            if again == "replay":
                await running.put(Replay(queue=Q))
            else:
                await running.subscribe("q", "late", start="beginning")
            for number, answer in enumerate((REFUSED, ACKNOWLEDGED, ACKNOWLEDGED)):
                await eventually(lambda: consumer.held, "the next one goes")
                assert consumer.contents == [b"0", b"1", b"2"][: number + 1], again
                consumer.release(answer)
            await running.ended(*ids)


async def test_cancel_ends_what_has_not_been_delivered(tmp_path: Path):
    """RULES 22: a cancel drops what has not been delivered; children fail with that reason (RULES 12); an attempt
    that is out comes back late and changes nothing."""
    consumer = Consumer(lambda d: None if d.attempt.subscriber == 1 else ACKNOWLEDGED)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a", "b"])
        id_ = await running.publish("q", b"m")
        child = await running.publish("q", b"child", id_)
        await eventually(lambda: len(consumer.seen) == 2, "both are out")
        await eventually(lambda: running.view.queue("q").delivered == 1, "b has it")
        assert await running.put(Cancel(id_)) == 1
        await running.ended(id_, child)
        assert await running.states(id_, child) == ["dropped", "dead"]
        report = await running.view.message(id_)
        assert [delivery.state for delivery in report.deliveries] == ["dropped", "delivered"]
        assert (await running.view.message(child)).deliveries[0].reason == "parent_dropped"
        assert await running.put(Cancel(id_)) == 0
        consumer.release()
        sequence = report.sequence
        rows = running.space._journal.rows_of
        await eventually(lambda: rows(sequence)[-1][1].outcome is Outcome.LATE, "the late row is written")
        assert await running.states(id_) == ["dropped"]
        with pytest.raises(UnknownMessage):
            await running.put(Cancel(make_message_id(1, 4, running.space._journal.id_key)))


async def test_what_is_on_hold_in_a_replay_says_what_to_replay(tmp_path: Path):
    """RULES 12, 21: a parent failed when it was sent again: its child on hold names it, and goes when the parent has
    been replayed with success; what waits for nothing any more says nothing."""
    consumer = Failing()
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a"])
        parent = await running.publish("q", b"parent")
        child = await running.publish("q", b"child", parent, parent_failure=ParentFailure.HOLD)
        await running.ended(parent, child)
        consumer.bad.add(b"parent")
        await running.put(Replay(id=parent, descendants=True))
        await eventually(lambda: consumer.contents.count(b"parent") == 2, "the parent is sent again")
        await running.ended(parent)
        report = await running.view.message(child)
        assert (report.state, report.deliveries[0].state) == ("held", "blocked")
        assert report.waits_for == (
            f"is held for parent {id_text(parent)} in queue q, which failed when it was sent again: replay it to go on"
        )
        consumer.bad.clear()
        await running.put(Replay(id=parent, descendants=False))
        await running.ended(parent, child)
        assert consumer.contents == [b"parent", b"child", b"parent", b"parent", b"child"]
        assert (await running.view.message(child)).waits_for == ""


async def test_a_cancelled_replay_leaves_the_dead_letters_of_others(tmp_path: Path):
    """RULES 22: cancelling what is replayed to one subscriber ends that; another's dead letter stays what it was, is
    told so, and is still sent again with the parent that it failed through (RULES 21)."""
    answers = {b"parent": REFUSED, b"child": None}
    consumer = Consumer(lambda delivery: answers[delivery.message.content])
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a", "b"])
        parent = await running.publish("q", b"parent")
        child = await running.publish("q", b"child", parent)
        await running.ended(parent, child)
        await running.put(Replay(id=child, subscriber=SubscriberId("a")))
        await eventually(lambda: consumer.contents.count(b"child") == 1, "a is asked for the child")

        assert await running.put(Cancel(child)) == 1
        await running.ended(child)

        report = await running.view.message(child)
        assert [(d.subscriber, d.state, d.reason) for d in report.deliveries] == [
            ("a", "dropped", "cancelled"),
            ("b", "dead", "parent_failed"),
        ]
        died_us = report.deliveries[1].attempts[-1].time_us
        letters = (await running.view.dead_letters("q", 0, 10)).items
        assert [(d.subscriber, d.time_us) for d in letters if d.id == child] == [("b", died_us)]
        plan = await running.put(Replay(id=parent, descendants=False, dry_run=True))
        assert plan.order == ((parent, ("a", "b")), (child, ("b",)))


async def test_a_scheduled_message_is_cancelled_before_it_goes(tmp_path: Path):
    """RULES 22: what is not due yet never goes out."""
    async with running_space(tmp_path) as running:
        await running.queue("q", subscribers=["a"])
        id_ = await running.publish("q", b"m", delay_us=3_600_000_000)
        assert await running.states(id_) == ["scheduled"]
        assert await running.put(Cancel(id_)) == 1
        await running.ended(id_)
        assert (await running.states(id_), running.consumer.seen) == (["dropped"], [])


async def test_purge_says_how_many_and_drops_what_waits(tmp_path: Path):
    """A purge drops what waits in its queue, other queues keep theirs; a dry run only counts."""
    consumer = Consumer(lambda _: None)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a"])
        await running.queue("other", subscribers=["b"])
        ids = (await running.publish_all("q", *[Message(b"m")] * 5_000)).ids
        keeps = await running.publish("other", b"kept")
        assert await running.put(PurgeQueue(Q, dry_run=True)) == 5_000
        assert running.view.queue("q").waiting == 5_000
        assert await running.put(PurgeQueue(Q)) == 5_000
        assert running.view.queue("q").waiting == 0
        assert await running.states(ids[0], ids[-1], keeps) == ["dropped", "dropped", "pending"]
        consumer.release()
        await running.ended(keeps)
        with pytest.raises(UnknownQueue):
            await running.put(PurgeQueue(QueueName("nowhere")))


async def test_gone_is_not_unknown(tmp_path: Path):
    """RULES 2: an id that was issued and dropped is ``Gone``; one never issued is unknown."""
    async with running_space(tmp_path) as running:
        with pytest.raises((UnknownMessage, Gone)):
            await running.put(Cancel(make_message_id(1, 99, running.space._journal.id_key)))


async def test_a_replay_under_way_counts_as_waiting_and_is_purged_with_the_rest(tmp_path: Path):
    """RULES 16, 21: what is delivered again waits in its queue; a purge ends it, and what was complete stays so."""
    consumer = Consumer()
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a"])
        message = await running.publish("q", b"once")
        await running.ended(message)
        consumer.answer = lambda _: None  # from now on it hangs
        await running.put(Replay(id=message))
        await eventually(lambda: consumer.held, "the replay out at its subscriber")
        assert running.space.view.queue("q").waiting == 1
        with pytest.raises(Conflict):
            await running.put(DeleteQueue(Q))
        assert await running.put(PurgeQueue(Q)) == 1
        assert running.space.view.queue("q").waiting == 0
        assert await running.states(message) == ["complete"]
        await running.put(DeleteQueue(Q))


async def test_a_replay_keeps_the_order_of_a_key(tmp_path: Path):
    """RULES 6, 21: the dead letters of a key go again one after the other, over a restart too; those of others do not
    wait for them."""
    consumer = Failing(b"first", b"second", b"third", b"other")
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a"])
        made = [
            await running.publish("q", content, key="k" if content != b"other" else "other")
            for content in (b"first", b"second", b"third", b"other")
        ]
        await running.ended(*made)
        consumer.seen.clear()
        consumer.answer = lambda _: None  # it has what it is sent, and has not answered yet
        plan = await running.put(Replay(queue=Q))
        assert plan.messages == 4
        await eventually(lambda: len(consumer.seen) == 2, "the first of each key has gone")
        assert sorted(consumer.contents) == [b"first", b"other"]
    consumer = Consumer()
    async with running_space(tmp_path, consumer) as running:
        await running.ended(*made)
        assert [one for one in consumer.contents if one != b"other"] == [b"first", b"second", b"third"]
        assert await running.states(*made) == ["complete"] * 4
