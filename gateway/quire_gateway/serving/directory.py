"""Which service a model's name means, and what of a service requests are answered by."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from quire_gateway.routing.access import Access
from quire_gateway.routing.document import RoutingDocument

ServiceKey = tuple[str, str]
"""Namespace and name."""


class Served:
    """A service, as those see it who answer its clients."""

    document: RoutingDocument
    label: str
    """Its name in metrics and logs."""
    access: Access

    def has_eligible(self) -> bool:
        """Whether any engine takes requests."""
        raise NotImplementedError

    @property
    def max_model_len(self) -> int:
        """Longest sequence that an engine takes; 0 while none has told it."""
        raise NotImplementedError


ServedT = TypeVar("ServedT", bound=Served)


class Directory(Generic[ServedT]):
    """Finds services; where two have the same name, the one that wanted it first."""

    def __init__(self) -> None:
        self.services: dict[ServiceKey, ServedT] = {}
        self._by_model: dict[str, list[ServedT]] = {}
        self._hosts: set[str] = set()
        """Of ingresses: who asks at one means its services alone. Not among them is what clients
        inside the cluster come by: the address of a service, an IP address, a name of one part."""

    def arrange(self, services: Mapping[ServiceKey, ServedT]) -> None:
        """Have these services, in this order, and no others."""
        self.services, self._by_model = dict(services), {}
        for service in self.services.values():
            for name in service.document.model_names:
                self._by_model.setdefault(name, []).append(service)
        hosts = {_host_of(one) for one in self.services.values()} - {""}
        self._hosts = {
            host for host in hosts if _is_domain(host) and _named_by(host) not in self.services
        }

    def find(self, model: str, host: str) -> ServedT | None:
        """Return the service that a model's name means to who asks at a host.

        Parameters
        ----------
        host
            Name that the client asked for, lower case, without a port.
        """
        found = [one for one in self._by_model.get(model, ()) if self.is_at(one, host)]
        if len(found) > 1:  # stable: of those that tell no time, the first of all stays first
            at_host = host in self._hosts
            found.sort(
                key=lambda one: (
                    not _is_own_name(one, host),
                    not at_host and model in one.document.yields,
                    one.document.claimed(model, at_host=at_host),
                )
            )
        return found[0] if found else None

    def has_host(self, host: str) -> bool:
        """Whether a host is that of a service's ingress."""
        return host in self._hosts

    def is_at(self, service: Served, host: str) -> bool:
        """Whether a service is to be found at a host: all are, but for hosts of ingresses."""
        return host not in self._hosts or host == _host_of(service)


def _host_of(service: Served) -> str:
    return (service.document.host or "").lower()


def _is_domain(host: str) -> bool:
    """Whether a host may be a name in the Internet: neither an IP address nor of one part."""
    return "." in host and not host.rpartition(".")[2].isdigit() and not host.endswith("]")


def _is_own_name(service: Served, host: str) -> bool:
    """Whether a host is the name of a service's own Service in the cluster."""
    return _named_by(host) == service.document.key


def _named_by(host: str) -> ServiceKey | None:
    """Whose address in a cluster a host is: NAME.NAMESPACE or NAME.NAMESPACE.svc[.DOMAIN]."""
    name, _, rest = host.partition(".")
    namespace, _, domain = rest.partition(".")
    is_address = name and namespace and (domain == "" or domain.split(".")[0] == "svc")
    return (namespace, name) if is_address else None
