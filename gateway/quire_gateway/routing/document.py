"""One service, as a gateway is told of it.

The operator writes these documents (`quire_operator.planner.documents`), into objects that gateways
watch; without a cluster they are in a file, and then name engines and keys themselves. Fields that
are unknown here are a newer operator's, and do no harm; another `schema_version` does.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from quire_engine.profiles.output_length import SketchState
from quire_engine.profiles.step_time import StepTimeModel
from quire_engine.protocol.messages import Thresholds
from quire_gateway.errors import RoutingError

SCHEMA_VERSION = 1
_ADDRESS = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})")
_DIGEST = re.compile(r"[0-9a-f]{64}")

PriorityName = Literal["interactive", "background"]
Positive = Annotated[int, Meta(ge=1)]


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """Who may ask, and how much."""

    name: str
    """In metrics and logs; the key itself is in neither."""
    sha256: str
    """Of the key, in hexadecimal digits."""
    models: tuple[str, ...] = ()
    """Names of models that it may use; empty: all of the service."""
    max_priority: PriorityName = "interactive"
    """With "background", all that comes with this key is background work."""
    requests_per_minute: Positive | None = None
    """Over all gateways; null: no limit."""
    tokens_per_minute: Positive | None = None
    """Of prompts and answers, over all gateways; null: no limit."""
    salt: str = ""
    """Keys share cached prefixes only with equal salts."""


class EnginePlace(msgspec.Struct, frozen=True, kw_only=True):
    """An engine without a cluster."""

    address: str
    """host:port"""
    accelerator: str = ""
    """Name of one of `accelerators`."""
    is_leaving: bool = False
    """Whether it ends: it gets no new requests, and those that it has may end."""


class RoutedAccelerator(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator of the service."""

    name: str
    """As engines and metrics have it."""
    products: tuple[str, ...] = ()
    """GPUs that it may be."""
    cost_per_hour: float | None = None
    """Of one of them."""
    max_replicas: int = 0
    """Most engines on it."""
    traffic_share: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Part of the tokens that scaling planned for it; None where it planned nothing."""


class LastEngine(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine of the service said of itself when there was one."""

    tokens_per_block: Positive
    """As its state has it."""
    num_blocks: Positive
    """All of its blocks."""
    max_model_len: Positive
    """Longest sequence that it took."""
    slots: Positive
    """Sequences that it ran at once."""
    max_step_tokens: Positive | None = None
    """Most tokens of a step; null: not known."""
    step_time: StepTimeModel | None = None
    """How long its steps took; null: not known."""
    output_lengths: SketchState | None = None
    """How long answers were; null: not known."""


class RoutingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All that a gateway needs to know of a service."""

    schema_version: int
    """Of the document; 1."""
    namespace: str
    """Of the service, in metrics and logs; and a part of its name inside a cluster."""
    name: str
    """Of the service."""
    model_names: Annotated[tuple[str, ...], Meta(min_length=1)]
    """The name and its aliases."""
    thresholds: Thresholds
    """How much is let in and what is promised, while engines do not say it themselves."""
    host: str | None = None
    """Host of the ingress, if it has one."""
    claimed_at: dict[str, float] = {}
    """By name, since when the service has wanted it, in seconds since the epoch: of several that
    have the same, the first is meant."""
    host_claimed_at: float | None = None
    """Since when it has wanted the host."""
    yields: tuple[str, ...] = ()
    """Of its names, those that mean another service inside the cluster, if that one is there."""
    is_public: bool = False
    """Whether everybody may ask at the ingress."""
    api_keys_secret: str | None = None
    """Secret with the keys of those who may ask; without their keys, nobody may."""
    engine_selector: dict[str, str] = {}
    """In a cluster: labels of the engines' pods."""
    engines_service: str = ""
    """In a cluster: the Service whose EndpointSlices name the engines."""
    engine_port: int = 8000
    """In a cluster: the port of the engines."""
    cold_start_queue_seconds: Annotated[float, Meta(ge=0)] = 300
    """Requests wait so long while no engine is there."""
    default_priority: PriorityName = "interactive"
    """Of requests that name no priority."""
    token_epoch: Annotated[int, Meta(ge=0)] = 0
    """Which internal token engines take."""
    is_suspended: bool = False
    """Whether all requests are refused."""
    accelerators: tuple[RoutedAccelerator, ...] = ()
    """What its engines run on."""
    api_keys: tuple[ApiKey, ...] = ()
    """Who may ask; none, and no `api_keys_secret`: everybody."""
    engines: tuple[EnginePlace, ...] = ()
    """Its engines, where no cluster knows them."""
    last_engine: LastEngine | None = None
    """For a service without an engine: how soon those that wait can be answered is predicted by it.
    """
    num_gateways: Positive = 1
    """So many share the limits of keys."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    def claimed(self, model: str, *, at_host: bool) -> float:
        """Since when it has wanted a name, inside the cluster or at its host; 0: always."""
        inside = self.claimed_at.get(model, 0.0)
        return max(inside, self.host_claimed_at or 0.0) if at_host else inside

    @property
    def label(self) -> str:
        """Name of the service in metrics and logs."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_open(self) -> bool:
        """Whether requests need no key."""
        return self.api_keys_secret is None and not self.api_keys


class _Versioned(msgspec.Struct):
    """Read first: another schema may look otherwise in everything else."""

    schema_version: int


def read_documents(text: bytes) -> tuple[RoutingDocument, ...]:
    """Read one document or a list of them.

    Raises
    ------
    RoutingError
        One of them is broken, or of another schema, or two claim the same name.
    """
    try:
        is_list = text.lstrip()[:1] == b"["
        several = msgspec.json.decode(text, type=list[msgspec.Raw]) if is_list else [text]
        documents = tuple(_read_one(bytes(one)) for one in several)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise RoutingError(f"the routing document is not valid: {error}") from None
    _check_unique([document.key for document in documents], "service")
    models = [(one.host, name) for one in documents for name in one.model_names]
    _check_unique([name if host is None else f"{name} at {host}" for host, name in models], "model")
    return documents


def _read_one(text: bytes) -> RoutingDocument:
    version = msgspec.json.decode(text, type=_Versioned).schema_version
    if version != SCHEMA_VERSION:
        raise RoutingError(
            f"the routing document has schema_version {version}; this gateway reads"
            f" {SCHEMA_VERSION}: upgrade the gateway and the operator together"
        )
    document = msgspec.json.decode(text, type=RoutingDocument)
    for engine in document.engines:
        match = _ADDRESS.fullmatch(engine.address)
        if match is None or not 0 < int(match[1]) < 1 << 16:
            raise RoutingError(f"engines: {engine.address!r} is no host:port")
    for key in document.api_keys:
        if not _DIGEST.fullmatch(key.sha256):
            raise RoutingError(f"api_keys: sha256 of {key.name!r} is not 64 hexadecimal digits")
    _check_unique([key.name for key in document.api_keys], "key")
    _check_unique([key.sha256 for key in document.api_keys], "key")
    return document


def _check_unique(names: Sequence[object], what: str) -> None:
    seen: set[object] = set()
    for name in names:
        if name in seen:
            raise RoutingError(f"the routing document has a {what} twice: {name!r}")
        seen.add(name)
