"""A replay that is narrowed to one subscriber goes to that one only, its descendants too (RULES 21)."""

from pathlib import Path

from syncbrok.log.offline.order import check
from syncbrok.model.facts import Rearmed
from syncbrok.model.message import Message
from syncbrok.model.names import MessageId, QueueName, SubscriberId
from syncbrok.space.channels import Replay
from tests.support.log.journals import everything
from tests.support.polling import eventually
from tests.support.space.spaces import ACKNOWLEDGED, REFUSED, Consumer, Running, running_space

A, B = SubscriberId("a"), SubscriberId("b")
Q = QueueName("q")


async def chain(running: Running) -> dict[str, MessageId]:
    """Parent and child dead at both subscribers of ``q``; below the child one in ``q`` and one in another queue."""
    await running.queue("q", subscribers=["a", "b"])
    await running.queue("other", subscribers=["c"])
    made = {"parent": await running.publish("q", b"parent")}
    made["child"] = await running.publish("q", b"child", made["parent"])
    made["grandchild"] = await running.publish("q", b"grandchild", made["child"])
    made["elsewhere"] = await running.publish("other", b"elsewhere", made["child"])
    made["below"] = await running.publish("q", b"below", made["elsewhere"])
    await running.ended(*made.values())
    assert await running.states(*made.values()) == ["dead"] * 5
    return made


async def test_a_replay_to_one_goes_to_nobody_else(tmp_path: Path):
    """RULES 21: with ``subscriber`` no descendant goes to another one, who has not had its parent: what failed there
    stays a dead letter and is counted as ``left``; also what hangs on a message that stays. What a later replay sends
    to the other one is in order there too, and then all is mended."""
    consumer = Consumer(lambda _: REFUSED)
    async with running_space(tmp_path, consumer) as running:
        made = await chain(running)
        consumer.answer = lambda _: ACKNOWLEDGED
        consumer.seen.clear()
        dry = await running.put(Replay(id=made["parent"], subscriber=A, dry_run=True))
        plan = await running.put(Replay(id=made["parent"], subscriber=A))
        assert plan._replace(number=0, job=0) == dry
        assert plan.order == tuple((made[name], ("a",)) for name in ("parent", "child", "grandchild"))
        # Three at b; elsewhere at c; below, which failed through that one, at a and b.
        assert (plan.messages, plan.deliveries, plan.left) == (3, 3, 6)
        await eventually(lambda: len(consumer.seen) == 3, "the three of a")
        await running.ended(made["grandchild"])
        assert consumer.seen == [(b"parent", "a"), (b"child", "a"), (b"grandchild", "a")]
        letters = (await running.view.dead_letters("q", 0, 100)).items
        stayed = [(name, "b") for name in ("parent", "child", "grandchild")] + [("below", "a"), ("below", "b")]
        assert [(one.id, one.subscriber) for one in letters] == [(made[name], who) for name, who in stayed]
        assert await running.states(*made.values()) == ["dead"] * 5

        plan = await running.put(Replay(id=made["parent"]))
        assert (plan.left, plan.deliveries) == (0, 6)
        await running.ended(*made.values())
        assert await running.states(*made.values()) == ["complete"] * 5
        assert [content for content, who in consumer.seen if who == "b"] == [
            b"parent", b"child", b"grandchild", b"below",
        ]  # fmt: skip
    facts = everything(tmp_path)
    assert [fact.subscriber for fact in facts if isinstance(fact, Rearmed)] == [1, 0]
    assert check(facts) == []


async def test_the_dead_letters_of_one_go_to_it_alone(tmp_path: Path):
    """RULES 21: the same where the dead letters of a queue are replayed for one subscriber."""
    consumer = Consumer(lambda _: REFUSED)
    async with running_space(tmp_path, consumer) as running:
        made = await chain(running)
        consumer.answer = lambda _: ACKNOWLEDGED
        consumer.seen.clear()
        plan = await running.put(Replay(queue=Q, subscriber=B))
        assert plan.order == tuple((made[name], ("b",)) for name in ("parent", "child", "grandchild", "below"))
        assert plan.left == 5  # four at a, and elsewhere at c
        await running.ended(*made.values())
        assert sorted(consumer.seen) == [(name, "b") for name in (b"below", b"child", b"grandchild", b"parent")]
    assert check(everything(tmp_path)) == []


async def test_descendants_of_a_replay_to_one_go_to_it_alone(tmp_path: Path):
    """RULES 21: ``descendants`` sends what had ended again, to the one alone; what never failed is not ``left``."""
    async with running_space(tmp_path) as running:
        await running.queue("q", subscribers=["a", "b"])
        ids = (
            await running.publish_all("q", Message(b"0"), Message(b"1", parents=(0,)), Message(b"2", parents=(1,)))
        ).ids
        await running.ended(*ids)
        plan = await running.put(Replay(id=ids[0], subscriber=B, descendants=True, dry_run=True))
        assert (plan.order, plan.left) == (tuple((id_, ("b",)) for id_ in ids), 0)


async def test_what_was_delivered_stays_unless_asked_for(tmp_path: Path):
    """RULES 21: ``descendants`` is false unless said: a replay of a root that is delivered sends the root."""
    async with running_space(tmp_path) as running:
        await running.queue("q", subscribers=["a"])
        root = await running.publish("q", b"root")
        children = await running.publish_all("q", *[Message(b"child", parents=(root,)) for _ in range(50)])
        await running.ended(*children.ids)
        assert (await running.put(Replay(id=root, dry_run=True))).order == ((root, ("a",)),)
        assert (await running.put(Replay(id=root, descendants=True, dry_run=True))).messages == 51
