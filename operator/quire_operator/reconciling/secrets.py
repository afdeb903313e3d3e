"""The Secrets that a service names: read by name, now and then, since they are not watched.

To watch or list them would need the right to read every Secret that there is. So each is read when
its service changes and once in a while; one that is missing or cannot be read, more often.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from quire_operator.cluster.api import ClusterApi
from quire_operator.cluster.kinds import CONFIG_MAPS, SECRETS
from quire_operator.cluster.store import Key
from quire_operator.errors import ApiError
from quire_operator.planner.api_keys import ApiKeys, keys_of_document, read_keys
from quire_operator.planner.documents import ROUTING_KEY
from quire_operator.planner.names import routing_name
from quire_operator.planner.observed import NO_SECRETS, SecretsSeen
from quire_operator.resource.reading import InferenceService

_SOONER_SECONDS = 15.0
"""Until one that was missing or not readable is read again."""


@dataclass(frozen=True, kw_only=True)
class _Reading:
    of: tuple[str, int]
    """The service's uid and generation."""
    keys_secret: str
    """Name of the Secret with API keys; empty if the service has none."""
    seen: SecretsSeen
    at: float
    """Monotonic."""


class NamedSecrets:
    """What was read of the Secrets of all services.

    Parameters
    ----------
    period_seconds
        How long a reading is good for.
    clock
        Seconds, monotonic.
    """

    def __init__(
        self, api: ClusterApi, *, period_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._api = api
        self._period_seconds = period_seconds
        self._clock = clock
        self._readings: dict[Key, _Reading] = {}

    def forget(self, service: Key) -> None:
        """A service is gone."""
        self._readings.pop(service, None)

    async def look(self, service: InferenceService) -> SecretsSeen:
        """What a service's Secrets said the last time; read now, if the service has changed since.

        Raises
        ------
        ApiError
            Neither the Secret with its API keys could be read, nor what was said of them before.
        """
        reading = self._readings.get(service.key)
        if reading is not None and reading.of == _version(service):
            return reading.seen
        return await self._read(service)

    async def refresh(self, service: InferenceService) -> bool:
        """Read a service's Secrets again if it is time to; whether they say anything new.

        Raises
        ------
        ApiError
            As in `look`.
        """
        before = self._readings.get(service.key)
        if before is None or not _has_any(service):
            return False
        is_fine = not (before.seen.missing or before.seen.unreadable)
        period = self._period_seconds if is_fine else min(_SOONER_SECONDS, self._period_seconds)
        if self._clock() - before.at < period:
            return False
        return await self._read(service) != before.seen

    async def _read(self, service: InferenceService) -> SecretsSeen:
        seen = NO_SECRETS
        spec = service.spec
        if token := spec.model.token_secret_ref:
            seen = await self._read_token(service, token.name, token.key)
        if keys := spec.access.api_keys_secret_ref:
            seen = await self._read_keys(service, keys.name, seen)
        self._readings[service.key] = _Reading(
            of=_version(service), keys_secret=keys.name if keys else "", seen=seen, at=self._clock()
        )
        return seen

    async def _read_token(self, service: InferenceService, name: str, key: str) -> SecretsSeen:
        """Only whether it is there: the kubelet gives it to the engine."""
        try:
            found = await self._api.get(SECRETS, service.namespace, name)
        except ApiError as error:
            return SecretsSeen(unreadable=(f"{name}: {error.words}",))
        if found is None:
            return SecretsSeen(missing=(name,))
        if not (found.get("data") or {}).get(key):
            return SecretsSeen(missing=(f"{name} with a key {key} that is not empty",))
        return NO_SECRETS

    async def _read_keys(
        self, service: InferenceService, name: str, seen: SecretsSeen
    ) -> SecretsSeen:
        try:
            found = await self._api.get(SECRETS, service.namespace, name)
        except ApiError as error:
            return replace(
                seen,
                keys=await self._keys_before(service, name),
                unreadable=(*seen.unreadable, f"{name}: {error.words}"),
            )
        if found is None:
            return replace(seen, missing=(*seen.missing, name))
        return replace(seen, keys=read_keys(found.get("data") or {}))

    async def _keys_before(self, service: InferenceService, name: str) -> ApiKeys:
        """The keys of a Secret as they were read last, or as gateways were told of them."""
        reading = self._readings.get(service.key)
        if reading is not None and reading.keys_secret == name:
            return reading.seen.keys
        place = (service.namespace, routing_name(service.name))
        body = await self._api.get(CONFIG_MAPS, *place) or {}
        return ApiKeys(keys=keys_of_document(_text_of(body), name))


def _version(service: InferenceService) -> tuple[str, int]:
    return service.uid, service.generation


def _has_any(service: InferenceService) -> bool:
    spec = service.spec
    return bool(spec.model.token_secret_ref or spec.access.api_keys_secret_ref)


def _text_of(body: Mapping[str, Any]) -> str:
    text = (body.get("data") or {}).get(ROUTING_KEY, "")
    return text if isinstance(text, str) else ""
