"""While TLS is turned on or off at the gateway, what leads in from outside has somewhere to go.

The gateway's pods as a Deployment rolls them, one more than there are to be: after every event what
the operator writes has to be whole, and what it wrote before has to be good still.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from quire_operator.cluster.store import Store
from quire_operator.planner.observed import Observed
from quire_operator.planner.plan import plan
from quire_operator.planner.settings import PlannerSettings, RouteParent
from quire_operator.reconciling.gateways import gateway_pods
from tests.unit.control.builders import GATEWAY, L4, NOW, SETTINGS, service

PORTS = {"http": (80, False), "https": (443, True)}
Objects = dict[tuple[str, str], dict[str, Any]]


def pod(name: str, *, is_tls: bool, is_ready: bool = True, is_ending: bool = False) -> Any:
    labels = dict(GATEWAY.selector) | {"serving.quire.dev/gateway-tls": str(is_tls).lower()}
    metadata = {
        "namespace": GATEWAY.namespace,
        "name": name,
        "labels": labels,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    if is_ending:
        metadata["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    number = int(name.rpartition("-")[2]) + (100 if is_tls else 0)
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    return {
        "metadata": metadata,
        "status": {"podIP": f"10.0.0.{number}", "conditions": conditions, "phase": "Running"},
    }


def rollout(store: Store, num: int, *, to_tls: bool) -> Iterator[int]:
    """Roll all pods, one after another; yields after each event how many old ones are gone."""
    for number in range(num):
        store.put("Pod", pod(f"old-{number}", is_tls=not to_tls))
    yield 0
    for number in range(num):
        store.put("Pod", pod(f"new-{number}", is_tls=to_tls, is_ready=False))
        yield number
        store.put("Pod", pod(f"new-{number}", is_tls=to_tls))
        yield number
        store.put("Pod", pod(f"old-{number}", is_tls=not to_tls, is_ending=True))
        yield number
    for number in range(num):  # they end their answers, while others are rolled or later
        store.drop("Pod", (GATEWAY.namespace, f"old-{number}"))
        yield number + 1


def made(store: Store, settings: PlannerSettings) -> Objects:
    wanted: dict[str, Any] = {"ingress": {"host": "m.example.com"}, "access": {"public": True}}
    seen = Observed(
        service=service(L4, **wanted),
        root_secret=b"s" * 32,
        gateways=gateway_pods(store, settings.gateway),
    )
    return {
        (one["kind"], one["metadata"]["name"]): one for one in plan(seen, settings, NOW).objects
    }


def asked_for(objects: Objects) -> str:
    """The name of the port that outside leads to."""
    if ("Ingress", "chat") not in objects:
        rule = objects["HTTPRoute", "chat"]["spec"]["rules"][0]
        port = rule["backendRefs"][0]["port"]
        return next(name for name, (number, _) in PORTS.items() if number == port)
    path = objects["Ingress", "chat"]["spec"]["rules"][0]["http"]["paths"][0]
    name: str = path["backend"]["service"]["port"]["name"]
    annotations = objects["Ingress", "chat"]["metadata"]["annotations"]
    protocol = "nginx.ingress.kubernetes.io/backend-protocol"
    assert (annotations.get(protocol) == "HTTPS") is PORTS[name][1]
    return name


def prepared(objects: Objects) -> set[str]:
    """The names of all ports that outside knows."""
    if ("Ingress", "chat") not in objects:
        rules = objects["HTTPRoute", "chat"]["spec"]["rules"]
        numbers = {one["backendRefs"][0]["port"] for one in rules}
        return {name for name, (number, _) in PORTS.items() if number in numbers}
    paths = objects["Ingress", "chat"]["spec"]["rules"][0]["http"]["paths"]
    return {one["backend"]["service"]["port"]["name"] for one in paths}


def behind(objects: Objects, port: str) -> set[str]:
    """Addresses that a port of the Service leads to."""
    return {
        one["addresses"][0]
        for (kind, _), body in objects.items()
        if kind == "EndpointSlice" and body["ports"][0]["name"] == port
        for one in body["endpoints"]
    }


@pytest.mark.parametrize("route", [None, RouteParent(namespace="infra", name="public")])
@pytest.mark.parametrize("to_tls", [True, False])
@pytest.mark.parametrize("num", [1, 2, 5])
def test_what_leads_in_has_a_port_with_gateways_before_and_after_each_event(
    num: int, *, to_tls: bool, route: RouteParent | None
) -> None:
    for operator_changes_at in range(4 * num + 2):
        store, before, known = Store(), "", set(PORTS)
        for step, _ in enumerate(rollout(store, num, to_tls=to_tls)):
            is_tls = to_tls if step >= operator_changes_at else not to_tls
            gateway = replace(GATEWAY, is_tls=is_tls)
            objects = made(store, replace(SETTINGS, gateway=gateway, route_parent=route))
            ports = {
                one["name"]: one["port"] for one in objects["Service", "chat"]["spec"]["ports"]
            }
            for name in {asked_for(objects), before or asked_for(objects)}:
                assert ports[name] == PORTS[name][0]
                assert len(behind(objects, name)) >= max(num // 2, 1)
                in_tls = {int(one.rpartition(".")[2]) >= 100 for one in behind(objects, name)}
                assert in_tls == {PORTS[name][1]}
            # Envoy has been told of what is behind the route that it is told of now
            assert asked_for(objects) in known
            before, known = asked_for(objects), prepared(objects)
        assert before == ("https" if to_tls else "http")
        assert operator_changes_at > step or set(ports) == known == {before}
