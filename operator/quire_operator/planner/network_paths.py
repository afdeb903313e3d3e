"""Who may reach whom: a table, and the NetworkPolicies and the page that are made of it.

    PATHS --> policy_spec(ENGINE, ...)      in each service's namespace, by the operator
          --> system_policies(...)          of gateway and operator, under manifests/
          --> paths_page()                  docs/reference/network.md

A path between two of our own pods stands in both their policies: out of the one, into the other.
What is not in the table is denied. The kubelet's probes need no path: a node always reaches its own
pods.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from quire_operator.planner import names
from quire_operator.planner.settings import PlannerSettings

Body = dict[str, Any]

GATEWAY_MANAGEMENT_PORT = 8090
OPERATOR_PORT = 8081


class Party(NamedTuple):
    """One end of a path."""

    name: str
    is_ours: bool = False
    """Whether its pods have a policy of ours."""


ENGINE = Party("engine", is_ours=True)
GATEWAY = Party("gateway", is_ours=True)
OPERATOR = Party("operator", is_ours=True)
MONITORING = Party("monitoring")
CLUSTER = Party("any pod")
ANYWHERE = Party("anywhere")


class Path(NamedTuple):
    """One way that is open."""

    source: Party
    target: Party
    ports: tuple[int, ...]
    why: str
    protocols: tuple[str, ...] = ("TCP",)


_API_SERVER = (443, 6443)
"""Policies see where a connection ends up: at the API server's own port, of one kind or another."""
_BY_NAME = ("UDP", "TCP")

PATHS = (
    Path(GATEWAY, ENGINE, (names.ENGINE_PORT,), "requests, and the engine's state"),
    Path(OPERATOR, ENGINE, (names.ENGINE_PORT,), "the engine's state, and limits that change"),
    Path(MONITORING, ENGINE, (names.ENGINE_PORT,), "`/metrics`"),
    Path(ENGINE, ANYWHERE, (53,), "names", _BY_NAME),
    Path(CLUSTER, GATEWAY, (8080,), "requests of clients and of the ingress controller"),
    Path(OPERATOR, GATEWAY, (GATEWAY_MANAGEMENT_PORT,), "`/fleet`"),
    Path(MONITORING, GATEWAY, (GATEWAY_MANAGEMENT_PORT,), "`/metrics`"),
    Path(GATEWAY, ANYWHERE, (53,), "names", _BY_NAME),
    Path(GATEWAY, ANYWHERE, _API_SERVER, "the API server: routing documents and endpoints"),
    Path(MONITORING, OPERATOR, (OPERATOR_PORT,), "`/metrics`"),
    Path(OPERATOR, ANYWHERE, (53,), "names", _BY_NAME),
    Path(OPERATOR, ANYWHERE, _API_SERVER, "the API server"),
)
"""All that is open in every installation."""

WITHOUT_GATEWAY = Path(CLUSTER, ENGINE, (names.ENGINE_PORT,), "requests, where there is no gateway")


def engine_paths(settings: PlannerSettings, outside: Mapping[int, str]) -> tuple[Path, ...]:
    """Ways to and from one service's engines.

    Parameters
    ----------
    outside
        Ports that they reach outside, and what for.
    """
    own = [Path(ENGINE, ANYWHERE, (port,), why) for port, why in sorted(outside.items())]
    way_in = [] if settings.gateway else [WITHOUT_GATEWAY]
    return (*(one for one in PATHS if ENGINE in one[:2]), *way_in, *own)


def policy_spec(
    party: Party, paths: Sequence[Path], selector: Mapping[str, str], settings: PlannerSettings
) -> Body:
    """The spec of the policy of one party's pods."""
    return {
        "podSelector": {"matchLabels": dict(selector)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            _rule(one, "from", _peer(one.source, settings))
            for one in paths
            if one.target == party and _is_there(one.source, settings)
        ],
        "egress": [
            _rule(one, "to", _peer(one.target, settings))
            for one in paths
            if one.source == party and _is_there(one.target, settings)
        ],
    }


def system_policies(settings: PlannerSettings) -> list[Body]:
    """The policies of gateway and operator, each in its own namespace."""
    gateway = settings.gateway
    found = [_policy("quire-operator", OPERATOR, settings.operator_namespace, settings)]
    if gateway is not None:
        found.append(_policy("quire-gateway", GATEWAY, gateway.namespace, settings))
    return found


def paths_page() -> str:
    """The table as a page."""
    rows = [*PATHS, WITHOUT_GATEWAY]
    lines = [
        f"| {one.source.name} | {one.target.name} |"
        f" {', '.join(map(str, one.ports))} | {', '.join(one.protocols)} | {one.why} |"
        for one in rows
    ]
    return _PAGE.replace("TABLE", "\n".join(lines))


def _rule(path: Path, side: str, peer: Body | None) -> Body:
    ports = [
        {"protocol": protocol, "port": port} for port in path.ports for protocol in path.protocols
    ]
    return {"ports": ports} | ({} if peer is None else {side: [peer]})


def _is_there(party: Party, settings: PlannerSettings) -> bool:
    return party != GATEWAY or settings.gateway is not None


def _peer(party: Party, settings: PlannerSettings) -> Body | None:
    """Who that is, for a policy; None is everybody, outside the cluster too."""
    if party == ANYWHERE:
        return None
    if party == CLUSTER:
        return {"namespaceSelector": {}}
    if party == MONITORING:
        return {"namespaceSelector": _named(settings.monitoring_namespace)}
    pods = {"podSelector": {"matchLabels": _labels(party, settings)}}
    if party == ENGINE:
        return {"namespaceSelector": {}} | pods
    return {"namespaceSelector": _named(_namespace(party, settings))} | pods


def _namespace(party: Party, settings: PlannerSettings) -> str:
    if party == GATEWAY and settings.gateway is not None:
        return settings.gateway.namespace
    return settings.operator_namespace


def _labels(party: Party, settings: PlannerSettings) -> dict[str, str]:
    if party == GATEWAY and settings.gateway is not None:
        return dict(settings.gateway.selector)
    return {names.ROLE_LABEL: party.name}


def _policy(name: str, party: Party, namespace: str, settings: PlannerSettings) -> Body:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": namespace, "name": name},
        "spec": policy_spec(party, PATHS, _labels(party, settings), settings),
    }


def _named(namespace: str) -> Body:
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


_PAGE = """\
# Who reaches whom

Generated by `make docs` from `quire_operator.planner.network_paths`: change it there.

NetworkPolicies allow these ways and no others, wherever the cluster's network enforces them. The
operator makes the engines' for each service; those of the gateway and of the operator itself are in
[manifests/network-policies.yaml](../../manifests/network-policies.yaml), for the namespace
`quire-system` and pods with the label `serving.quire.dev/role: operator` or `gateway`.

| from | to | ports | protocols | for |
| --- | --- | --- | --- | --- |
TABLE

The last one replaces the gateway's where the operator runs without `--gateway-namespace`.

An engine also reaches, on any host:

- port 443, or that of an `https://` source, for its model; not where the model is in a claim
  (`pvc://`), nor where every accelerator is simulated;
- the ports of a proxy, of another hub or index, and of a trace collector that its accelerators name
  in `pod.env` (`HTTPS_PROXY`, `HF_ENDPOINT`, `UV_INDEX_URL`, `OTEL_EXPORTER_OTLP_ENDPOINT` and the
  like, as a value and not as a reference) or in `--otlp-endpoint` among `engine.extraArgs`.

`monitoring` is every pod of the namespace that `--monitoring-namespace` names; `any pod` is one in
any namespace of the cluster. Probes need no way of their own: a node always reaches its own pods.
Gateways do not speak with each other, nor engines with engines. With a `gateway.service.type`
other than ClusterIP the chart lets everybody to the gateway's port 8080, and whom
`networkPolicy.extraIngress` names.
"""
