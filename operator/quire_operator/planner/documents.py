"""What the operator tells engines and gateways about a service.

NAME-live       a configuration file: the limits that a new engine starts with; and which commit its
                model's revision is
NAME-internal   tokens that gateway and operator are known by, this epoch's and the one before
NAME-routing    all that a gateway needs to route to the service, versioned
"""

import base64
import json
from typing import Any

from msgspec import Struct
from msgspec.json import encode

from quire_engine.protocol.internal_token import valid_tokens
from quire_engine.protocol.messages import Thresholds
from quire_operator.planner import names
from quire_operator.planner.api_keys import RoutedKey
from quire_operator.planner.engine_flags import live_config, thresholds
from quire_operator.planner.hosts import host
from quire_operator.planner.last_engine import LastEngine, note
from quire_operator.planner.observed import Observed
from quire_operator.planner.pinning import pinned_commit
from quire_operator.planner.placement import price_of
from quire_operator.planner.settings import PlannerSettings
from quire_operator.resource.status import Claims
from quire_operator.resource.times import moment

Body = dict[str, Any]

ROUTING_SCHEMA_VERSION = 1
"""Raised when a field changes its meaning; new fields do not raise it."""
ROUTING_KEY = "routing.json"
LIVE_KEY = "config.json"
TOKENS_KEY = "tokens"


class RoutedAccelerator(Struct, frozen=True, kw_only=True):
    """One accelerator, as a gateway sees it."""

    name: str
    products: tuple[str, ...]
    cost_per_hour: float | None
    max_replicas: int
    traffic_share: float | None = None
    """Part of the tokens that scaling planned for it; None: gateways choose alone."""


class RoutingDocument(Struct, frozen=True, kw_only=True):
    """All that a gateway needs to know of a service, besides where its engines are."""

    schema_version: int
    namespace: str
    name: str
    model_names: tuple[str, ...]
    """The name and its aliases."""
    host: str | None
    """Host of the ingress, if it has one."""
    is_public: bool
    """Whether everybody may ask at the ingress."""
    api_keys_secret: str | None
    """Secret with the keys of those who may ask."""
    api_keys: tuple[RoutedKey, ...]
    """Those keys, by their SHA-256."""
    engine_selector: dict[str, str]
    """Labels of the engine pods."""
    engines_service: str
    """Service whose EndpointSlices have them."""
    engine_port: int
    thresholds: Thresholds
    cold_start_queue_seconds: int
    default_priority: str
    token_epoch: int
    is_suspended: bool
    accelerators: tuple[RoutedAccelerator, ...]
    claimed_at: dict[str, float]
    """By name and alias, since when the service has wanted it, in seconds since the epoch: of those
    that have the same, the first is meant."""
    host_claimed_at: float | None
    """Since when it has wanted the host."""
    yields: tuple[str, ...] = ()
    """Names and aliases that another service has inside the cluster: that one is meant, though this
    document may be older than its own, which was deleted and made anew."""
    last_engine: LastEngine | None = None
    """What an engine said last, for the time without one."""


def live_config_map(observed: Observed) -> Body:
    """The limits that a new engine starts with; running ones are told over HTTP."""
    service = observed.service
    text = json.dumps(live_config(service), sort_keys=True)
    body = _config_map(observed, names.live_config_name(service.name), LIVE_KEY, text)
    if commit := pinned_commit(service):
        body["data"][names.PIN_KEY] = f"{service.spec.model.source}={commit}"
    return body


def routing_map(observed: Observed, settings: PlannerSettings) -> Body:
    """The routing document, in an object that gateways watch by its label."""
    # as the keys' sizes were counted: json.dumps would write one letter of a salt as 12
    text = encode(routing_document(observed, settings), order="sorted").decode()
    body = _config_map(observed, names.routing_name(observed.service.name), ROUTING_KEY, text)
    if observed.last_engine is not None:
        source = observed.service.spec.model.source
        body["metadata"]["annotations"] = note(source, observed.last_engine)
    return body


def routing_document(observed: Observed, settings: PlannerSettings) -> RoutingDocument:
    """What gateways are told."""
    service, spec = observed.service, observed.service.spec
    keys = spec.access.api_keys_secret_ref
    is_auto = observed.scaled is not None and spec.scaling.mode == "Auto"
    claims = observed.standing.claims
    shares = observed.scaled.traffic_shares if observed.scaled and is_auto else {}
    return RoutingDocument(
        schema_version=ROUTING_SCHEMA_VERSION,
        namespace=service.namespace,
        name=service.name,
        model_names=(
            service.served_name,
            *(one for one in spec.model.aliases if one not in observed.standing.alias_owners),
        ),
        host=host(service, settings),
        is_public=spec.access.public,
        api_keys_secret=keys.name if keys else None,
        api_keys=observed.secrets.keys.keys if keys else (),
        engine_selector=names.engine_selector(service.name),
        engines_service=names.engines_service_name(service.name),
        engine_port=names.ENGINE_PORT,
        thresholds=thresholds(service),
        cold_start_queue_seconds=spec.admission.cold_start_queue_seconds,
        default_priority=spec.admission.default_priority,
        token_epoch=settings.token_epoch,
        is_suspended=spec.suspend,
        accelerators=tuple(
            RoutedAccelerator(
                name=one.name,
                products=one.products,
                cost_per_hour=price_of(one),
                max_replicas=one.max_replicas,
                traffic_share=shares.get(one.name),
            )
            for one in spec.accelerators
        ),
        claimed_at=_claimed_at(claims),
        host_claimed_at=_seconds(claims.host_since) if claims and claims.host_since else None,
        yields=tuple(sorted(observed.standing.inside_owners)),
        last_engine=observed.last_engine,
    )


def _claimed_at(claims: Claims | None) -> dict[str, float]:
    return {one.name: _seconds(one.since) for one in claims.names} if claims else {}


def _seconds(at: str) -> float:
    return moment(at).timestamp()


def internal_token_secret(observed: Observed, settings: PlannerSettings) -> Body:
    """The tokens that this service's engines take."""
    service = observed.service
    tokens = valid_tokens(
        observed.root_secret, service.namespace, service.name, settings.token_epoch
    )
    text = "".join(f"{token}\n" for token in tokens)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": service.namespace,
            "name": names.internal_token_name(service.name),
            "labels": names.labels(service.name, "internal-token"),
        },
        "type": "Opaque",
        "data": {TOKENS_KEY: base64.b64encode(text.encode()).decode()},
    }


def _config_map(observed: Observed, name: str, key: str, text: str) -> Body:
    role = name.removeprefix(f"{observed.service.name}-")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "namespace": observed.service.namespace,
            "name": name,
            "labels": names.labels(observed.service.name, role),
        },
        "data": {key: text},
    }
