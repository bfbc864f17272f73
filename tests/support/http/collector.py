"""A real collector of OpenTelemetry: takes OTLP over HTTP and reads it as the protocol's own classes do."""

from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking


class SpanRead(NamedTuple):
    """A span as it arrived. Ids are hexadecimal."""

    trace: str
    id: str
    parent: str
    name: str
    kind: str
    start_us: int
    end_us: int
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    error: str


class Collector(Recorder):
    """``spans`` is what has arrived."""

    @property
    def endpoint(self) -> str:
        return self.url + "v1/traces"

    @property
    def spans(self) -> list[SpanRead]:
        return [span for request in self.requests for span in _spans(request.body)]

    def wait_for_spans(self, count: int, timeout_s: float = 20.0) -> list[SpanRead]:
        """All that have arrived once there are so many, by their beginning."""
        eventually_blocking(lambda: len(self.spans) >= count, lambda: f"{count} spans; {self.spans}", timeout_s)
        return sorted(self.spans, key=lambda span: (span.start_us, span.name))


def _spans(body: bytes) -> list[SpanRead]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        SpanRead(
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.name,
            trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
            span.start_time_unix_nano // 1_000,
            span.end_time_unix_nano // 1_000,
            {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes},
            tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
            span.status.message if span.status.code == trace_pb2.Status.STATUS_CODE_ERROR else "",
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
