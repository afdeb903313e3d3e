"""The admission benchmark's figures: keys, a table in markdown, and charts as one SVG."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import sqrt
from statistics import fmean, stdev

from benchmarks.admission_cases import CASES
from benchmarks.admission_runs import Run

TARGETS = {
    "goodput_vs_waiting_at_2x": 10.0,
    "goodput_vs_best_threshold_min": 0.99,
    "goodput_share_of_throughput_min": 0.97,
    "preempted_share_max": 0.01,
    "recomputed_share_max": 0.01,
}
MOST_RATIO = 1000.0
"""What a ratio to a policy that answers nobody well is given as."""

_COLOURS = {
    "quire": "#d62728",
    "unbounded": "#7f7f7f",
    "held_queue": "#8c564b",
    "held_0.8": "#aec7e8",
    "held_0.9": "#6baed6",
    "held_0.95": "#1f77b4",
    "full": "#2ca02c",
}
_WIDTH, _HEIGHT, _MARGIN = 300, 200, 40


def summarize(runs: Sequence[Run]) -> dict[str, float]:
    """Return the keys that have targets, over all cases and loads that were run.

    `goodput_vs_waiting_at_2x` is the smallest ratio to waiting for ever at twice the capacity;
    `goodput_vs_waiting_min` that from 1.5 times on.
    """
    ours = [run for run in runs if run.policy == "quire"]
    waiting = {
        (run.case, run.load): _ratio(_twin(ours, run).goodput, run.goodput)
        for run in runs
        if run.policy == "unbounded"
    }
    worst, error = _compare_with_thresholds(runs)
    return {
        "goodput_vs_waiting_at_2x": min(r for (_, load), r in waiting.items() if load == 2.0),
        "goodput_vs_waiting_min": min(r for (_, load), r in waiting.items() if load >= 1.5),
        "goodput_vs_best_threshold_min": worst,
        "goodput_vs_best_threshold_min_error": error,
        "goodput_share_of_throughput_min": min(_means(ours, "goodput_share")),
        "preempted_share_max": max(_means(ours, "preempted_share")),
        "preempted_share_max_of_a_trace": max(run.preempted_share for run in ours),
        "recomputed_share_max": max(_means(ours, "recomputed_share")),
    }


def _means(ours: Sequence[Run], attribute: str) -> list[float]:
    """Return the means over the traces of each case and load."""
    values: dict[tuple[str, float], list[float]] = {}
    for run in ours:
        values.setdefault((run.case, run.load), []).append(getattr(run, attribute))
    return [fmean(of_traces) for of_traces in values.values()]


def _twin(ours: Sequence[Run], run: Run) -> Run:
    """Return quire's run of the same trace."""
    key = (run.case, run.load, run.seed)
    return next(other for other in ours if (other.case, other.load, other.seed) == key)


def _compare_with_thresholds(runs: Sequence[Run]) -> tuple[float, float]:
    """Return the smallest ratio to a threshold by means over seeds, and its standard error."""
    ours = [run for run in runs if run.policy == "quire"]
    of_threshold: dict[tuple[str, float, str], list[Run]] = {}
    for run in runs:
        if run.policy.startswith("held_0"):
            of_threshold.setdefault((run.case, run.load, run.policy), []).append(run)
    compared = []
    for theirs in of_threshold.values():
        pairs = [(_twin(ours, run).goodput, run.goodput) for run in theirs]
        ratio = _ratio(fmean(our for our, _ in pairs), fmean(their for _, their in pairs))
        ratios = [_ratio(*pair) for pair in pairs]
        error = stdev(ratios) / sqrt(len(ratios)) if len(ratios) > 1 else 0.0
        compared.append((ratio, error))
    return min(compared)


def _ratio(ours: float, other: float) -> float:
    return MOST_RATIO if other <= ours / MOST_RATIO else ours / other


def to_markdown(runs: Sequence[Run]) -> str:
    """Return one table per case: goodput by policy and load, and quire's own figures.

    Of several seeds: mean and standard deviation. The charts show the first.
    """
    return "\n".join(_case_table(name, list(of_case)) for name, of_case in _by_case(runs))


def _by_case(runs: Iterable[Run]) -> Iterable[tuple[str, Iterable[Run]]]:
    return groupby(runs, key=lambda run: run.case)


def _case_table(name: str, runs: Sequence[Run]) -> str:
    case = next(case for case in CASES if case.name == name)
    loads = sorted({run.load for run in runs})
    policies = list(dict.fromkeys(run.policy for run in runs))
    found: dict[tuple[str, float], list[Run]] = {}
    for run in runs:
        found.setdefault((run.policy, run.load), []).append(run)
    rate = runs[0].requests_per_second / runs[0].load
    objectives = f"{case.first_token_seconds:g} s, {1e3 * case.per_token_seconds:g} ms a token"
    lines = [
        f"### {name}: {case.shape} on {case.gpu}, bound by {case.binds}",
        "",
        f"First token within {objectives}; capacity {rate:.3g} requests/s. Goodput, tokens/s:",
        "",
        "| policy | " + " | ".join(f"{load:g}x" for load in loads) + " |",
        "| --- |" + " ---: |" * len(loads),
    ]
    for policy in policies:
        cells = [_goodput(found.get((policy, load), [])) for load in loads]
        lines.append(f"| {policy} | " + " | ".join(cells) + " |")
    for label, attribute in (
        ("quire: share of throughput", "goodput_share"),
        ("quire: preempted", "preempted_share"),
        ("quire: recomputed", "recomputed_share"),
    ):
        means = [fmean(getattr(run, attribute) for run in found["quire", load]) for load in loads]
        shares = [f"{mean:.2%}" for mean in means]
        lines.append(f"| {label} | " + " | ".join(shares) + " |")
    return "\n".join([*lines, ""])


def _goodput(runs: Sequence[Run]) -> str:
    """Return the mean over all seeds, and how far these are apart."""
    if not runs:
        return "-"
    goodputs = [run.goodput for run in runs]
    scatter = f" ± {stdev(goodputs):,.0f}" if len(runs) > 1 else ""
    return f"{fmean(goodputs):,.0f}{scatter}"


def to_svg(runs: Sequence[Run]) -> str:
    """Return charts of goodput over load, one per case, that need nothing but themselves."""
    cases = [(name, list(of_case)) for name, of_case in _by_case(runs)]
    num_rows = -(-len(cases) // 3)
    size = f'width="{3 * _WIDTH}" height="{num_rows * _HEIGHT + 30}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for index, (policy, colour) in enumerate(_COLOURS.items()):
        x = 20 + index * 120
        parts.append(f'<line x1="{x}" x2="{x + 20}" y1="15" y2="15" stroke="{colour}"/>')
        parts.append(f'<text x="{x + 25}" y="19">{policy}</text>')
    for index, (name, of_case) in enumerate(cases):
        row, column = divmod(index, 3)
        parts.append(f'<g transform="translate({column * _WIDTH},{30 + row * _HEIGHT})">')
        parts += [*_chart(name, of_case), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _chart(name: str, runs: Sequence[Run]) -> list[str]:
    runs = [run for run in runs if run.seed == 0]
    most = max(run.goodput for run in runs) or 1.0
    last = max(run.load for run in runs)
    bottom, right = _HEIGHT - 30, _WIDTH - 15
    parts = [
        f'<text x="{_MARGIN}" y="12" font-weight="bold">{name}, tokens/s</text>',
        f'<path d="M{_MARGIN} 20V{bottom}H{right}" fill="none" stroke="black"/>',
        f'<text x="{_MARGIN - 4}" y="28" text-anchor="end">{most:,.0f}</text>',
    ]
    for load in sorted({run.load for run in runs}):
        x = _MARGIN + (right - _MARGIN) * load / last
        parts.append(f'<text x="{x:.0f}" y="{bottom + 14}" text-anchor="middle">{load:g}x</text>')
    for policy, colour in _COLOURS.items():
        points = " ".join(
            f"{_MARGIN + (right - _MARGIN) * run.load / last:.1f},"
            f"{bottom - (bottom - 22) * run.goodput / most:.1f}"
            for run in sorted(runs, key=lambda run: run.load)
            if run.policy == policy
        )
        width = 2.5 if policy == "quire" else 1.2
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
        )
    return parts
