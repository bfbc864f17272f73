"""A Space whose node may lead no more tells nobody that a request is wrong (CLUSTER, R5): what it knows may be old."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from syncbrok.log.journal import FileJournal
from syncbrok.model.errors import ClientFault, NoQuorum
from syncbrok.model.message import Message, QueueSettings, Scope
from syncbrok.model.names import QueueName, make_message_id
from syncbrok.space.budgets import Budgets
from syncbrok.space.channels import Cancel, DeclareQueue, Publish
from syncbrok.space.clock import wall_us
from syncbrok.space.space import Space, SpaceOptions
from syncbrok.space.standby import Standby
from tests.support.delivery.leader import HeldLease
from tests.support.space.spaces import Consumer, Running

NOBODY = make_message_id(1_700_000_000_000, 900, bytes(16))
Q, UNKNOWN = QueueName("q"), QueueName("unknown")
WRONG: tuple[Any, ...] = (
    Publish.of(Q, [Message(b"child", parents=(NOBODY,))]),
    Publish.of(UNKNOWN, [Message(b"x")]),
    Publish.bare(UNKNOWN, "text/plain", b"x"),
    DeclareQueue(Q, QueueSettings(scope=Scope.SAME)),
    Cancel(NOBODY),
)


class Told:
    """A ``PublishListener`` of one publish."""

    def __init__(self) -> None:
        self.why: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    def accepted(self, units: Any, publishers: Any, result: Any) -> None:
        raise AssertionError(result)

    def refused(self, publishers: Any, why: BaseException) -> None:
        self.why.set_result(why)


@pytest.mark.parametrize("wrong", WRONG, ids=lambda one: type(one).__name__)
async def test_who_may_lead_no_more_refuses_nothing_for_good(wrong: Any, tmp_path: Path) -> None:
    """A leader that was cut off does not know what the next one has accepted: a parent, a queue. Its word that there is
    none would make a publisher give up; so it says that it does not know. While it leads it says what is wrong."""
    lease, options = HeldLease(), SpaceOptions()
    standby = Standby.open(tmp_path, options.journal, Budgets.of(), wall_us, None, FileJournal.open)
    standby.ready(0.0)
    space = Space(standby, options, lease)
    running = Running(space, Consumer())
    space.handle("test", running.consumer)
    serving = asyncio.create_task(space.run())
    try:
        await running.queue("q")
        with pytest.raises(ClientFault):
            await running.put(wrong)
        lease.held = False
        with pytest.raises(NoQuorum):
            await running.put(wrong)
        if isinstance(wrong, Publish):
            told = Told()
            space.channels.messages.put_shared(wrong, None, told)
            assert isinstance(await asyncio.wait_for(told.why, 30), NoQuorum)
    finally:
        await space.drain()
        await serving
        space.close()
