"""Which figures from outside make sense: others are left out before anything is computed.

What gateways and engines say is JSON of any numbers, and an engine is somebody's own pod. Counts
may be far too large for a float, and times so short that a replica would do anything: that must
not reach arithmetic, where it would stop the decision.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from quire_engine.profiles.step_time import StepTimeModel
from quire_operator.scaling.decision import Finding
from quire_operator.scaling.inputs import (
    AcceleratorInputs,
    Capability,
    EngineFigures,
    GatewayFigures,
    Replica,
    ServiceInputs,
)

_MOST_REQUESTS = 1 << 40
_MOST_TOKENS = 1 << 53
_MOST_LENGTH = 1 << 30
"""Tokens of a request."""
_MOST_BUCKETS = 1000
_MOST_SECONDS = 1e10
_MOST_WORK = 1 << 62
"""Tokens of a step, as models that cover anything say it."""
_MOST_STEP_SECONDS = 1e4
"""Of a step, and of any coefficient of its time."""
_LEAST_STEP_SECONDS = 1e-6
_MOST_BLOCKS = 1 << 40
_MOST_BLOCK_SIZE = 1 << 16
_MOST_SEATS = 1 << 20
_MOST_STEP_TOKENS = 1 << 30
_REFERENCE = (16, 16_384)
"""Decodes and context of an ordinary step."""


def keep_sound(service: ServiceInputs) -> tuple[ServiceInputs, list[Finding]]:
    """A service with the figures that make sense, and what was left out.

    What is left out was not heard. Objects that are sound stay the same ones.
    """
    gateways = tuple(one for one in service.gateways if _is_sound_gateway(one))
    num_gateways = len(service.gateways) - len(gateways)
    replicas = tuple(map(_without_nonsense, service.replicas))
    engines = [
        one.name
        for one, kept in zip(service.replicas, replicas, strict=True)
        if one.engine is not kept.engine
    ]
    accelerators = tuple(map(_with_sound_expectation, service.accelerators))
    findings = []
    if num_gateways:
        findings.append(_nonsense(f"{num_gateways} of {len(service.gateways)} gateways"))
    if engines:
        findings.append(_nonsense(f"engines ({', '.join(engines[:3])})"))
    made = replace(
        service,
        gateways=gateways,
        num_gateways=max(service.num_gateways, len(service.gateways)),
        replicas=replicas,
        accelerators=accelerators,
    )
    return made, findings


def _is_sound_gateway(gateway: GatewayFigures) -> bool:
    """Whether a gateway's counts are of a size and shape that there is."""
    prompts, outputs = gateway.prompt_bounds, gateway.output_bounds
    requests = (
        *gateway.arrivals,
        *(count for row in gateway.ended for count in row),
        gateway.num_unserved,
        gateway.num_first_token_met,
        gateway.num_first_token_missed,
        gateway.num_per_token_met,
        gateway.num_per_token_missed,
        gateway.num_waiting,
        gateway.num_background_waiting,
    )
    tokens = (gateway.prompt_tokens, gateway.output_tokens, gateway.cached_tokens)
    return (
        _are_bounds(prompts)
        and _are_bounds(outputs)
        and len(gateway.arrivals) == len(gateway.ended) == len(prompts) + 1
        and all(len(row) == len(outputs) + 1 for row in gateway.ended)
        and all(0 <= one <= _MOST_REQUESTS for one in requests)
        and all(0 <= one <= _MOST_TOKENS for one in tokens)
        and all(0 <= one <= _MOST_SECONDS for one in (gateway.seconds, gateway.oldest_seconds))
    )


def _is_sound_capability(capability: Capability) -> bool:
    """Whether a replica of these sizes and times can be."""
    sizes = (
        (capability.num_blocks, _MOST_BLOCKS),
        (capability.block_size, _MOST_BLOCK_SIZE),
        (capability.max_num_seqs, _MOST_SEATS),
        (capability.max_step_tokens, _MOST_STEP_TOKENS),
    )
    return all(1 <= one <= most for one, most in sizes) and _is_sound_time(capability.step_time)


def _is_sound_time(model: StepTimeModel) -> bool:
    """The model has seen to signs and order itself."""
    tokens = (
        *model.compute_tokens,
        *model.context_tokens,
        *model.padded_tokens,
        model.limits.num_decodes,
        model.limits.context_tokens,
        model.limits.prefill_tokens,
    )
    seconds = (
        *model.compute_seconds,
        *model.context_seconds,
        model.seconds_per_sequence,
        model.seconds_per_context_token,
        model.seconds_per_pair,
        model.floor_seconds,
        model.prompt_seconds,
        model.mixed_seconds,
        model.prompt_floor_seconds,
        model.mixed_floor_seconds,
    )
    return (
        all(one <= _MOST_WORK for one in tokens)
        and all(one <= _MOST_STEP_SECONDS for one in seconds)
        and model.predict(1, 1) >= _LEAST_STEP_SECONDS
        and model.predict(*_REFERENCE) <= _MOST_STEP_SECONDS
    )


def _are_bounds(bounds: Sequence[int]) -> bool:
    return (
        0 < len(bounds) <= _MOST_BUCKETS
        and bounds[0] >= 1
        and bounds[-1] <= _MOST_LENGTH
        and all(low < high for low, high in pairwise(bounds))
    )


def _is_sound_engine(engine: EngineFigures) -> bool:
    counts = (
        engine.num_held_blocks,
        engine.num_reserved_blocks,
        engine.num_blocks,
        engine.num_running,
        engine.num_waiting,
    )
    # the pressure of a hopeless queue is as large as it likes; how old it is, hearing sees
    is_pressure = 0 <= engine.pressure < math.inf
    return is_pressure and all(0 <= one <= _MOST_REQUESTS for one in counts)


def _without_nonsense(replica: Replica) -> Replica:
    engine = replica.engine
    if engine is None:
        return replica
    if not _is_sound_engine(engine):
        return replace(replica, engine=None)
    if engine.capability is not None and not _is_sound_capability(engine.capability):
        return replace(replica, engine=replace(engine, capability=None))
    return replica


def _with_sound_expectation(accelerator: AcceleratorInputs) -> AcceleratorInputs:
    expected = accelerator.expected
    if expected is None or _is_sound_capability(expected):
        return accelerator
    return replace(accelerator, expected=None)


def _nonsense(who: str) -> Finding:
    return Finding(
        code="MetricsStale", message=f"{who} tell figures that cannot be, which are not used"
    )
