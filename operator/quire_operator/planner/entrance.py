"""The ports of a service's address, and the gateway's pods behind each.

Gateways speak TLS or they do not. While that is changed, there are pods of both kinds. The
Service has a port for each then, with endpoints of its own, from the kind's first pod, ready or
not, to its last; what leads in from outside goes to the kind of which more take requests. So what
it names is there and has endpoints at every moment, whichever change is learnt of first.
"""

import ipaddress
from typing import Any, NamedTuple

from quire_operator.planner import names
from quire_operator.planner.observed import GatewayPods, Observed
from quire_operator.planner.settings import PlannerSettings

Body = dict[str, Any]


class Entrance(NamedTuple):
    """A port of a Service, by what pods speak there."""

    is_tls: bool
    name: str
    port: int
    slices: str
    """What the names of its EndpointSlices have after the service's."""


PLAIN = Entrance(is_tls=False, name="http", port=80, slices="gateway")
TLS = Entrance(is_tls=True, name="https", port=443, slices="gateway-tls")
SPARE_PATH = "/quire/other-gateways"
"""What leads in from outside has it for the port that it does not lead to: Envoy, which learns of
routes and of what is behind them at different moments, then knows both before the change. It has no
dot: there are versions of ingress-nginx that refuse one in a path."""
_NO_PODS = GatewayPods()


def ways_in(observed: Observed, settings: PlannerSettings) -> list[Entrance]:
    """The ports of the kind of gateways that there is to be, and of those that there are.

    The first is the one that outside leads to, and that the service's URL tells: of two the one of
    which more gateways take requests, so that no few of them get all the load.
    """
    gateway = settings.gateway
    is_to_be_tls = gateway is not None and gateway.is_tls
    kinds = {is_to_be_tls, *observed.gateways}
    return sorted(
        (one for one in (PLAIN, TLS) if one.is_tls in kinds),
        key=lambda one: (-_num_taking(observed, one), one.is_tls is not is_to_be_tls),
    )


def _num_taking(observed: Observed, entrance: Entrance) -> int:
    return len(observed.gateways.get(entrance.is_tls, _NO_PODS).taking)


def endpoint_slices(observed: Observed, entrance: Entrance, port: int) -> list[Body]:
    """The gateway's pods of a kind; one slice for each family of addresses, as the API wants it."""
    pods = observed.gateways.get(entrance.is_tls, _NO_PODS)
    # the last ones of a kind that goes take requests of those who have not heard of it yet
    addresses = pods.taking or (pods.ending if len(observed.gateways) > 1 else ())
    families: dict[str, list[str]] = {"IPv4": []}
    for address in sorted(addresses):
        family = f"IPv{ipaddress.ip_address(address).version}"
        families.setdefault(family, []).append(address)
    return [
        _slice(observed, entrance, family, several, port) for family, several in families.items()
    ]


def _slice(
    observed: Observed, entrance: Entrance, family: str, addresses: list[str], port: int
) -> Body:
    service = observed.service
    own = names.labels(service.name, "entrance")
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": service.namespace,
            "name": f"{service.name}-{entrance.slices}-{family.lower()}",
            "labels": own
            | {
                "kubernetes.io/service-name": service.name,
                "endpointslice.kubernetes.io/managed-by": names.MANAGER,
            },
        },
        "addressType": family,
        "ports": [{"name": entrance.name, "port": port, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": [address], "conditions": {"ready": True}} for address in addresses
        ],
    }
