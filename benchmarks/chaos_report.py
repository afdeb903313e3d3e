"""What became of requests, from each fault to the next."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.chaos_audit import Audit
from tests.nodes.streams import COMPLETE, CUT, Outcome

_REFUSED = "RateLimitError 429"


@dataclass(frozen=True, kw_only=True)
class Window:
    """The time after a fault, until the next one."""

    at_seconds: float
    fault: str
    num_requests: int
    num_complete: int
    num_refused: int
    """429: there was no room in time."""
    num_cut: int
    """Streams that broke off after their head."""
    errors: dict[str, int]
    """All others, by kind."""
    words: list[str]


def windows_of(
    marks: Sequence[tuple[float, str]], outcomes: Sequence[Outcome], began: float
) -> list[Window]:
    """Outcomes by the fault that was the last one before they ended."""
    ends = [moment for moment, _ in marks[1:]] + [float("inf")]
    return [
        _window(moment - began, fault, [one for one in outcomes if moment <= one.ended_at < end])
        for (moment, fault), end in zip(marks, ends, strict=True)
    ]


def _window(at: float, fault: str, outcomes: Sequence[Outcome]) -> Window:
    kinds = Counter(one.kind for one in outcomes)
    return Window(
        at_seconds=round(at, 1),
        fault=fault,
        num_requests=len(outcomes),
        num_complete=kinds.pop(COMPLETE, 0),
        num_refused=kinds.pop(_REFUSED, 0),
        num_cut=kinds.pop(CUT, 0),
        errors=dict(kinds),
        words=sorted({one.words[:200] for one in outcomes if one.kind not in (COMPLETE, _REFUSED)}),
    )


def write_markdown(windows: Sequence[Window], audit: Audit, minutes: float) -> str:
    """The page."""
    made = (
        f"Made by `python -m benchmarks.chaos --minutes {minutes:g}`: real nodes, the chart, two"
        " gateways behind Contour's Envoy, simulated engines on L4, A100 and H100 that scaling adds"
        " and takes away. Clients are OpenAI's and try nothing again. A request belongs to the last"
        " fault before its end.\n"
    )
    parts = [*_table(windows), "", *_words(windows), *_audited(audit)]
    return "\n".join(["# Chaos\n", made, *parts])


def _table(windows: Sequence[Window]) -> list[str]:
    rows = [
        "| s | what is done | requests | complete | refused (429) | cut | errors |",
        "| ---: | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for one in windows:
        errors = ", ".join(f"{count} {kind}" for kind, count in one.errors.items())
        rows.append(
            f"| {one.at_seconds:.0f} | {one.fault} | {one.num_requests} | {one.num_complete}"
            f" | {one.num_refused} | {one.num_cut} | {errors or 0} |"
        )
    sums = [
        sum(getattr(one, name) for one in windows)
        for name in ("num_requests", "num_complete", "num_refused", "num_cut")
    ]
    num_errors = sum(sum(one.errors.values()) for one in windows)
    counts = " | ".join(map(str, [*sums, num_errors]))
    return [*rows, f"| | all | {counts} |"]


def _words(windows: Sequence[Window]) -> list[str]:
    words = sorted({word for one in windows for word in one.words})
    return ["What clients were told:\n", *(f"- `{one}`" for one in words), ""] if words else []


def _audited(audit: Audit) -> list[str]:
    verdict = "every block is free" if audit.is_clean else "NOT CLEAN"
    state = "ready" if audit.is_ready else "NOT ready"
    rows = [
        f"Blocks audited when nobody asks any more: {verdict}.\n",
        f"The service is {state}. Last decision: {audit.last_reason}\n",
        "| engine | total | free | held | reserved | queued | restarts |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    rows += [
        f"| {one.pod} | {one.total} | {one.free} | {one.held} | {one.reserved} | {one.queued}"
        f" | {one.restarts} |"
        for one in audit.engines
    ]
    return [*rows, ""]
