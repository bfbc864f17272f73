"""INTERFACES 1, ``traces``: requests that name the span of their attempt."""

import pytest

from syncbrok.delivery.trace_context import TraceContexts
from syncbrok.delivery.webhook.http_request import RequestForm
from syncbrok.delivery.webhook.traced_request import TracedForm
from syncbrok.model.message import Format
from tests.support.delivery.endpoint import delivery, message, subscriber

NOW_S = "1700000123"
URL = "http://hooks.example/in"


def traces(share: float = 1.0) -> TraceContexts:
    return TraceContexts(share, lambda _: None)


@pytest.mark.parametrize("kind", list(Format))
def test_the_span_stands_in_the_place_of_the_publishers(kind: Format) -> None:
    """All else is byte for byte what it was, in each format, and made ahead or not."""
    others = (("tracestate", "a=1"), ("x-shop", "7"))
    given = delivery(of=message(headers=(("traceparent", "00-ab-cd-01"), *others)))
    without = delivery(of=message(headers=others))
    for_all, form = subscriber(URL, kind), TracedForm(traces(), subscriber(URL, kind), "orders")
    plain = RequestForm(for_all, "orders").render(without, NOW_S, ())
    line = f"traceparent: {traces().traceparent(given)}\r\n".encode()
    for one in (given, without):
        form.make_ready(one, NOW_S, ())
        made = form.render(one, NOW_S, ())
        assert made.count(b"traceparent:") == 1
        assert made.replace(line, b"") == plain


def test_what_is_not_recorded_goes_out_as_it_is() -> None:
    """Of a tree that is not among the share, and to a subscriber that names a ``traceparent`` itself."""
    given = delivery(of=message(headers=(("traceparent", "00-ab-cd-01"),)))
    own = subscriber(URL, headers=(("traceparent", "00-mine"),))
    for contexts, to in ((traces(0.0), subscriber(URL)), (traces(), own)):
        form = TracedForm(contexts, to, "orders")
        form.make_ready(given, NOW_S, ())
        assert form.render(given, NOW_S, ()) == RequestForm(to, "orders").render(given, NOW_S, ())
