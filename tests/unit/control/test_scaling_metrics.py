"""What metrics of scaling show, and that they show nothing that is over."""

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from quire_operator.reconciling.scaling_metrics import ScalingMetrics
from quire_operator.scaling.decision import AcceleratorFigures, Finding, ServiceDecision

KEY = ("default", "chat")
_FIGURES = AcceleratorFigures(
    wanted=2,
    requests_per_second=1.5,
    tokens_per_second=100.0,
    load=0.7,
    binding="seats",
    cost_per_hour=0.8,
)
DECISION = ServiceDecision(
    key="default/chat",
    action="Up",
    replicas={"l4": 2},
    wanted={"l4": 2},
    reason="load would be 146 % of the target",
    findings=(Finding(code="Infeasible", message="maxReplicas is too low"),),
    accelerators={"l4": _FIGURES},
    requests_per_second=3.0,
    pressure=0.9,
    binding="seats",
    oldest_input_seconds=2.5,
)


def _lines(registry: CollectorRegistry, name: str) -> list[str]:
    text: str = generate_latest(registry).decode()
    prefix = f"quire_operator_scaling_{name}{{"
    return [line for line in text.splitlines() if line.startswith(prefix)]


def test_nothing_is_shown_of_accelerators_that_left_the_spec() -> None:
    registry = CollectorRegistry()
    metrics = ScalingMetrics(registry)
    metrics.note(KEY, DECISION)
    metrics.note(KEY, replace(DECISION, accelerators={"h100": _FIGURES}))

    for name in ("wanted_replicas", "replica_requests_per_second", "load"):
        (line,) = _lines(registry, name)
        assert 'accelerator="h100"' in line
    metrics.forget(KEY)
    assert not _lines(registry, "wanted_replicas")


def test_inputs_and_outputs_of_a_decision_are_shown() -> None:
    registry = CollectorRegistry()
    ScalingMetrics(registry).note(KEY, DECISION)

    where = 'name="chat",namespace="default",service="default/chat"'
    expected = {
        "pressure": f'{where},term="seats"}} 0.9',
        "oldest_input_seconds": f"{where}}} 2.5",
        "finding": f'code="Infeasible",{where}}} 1.0',
        "replica_cost_per_hour": f'accelerator="l4",{where}}} 0.8',
        "decisions_total": f'action="Up",{where}}} 1.0',
    }
    for name, ending in expected.items():
        assert any(line.endswith(ending) for line in _lines(registry, name)), name
    assert f'action="Move",{where}}} 0.0' in "".join(_lines(registry, "decisions_total"))


def test_a_term_that_binds_no_more_and_a_finding_that_is_over_are_gone() -> None:
    registry = CollectorRegistry()
    metrics = ScalingMetrics(registry)
    metrics.note(KEY, DECISION)
    metrics.note(KEY, replace(DECISION, binding="blocks", findings=()))

    [line] = _lines(registry, "pressure")
    assert 'term="blocks"' in line
    assert _lines(registry, "finding") == []


def test_what_is_not_known_is_not_shown_and_a_service_that_is_gone_leaves_nothing() -> None:
    registry = CollectorRegistry()
    metrics = ScalingMetrics(registry)
    metrics.note(KEY, DECISION)
    metrics.note(KEY, replace(DECISION, pressure=None, binding="", oldest_input_seconds=None))
    assert _lines(registry, "pressure") == []
    assert _lines(registry, "oldest_input_seconds") == []

    metrics.forget(KEY)
    for name in ("finding", "decisions_total", "wanted_replicas", "replica_cost_per_hour"):
        assert _lines(registry, name) == []
