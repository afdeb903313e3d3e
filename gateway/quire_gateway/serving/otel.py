"""Requests as OpenTelemetry spans; imported only when they are wanted.

    POST /v1/chat/completions   SERVER, child of the client's span if there is a traceparent
    └── the engine's            which gets this one's traceparent

A span begins with its request, so that the engine can be told of it. No attribute holds what a
client or a model said.
"""

from typing import TYPE_CHECKING, Any

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from quire_gateway.serving.record import Record
from quire_gateway.serving.trace_context import TraceContext

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


class Spans:
    """Makes the spans of one gateway.

    Parameters
    ----------
    provider
        Sends them.
    """

    def __init__(self, provider: "TracerProvider") -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("quire_gateway")
        self._propagator = TraceContextTextMapPropagator()
        self._running: dict[int, Span] = {}

    def begin(self, record: Record) -> None:
        """Begin a request's span, in its client's trace; the engine will be told of it."""
        given = {} if record.trace.is_made else dict(record.trace.headers)
        parent = {name.decode(): value.decode("latin-1") for name, value in given.items()}
        context = self._propagator.extract(parent)
        span = self._tracer.start_span(f"POST {record.path}", context=context, kind=SpanKind.SERVER)
        told: dict[str, str] = {}
        self._propagator.inject(told, set_span_in_context(span))
        headers = [(name.encode(), value.encode("latin-1")) for name, value in told.items()]
        record.trace = TraceContext(f"{span.get_span_context().trace_id:032x}", headers)
        self._running[id(record)] = span

    def end(self, record: Record) -> None:
        """End it; of what was no request to a model, nothing is sent."""
        span = self._running.pop(id(record), None)
        if span is None or not record.service:
            return
        span.set_attributes(_describe(record))
        if record.status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def close(self) -> None:
        """Send what is left; may take seconds."""
        self._provider.shutdown()


def _describe(record: Record) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "http.request.method": "POST",
        "http.route": record.path,
        "quire.request.id": record.request_id.decode(),
        "quire.service": record.service,
        "quire.engine": record.endpoint,
        "quire.attempts": record.num_attempts,
    }
    if record.status:
        attributes["http.response.status_code"] = record.status
    if record.reason:
        attributes["error.type"] = record.reason
    if record.usage is not None:
        attributes["gen_ai.usage.input_tokens"] = record.usage.num_prompt_tokens
        attributes["gen_ai.usage.output_tokens"] = record.usage.num_output_tokens
    return attributes
