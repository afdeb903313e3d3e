"""A plan in words: what each GPU does, what the mix costs, and what each type alone would."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from quire_local.simulate.bursts import BURST_SECONDS, find_burst
from quire_local.simulate.hardware import EngineType, Limits, ServiceLevel
from quire_local.simulate.prices import COLUMN, MEANING, Total, in_words, per_million, sum_up
from quire_local.simulate.sizing import (
    ACCEPTED,
    SizedWindow,
    count_output_tokens,
    count_unserved,
    measure_capacity,
    size,
    split_by_length,
)
from quire_local.simulate.workload import Workload
from quire_local.words import counted, rounded, share
from quire_operator.scaling.capacity import Capacity, Incapable


def describe(
    workload: Workload, types: Sequence[EngineType], slo: ServiceLevel, limits: Limits
) -> str:
    """What is asked, what each type does of it, and the mix for its mean."""
    seconds = max(workload.seconds, 1.0)
    buckets = split_by_length(workload.trace, seconds)
    asked = (
        f"{workload.name}: {counted(len(workload.trace), 'request')} in {seconds:.0f} s,"
        f" {rounded(workload.requests_per_second)} a second"
    )
    lengths = (
        f"on the mean {fmean(one.num_prompt_tokens for one in workload.trace):.0f} tokens of prompt"
        f" and {fmean(one.num_output_tokens for one in workload.trace):.0f} of output"
    )
    header = f"{'GPU':10}{'$ / hour':>9}{'requests/s':>12}{'$ / 1000':>10}{COLUMN:>14}"
    lines = [asked, lengths, "", f"{header}  {'step times':12}runs out first"]
    lines += [_gpu(kind, measure_capacity(kind, buckets, slo, limits)) for kind in types]
    mix = size(types, buckets, slo, limits=limits)
    left = count_unserved(mix, buckets)
    unserved = f"; {left:.2%} of the requests are served by none" if left > 1e-4 else ""
    price = in_words(per_million(mix.cost / 3600, count_output_tokens(mix, buckets)))
    lines.append(
        f"\nfor the mean of all traffic: {_words(mix.replicas)}, ${mix.cost:.2f} an hour,"
        f" ${price} a million output tokens{unserved}"
    )
    if sum(1 for count in mix.replicas.values() if count) > 1:
        lines.append(
            "requests/s are of replicas that get prompts of all lengths: beside faster ones, which"
            " get the long ones, they do more"
        )
    return "\n".join(lines) + "\n"


def _gpu(kind: EngineType, found: Capacity | Incapable) -> str:
    """What one replica of a type does, and what that costs."""
    source = "measured" if kind.is_measured else "data sheet"
    rate = of_requests = of_tokens = "-"
    if isinstance(found, Capacity):
        a_second = kind.dollars_per_hour / 3600
        rate = f"{found.requests_per_second:.2f}"
        of_requests = f"{1e3 * a_second / found.requests_per_second:.3f}"
        of_tokens = in_words(per_million(a_second, found.tokens_per_second))
        short = not found.loads.are_served.all()
        ends = f"{found.binding}{', not for the longest prompts' if short else ''}"
    else:
        ends = found.reason
    return (
        f"{kind.name:10}{kind.dollars_per_hour:9.2f}{rate:>12}{of_requests:>10}{of_tokens:>14}"
        f"  {source:12}{ends}"
    )


def compare(sized: Sequence[SizedWindow], singles: Mapping[str, Sequence[SizedWindow]]) -> str:
    """The mix of each window against single types."""
    of_mix = sum_up(sized)
    of_singles = {name: sum_up(windows) for name, windows in singles.items()}
    names = {"the mix": of_mix} | {f"{name} alone": one for name, one in of_singles.items()}
    lines = [
        f"{'anew for each window':20}{'$ / hour':>10}{'$ in all':>11}{COLUMN:>14}{'served':>9}",
        *map(_row, names, names.values()),
        f"{MEANING} of requests that are served as promised",
        "",
    ]
    if of_mix.served_share < 1.0 - 1e-4:
        lines.append(f"only {share(of_mix.served_share)} of the requests can be served as promised")
    peak = max(sized, key=lambda one: one.dollars_per_hour)
    lines.append(f"at the most: {_words(peak.replicas)}, ${peak.dollars_per_hour:.2f} an hour")
    able = {
        name: one.dollars for name, one in of_singles.items() if one.served_share >= 1.0 - ACCEPTED
    }
    if able:
        best = min(able, key=lambda name: able[name])
        lines.append(
            f"the best single type, {best}: ${able[best]:.2f}, so the mix is"
            f" {of_mix.dollars / able[best] if able[best] else 1.0:.2f} of it"
        )
    return "\n".join(lines)


def _row(name: str, total: Total) -> str:
    return (
        f"{name:20}{total.dollars_per_hour:10.2f}{total.dollars:11.2f}"
        f"{in_words(total.dollars_per_million_output_tokens):>14}{share(total.served_share):>9}"
    )


def burst_hint(workload: Workload, sized: Sequence[SizedWindow]) -> str:
    """What the means of windows hide, and what to ask instead; empty where they hide nothing."""
    burst = find_burst(workload.trace, sized)
    if burst is None:
        return ""
    seconds = f"{BURST_SECONDS:.0f}"
    return (
        f"bursts: {burst.num_requests} requests come within {seconds} s at second {burst.at:.0f},"
        f" where the mean of the window is {burst.usual:.1f}, and no replica starts as fast:"
        f" --window {seconds}s plans for the peaks, quire simulate --scaler fixed tries it"
    )


def next_step(sized: Sequence[SizedWindow]) -> str:
    """What a plan does not know, and the command that does: the mix for the mean is no advice."""
    peak = max(sized, key=lambda one: one.dollars_per_hour)
    fixed = ",".join(f"{name}={number}" for name, number in peak.replicas.items() if number)
    tried = f"; --scaler fixed --fixed {fixed} tries the dearest window's mix" if fixed else ""
    return (
        "starts, queues and bursts within a window are not in it: quire simulate with the same"
        f" traffic, model and promises says what is kept{tried}"
    )


def list_windows(sized: Sequence[SizedWindow]) -> str:
    """A line for the mix of each window."""
    rows = [
        f"{one.at:9.0f}{one.requests_per_second:12.2f}{one.dollars_per_hour:10.2f}"
        f"{in_words(sum_up([one]).dollars_per_million_output_tokens):>14}  {_words(one.replicas)}"
        for one in sized
    ]
    header = f"{'second':>9}{'requests/s':>12}{'$ / hour':>10}{COLUMN:>14}  replicas"
    return "\n".join(["", header, *rows])


def _words(replicas: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in replicas.items() if count) or "none"
