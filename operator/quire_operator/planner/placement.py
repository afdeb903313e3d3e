"""How many replicas run on which accelerator.

The cheapest accelerators are filled first. One whose replicas find no node within its
provisionTimeout is short: what it has no node for goes to the next cheapest. The replica that
waits there stays until its stand-in is ready, because a node autoscaler may be about to bring its
node. A short accelerator is tried again after a while, and at once when a node with its products
appears. What is short, and since when, is kept in the status: without it the next look would see
nothing that waits, and begin anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from quire_engine.errors import ConfigError
from quire_engine.profiles.gpus import find_gpu
from quire_operator.planner.durations import seconds
from quire_operator.planner.kept import held, held_on
from quire_operator.planner.observed import Observed, Pod
from quire_operator.planner.settings import PlannerSettings
from quire_operator.resource.accelerator import Accelerator
from quire_operator.resource.times import moment


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Replicas by accelerator, and what is short."""

    replicas: Mapping[str, int]
    """By accelerator, in the spec's order."""
    leaving: Mapping[str, int] = field(default_factory=dict)
    """Replicas that serve on, of accelerators that are not in the spec any more."""
    short_since: Mapping[str, datetime] = field(default_factory=dict)
    """Accelerators that had no node in time, and since when."""
    num_missing: int = 0
    """Replicas that no accelerator may take, and that no leaving one stands for."""
    look_again_at: datetime | None = None
    """When time alone will change this."""


def place(observed: Observed, settings: PlannerSettings, now: datetime) -> Placement:
    """Distribute the wanted replicas over the accelerators."""
    accelerators = observed.service.spec.accelerators
    if observed.service.spec.suspend:
        return Placement(replicas={one.name: 0 for one in accelerators})
    decided = _decided(observed)
    if decided is not None:
        return _as_scaled(observed, decided)
    short = _short_since(observed, settings, now)
    capped = {
        one.name: min(one.max_replicas, _num_scheduled(observed.pods, one.name))
        if one.name in short
        else one.max_replicas
        for one in accelerators
    }
    firm = _fill(accelerators, wanted_replicas(observed), capped, held_on(observed))
    replicas, leaving = _make_before_break(observed, firm, short)
    return Placement(
        replicas=replicas,
        leaving=leaving,
        short_since=short,
        num_missing=max(
            wanted_replicas(observed) - sum(replicas.values()) - sum(leaving.values()), 0
        ),
        look_again_at=_next_change(observed, settings, short, now),
    )


def _decided(observed: Observed) -> dict[str, int] | None:
    """Replicas as scaling decided; before it has, as it is.

    None: it decides nothing here, or nothing was ever asked for.
    """
    spec = observed.service.spec
    if not observed.is_scaling or spec.scaling.mode != "Auto":
        return None
    current = {name: one.replicas for name, one in observed.deployments.items()}
    if observed.scaled is None and not current:
        return None
    decided = current
    if observed.scaled is not None:
        # one that has come back runs on as it does until it is decided
        decided = {**observed.scaled.leaving, **observed.scaled.replicas}
    return {one.name: decided.get(one.name, 0) for one in spec.accelerators}


def _as_scaled(observed: Observed, replicas: dict[str, int]) -> Placement:
    current = {name: one.replicas for name, one in observed.deployments.items()}
    scaled = observed.scaled
    since = scaled.short_since if scaled else {}
    # what was in the spec when it was decided last stays until that is decided anew
    staying = {**scaled.replicas, **scaled.leaving} if scaled else current
    leaving = {
        name: kept
        for name, count in current.items()
        if name not in replicas and (kept := min(count, staying.get(name, 0)))
    }
    return Placement(
        replicas=replicas,
        leaving=leaving,
        short_since={
            name: datetime.fromtimestamp(at, UTC) for name, at in since.items() if name in replicas
        },
    )


def wanted_replicas(observed: Observed) -> int:
    """Replicas over all accelerators: no fewer than their minimums together.

    As scaling decided, where it does; those that found no node have others that stand in for them,
    unless that leaves fewer than scaling.minReplicas, or none at all. An accelerator's own
    minReplicas are wanted on it: nothing stands in for these. And where there have to be some,
    none at all is never what is wanted, whatever there are GPUs for.
    """
    spec = observed.service.spec
    decided = _decided(observed)
    least = sum(one.min_replicas for one in spec.accelerators)
    if decided is not None and not spec.suspend:
        short = observed.scaled.short_since if observed.scaled else {}
        own = {one.name: one.min_replicas for one in spec.accelerators}
        firm = sum(
            max(min(count, _num_scheduled(observed.pods, name)), min(count, own[name]))
            if name in short
            else count
            for name, count in decided.items()
        )
        if not any(decided.values()):
            return max(spec.scaling.min_replicas, least)
        return max(firm, min(sum(decided.values()), max(spec.scaling.min_replicas, 1)))
    if spec.scaling.mode != "Auto":
        if kept := held(observed):
            most = sum(one.max_replicas for one in spec.accelerators)
            return max(min(kept.replicas, most), least)
        return max(spec.replicas, least)
    bounded = min(spec.replicas, spec.scaling.max_replicas)
    return max(spec.scaling.min_replicas, bounded, least)


def price_of(accelerator: Accelerator) -> float | None:
    """Dollars, or whatever the user's prices are in, for one replica an hour; None: not known."""
    if accelerator.cost_per_hour is not None:
        return float(accelerator.cost_per_hour)
    for product in accelerator.products:
        try:
            return find_gpu(product).dollars_per_hour * accelerator.count
        except ConfigError:
            continue
    return None


def _fill(
    accelerators: Sequence[Accelerator],
    wanted: int,
    capped: Mapping[str, int],
    staying: Mapping[str, int],
) -> dict[str, int]:
    """Each accelerator's minimum, what stays on it, then the cheapest up to its cap."""
    replicas = {one.name: min(one.min_replicas, capped[one.name]) for one in accelerators}
    left = max(wanted - sum(replicas.values()), 0)
    for name, several in staying.items():
        if name in replicas:
            more = min(max(min(several, capped[name]) - replicas[name], 0), left)
            replicas[name] += more
            left -= more
    for accelerator in sorted(accelerators, key=_cheapest_first):
        more = min(capped[accelerator.name] - replicas[accelerator.name], left)
        replicas[accelerator.name] += more
        left -= more
    return replicas


def _cheapest_first(accelerator: Accelerator) -> float:
    """Unknown prices last; the sort keeps the spec's order among equals."""
    price = price_of(accelerator)
    return float("inf") if price is None else price


def _make_before_break(
    observed: Observed, firm: Mapping[str, int], short: Mapping[str, datetime]
) -> tuple[dict[str, int], dict[str, int]]:
    """Keep what is to go until what takes its place is ready.

    First replicas that serve, of removed accelerators last, then those that wait for a node: of
    these a node autoscaler may already have ordered one.
    """
    pods = observed.pods
    missing = wanted_replicas(observed) - sum(
        min(_num_ready(pods, name), several) for name, several in firm.items()
    )
    replicas = dict(firm)
    limits = {one.name: one.max_replicas for one in observed.service.spec.accelerators}
    current = {name: one.replicas for name, one in observed.deployments.items()}
    ready = {
        name: min(several, _num_serving(pods, name))
        for name, several in sorted(current.items(), key=lambda one: one[0] not in firm)
    }
    waiting = {name: current.get(name, 0) for name in short}
    for most in (ready, waiting):
        for name, several in most.items():
            more = min(several, limits.get(name, several)) - replicas.get(name, 0)
            kept = max(min(more, missing), 0)
            replicas[name] = replicas.get(name, 0) + kept
            missing -= kept
    leaving = {name: several for name, several in replicas.items() if name not in firm and several}
    return {name: replicas[name] for name in firm}, leaving


def _short_since(
    observed: Observed, settings: PlannerSettings, now: datetime
) -> dict[str, datetime]:
    """Accelerators without a node in time; what was short stays so until it is tried again."""
    recorded = {
        one.name: moment(one.short_since)
        for one in observed.service.status.accelerators
        if one.short_since
    }
    short = {}
    for accelerator in observed.service.spec.accelerators:
        since = recorded.get(accelerator.name)
        if since is not None and not _is_tried_again(observed, accelerator, since, settings, now):
            short[accelerator.name] = since
        elif _waits_too_long(observed.pods, accelerator, now):
            short[accelerator.name] = now
    return short


def _waits_too_long(pods: Sequence[Pod], accelerator: Accelerator, now: datetime) -> bool:
    patience = timedelta(seconds=seconds(accelerator.provision_timeout))
    return any(now - since >= patience for since in _waiting_since(pods, accelerator.name))


def _waiting_since(pods: Sequence[Pod], accelerator: str) -> list[datetime]:
    return [
        pod.unschedulable_since
        for pod in pods
        if pod.accelerator == accelerator and pod.unschedulable_since and not pod.is_ending
    ]


def _is_tried_again(
    observed: Observed,
    accelerator: Accelerator,
    since: datetime,
    settings: PlannerSettings,
    now: datetime,
) -> bool:
    if now < since or now - since >= timedelta(seconds=settings.retry_accelerator_seconds):
        return True  # long enough ago, or the clock was set back
    return any(
        node.product in accelerator.products and node.is_ready and node.created_at > since
        for node in observed.nodes or ()
    )


def _next_change(
    observed: Observed, settings: PlannerSettings, short: Mapping[str, datetime], now: datetime
) -> datetime | None:
    moments = [
        since + timedelta(seconds=settings.retry_accelerator_seconds) for since in short.values()
    ]
    for accelerator in observed.service.spec.accelerators:
        if accelerator.name not in short:
            patience = timedelta(seconds=seconds(accelerator.provision_timeout))
            waiting = _waiting_since(observed.pods, accelerator.name)
            moments += [since + patience for since in waiting]
    return min((one for one in moments if one > now), default=None)


def _num_scheduled(pods: Sequence[Pod], accelerator: str) -> int:
    return sum(
        pod.accelerator == accelerator and pod.is_scheduled and not pod.is_ending for pod in pods
    )


def _num_ready(pods: Sequence[Pod], accelerator: str) -> int:
    return sum(
        pod.accelerator == accelerator and pod.is_ready and not pod.is_ending for pod in pods
    )


def _num_serving(pods: Sequence[Pod], accelerator: str) -> int:
    """Those that take requests, as far as is known: all nodes may be missed for a moment."""
    return sum(
        pod.accelerator == accelerator
        and (pod.is_ready or pod.has_ready_containers)
        and not pod.is_ending
        for pod in pods
    )
