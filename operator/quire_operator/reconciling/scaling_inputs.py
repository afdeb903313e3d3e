"""From a service as it is seen, and what gateways say of it, to the inputs of scaling. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from quire_engine.errors import CapacityError, ConfigError
from quire_engine.profiles.capacity import count_kv_blocks
from quire_engine.profiles.gpus import Gpu, find_gpu
from quire_engine.profiles.roofline import estimate_step_time
from quire_engine.profiles.shapes import ModelShape, Quantization, find_shape
from quire_engine.profiles.shipped import find_shipped
from quire_operator.planner.deployment import is_rolling
from quire_operator.planner.durations import seconds
from quire_operator.planner.engine_pod import products_of
from quire_operator.planner.memory import find_misfits, shape_of_source
from quire_operator.planner.observed import Node, Observed, Pod
from quire_operator.planner.placement import price_of
from quire_operator.reconciling.scaling_reports import Report, SeenEngine
from quire_operator.resource.accelerator import Accelerator
from quire_operator.resource.reading import InferenceService
from quire_operator.resource.spec import Engine as EngineSettings
from quire_operator.resource.times import moment
from quire_operator.scaling.inputs import (
    AcceleratorInputs,
    Capability,
    GpuStock,
    LeavingInputs,
    MemoryPressure,
    Replica,
    ServiceInputs,
    ServiceLevel,
    engine_figures,
)

_MANY_RESTARTS = 3
_MOST_EXPECTED = 1024
"""Pairs of a GPU and settings of an engine."""


def service_inputs(
    observed: Observed, reports: Sequence[Report], num_gateways: int, clock: float
) -> ServiceInputs:
    """All that scaling needs of a service.

    Parameters
    ----------
    reports
        Of gateways, whatever their age.
    num_gateways
        Those that there are.
    clock
        Now, by the clock that reports' times are of.
    """
    service, spec = observed.service, observed.service.spec
    found = [(one, seen) for one in reports if (seen := one.find(service.key)) is not None]
    engines = _newest((engine, clock - one.at) for one, seen in found for engine in seen.engines)
    scaling, pressure = spec.scaling, spec.memory_pressure
    deployments = observed.deployments
    return ServiceInputs(
        key="/".join(service.key),
        mode=scaling.mode,
        is_suspended=spec.suspend,
        priority=spec.priority,
        min_replicas=scaling.min_replicas,
        max_replicas=scaling.max_replicas,
        first_replicas=spec.replicas,
        max_cost_per_hour=float(scaling.max_cost_per_hour) if scaling.max_cost_per_hour else None,
        slo=ServiceLevel(
            first_token_seconds=_seconds(scaling.slo.time_to_first_token),
            per_token_seconds=_seconds(scaling.slo.time_per_output_token),
            percentile=scaling.slo.percentile,
        ),
        pressure=MemoryPressure(
            target=pressure.target / 100,
            background=pressure.background_limit / 100,
            admission=pressure.admission / 100,
        ),
        max_queue_seconds=float(spec.admission.max_queue_seconds),
        scale_to_zero_after_seconds=_seconds(scaling.scale_to_zero_after),
        up_seconds=seconds(scaling.stabilization.up),
        down_seconds=seconds(scaling.stabilization.down),
        accelerators=_accelerators(observed),
        leaving=_leaving(observed),
        replicas=(*_replicas(observed.pods, engines), *_refused(observed)),
        ordered={name: one.replicas for name, one in deployments.items()},
        is_rolling_out=any(
            is_rolling(one.num_updated, one.num_pods, one.replicas) for one in deployments.values()
        ),
        gateways=tuple(seen.figures(one.fleet.gateway, clock - one.at) for one, seen in found),
        num_gateways=num_gateways,
    )


def gpu_stock(nodes: Iterable[Node]) -> tuple[GpuStock, ...]:
    """GPUs by product; an autoscaler may bring more."""
    counts: Counter[str] = Counter()
    for node in nodes:
        if node.is_ready and node.product:
            counts[node.product] += node.num_gpus
    return tuple(GpuStock(product=name, num_gpus=count) for name, count in sorted(counts.items()))


def expected_capability(service: InferenceService, accelerator: Accelerator) -> Capability | None:
    """What a replica should be able to do, by profiles or data sheets; None: not known."""
    try:
        gpu, shape = _gpu_and_shape(service, accelerator)
        if gpu is None or shape is None or accelerator.count > 1:
            return None
        return _expect(gpu, shape, service.spec.engine, service.spec.model.quantization)
    except (CapacityError, ConfigError):
        return None


@lru_cache(maxsize=_MOST_EXPECTED)
def _expect(
    gpu: Gpu, shape: ModelShape, engine: EngineSettings, quantization: Quantization
) -> Capability:
    """Computed once: it is asked for in each round, and services are alike."""
    kv_bytes = 4 if engine.kv_cache_dtype == "float32" else 2
    num_blocks = count_kv_blocks(
        gpu,
        shape,
        block_size=engine.block_size,
        quantization=quantization,
        kv_bytes_per_element=kv_bytes,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs,
    )
    shipped = find_shipped(gpu.name, shape) if quantization == "none" else None
    return Capability(
        step_time=shipped.step_time
        if shipped
        else estimate_step_time(
            gpu, shape, quantization=quantization, kv_bytes_per_element=kv_bytes
        ),
        num_blocks=max(num_blocks - 1, 1),
        block_size=engine.block_size,
        max_num_seqs=engine.max_num_seqs,
        max_step_tokens=engine.max_num_batched_tokens,
    )


def _gpu_and_shape(
    service: InferenceService, accelerator: Accelerator
) -> tuple[Gpu | None, ModelShape | None]:
    if accelerator.simulate:
        return find_gpu(accelerator.simulate.gpu), find_shape(accelerator.simulate.model_shape)
    gpus = [find_gpu(product) for product in accelerator.products]
    # of the same memory the slowest: nobody chooses which of them a replica gets
    least = min(
        gpus, key=lambda gpu: (gpu.memory_bytes, gpu.bandwidth_bytes_per_second), default=None
    )
    return least, shape_of_source(service.spec.model.source)


def _accelerators(observed: Observed) -> tuple[AcceleratorInputs, ...]:
    service = observed.service
    misfits = {one.accelerator: one.message for one in find_misfits(service)}
    short = {
        one.name: moment(one.short_since).timestamp()
        for one in service.status.accelerators
        if one.short_since
    }
    made_of = {name: one.inputs_hash for name, one in observed.deployments.items()}
    return tuple(
        AcceleratorInputs(
            name=one.name,
            products=one.products,
            gpus_per_replica=one.count,
            cost_per_hour=price_of(one),
            min_replicas=one.min_replicas,
            max_replicas=one.max_replicas,
            provision_timeout_seconds=seconds(one.provision_timeout),
            expected=expected_capability(service, one),
            unusable_because=misfits.get(one.name, ""),
            short_since=short.get(one.name),
            made_of=made_of.get(one.name, ""),
        )
        for one in service.spec.accelerators
    )


def _leaving(observed: Observed) -> tuple[LeavingInputs, ...]:
    names = {one.name for one in observed.service.spec.accelerators}
    return tuple(
        LeavingInputs(
            name=name, replicas=one.replicas, products=products_of(one.live_template or {})
        )
        for name, one in observed.deployments.items()
        if name not in names and one.replicas
    )


def _replicas(
    pods: Iterable[Pod], engines: Mapping[str, tuple[SeenEngine, float]]
) -> Iterable[Replica]:
    for pod in pods:
        seen = engines.get(address_of(pod))
        figures = None
        if seen is not None and seen[0].state is not None:
            figures = engine_figures(seen[0].state, seen[1])
        yield Replica(
            name=pod.name,
            accelerator=pod.accelerator,
            is_scheduled=pod.is_scheduled,
            is_ready=pod.is_ready,
            is_missed=pod.has_ready_containers and not pod.is_ready,
            is_failing=not pod.is_ready
            and (bool(pod.waiting_reason) or pod.num_restarts >= _MANY_RESTARTS),
            is_ending=pod.is_ending,
            waiting_since=pod.unschedulable_since.timestamp() if pod.unschedulable_since else None,
            engine=figures,
        )


def _refused(observed: Observed) -> Iterable[Replica]:
    """Replicas that may not be made, by a quota or a webhook: nothing is to be expected of them."""
    for name, deployment in observed.deployments.items():
        there = sum(pod.accelerator == name and not pod.is_ending for pod in observed.pods)
        missing = deployment.replicas - there if deployment.refused_pods else 0
        for number in range(max(missing, 0)):
            yield Replica(
                name=f"{name} refused {number}",
                accelerator=name,
                is_scheduled=False,
                is_ready=False,
                is_failing=True,
            )


def address_of(pod: Pod) -> str:
    """As gateways name an engine."""
    host = f"[{pod.address}]" if ":" in pod.address else pod.address
    return f"{host}:{pod.port}"


def _newest(
    seen: Iterable[tuple[SeenEngine, float]],
) -> dict[str, tuple[SeenEngine, float]]:
    """Engines by address with the ages of their states, as the gateway has them that heard last."""
    found: dict[str, tuple[SeenEngine, float]] = {}
    for engine, age in seen:
        silent = engine.silent_seconds + age
        known = found.get(engine.address)
        if engine.state is not None and (known is None or silent < known[1]):
            found[engine.address] = engine, silent
    return found


def _seconds(duration: str | None) -> float | None:
    return seconds(duration) if duration else None
