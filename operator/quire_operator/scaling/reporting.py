"""A decision in words and figures."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from quire_operator.scaling.case import Case, Step
from quire_operator.scaling.clamping import contradiction
from quire_operator.scaling.decision import (
    AcceleratorFigures,
    Finding,
    ServiceDecision,
    ServiceMemory,
)
from quire_operator.scaling.victims import choose_victims


def report(case: Case, memory: ServiceMemory, step: Step) -> ServiceDecision:
    """Make the decision of a step."""
    wanted = step.replicas if step.wanted is None else step.wanted
    victims = step.victims
    if victims is None:
        victims = choose_victims(case.service.replicas, case.fleet.ordered, step.replicas)
    return ServiceDecision(
        key=case.service.key,
        action=step.action,
        replicas=dict(step.replicas),
        wanted=dict(wanted),
        victims=victims,
        traffic_shares=memory.shares,
        reason=step.reason,
        inputs=_inputs(case, memory),
        findings=(
            *case.findings,
            *_hearing(case),
            *_shortness(case, memory),
            *_failures(case),
            *_too_few(case, step),
        ),
        are_metrics_fresh=case.heard.is_all,
        short_since=_short_since(case, memory),
        accelerators=_accelerators(case, wanted),
        requests_per_second=case.demand.rate if case.demand else None,
        pressure=case.pressure.value if case.pressure else None,
        binding=case.pressure.binding if case.pressure else "",
        oldest_input_seconds=_oldest(case),
    )


def _inputs(case: Case, memory: ServiceMemory) -> dict[str, str]:
    """Figures for people, in the order in which they matter."""
    service, heard = case.service, case.heard
    found = {"target": f"{100 * service.pressure.target:.0f} %"}
    if case.demand is not None:
        found["requests"] = f"{case.demand.rate:.3g}/s over {case.demand.window_seconds:.0f} s"
        found["planned"] = f"{sum(case.rates_now):.3g}/s now, {sum(case.rates_at_peak):.3g}/s peak"
        mix = case.offers.mix
        rate = sum(one.rate for one in mix) or 1.0
        prompt = sum(one.prompt_tokens * one.rate for one in mix) / rate
        output = sum(one.output_tokens * one.rate for one in mix) / rate
        found["tokens"] = f"{prompt:.0f} of prompt, {output:.0f} of output"
    if case.pressure is not None:
        found["pressure"] = f"{100 * case.pressure.value:.0f} % of {case.pressure.binding}"
    if heard.is_any:
        found["waiting"] = f"{heard.num_waiting}, the oldest {heard.oldest_seconds:.0f} s"
    found["replicas"] = f"{case.fleet.num_ready} ready of {case.fleet.num_ordered}"
    if memory.correction > 1.0:
        found["correction"] = f"{memory.correction:.2f}"
    for offer in case.offers.offers:
        what = offer.capacity
        words = (
            "not known" if what is None else f"{what.requests_per_second:.3g}/s ({what.binding})"
        )
        found[offer.accelerator.name] = f"{words} for {offer.cost:g} an hour"
    return {name: words[:256] for name, words in found.items()}


def _accelerators(case: Case, wanted: Mapping[str, int]) -> dict[str, AcceleratorFigures]:
    is_known = case.demand is not None and case.offers.are_known and any(case.fleet.useful.values())
    found = {}
    for accelerator in case.service.accelerators:
        name = accelerator.name
        offer = case.offers.find(name)
        what = offer.capacity if offer else None
        found[name] = AcceleratorFigures(
            wanted=wanted.get(name, 0),
            requests_per_second=what.requests_per_second if what else None,
            tokens_per_second=what.tokens_per_second if what else None,
            load=case.load_now if is_known and case.fleet.useful[name] else None,
            binding=what.binding if what else "",
            cost_per_hour=offer.cost if offer else None,
        )
    return found


def _oldest(case: Case) -> float | None:
    ready = [one for one in case.service.replicas if one.is_ready and not one.is_ending]
    ages = [one.age_seconds for one in case.service.gateways]
    ages += [one.engine.age_seconds for one in ready if one.engine is not None]
    return max((age for age in ages if math.isfinite(age)), default=None)


def _hearing(case: Case) -> list[Finding]:
    words = case.heard.explain()
    if not words:
        return []
    if not case.heard.is_any:
        return [Finding(code="NoMetrics", message=f"{words}: the replicas stay as they are")]
    instead = ""
    if num := len(case.heard.silent):
        those = f"{num} that {'has' if num == 1 else 'have'} been silent for long"
        verb = "is" if num == 1 else "are"
        instead = f", and {those} {verb} not counted on for new requests"
    return [Finding(code="MetricsStale", message=f"{words}: none is taken away{instead}")]


def _short_since(case: Case, memory: ServiceMemory) -> dict[str, float]:
    """Accelerators that found no node, of which none was freed since."""
    return {name: one.since for name, one in memory.short.items() if name in case.fleet.blocked}


def _shortness(case: Case, memory: ServiceMemory) -> list[Finding]:
    patience = {one.name: one.provision_timeout_seconds for one in case.service.accelerators}
    return [
        Finding(
            code="ShortOfGpus",
            message=f"{name} found no node within {patience[name]:g} s: others stand in for it, and"
            f" unless a GPU is freed or nothing else can serve, no more of it is asked for before"
            f" {_clock(memory.short[name].until)}",
        )
        for name in _short_since(case, memory)
    ]


def _clock(at: float) -> str:
    """Unix seconds in words, of UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _failures(case: Case) -> list[Finding]:
    """Accelerators whose replicas all fail, or did so lately."""
    found = []
    for name, failure in case.memory.failures.items():
        if case.now < failure.until:
            tries = f"{failure.num_tries} times in a row" if failure.num_tries > 1 else "once"
            words = (
                f"{name} failed {tries} before a replica was ready: unless nothing else can serve,"
                f" none is added before {_clock(failure.until)}, or before what its pods are made"
                " of changes"
            )
        elif name in case.fleet.doubtful:
            words = f"all replicas of {name} fail, and none is added to them"
        else:
            continue
        found.append(Finding(code="ReplicasFail", message=words))
    return found


def _too_few(case: Case, step: Step) -> list[Finding]:
    """Fewer than minReplicas, where nothing has said so."""
    is_said = any(one.code == "Infeasible" for one in case.findings)
    if is_said or sum(step.replicas.values()) >= case.service.min_replicas:
        return []
    return [contradiction("scaling.minReplicas, beside what serves,", case.limits.bounds)]
