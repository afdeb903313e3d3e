"""Which host a service may have at the ingress."""

from quire_operator.planner.settings import PlannerSettings
from quire_operator.resource.reading import InferenceService


def host(service: InferenceService, settings: PlannerSettings) -> str | None:
    """The host that the service asks for, if it asks for one and may have it."""
    wanted = service.spec.ingress
    if wanted is None or reserved_by(wanted.host, settings):
        return None
    return wanted.host


def reserved_by(wanted: str, settings: PlannerSettings) -> str | None:
    """The namespace whose Services a host would pass for: everybody asks the gateway by theirs.

    The kind refuses longer forms of such addresses; NAME.NAMESPACE looks as a domain does.
    """
    own = {settings.operator_namespace}
    if settings.gateway is not None:
        own.add(settings.gateway.namespace)
    namespace = wanted.rpartition(".")[2]
    return namespace if namespace in own else None
