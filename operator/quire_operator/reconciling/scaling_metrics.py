"""Metrics of scaling: what decisions were made from, and what they were."""

from collections.abc import Collection, Mapping
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from quire_operator.cluster.store import Key
from quire_operator.reconciling.metrics import SERVICE, labels_of
from quire_operator.scaling.decision import Action, ServiceDecision

_ACCELERATOR = (*SERVICE, "accelerator")


class ScalingMetrics:
    """All of them, in the operator's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "quire_operator_scaling_decide_seconds",
            "Time to decide all services.",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5),
            registry=registry,
        )
        self._gateways = Gauge(
            "quire_operator_scaling_gateways",
            "Gateways, by whether they have ever answered.",
            ["heard"],
            registry=registry,
        )
        self._rate = Gauge(
            "quire_operator_scaling_requests_per_second",
            "New requests, as estimated.",
            SERVICE,
            registry=registry,
        )
        self._pressure = Gauge(
            "quire_operator_scaling_pressure",
            "Mean pressure of the ready replicas, and the term that binds; at 1 they refuse.",
            [*SERVICE, "term"],
            registry=registry,
        )
        self._fresh = Gauge(
            "quire_operator_scaling_metrics_fresh",
            "Whether everything was heard lately: else nothing is taken away.",
            SERVICE,
            registry=registry,
        )
        self._oldest = Gauge(
            "quire_operator_scaling_oldest_input_seconds",
            "Age of the oldest of what gateways and ready replicas told.",
            SERVICE,
            registry=registry,
        )
        self._finding = Gauge(
            "quire_operator_scaling_finding",
            "1 for what stands in the way of scaling now, such as Infeasible or ShortOfGpus.",
            [*SERVICE, "code"],
            registry=registry,
        )
        self._cost = Gauge(
            "quire_operator_scaling_replica_cost_per_hour",
            "What one replica costs, assumed where no price is known.",
            _ACCELERATOR,
            registry=registry,
        )
        self._wanted = Gauge(
            "quire_operator_scaling_wanted_replicas",
            "Replicas that the mix leads to.",
            _ACCELERATOR,
            registry=registry,
        )
        self._capacity = Gauge(
            "quire_operator_scaling_replica_requests_per_second",
            "Requests that one replica serves within its promises at the target.",
            _ACCELERATOR,
            registry=registry,
        )
        self._load = Gauge(
            "quire_operator_scaling_load",
            "Planned load of the replicas; 1 is the target.",
            _ACCELERATOR,
            registry=registry,
        )
        self._decisions = Counter(
            "quire_operator_scaling_decisions",
            "Decisions by what they did.",
            [*SERVICE, "action"],
            registry=registry,
        )
        self._shown: dict[Key, set[tuple[Gauge | Counter, tuple[str, ...]]]] = {}

    def note_round(self, seconds: float, num_gateways: int, num_heard: int) -> None:
        """All services were decided."""
        self._seconds.observe(seconds)
        self._gateways.labels("yes").set(num_heard)
        self._gateways.labels("no").set(max(num_gateways - num_heard, 0))

    def note(self, key: Key, decision: ServiceDecision) -> None:
        """One service was decided."""
        self._set(key, self._rate, (), decision.requests_per_second)
        self._set_alone(key, self._pressure, {decision.binding: decision.pressure})
        self._set(key, self._oldest, (), decision.oldest_input_seconds)
        self._set_alone(key, self._finding, {one.code: 1.0 for one in decision.findings})
        self._set(key, self._fresh, (), float(decision.are_metrics_fresh))
        self._forget_others(key, decision.accelerators)
        for name, one in decision.accelerators.items():
            self._set(key, self._wanted, (name,), one.wanted)
            self._set(key, self._capacity, (name,), one.requests_per_second)
            self._set(key, self._load, (name,), one.load)
            self._set(key, self._cost, (name,), one.cost_per_hour)
        for action in get_args(Action):  # a count that begins at 1 would not be seen to rise
            self._decisions.labels(*labels_of(key), action)
            self._shown.setdefault(key, set()).add((self._decisions, (*labels_of(key), action)))
        self._decisions.labels(*labels_of(key), decision.action).inc()

    def note_failure(self, key: Key) -> None:
        """One service could not be decided."""
        self._set_alone(key, self._finding, {"DecisionFailed": 1.0})

    def forget(self, key: Key) -> None:
        """A service is gone, and with it its series."""
        for family, labels in self._shown.pop(key, set()):
            family.remove(*labels)

    def _forget_others(self, key: Key, accelerators: Collection[str]) -> None:
        """Show nothing of accelerators that are not in the spec any more."""
        families = (self._wanted, self._capacity, self._load, self._cost)
        for family, labels in list(self._shown.get(key, ())):
            if family in families and labels[-1] not in accelerators:
                family.remove(*labels)
                self._shown[key].discard((family, labels))

    def _set_alone(self, key: Key, gauge: Gauge, values: Mapping[str, float | None]) -> None:
        """Show these by their last label, and no others of the service."""
        for family, labels in list(self._shown.get(key, ())):
            if family is gauge and labels[-1] not in values:
                self._set(key, gauge, labels[-1:], None)
        for label, value in values.items():
            self._set(key, gauge, (label,), value)

    def _set(self, key: Key, gauge: Gauge, more: tuple[str, ...], value: float | None) -> None:
        """Show a figure, or none where it is not known."""
        labels = (*labels_of(key), *more)
        shown = self._shown.setdefault(key, set())
        if value is not None:
            gauge.labels(*labels).set(value)
            shown.add((gauge, labels))
        elif (gauge, labels) in shown:
            gauge.remove(*labels)
            shown.discard((gauge, labels))
