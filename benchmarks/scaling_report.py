"""The scaling benchmark's figures as a page of tables."""

from collections.abc import Sequence
from itertools import groupby

from benchmarks.scaling_runs import ScalingRun

_HEADING = (
    "| scaler | cost $ | vs oracle | vs single | SLO kept | first token | a token | refused | lost"
    " | changes/h | replica-hours |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
)
GOALS = {"attainment": 0.99, "cost_vs_oracle": 1.10, "changes_vs_keda": 0.5}


def write_markdown(runs: Sequence[ScalingRun]) -> str:
    """A table for each case, and what quire comes to beside its goals."""
    parts = [
        "# Scaling, simulated\n",
        (
            "Made by `python -m benchmarks.scaling`. Every scaler sees the same requests, GPUs,"
            " gateway and engines; replicas take 90 s to start, but for the oracle's, which knows"
            " the trace. SLO kept is the share of all requests that were answered whole with both"
            " promises met; first token and a token are 95th percentiles. The best single type may"
            " leave a hundredth of the requests unserved, whose prompts are too long for it; that"
            " for all serves every prompt, and is listed where it is another one. Where the money"
            " goes, and what was tried: `docs/design/scaling.md`.\n"
        ),
    ]
    ordered = sorted(runs, key=lambda one: one.case)
    cases = [list(of_case) for _, of_case in groupby(ordered, key=lambda one: one.case)]
    parts += [_summary(cases), *map(_table, cases)]
    return "\n".join(parts)


def _summary(cases: Sequence[Sequence[ScalingRun]]) -> str:
    """One line for each case."""
    lines = [
        "| case | quire kept | oracle kept | cost / oracle | / single | / for all | changes/keda |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for runs in cases:
        quire, oracle, single = (find(runs, one) for one in ("quire", "oracle", "single"))
        if quire is None:
            continue
        lines.append(
            f"| {quire.case} | {quire.attainment:.2%}"
            f" | {oracle.attainment if oracle else 0:.2%}"
            f" | {_ratio(quire, oracle)} | {_ratio(quire, single)}"
            f" | {_ratio(quire, find(runs, 'single-all') or single)}"
            f" | {_changes(quire, find(runs, 'keda'))} |"
        )
    return "\n".join(lines) + "\n"


def find(runs: Sequence[ScalingRun], scaler: str) -> ScalingRun | None:
    """The run of a scaler."""
    return next((one for one in runs if one.scaler == scaler), None)


def _table(runs: Sequence[ScalingRun]) -> str:
    oracle, single = find(runs, "oracle"), find(runs, "single")
    lines = [f"## {runs[0].case}\n", _HEADING]
    for one in runs:
        hours = ", ".join(f"{name} {value:.1f}" for name, value in one.replica_hours.items())
        first = "never" if one.first_token_seconds is None else f"{one.first_token_seconds:.2f} s"
        each = "-" if one.per_token_seconds is None else f"{one.per_token_seconds * 1e3:.0f} ms"
        lines.append(
            f"| {one.label} | {one.dollars:.2f} | {_ratio(one, oracle)} | {_ratio(one, single)}"
            f" | {one.attainment:.2%} | {first} | {each} | {one.num_refused} | {one.num_lost}"
            f" | {one.changes_per_hour:.1f} | {hours} |"
        )
    bound = runs[0].lower_bound_dollars
    return "\n".join([*lines, f"\nThe oracle's mix, computed: ${bound:.2f}.\n"])


def _ratio(one: ScalingRun, other: ScalingRun | None) -> str:
    return f"{one.dollars / other.dollars:.2f}" if other and other.dollars else "-"


def _changes(one: ScalingRun, other: ScalingRun | None) -> str:
    if other is None or not other.changes_per_hour:
        return "-"
    return f"{one.changes_per_hour / other.changes_per_hour:.2f}"
