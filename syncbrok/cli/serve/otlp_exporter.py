"""Sends spans to a collector of OpenTelemetry: OTLP over HTTP, as protobuf.

It is imported only where ``traces.endpoint`` is set: it needs packages of an extra. What makes bytes of spans is the
library's. Its own exporter is not used: it sends from a thread, which a collector that hangs would hold at the end of
the process. The connection is the operator's own, like that to the engine: it passes no guard.
"""

from collections.abc import Sequence
from typing import Final

import aiohttp
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from syncbrok import __version__
from syncbrok.config.sections import TracesConfig
from syncbrok.delivery.trace_context import SpanPlace
from syncbrok.model.units import shown_endpoint
from syncbrok.space.trace_spans import TraceSpan
from syncbrok.space.tracer import Sent

_SEND_S: Final = 10.0
_AGAIN: Final = frozenset({408, 429, 502, 503, 504})
_KINDS: Final = {"producer": SpanKind.PRODUCER, "consumer": SpanKind.CONSUMER, "internal": SpanKind.INTERNAL}


class OtlpExporter:
    """See ``SpanExporter``."""

    def __init__(self, config: TracesConfig) -> None:
        self._endpoint = config.endpoint
        self._shown = shown_endpoint(config.endpoint)
        self._headers = {"Content-Type": "application/x-protobuf", **dict(config.headers)}
        self._resource = Resource({"service.name": config.service, "service.version": __version__})
        self._scope = InstrumentationScope("syncbrok", __version__)
        self._session: aiohttp.ClientSession | None = None

    def encode(self, spans: Sequence[TraceSpan]) -> bytes:
        """See ``SpanExporter``."""
        return bytes(encode_spans([self._readable(span) for span in spans]).SerializeToString())

    async def send(self, batch: bytes) -> tuple[Sent, str]:
        """See ``SpanExporter``."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SEND_S))
        try:
            async with self._session.post(
                self._endpoint, data=batch, headers=self._headers, allow_redirects=False
            ) as answer:
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            return Sent.AGAIN, f"{self._shown}: {problem or 'no answer'}"
        if 200 <= status < 300:
            return Sent.YES, ""
        return Sent.AGAIN if status in _AGAIN else Sent.REFUSED, f"{self._shown} answered {status}"

    async def close(self) -> None:
        """See ``SpanExporter``."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _readable(self, span: TraceSpan) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            _context(span.at),
            _context(SpanPlace(span.at.trace, span.parent)) if span.parent else None,
            self._resource,
            span.attributes,
            links=[Link(_context(one, is_remote=True)) for one in span.links],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.start_us * 1_000,
            end_time=span.end_us * 1_000,
            instrumentation_scope=self._scope,
        )


def _context(place: SpanPlace, *, is_remote: bool = False) -> SpanContext:
    trace, span = int.from_bytes(place.trace, "big"), int.from_bytes(place.span, "big")
    return SpanContext(trace, span, is_remote, TraceFlags(TraceFlags.SAMPLED))
