"""Metrics of the operator itself."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from quire_operator.cluster.store import Key
from quire_operator.resource.status import InferenceServiceStatus

SERVICE = ("namespace", "name", "service")
"""Labels of what is about a service: its key, and its name as gateways and engines have it."""


def labels_of(key: Key) -> tuple[str, str, str]:
    """The values of `SERVICE`."""
    return (*key, "/".join(key))


class Metrics:
    """All of them, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._looks = Histogram(
            "quire_operator_reconcile_seconds",
            "Time of one look at one service.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            registry=self.registry,
        )
        self._failures = Counter(
            "quire_operator_reconcile_failures",
            "Looks that failed and are tried again.",
            SERVICE,
            registry=self.registry,
        )
        self._writes = Counter(
            "quire_operator_writes", "Objects written or deleted.", registry=self.registry
        )
        self._ready = Gauge(
            "quire_operator_service_ready",
            "Whether a service is Ready.",
            SERVICE,
            registry=self.registry,
        )
        self._suspended = Gauge(
            "quire_operator_service_suspended",
            "Whether a service is suspended: it is not Ready then, as it should be.",
            SERVICE,
            registry=self.registry,
        )
        self._replicas = Gauge(
            "quire_operator_service_replicas",
            "Replicas of a service, by what they are: desired, scheduled or ready.",
            [*SERVICE, "accelerator", "state"],
            registry=self.registry,
        )
        self.queue_length = Gauge(
            "quire_operator_queue_length", "Services that wait for a look.", registry=self.registry
        )
        self.is_leader = Gauge(
            "quire_operator_is_leader", "Whether this replica acts.", registry=self.registry
        )
        self._shown: dict[Key, set[str]] = {}

    def note_look(self, seconds: float) -> None:
        """A look has ended."""
        self._looks.observe(seconds)

    def note_failure(self, key: Key) -> None:
        """A look failed."""
        self._failures.labels(*labels_of(key)).inc()

    def note_service(self, key: Key, status: InferenceServiceStatus, num_written: int) -> None:
        """A look went well."""
        self._writes.inc(num_written)
        self._failures.labels(*labels_of(key))  # a count that begins at 1 would not be seen to rise
        is_ready = any(one.type == "Ready" and one.status == "True" for one in status.conditions)
        self._ready.labels(*labels_of(key)).set(is_ready)
        self._suspended.labels(*labels_of(key)).set(status.admission_state == "Suspended")
        names = {one.name for one in status.accelerators}
        for name in self._shown.get(key, set()) - names:
            self._forget_accelerator(key, name)
        for one in status.accelerators:
            for state in ("desired", "scheduled", "ready"):
                self._replicas.labels(*labels_of(key), one.name, state).set(getattr(one, state))
        self._shown[key] = names

    def forget(self, key: Key) -> None:
        """A service is gone, and with it its series."""
        for name in self._shown.pop(key, set()):
            self._forget_accelerator(key, name)
        for family in (self._ready, self._suspended, self._failures):
            family.remove_by_labels({"namespace": key[0], "name": key[1]})

    def _forget_accelerator(self, key: Key, name: str) -> None:
        labels = {"namespace": key[0], "name": key[1], "accelerator": name}
        self._replicas.remove_by_labels(labels)
