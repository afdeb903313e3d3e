"""Requests as OpenTelemetry traces; imported only when they are wanted.

    chat llama3-8b          SERVER, child of the caller's span if there is a traceparent
    ├── queue               from arrival to the first start
    ├── prefill             to the first token
    └── decode              to the last

All spans of a request are made when it has ended, from its record: while it runs nothing is done
for them. Names are those of the GenAI conventions. No attribute holds what a client or a model
said.
"""

from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from quire_engine import __version__
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.server.request_record import GenerationFigures, RequestRecord

_OPERATIONS = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion"}
_MAX_TRACED_SEQUENCES = 16
"""Of a request with more sequences, so many have spans of their own."""
_PARENT_HEADERS = ("traceparent", "tracestate")

Attributes = dict[str, Any]


class OtelTracing:
    """Makes spans of requests that have ended.

    Parameters
    ----------
    provider
        Sends them.
    """

    def __init__(self, provider: TracerProvider, *, model_name: str) -> None:
        self._model_name = model_name
        self._provider = provider
        self._tracer = provider.get_tracer("quire_engine", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def export(self, record: RequestRecord) -> None:
        """Make the spans of a request, if it is one that generates and was let in."""
        operation = _operation(record)
        if operation is None:
            return
        span = self._tracer.start_span(
            f"{operation} {self._model_name}",
            context=self._propagator.extract(_parent(record)),
            kind=SpanKind.SERVER,
            start_time=record.started_ns,
        )
        if span.is_recording():
            span.set_attributes(self._describe(record, operation))
            if record.status >= 500:
                span.set_status(Status(StatusCode.ERROR))
            for generation in record.generations[:_MAX_TRACED_SEQUENCES]:
                self._export_phases(record, generation, span)
        span.end(record.ns_of(record.ended_at))

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    def _describe(self, record: RequestRecord, operation: str) -> Attributes:
        attributes: Attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "quire",
            "gen_ai.request.model": self._model_name,
            "gen_ai.response.model": self._model_name,
            "http.request.method": record.method,
            "http.route": record.route,
            "quire.request.id": record.request_id,
        }
        if record.status:
            attributes["http.response.status_code"] = record.status
        if record.status >= 400:
            attributes["error.type"] = str(record.status)
        if record.generations:
            attributes |= _usage(record.generations)
        return attributes

    def _export_phases(
        self, record: RequestRecord, generation: GenerationFigures, parent: Span
    ) -> None:
        context = set_span_in_context(parent)
        end = record.ended_at if generation.ended_at is None else generation.ended_at
        start = generation.arrived_at
        for name, seconds in (
            (
                "queue",
                end - start if generation.queue_seconds is None else generation.queue_seconds,
            ),
            ("prefill", generation.prefill_seconds),
            ("decode", generation.decode_seconds),
        ):
            if seconds is None:
                break
            begin, start = start, min(start + seconds, end)
            span = self._tracer.start_span(name, context=context, start_time=record.ns_of(begin))
            span.end(record.ns_of(start))


def _operation(record: RequestRecord) -> str | None:
    if record.method != "POST" or not record.route.startswith("/v1/"):
        return None
    return _OPERATIONS.get(record.route, record.route.removeprefix("/v1/"))


def _usage(generations: list[GenerationFigures]) -> Attributes:
    """Sizes and parameters; sequences of one prompt count it once, as in the answer's usage."""
    prompts = {id(one.prompt_token_ids): one for one in generations}.values()
    usage: Attributes = {
        "gen_ai.usage.input_tokens": sum(one.num_prompt_tokens for one in prompts),
        "gen_ai.usage.output_tokens": sum(one.num_generated for one in generations),
        "gen_ai.usage.cache_read.input_tokens": sum(one.num_cached for one in prompts),
        "gen_ai.response.finish_reasons": [one.finish_reason for one in generations],
    }
    if len(generations) > 1:
        usage["gen_ai.request.choice.count"] = len(generations)
    return usage | _parameters(generations[0].sampling)


def _parameters(sampling: SamplingParams) -> Attributes:
    values = {
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": sampling.top_k,
        "gen_ai.request.seed": sampling.seed,
    }
    return {name: value for name, value in values.items() if value is not None}


def _parent(record: RequestRecord) -> dict[str, str]:
    """The caller's place in its trace, as its headers say."""
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in record.scope["headers"]
        if name.decode("latin-1") in _PARENT_HEADERS
    }
