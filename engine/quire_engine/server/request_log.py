"""A line in the log for each request, when it is wanted: figures, not what a client said."""

import logging

from quire_engine.server.request_record import GenerationFigures, RequestRecord

_log = logging.getLogger(__name__)


class RequestLog:
    """Writes at level info if the operator wants a line for each request, else at debug.

    A server that answers thousands a second would spend its time on writing them.
    """

    def __init__(self, *, is_wanted: bool) -> None:
        self._level = logging.INFO if is_wanted else logging.DEBUG
        self._is_on = _log.isEnabledFor(self._level)

    def write(self, record: RequestRecord) -> None:
        """Write the line of a request that has ended."""
        if not self._is_on:
            return
        seconds = record.ended_at - record.started_at
        fields = {
            "method": record.method if record.method.isalpha() else "other",
            "route": record.route,
            "status": record.status or "left",
            "seconds": round(seconds, 6),
            **_figures(record.generations),
        }
        words = " ".join(f"{name}={value}" for name, value in fields.items())
        _log.log(self._level, "request %s", words, extra={"fields": fields})


def _figures(generations: list[GenerationFigures]) -> dict[str, object]:
    """Sums over a request's sequences; times are those of the first."""
    if not generations:
        return {}
    first = generations[0]
    figures: dict[str, object] = {
        "finish_reason": ",".join(sorted({one.finish_reason for one in generations})),
        "prompt_tokens": sum(one.num_prompt_tokens for one in generations),
        "cached_tokens": sum(one.num_cached for one in generations),
        "generated_tokens": sum(one.num_generated for one in generations),
    }
    times = {
        "queue_seconds": first.queue_seconds,
        "prefill_seconds": first.prefill_seconds,
        "decode_seconds": first.decode_seconds,
    }
    return figures | {name: round(value, 6) for name, value in times.items() if value is not None}
