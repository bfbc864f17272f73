"""State that the fast lanes of one server share, and all lanes that are open."""

import asyncio
from collections.abc import Callable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, Protocol

from syncbrok.frontends.over_http.fast_path.request_head import Heads
from syncbrok.frontends.over_http.fast_path.shared_answers import answers
from syncbrok.frontends.over_http.publishing.publish import status_of
from syncbrok.frontends.over_http.requests.connection import Limits
from syncbrok.frontends.over_http.requests.context import HttpContext
from syncbrok.frontends.over_http.requests.middleware import HttpMiddleware
from syncbrok.frontends.over_http.requests.turned_away import TurnedAway
from syncbrok.model import limits
from syncbrok.space.channels import Accepted, Publish

BODY_BYTES_MAX: Final = 64 * limits.KIB
"""longer ones arrive in many pieces, and what they cost is not the handling of the request"""

STATUS: Final = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}


class Lane(Protocol):
    """A connection that has seen simple publishes only (``fast_lane.FastLane``)."""

    def check(self, now: float) -> None: ...

    def rest(self) -> None: ...

    def abort(self) -> None: ...

    def tell(self, answer: bytes, now: float) -> None: ...

    def refuse(self, why: BaseException) -> None: ...

    def give_up(self, error: Exception) -> None: ...


class Lanes:
    """State that the fast lanes of one server share, and all lanes that are open. ``hand_over`` gives a connection to
    aiohttp: a lane, its transport, the bytes not worked on, and the loop time at which they began to come."""

    def __init__(
        self,
        context: HttpContext,
        middleware: HttpMiddleware,
        limits_: Limits,
        hand_over: Callable[[Any, asyncio.Transport, bytes, float], None],
    ) -> None:
        self.context = context
        self.middleware = middleware
        self.limits = limits_
        self.hand_over = hand_over
        self.open: set[Lane] = set()
        self.turned_away: set[TurnedAway] = set()
        self.date = formatdate(usegmt=True)
        self.heads = Heads(min(BODY_BYTES_MAX, context.options.content_bytes_max), middleware.answers_for)
        self.kept_head = self.heads.kept
        self.stopping = False
        self.emptied = asyncio.Event()

    def sweep(self, now: float) -> None:
        """Called at least once a second: deadlines, and the ``Date`` of answers. ``now`` is the loop's time."""
        self.date = formatdate(usegmt=True)
        for lane in list(self.open):
            lane.check(now)

    def stop(self) -> None:
        """Close idle lanes now and the others once they have answered. ``emptied`` is set when all are gone."""
        self.stopping = True
        for lane in list(self.open):
            lane.rest()
        self.left(None)

    def abort(self) -> None:
        """Close the lanes that have not answered yet."""
        for lane in list(self.open):
            lane.abort()

    def accepted(self, units: Sequence[Publish], whose: Sequence["Lane"], receipt: Accepted) -> None:
        """Answer all clients whose messages became durable in one commit; see ``channels.PublishListener``. All answers
        are made before the first is written: with Python between two writes the clients fall asleep, and waking them is
        dear."""
        view = self.context.view
        if receipt.known:
            states = [view.message_state(sequence) for sequence in receipt.sequences]
        else:
            states = view.message_states(receipt.first, len(whose))
        status = status_of(receipt)
        self.middleware.answers[status] += len(whose)
        told = answers(STATUS[status], units, receipt, states, self.date)
        now = asyncio.get_running_loop().time()
        for lane, answer in zip(whose, told, strict=True):
            try:
                lane.tell(answer, now)
            except Exception as error:  # noqa: BLE001 (whatever it is, the others get their answers)
                lane.give_up(error)

    def refused(self, whose: Sequence["Lane"], why: BaseException) -> None:
        for lane in whose:
            try:
                lane.refuse(why)
            except Exception as error:  # noqa: BLE001
                lane.give_up(error)

    def left(self, lane: "Lane | None") -> None:
        """``lane`` is closed or handed over."""
        if lane is not None:
            self.open.discard(lane)
        if self.stopping and not self.open:
            self.emptied.set()

    def __repr__(self) -> str:
        return f"<Lanes open={len(self.open)} stopping={self.stopping}>"
