"""Bounds of the spec, and replicas within them.

Where bounds contradict each other, the stricter upper one holds: what must not be spent is not
spent, whatever should run at least.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from quire_operator.scaling.decision import Finding
from quire_operator.scaling.loads import Loads
from quire_operator.scaling.mix import NO_COST, Bounds, Option, Room, choose


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Bounds of one accelerator."""

    name: str
    cost: float
    lowest: int
    highest: int
    is_doubtful: bool = False
    """Its replicas failed lately: the minimum is made of others first."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds that can all be kept at once."""

    limits: tuple[Limit, ...]
    bounds: Bounds
    findings: tuple[Finding, ...] = ()
    least: Mapping[str, int] = field(default_factory=dict)
    """Some replicas that keep to all of them."""

    @property
    def best_first(self) -> list[Limit]:
        """What to add first: the cheapest, of what is to be expected to serve."""
        last_first = self.limits[::-1]
        return sorted(last_first, key=lambda one: (one.is_doubtful, one.cost))

    def clamp(self, replicas: Mapping[str, int]) -> dict[str, int]:
        """Replicas nearest to these that keep to the bounds."""
        found = {
            one.name: min(max(replicas.get(one.name, 0), one.lowest), one.highest)
            for one in self.limits
        }
        by_cost = sorted(self.limits, key=lambda one: -one.cost)
        for room in self.bounds.rooms:
            while sum(room.gpus.get(name, 0) * count for name, count in found.items()) > room.most:
                if not _drop(found, [one for one in by_cost if room.gpus.get(one.name)]):
                    break
        while sum(found.values()) > self.bounds.most and _drop(found, by_cost):
            pass
        while self._is_too_dear(found) and _drop(found, by_cost):
            pass
        if sum(found.values()) < self.bounds.fewest:
            best_first = self.best_first
            while sum(found.values()) < self.bounds.fewest and self.add(found, best_first):
                pass
        return found

    def explain(self, replicas: Mapping[str, int]) -> str:
        """Which of the bounds these break, in words."""
        others = {
            other
            for room in self.bounds.rooms
            if sum(room.gpus.get(name, 0) * count for name, count in replicas.items()) > room.most
            for other in room.others
        }
        if others:
            return f"the GPUs that services of higher priority leave: {', '.join(sorted(others))}"
        total, bounds = sum(replicas.values()), self.bounds
        if any(replicas.get(one.name, 0) > one.highest for one in self.limits):
            return "the accelerators' own maxReplicas"
        if total > bounds.most:
            return f"maxReplicas ({bounds.most})"
        if self._is_too_dear(replicas):
            return f"maxCostPerHour ({bounds.most_cost:g}) pays for"
        return "the GPUs that there are"

    def allow(self, replicas: Mapping[str, int]) -> bool:
        """Whether these keep to the bounds."""
        return self.clamp(replicas) == dict(replicas)

    def allow_beside_others(self, replicas: Mapping[str, int]) -> bool:
        """Whether these keep to all bounds but those of GPUs that services share."""
        bounds = replace(self.bounds, rooms=())
        return replace(self, bounds=bounds).allow(replicas)

    def stand_in(
        self, replicas: Mapping[str, int], name: str, others: Collection[str]
    ) -> dict[str, int] | None:
        """One of the others, the cheapest, beside what there is or else in the place of one.

        None: none fits.
        """
        by_cost = sorted(self.limits, key=lambda one: one.cost)
        able = [one for one in by_cost if one.name in others]
        for fewer in (0, 1):
            found = dict(replicas) | {name: replicas[name] - fewer}
            if self.add(found, able):
                return found
        return None

    def _is_too_dear(self, replicas: Mapping[str, int]) -> bool:
        most = self.bounds.most_cost
        return most is not None and self.cost(replicas) > most + NO_COST

    def cost(self, replicas: Mapping[str, int]) -> float:
        """Of these, an hour."""
        return sum(one.cost * replicas.get(one.name, 0) for one in self.limits)

    def add(self, replicas: dict[str, int], best_first: Sequence[Limit]) -> bool:
        """Add the first of these that there is room for; False: there is none for any."""
        for one in best_first:
            more = replicas | {one.name: replicas[one.name] + 1}
            if more[one.name] <= one.highest and self.fit(more):
                replicas.update(more)
                return True
        return False

    def fit(self, replicas: Mapping[str, int]) -> bool:
        """Whether these keep to the bounds of all accelerators together, the upper ones."""
        return (
            not self._is_too_dear(replicas)
            and sum(replicas.values()) <= self.bounds.most
            and all(
                sum(room.gpus.get(name, 0) * count for name, count in replicas.items()) <= room.most
                for room in self.bounds.rooms
            )
        )


def consistent(
    limits: Sequence[Limit],
    *,
    fewest: int,
    most: int,
    most_cost: float | None,
    rooms: Sequence[Room],
) -> Limits:
    """Bounds of which none contradicts another: what asks for more gives way."""
    findings = []
    made = [
        Limit(
            name=one.name,
            cost=one.cost,
            lowest=max(min(one.lowest, one.highest), 0),
            highest=max(one.highest, 0),
            is_doubtful=one.is_doubtful,
        )
        for one in limits
    ]
    bounds = Bounds(fewest=0, most=max(most, 0), most_cost=most_cost, rooms=tuple(rooms))
    nothing = dict.fromkeys((one.name for one in made), 0)
    floor = dict(nothing)
    cap = Limits(limits=tuple(_free(one) for one in made), bounds=bounds)
    for one in sorted(made, key=lambda one: one.cost):
        while floor[one.name] < one.lowest and cap.fit(floor | {one.name: floor[one.name] + 1}):
            floor[one.name] += 1
    if any(floor[one.name] < one.lowest for one in made):
        findings.append(contradiction("the accelerators' minReplicas", bounds))
    full = _fill(cap, floor, fewest)
    if sum(full.values()) < fewest:
        findings.append(contradiction("scaling.minReplicas", bounds))
    return Limits(
        limits=tuple(replace(one, lowest=floor[one.name]) for one in made),
        bounds=replace(bounds, fewest=min(fewest, sum(full.values()))),
        findings=tuple(findings),
        least=full,
    )


def _fill(cap: Limits, floor: Mapping[str, int], fewest: int) -> dict[str, int]:
    """So many at least of the cheapest, or as many as there is room for."""
    full = dict(floor)
    by_cost = sorted(cap.limits, key=lambda one: one.cost)
    while sum(full.values()) < fewest and cap.add(full, by_cost):
        pass
    if sum(full.values()) >= fewest or not _may_crowd(cap.bounds.rooms):
        return full
    # the cheapest may take GPUs that several others could have
    options = [
        Option(
            name=one.name,
            cost=one.cost,
            loads=Loads.none(0),
            lowest=floor[one.name],
            highest=one.highest,
        )
        for one in cap.limits
    ]
    found = dict(choose(options, [], replace(cap.bounds, fewest=fewest)).replicas)
    return found if sum(found.values()) > sum(full.values()) and cap.fit(found) else full


def _may_crowd(rooms: Sequence[Room]) -> bool:
    """Whether what takes the fewest dollars may not be what takes the fewest GPUs."""
    return len(rooms) > 1 or any(len(set(room.gpus.values())) > 1 for room in rooms)


def spare(limits: Limits, ready: Mapping[str, int]) -> Limits:
    """Lower accelerators' own minimums where they leave no room for any replica that serves.

    What they ask for has yet to start, or finds no node: nobody would serve meanwhile.
    """
    if not any(ready.values()) or _serve_any(limits.clamp(ready), ready):
        return limits
    at_least = tuple(replace(one, lowest=min(one.lowest, ready[one.name])) for one in limits.limits)
    if not _serve_any(replace(limits, limits=at_least).clamp(ready), ready):
        return limits  # other bounds leave none: to lower minimums one by one would be in vain
    lowered = limits
    while not _serve_any(lowered.clamp(ready), ready):
        asking = [one for one in lowered.limits if one.lowest > ready[one.name]]
        dearest = max(asking, key=lambda one: one.cost)
        fewer = replace(dearest, lowest=dearest.lowest - 1)
        lowered = replace(
            lowered, limits=tuple(fewer if one is dearest else one for one in lowered.limits)
        )
    finding = contradiction("the accelerators' minReplicas, beside what serves,", limits.bounds)
    return replace(lowered, findings=(*limits.findings, finding))


def _serve_any(replicas: Mapping[str, int], ready: Mapping[str, int]) -> bool:
    return any(count and ready[name] for name, count in replicas.items())


def _free(limit: Limit) -> Limit:
    return replace(limit, lowest=0)


def _drop(replicas: dict[str, int], dearest_first: Sequence[Limit]) -> bool:
    for one in dearest_first:
        if replicas[one.name] > one.lowest:
            replicas[one.name] -= 1
            return True
    return False


def contradiction(what: str, bounds: Bounds) -> Finding:
    """Say that something is not kept, and what stands against it."""
    upper = [f"maxReplicas ({bounds.most})"]
    if bounds.most_cost is not None:
        upper.append(f"maxCostPerHour ({bounds.most_cost:g})")
    if bounds.rooms:
        upper.append("the GPUs that there are")
    return Finding(
        code="Infeasible",
        message=f"{what} cannot be kept within {' and '.join(upper)}: the upper bounds hold",
    )
