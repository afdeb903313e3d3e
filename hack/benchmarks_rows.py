"""Rows of the page of benchmarks, from what the benchmarks wrote."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

_RESULTS = Path(__file__).resolve().parent.parent / "benchmarks/results"
_THRESHOLDS = ("held_0.8", "held_0.9", "held_0.95")
Rows = list[Sequence[str]]


def admission() -> Rows:
    """At twice the capacity."""
    runs = [one for one in _read("admission")["runs"] if one["load"] == 2.0]
    found: Rows = []
    for case in dict.fromkeys(one["case"] for one in runs):
        means = {
            policy: _mean(one["goodput"] for one in runs if _is(one, case=case, policy=policy))
            for policy in ("quire", "unbounded", *_THRESHOLDS)
        }
        best = max(means[one] for one in _THRESHOLDS)
        ratio = f"{means['quire'] / best:.2f}"
        found.append(
            (case, *(f"{x:,.0f}" for x in (means["quire"], best, means["unbounded"])), ratio)
        )
    return found


def fleet() -> Rows:
    """Means over the parts of the trace."""
    runs = _read("fleet")
    found: Rows = []
    for case in dict.fromkeys(one["case"] for one in runs):
        for router in dict.fromkeys(one["router"] for one in runs):
            these = [one for one in runs if _is(one, case=case, router=router)]
            good, refused = (
                _mean(one[key] for one in these) for key in ("good_share", "refused_share")
            )
            tokens = _mean(one["goodput"] for one in these)
            found.append((case, router, f"{tokens:,.0f}", _percent(good), _percent(refused)))
    return found


def gateway() -> Rows:
    """Every program between client and upstream; "-": not measured (LiteLLM's streams)."""
    routers = _read("gateway")["routers"]
    alone = {"p50_ms": routers["engine alone"]["p50_ms"]}
    columns = {
        "short_cpu_us": 1,
        "chunk_cpu_us": 1,
        "kb_per_stream": 1,
        "p50_ms": 2,
        "lag_p99_ms": 1,
    }
    return [
        (
            name,
            *(
                f"{one[key] - alone.get(key, 0):,.{digits}f}" if key in one else "-"
                for key, digits in columns.items()
            ),
        )
        for name, one in routers.items()
        if "short_cpu_us" in one
    ]


def gateway_faults() -> Rows:
    """Each fault."""
    return [
        (
            one["case"],
            f"{one['num_requests']:,}",
            str(sum(one["errors"].values())),
            str(one["num_lost"]),
            f"{one['worst_first_byte_seconds']:.2f}",
        )
        for one in _read("gateway_faults")
    ]


def scaling() -> Rows:
    """Each case and scaler."""
    return [
        (
            one["case"],
            one["label"],
            f"{one['dollars']:.2f}",
            _percent(one["attainment"]),
            f"{one['num_refused']:,}",
            f"{one['changes_per_hour']:.1f}",
        )
        for one in _read("scaling")
    ]


def scaling_faults() -> Rows:
    """Each fault and scaler."""
    return [
        (
            one["fault"],
            one["scaler"],
            f"{one['dollars']:.2f}",
            _percent(one["attainment"]),
            f"{one['num_refused']:,}",
            f"{one['num_lost']:,}",
        )
        for one in _read("scaling_faults")
    ]


def cpu() -> Rows:
    """How many times as fast."""
    found = _read("cpu")
    pieces = {
        "prefill": "prompt",
        "decode_1": "one request's tokens",
        "decode_8": "tokens of eight requests",
    }
    return [
        (words, *(_times(found.get(f"{key}_vs_{peer}")) for peer in ("llamacpp", "transformers")))
        for key, words in pieces.items()
    ]


def others() -> Rows:
    """Single figures."""
    http, operator, reality = map(_read, ("http", "operator_scale", "simulate_reality"))
    per_token = min(one["api_cpu_microseconds_per_token"] for one in http["runs"])
    scaled = operator["scaling on"]
    ready, most = scaled["seconds_until_all_ready"], scaled["peak_memory_mib"]
    follows = scaled["spec_to_deployment_seconds"]
    first = [f"{reality[f'first_token_{at}_ratio']:.2f}" for at in ("p50", "p95", "p99")]
    return [
        (
            "streamed tokens a second of one engine's API server",
            f"{http['streamed_tokens_per_second']:,.0f}, {per_token:.1f} us of a core each",
            "`benchmarks.http`",
        ),
        (
            f"{scaled['services']} services by one operator that scales them",
            f"{ready:.0f} s until all are ready, {most:.0f} MiB at most",
            "`benchmarks.operator_scale`",
        ),
        (
            "a changed spec of one of them in its Deployment",
            f"p50 {follows['p50']:.2f} s, p99 {follows['p99']:.2f} s",
            "`benchmarks.operator_scale`",
        ),
        (
            "simulated against real: throughput; first token at p50, p95 and p99",
            f"{reality['throughput_ratio']:.2f}; {', '.join(first)} times",
            "`benchmarks.simulate_reality`",
        ),
    ]


def _read(name: str) -> Any:  # noqa: ANN401 - each benchmark has a form of its own
    return json.loads((_RESULTS / f"{name}.json").read_text("utf-8"))


def _is(one: dict[str, Any], **wanted: str) -> bool:
    return all(one[key] == value for key, value in wanted.items())


def _mean(values: Iterable[float]) -> float:
    return fmean(list(values))


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"
