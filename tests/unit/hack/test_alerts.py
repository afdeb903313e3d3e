"""Each alert fires when it is to and not before, by Prometheus' own checker; each has its page."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import yaml

from hack.chart.values import CHART
from hack.observability.alerts import ALERTS, Alert
from tests.api.promtool import find_promtool

ROOT = CHART.parents[1]
RULES = CHART / "files" / "alerts.yaml"
S = 'service="default/chat"'
EXPIRY = "quire_gateway_tls_certificate_expiry_timestamp_seconds"


class Case(NamedTuple):
    """Series by the minute, as promtool writes them, and labels of the alert that they raise."""

    bad: dict[str, str]
    good: dict[str, str]
    labels: Mapping[str, str] = MappingProxyType({"service": "default/chat"})


CASES = {
    "QuireNoEngine": Case(
        {
            f"quire_gateway_queued_requests{{{S}}}": "3x60",
            f'quire_gateway_engines{{{S}, eligible="yes"}}': "0x60",
        },
        {
            f"quire_gateway_queued_requests{{{S}}}": "3x60",
            f'quire_gateway_engines{{{S}, eligible="yes"}}': "1x60",
        },
    ),
    "QuireServiceNotReady": Case(
        {
            f"quire_operator_service_ready{{{S}}}": "0x60",
            f"quire_operator_service_suspended{{{S}}}": "0x60",
        },
        {
            f"quire_operator_service_ready{{{S}}}": "0x10 1x50",
            'quire_operator_service_ready{service="default/resting"}': "0x60",
            'quire_operator_service_suspended{service="default/resting"}': "1x60",
        },
    ),
    "QuireScalingHindered": Case(
        {f'quire_operator_scaling_finding{{{S}, code="Infeasible"}}': "1x60"},
        {
            f'quire_operator_scaling_finding{{{S}, code="Infeasible"}}': "1x10",
            f'quire_operator_scaling_finding{{{S}, code="PriceUnknown"}}': "1x60",
        },
        {"service": "default/chat", "code": "Infeasible"},
    ),
    "QuireRequestsRefused": Case(
        {
            f'quire_gateway_refusals_total{{{S}, reason="deadline"}}': "0+6x60",
            f'quire_gateway_requests_total{{{S}, status="200"}}': "0+60x60",
        },
        {
            f'quire_gateway_refusals_total{{{S}, reason="invalid_api_key"}}': "0+60x60",
            f'quire_gateway_requests_total{{{S}, status="200"}}': "0+60x60",
        },
    ),
    "QuireEnginesFail": Case(
        {
            f'quire_gateway_engine_failures_total{{{S}, reason="connect"}}': "0+3x60",
            f'quire_gateway_requests_total{{{S}, status="200"}}': "0+100x60",
        },
        {
            f'quire_gateway_engine_failures_total{{{S}, reason="connect"}}': "0+1x60",
            f'quire_gateway_requests_total{{{S}, status="200"}}': "0+100x60",
        },
    ),
    "QuirePromisesBroken": Case(
        {
            f'quire_gateway_promises_total{{{S}, promise="first_token", kept="no"}}': "0+2x60",
            f'quire_gateway_promises_total{{{S}, promise="first_token", kept="yes"}}': "0+8x60",
        },
        {
            f'quire_gateway_promises_total{{{S}, promise="first_token", kept="no"}}': "0+1x60",
            f'quire_gateway_promises_total{{{S}, promise="first_token", kept="yes"}}': "0+99x60",
        },
        {"service": "default/chat", "promise": "first_token"},
    ),
    "QuirePreemptions": Case(
        {
            f"quire_recomputed_tokens_total{{{S}}}": "0+100x60",
            f"quire_scheduled_tokens_total{{{S}}}": "0+1000x60",
        },
        {
            f"quire_recomputed_tokens_total{{{S}}}": "0+10x60",
            f"quire_scheduled_tokens_total{{{S}}}": "0+1000x60",
        },
    ),
    "QuireEngineRestarts": Case(
        {f'quire_core_restarts_total{{{S}, pod="chat-0"}}': "0x25 1x35"},
        {f'quire_core_restarts_total{{{S}, pod="chat-0"}}': "1x60"},
        {"service": "default/chat", "pod": "chat-0"},
    ),
    "QuireRoutingStale": Case(
        {
            'quire_gateway_routing_stale{pod="a"}': "1x60",
            'quire_gateway_routing_stale{pod="b"}': "0x60",
        },
        {'quire_gateway_routing_stale{pod="a"}': "0x60"},
        {},
    ),
    "QuireGatewayBlind": Case(
        {'quire_gateway_routing_source_up{pod="a"}': "0x60"},
        {'quire_gateway_routing_source_up{pod="a"}': "1x60"},
        {"pod": "a"},
    ),
    "QuireCertificateExpires": Case(
        {f'{EXPIRY}{{pod="a"}}': "600000x60", f'{EXPIRY}{{pod="b"}}': "9000000x60"},
        {f'{EXPIRY}{{pod="a"}}': "700000x60"},
        {"pod": "a"},
    ),
    "QuireNoLeader": Case(
        {'quire_operator_is_leader{pod="a"}': "0x60", 'quire_operator_is_leader{pod="b"}': "0x60"},
        {'quire_operator_is_leader{pod="a"}': "0x60", 'quire_operator_is_leader{pod="b"}': "1x60"},
        {},
    ),
    "QuireOperatorFails": Case(
        {f"quire_operator_reconcile_failures_total{{{S}}}": "0+1x60"},
        {f"quire_operator_reconcile_failures_total{{{S}}}": "0+1x5 5x55"},
    ),
}
LEADER = {'quire_operator_is_leader{pod="a"}': "1x60"}
"""In every case but that of the leader itself, or its alert would fire, too."""


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_fires_when_it_is_to_and_not_before(tmp_path: Path, alert: Alert) -> None:
    found = find_promtool()
    if isinstance(found, str):
        pytest.skip(found)
    case = CASES[alert.name]
    tests = [
        _test(alert, case.bad, "30m", [case.labels]),
        _test(alert, case.bad, "0m", []),
        _test(alert, case.good, "30m", []),
    ]
    file = tmp_path / "test.yaml"
    content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(content))
    ran = subprocess.run([found, "test", "rules", file], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_alert_has_its_case_and_its_page_and_no_page_is_left_over() -> None:
    names = {alert.name for alert in ALERTS}
    assert CASES.keys() == names
    pages = {page.stem for page in (ROOT / "docs/runbooks").glob("Quire*.md")}
    assert pages == names | {f"{name}.zh" for name in names}
    for alert in ALERTS:
        page = (ROOT / alert.runbook).read_text()
        assert page.startswith(f"# {alert.name}\n")
        assert {"## Look", "## Do"} <= set(page.splitlines())


def test_prometheus_has_nothing_against_the_rules() -> None:
    found = find_promtool()
    if isinstance(found, str):
        pytest.skip(found)
    ran = subprocess.run([found, "check", "rules", RULES], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(ALERTS)} rules found" in ran.stdout


def _test(
    alert: Alert, series: dict[str, str], at: str, expected: list[Mapping[str, str]]
) -> dict[str, Any]:
    """One test of promtool's: these of the alert fire at this time, and no others."""
    if alert.name != "QuireNoLeader":
        series = LEADER | series
    firing = {"alertname": alert.name, "alertstate": "firing"}
    of_rule = firing | alert.rule()["labels"]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": _selector(firing),
                "eval_time": at,
                "exp_samples": [
                    {"labels": _selector(of_rule | dict(labels)), "value": 1} for labels in expected
                ],
            }
        ],
    }


def _selector(labels: dict[str, str]) -> str:
    return "ALERTS{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
