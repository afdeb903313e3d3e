"""Every path of the table is open on the policies that are made, and nothing else is."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from quire_operator.planner.network import network_policy
from quire_operator.planner.network_paths import PATHS, WITHOUT_GATEWAY, Path, system_policies
from quire_operator.planner.observed import Observed
from quire_operator.planner.settings import GatewayPlace
from tests.unit.control.builders import L4, SETTINGS, service
from tests.unit.control.network_policies import Place, Policy, is_allowed

ROLE = "serving.quire.dev/role"
GATEWAY = GatewayPlace(namespace="quire-system", selector=((ROLE, "gateway"),))
WITH_GATEWAY = replace(SETTINGS, gateway=GATEWAY)
CHAT = {ROLE: "engine", "serving.quire.dev/service": "chat"}
PLACES = {
    "engine": Place("models", CHAT),
    "gateway": Place("quire-system", {ROLE: "gateway"}),
    "operator": Place("quire-system", {ROLE: "operator"}),
    "monitoring": Place("monitoring", {"app": "prometheus"}),
    "any pod": Place("projectcontour", {"app": "envoy"}),
    "anywhere": Place(None),
}
PORTS = (22, 53, 80, 443, 6443, 8000, 8080, 8081, 8090, 8443)


def policies(settings: Any = WITH_GATEWAY, **spec: Any) -> list[Policy]:
    seen = Observed(service=service(L4, **spec), root_secret=b"s" * 32)
    return [network_policy(seen, settings), *system_policies(settings)]


def opened(made: list[Policy]) -> set[tuple[str, str, int, str]]:
    """All that passes from or to our pods."""
    return {
        (source, target, port, protocol)
        for (source, one), (target, other) in product(PLACES.items(), PLACES.items())
        for port, protocol in product(PORTS, ("TCP", "UDP"))
        if source != target
        and {source, target} & {"engine", "gateway", "operator"}
        and is_allowed(made, one, other, port, protocol)
    }


def wanted(
    *paths: Any, extra: frozenset[int] = frozenset((443,))
) -> set[tuple[str, str, int, str]]:
    """What the table says, written out over the places: those that stand for several, for each."""
    found = set()
    for path in paths:
        sources = _who(path.source.name)
        targets = _who(path.target.name)
        found |= {
            (source, target, port, protocol)
            for source, target in product(sources, targets)
            for port, protocol in product(path.ports, path.protocols)
            if source != target and _enters(target, path)
        }
    found |= {
        ("engine", target, port, "TCP")
        for target in ("anywhere", "monitoring", "any pod")
        for port in extra
    }
    return found


def _who(name: str) -> tuple[str, ...]:
    """Any pod may be one of ours; anywhere is outside, and pods without a policy of ours."""
    if name == "any pod":
        return ("any pod", "monitoring", "engine", "operator", "gateway")
    return ("anywhere", "any pod", "monitoring") if name == "anywhere" else (name,)


def _enters(target: str, path: Path) -> bool:
    return target == path.target.name or path.target.name == "anywhere"


def test_what_the_table_says_is_open_and_nothing_else() -> None:
    found = opened(policies())
    # from any pod: one of ours must be let out of its own policy, too
    named = {
        one
        for one in wanted(*PATHS)
        if not (one[1] == "gateway" and one[2] == 8080 and one[0] in ("engine", "operator"))
    }

    assert found == named


@pytest.mark.parametrize("path", PATHS, ids=lambda one: f"{one.source.name}-{one.target.name}")
def test_each_path_is_open(path: Path) -> None:
    made = policies()
    ends = PLACES[path.source.name], PLACES[path.target.name]
    for port, protocol in product(path.ports, path.protocols):
        assert is_allowed(made, *ends, port, protocol)


def test_without_a_gateway_every_pod_reaches_engines_and_nobody_outside_does() -> None:
    found = opened(policies(replace(SETTINGS, gateway=None)))

    assert ("any pod", "engine", 8000, "TCP") in found
    assert ("anywhere", "engine", 8000, "TCP") not in found
    assert ("any pod", "engine", 8080, "TCP") not in found
    assert WITHOUT_GATEWAY.ports == (8000,)


def test_other_pods_in_the_gateways_namespace_are_nobody() -> None:
    made = policies()
    other = Place("quire-system", {"app": "other"})

    assert not is_allowed(made, other, PLACES["engine"], 8000)
    assert not is_allowed(made, PLACES["engine"], Place("models", CHAT | {"x": "y"}), 8000)


def egress(**spec: Any) -> set[int]:
    """Ports outside that an engine reaches, besides names."""
    made = policies(**spec)
    far = PLACES["anywhere"]
    return {one for one in range(1, 9000) if is_allowed(made, PLACES["engine"], far, one)} - {53}


def model(source: str) -> dict[str, Any]:
    return {"model": {"source": source}}


def test_engines_reach_their_models_host_and_nothing_where_there_is_none() -> None:
    assert egress(**model("hf://a/b")) == {443}
    assert egress(**model("pypi://a==1/b")) == {443}
    assert egress(**model("https://files.example:8443/m.gguf")) == {8443}
    assert egress(**model("pvc://claim/m")) == set()
    simulated = {"name": "simulated", "simulate": {"gpu": "l4", "modelShape": "llama3-8b"}}
    assert egress(accelerators=[simulated]) == set()


def test_engines_reach_what_their_environment_and_flags_name() -> None:
    values = {
        "HTTPS_PROXY": "http://proxy.example:3128",
        "HF_ENDPOINT": "https://hub.example",
        "https_proxy": "http://proxy.example:3129",
        "OTHER": "http://x:1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://[::bad",
    }
    env = [{"name": name, "value": value} for name, value in values.items()]
    found = egress(
        **model("pvc://claim/m"),
        accelerators=[L4 | {"pod": {"env": env}}],
        engine={"extraArgs": ["--otlp-endpoint=http://collector:4317", "--log-requests"]},
    )

    assert found == {443, 3128, 3129, 4317}
