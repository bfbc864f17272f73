"""Requests that name the span of their attempt (W3C Trace Context), where the broker makes traces."""

from collections.abc import Mapping, Sequence

from syncbrok.delivery.handler import Delivery, DeliveryBatch
from syncbrok.delivery.trace_context import TRACEPARENT, TraceContexts
from syncbrok.delivery.webhook.http_request import RequestForm, SharedTails
from syncbrok.delivery.webhook.signing import SignerLike
from syncbrok.model.credentials import NONE
from syncbrok.model.message import Subscriber


class TracedForm(RequestForm):
    """A ``RequestForm`` whose requests have ``traceparent`` in the place of the publisher's, which is a link of the
    trace; ``tracestate`` is passed on. In a request with several messages it stands in the line of each. Those of trees
    that are not recorded go out as they are, and so do all to a subscriber whose own headers name one."""

    __slots__ = ("_traces",)

    def __init__(
        self,
        traces: TraceContexts,
        subscriber: Subscriber,
        queue: str,
        tails: SharedTails | None = None,
        epoch: int = 0,
        credentials: Mapping[str, str] = NONE,
    ) -> None:
        """See ``RequestForm``."""
        self._traces = traces
        super().__init__(subscriber, queue, tails, epoch, credentials)

    def render(self, delivery: Delivery, timestamp_s: str, signers: Sequence[SignerLike]) -> bytes:
        """See ``RequestForm``."""
        if isinstance(delivery, DeliveryBatch):
            delivery = DeliveryBatch([self._traces.named(one) for one in delivery.members], delivery.to)
        parent = self._traceparent(delivery)
        if not parent:
            return super().render(delivery, timestamp_s, signers)
        request = super().render(_without(delivery), timestamp_s, signers)
        behind = request.index(b"\r\n") + 2  # the method line
        return b"%b%b: %b\r\n%b" % (request[:behind], TRACEPARENT.encode(), parent.encode(), request[behind:])

    def make_ready(self, delivery: Delivery, timestamp_s: str, signers: Sequence[SignerLike]) -> None:
        """See ``RequestForm``."""
        super().make_ready(_without(delivery) if self._traceparent(delivery) else delivery, timestamp_s, signers)

    def _traceparent(self, delivery: Delivery) -> str:
        # A request with several messages is the attempt of each: no span is that of all, and each line names its own.
        is_of_one = TRACEPARENT not in self._fixed and not isinstance(delivery, DeliveryBatch)
        return self._traces.traceparent(delivery) if is_of_one else ""


def _without(delivery: Delivery) -> Delivery:
    """The same, without the publisher's ``traceparent``."""
    message = delivery.message
    if not any(name == TRACEPARENT for name, _ in message.headers):
        return delivery
    kept = tuple(pair for pair in message.headers if pair[0] != TRACEPARENT)
    return delivery._replace(message=message._replace(headers=kept))
