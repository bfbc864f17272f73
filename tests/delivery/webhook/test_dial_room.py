"""Connections that go out, where descriptors are few (syncbrok/delivery/webhook/dial_room.py, DESIGN 1, bounded).

Broken by hand to see these fail: a budget that is not asked before a dial; one that is not given back when a connection
closes; idle connections that are kept, or closed only for those who ask later; a want of descriptors that is an answer
like any other failed dial.
"""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from syncbrok.delivery.handler import AttemptResult, Delivery
from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.dial_room import DIALS_PER_TURN, DialRoom
from syncbrok.delivery.webhook.webhook import Webhook
from syncbrok.model.budget import Budget
from syncbrok.model.facts import Reason
from tests.support.delivery.endpoint import HANG, Answers, Endpoint, Reply, Request, delivery, reply, send, subscriber
from tests.support.polling import eventually


@asynccontextmanager
async def few(descriptors: int) -> AsyncIterator[tuple[Webhook, Budget]]:
    budget = Budget("descriptors", descriptors)
    webhook = Webhook(AddressGuard(loopback_allowed=True), lambda _: (), descriptors=budget)
    try:
        yield webhook, budget
    finally:
        await webhook.close()
    assert budget.used == 0, "each is given back once"


class Sent:
    """What came of deliveries; those given back are sent again, as the dispatcher does."""

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook
        self.answers: list[AttemptResult] = []
        self.given_back = 0

    def done(self, one: Delivery, answer: AttemptResult | None) -> None:
        if answer is not None:
            self.answers.append(answer)
            return
        self.given_back += 1
        asyncio.get_running_loop().call_soon(self._webhook.deliver, [one], self.done)


async def test_many_origins_share_few_descriptors() -> None:
    """DESIGN 1, bounded: forty healthy endpoints, each of an origin of its own, and descriptors for half of them: what
    has been idle longest is closed, every message arrives at its first attempt, and the budget is never passed. Who
    asked while nothing was idle gets what becomes idle, and does not wait until the exchange has reached its deadline.
    """
    async with AsyncExitStack() as stack:
        endpoints = [await stack.enter_async_context(Endpoint()) for _ in range(40)]
        webhook, budget = await stack.enter_async_context(few(20))
        sent = Sent(webhook)
        most = 0
        for turn in range(5):
            for number, endpoint in enumerate(endpoints, 1):
                send(webhook, subscriber(endpoint.url, number=number), [delivery(turn)], sent.done)
            while len(sent.answers) < 40 * (turn + 1):
                most = max(most, budget.used)
                await asyncio.sleep(0)
        assert {answer.reason for answer in sent.answers} == {Reason.NONE}
        assert sent.given_back == 0
        assert most <= 20
        assert [len(endpoint.requests) for endpoint in endpoints] == [5] * 40


async def test_one_origin_that_hangs_leaves_some_for_others() -> None:
    """DESIGN 1, bounded: an endpoint that answers nothing holds its share of the descriptors; others get theirs."""

    def hangs(_: Request) -> Reply:
        return HANG

    async with Endpoint(hangs) as hung, Endpoint() as healthy, few(40) as (webhook, budget):
        nothing = Answers()
        send(webhook, subscriber(hung.url, number=1), [delivery(i) for i in range(300)], nothing.done)
        await eventually(lambda: len(hung.requests) == 18, "half of what is no reserve is open")
        answers = Answers()
        send(webhook, subscriber(healthy.url, number=2), [delivery(i) for i in range(20)], answers.done)
        assert {answer.reason for answer in await answers.wait_for(20)} == {Reason.NONE}
        assert budget.used < 40
        assert not nothing.all


async def test_who_waits_for_a_descriptor_has_not_failed() -> None:
    """RULES 23: at its deadline an attempt that got no descriptor is given back, not failed; it goes out when one is
    free, with the same number."""
    held: list[Request] = []

    def answer(request: Request) -> Reply:
        held.append(request)
        return HANG if request.headers.get("x-who") == "hung" else reply()

    async with Endpoint(answer) as one, Endpoint(answer) as other, few(1) as (webhook, budget):
        hung = subscriber(one.url, number=1, headers=(("x-who", "hung"),))
        nothing, sent = Answers(), Sent(webhook)
        send(webhook, hung, [delivery(1, timeout_s=60.0)], nothing.done)
        await eventually(lambda: len(held) == 1, "it has the only descriptor")
        send(webhook, subscriber(other.url, number=2), [delivery(2, timeout_s=0.2)], sent.done)
        await eventually(lambda: sent.given_back, "its time is over")
        assert (sent.answers, budget.used) == ([], 1)
        one.hang_up()
        await eventually(lambda: sent.answers, "there is a descriptor")
        assert sent.answers[0].reason is Reason.NONE
        assert {request.headers["syncbrok-attempt"] for request in other.requests} == {"1"}


async def test_a_turn_of_the_loop_begins_few_dials_and_each_route_some() -> None:
    """INTERFACES 5, turns: subscribers that want a thousand connections begin eight in a turn of the loop, and one that
    comes later begins its own in the next turn and not behind all of theirs."""
    begun: list[list[str]] = [[]]

    class Wants:
        def __init__(self, name: str, count: int) -> None:
            self.name, self.left = name, count

        def dial(self) -> None:
            count = 0
            while self.left and room.has_time(self, count):
                begun[-1].append(self.name)
                count += 1
                self.left -= 1

    room = DialRoom(Budget("descriptors", 5_000), lambda: ())
    greedy = [Wants(f"greedy {number}", 1_000) for number in range(3)]
    for one in greedy:
        one.dial()
    late = Wants("late", 1)
    late.dial()
    for _ in range(6):
        begun.append([])
        await asyncio.sleep(0)
    room.close()
    assert {len(turn) for turn in begun if turn} == {DIALS_PER_TURN}
    assert "late" in [name for turn in begun[:3] for name in turn]
    assert all(set(turn) >= {one.name for one in greedy} for turn in begun[3:] if turn)


def test_the_system_has_none(tmp_path: Path) -> None:
    """RULES 23: a connection that cannot be opened since the process has no descriptor left, whatever the budget says,
    is no failed attempt: it waits until there is one."""
    script = """
    import asyncio, os, resource
    from syncbrok.delivery.webhook.address_guard import AddressGuard
    from syncbrok.delivery.webhook.webhook import Webhook
    from tests.support.delivery.endpoint import Answers, Endpoint, delivery, send, subscriber

    async def main():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        webhook = Webhook(AddressGuard(loopback_allowed=True), lambda _: ())
        async with Endpoint() as endpoint:
            held = []
            try:
                while True:
                    held.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                pass
            answers = Answers()
            send(webhook, subscriber(endpoint.url), [delivery(i) for i in range(5)], answers.done)
            for _ in range(200):
                await asyncio.sleep(0.001)
            print("answered", len(answers.all))
            for one in held:
                os.close(one)
            print([answer.reason.name for answer in await answers.wait_for(5)])
            await webhook.close()

    asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.split("\n")[:2] == ["answered 0", str(["NONE"] * 5)]
