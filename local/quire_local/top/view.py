"""Everything that is shown at one moment; the same for a table and as JSON."""

from collections.abc import Callable, Iterator

import msgspec

from quire_engine.protocol.messages import BlockCounts
from quire_local.top.look import EngineTold, Look, ServiceKey, ServiceTold, StateTold
from quire_local.top.rates import Rates

STALE_SECONDS = 3.0
"""A state that is older is not believed by gateways."""


class ReplicaView(msgspec.Struct, kw_only=True, frozen=True):
    """One engine."""

    name: str
    """Its pod's, where that is known; else its address."""
    accelerator: str
    phase: str
    """ready, leaving, draining, loading, away."""
    blocks: BlockCounts | None
    running: int
    waiting: int
    pressure: float | None
    """1: it refuses."""
    binding: str
    """Which limit that is: blocks, seats, first_token or step."""
    tokens_per_second: float | None
    """Computed ones, of prompts too; null where the engine does not count them."""
    preemptions: int
    preemptions_per_second: float | None
    age_seconds: float
    """Of what it told last."""
    schema_version: int | None
    """Of its state."""


class ServiceView(msgspec.Struct, kw_only=True, frozen=True):
    """One service."""

    namespace: str
    name: str
    queued: int
    """In gateways."""
    oldest_seconds: float
    requests_per_second: float | None
    refusals_per_second: float | None
    output_tokens_per_second: float | None
    """Of answers that ended."""
    first_byte_p50_seconds: float | None
    first_byte_p95_seconds: float | None
    replicas: list[ReplicaView]


class View(msgspec.Struct, kw_only=True, frozen=True):
    """All of it."""

    source: str
    gateways: list[str]
    problem: str
    """Why what follows is not of now; empty while all answer."""
    age_seconds: float
    services: list[ServiceView]


def make_view(
    look: Look,
    rates: Rates,
    *,
    source: str,
    age_seconds: float = 0.0,
    problem: str = "",
    names: Callable[[str], str] = str,
    chosen: str | None = None,
) -> View:
    """Put it together.

    Parameters
    ----------
    age_seconds
        How old the look is.
    names
        The name of an engine by its address.
    chosen
        Show this service alone: NAME or NAMESPACE/NAME.
    """
    keys = sorted({one.key for gateway in look.gateways for one in gateway.fleet.services})
    return View(
        source=source,
        gateways=[gateway.fleet.gateway for gateway in look.gateways],
        problem=problem or "; ".join(look.problems),
        age_seconds=age_seconds,
        services=[
            _service(look, rates, key, names)
            for key in keys
            if chosen is None or chosen in (key[1], "/".join(key))
        ],
    )


def _service(look: Look, rates: Rates, key: ServiceKey, names: Callable[[str], str]) -> ServiceView:
    told = list(_told(look, key))
    queues = [queue for one in told for queue in one.queue.values()]
    newest: dict[str, EngineTold] = {}
    for engine in (engine for one in told for engine in one.engines):
        known = newest.get(engine.address)
        if known is None or engine.silent_seconds < known.silent_seconds:
            newest[engine.address] = engine
    ordered = sorted(newest.values(), key=lambda one: (one.accelerator, one.address))
    return ServiceView(
        namespace=key[0],
        name=key[1],
        queued=sum(one.waiting for one in queues),
        oldest_seconds=max((one.oldest_seconds for one in queues if one.waiting), default=0.0),
        requests_per_second=rates.of_service(key, lambda one: sum(one.demand.arrivals)),
        refusals_per_second=rates.of_service(key, lambda one: sum(one.demand.refusals.values())),
        output_tokens_per_second=rates.of_service(key, lambda one: one.demand.output_tokens),
        first_byte_p50_seconds=rates.first_byte(key, 0.5),
        first_byte_p95_seconds=rates.first_byte(key, 0.95),
        replicas=[_replica(one, rates, names) for one in ordered],
    )


def _replica(engine: EngineTold, rates: Rates, names: Callable[[str], str]) -> ReplicaView:
    state = engine.state
    pressure = state.pressure if state else None
    sequences = state.sequences if state else None
    return ReplicaView(
        name=names(engine.address),
        accelerator=engine.accelerator,
        phase=_phase(engine),
        blocks=state.blocks if state else None,
        running=sequences.running if sequences else 0,
        waiting=sequences.waiting if sequences else 0,
        pressure=pressure.value if pressure else None,
        binding=pressure.binding if pressure else "",
        tokens_per_second=rates.of_engine(
            _counted(engine.address, lambda one: one.num_scheduled_tokens)
        ),
        preemptions=state.num_preemptions if state else 0,
        preemptions_per_second=rates.of_engine(
            _counted(engine.address, lambda one: one.num_preemptions)
        ),
        age_seconds=engine.silent_seconds,
        schema_version=state.schema_version if state else None,
    )


def _phase(engine: EngineTold) -> str:
    state = engine.state
    if engine.is_leaving:
        return "leaving"
    if state is None or engine.silent_seconds > STALE_SECONDS:
        return "away"
    if state.is_draining:
        return "draining"
    return "ready" if state.is_ready else "loading"


def _told(look: Look, key: ServiceKey) -> Iterator[ServiceTold]:
    for gateway in look.gateways:
        yield from (one for one in gateway.fleet.services if one.key == key)


def _counted(
    address: str, count: Callable[[StateTold], int | None]
) -> Callable[[Look], float | None]:
    """What an engine counted, as whichever gateway heard last tells it."""

    def find(look: Look) -> float | None:
        engines = [
            engine
            for gateway in look.gateways
            for service in gateway.fleet.services
            for engine in service.engines
            if engine.address == address and engine.state is not None
        ]
        newest = min(engines, key=lambda one: one.silent_seconds, default=None)
        return None if newest is None or newest.state is None else count(newest.state)

    return find
