"""State that the fast connections of one server share, and all of them that are open."""

import asyncio
from collections.abc import Callable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, Protocol

from syncbrok.frontends.over_http.fast_path.request_head import RequestHeadCache
from syncbrok.frontends.over_http.fast_path.shared_answers import answers
from syncbrok.frontends.over_http.publishing.publish import status_of
from syncbrok.frontends.over_http.requests.connection import Limits
from syncbrok.frontends.over_http.requests.context import LEADER, HttpContext
from syncbrok.frontends.over_http.requests.middleware import HttpMiddleware
from syncbrok.frontends.over_http.requests.refused_connection import RefusedConnection
from syncbrok.model import limits
from syncbrok.space.channels import Accepted, Publish

BODY_BYTES_MAX: Final = limits.content_bytes_max
"""where the configuration allows longer ones: to join their pieces would hold the loop up for milliseconds"""

STATUS: Final = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}


class SimplePublisher(Protocol):
    """A connection that has seen simple publishes only (``fast_connection.FastPathConnection``)."""

    def check(self, now: float) -> None: ...

    def close_if_idle(self) -> None: ...

    def abort(self) -> None: ...

    def write_answer(self, answer: bytes, now: float) -> None: ...

    def refuse(self, why: BaseException) -> None: ...

    def give_up(self, error: Exception) -> None: ...


class FastPath:
    """State that the fast connections of one server share, and all of them that are open. ``hand_over`` gives one to
    aiohttp: a connection, its transport, the bytes not worked on, and the loop time at which they began to come."""

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
        self.open: set[SimplePublisher] = set()
        self.refused_connections: set[RefusedConnection] = set()
        self.date = formatdate(usegmt=True)
        content_bytes_max = min(BODY_BYTES_MAX, context.options.content_bytes_max)
        self.head_cache = RequestHeadCache(content_bytes_max, middleware.answers_for)
        url = context.options.leader_url
        self.more = f"{LEADER}: {url}\r\n" if url else ""
        """lines of headers that stand in every answer besides"""
        self.stopping = False
        self.emptied = asyncio.Event()

    def sweep(self, now: float) -> None:
        """Check deadlines and renew the ``Date`` of answers, at least once a second. ``now`` is the loop's time."""
        self.date = formatdate(usegmt=True)
        for publisher in list(self.open):
            publisher.check(now)

    def stop(self) -> None:
        """Close idle connections now and the others once they have answered. ``emptied`` is set when all are gone."""
        self.stopping = True
        for publisher in list(self.open):
            publisher.close_if_idle()
        self.left(None)

    def abort(self) -> None:
        """Close the connections that have not answered yet."""
        for publisher in list(self.open):
            publisher.abort()

    def accepted(self, units: Sequence[Publish], publishers: Sequence["SimplePublisher"], receipt: Accepted) -> None:
        """Answer all clients whose messages became durable in one commit; see ``channels.PublishListener``. All answers
        are made before the first is written: with Python between two writes the clients fall asleep, and waking them is
        dear."""
        view = self.context.view
        if receipt.known:
            states = [view.message_state(sequence) for sequence in receipt.sequences]
        else:
            states = view.message_states(receipt.first, len(publishers))
        status = status_of(receipt)
        self.middleware.answers[status] += len(publishers)
        responses = answers(STATUS[status], units, receipt, states, self.date, self.more)
        now = asyncio.get_running_loop().time()
        for publisher, answer in zip(publishers, responses, strict=True):
            try:
                publisher.write_answer(answer, now)
            except Exception as error:  # noqa: BLE001 (whatever it is, the others get their answers)
                publisher.give_up(error)

    def refused(self, publishers: Sequence["SimplePublisher"], why: BaseException) -> None:
        for publisher in publishers:
            try:
                publisher.refuse(why)
            except Exception as error:  # noqa: BLE001
                publisher.give_up(error)

    def left(self, publisher: "SimplePublisher | None") -> None:
        """Forget ``publisher``, which is closed or handed over."""
        if publisher is not None:
            self.open.discard(publisher)
        if self.stopping and not self.open:
            self.emptied.set()

    def __repr__(self) -> str:
        return f"<FastPath open={len(self.open)} stopping={self.stopping}>"
