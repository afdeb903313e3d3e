"""Replicas that are to go: told to take no more, and marked, before their Deployment gets fewer.

What they have begun they finish: the pod's own end waits for it, too. A pod that drains and was not
taken after all is let in again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

import aiohttp

from quire_engine.protocol.internal_token import internal_token
from quire_operator.cluster.api import ClusterApi
from quire_operator.cluster.kinds import PODS
from quire_operator.cluster.store import Key
from quire_operator.errors import ApiError
from quire_operator.logs import of
from quire_operator.planner.observed import Pod
from quire_operator.reconciling.scaling_inputs import address_of

_log = logging.getLogger(__name__)

_TIMEOUT = aiohttp.ClientTimeout(total=5.0, connect=2.0)
COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
_COST = "-1000"
"""Below the default, 0: this one first."""
_PATIENCE_SECONDS = 60.0
"""So long may a controller take to delete a pod."""


class Victims:
    """Drains pods, and lets those in again that stay."""

    def __init__(
        self,
        api: ClusterApi,
        *,
        root_secret: Callable[[], bytes],
        token_epoch: int,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._root_secret = root_secret
        self._token_epoch = token_epoch
        self._clock = clock
        self._drained: dict[Key, float] = {}
        """By namespace and pod, when."""
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def drain(self, service: Key, pods: Iterable[Pod]) -> None:
        """Let these take no more requests, and be the first to be deleted."""
        await asyncio.gather(*(self._drain(service, pod) for pod in pods))

    async def let_in(self, service: Key, pods: Iterable[Pod]) -> None:
        """Let those that drain, and are still there after a while, take requests again."""
        oldest = self._clock() - _PATIENCE_SECONDS
        stayed = [
            pod
            for pod in pods
            if not pod.is_ending and self._drained.get((service[0], pod.name), oldest) < oldest
        ]
        await asyncio.gather(*(self._let_in(service, pod) for pod in stayed))

    def keep_only(self, pods: set[Key]) -> None:
        """Forget pods that are gone."""
        for key in self._drained.keys() - pods:
            del self._drained[key]

    async def _drain(self, service: Key, pod: Pod) -> None:
        self._drained[service[0], pod.name] = self._clock()
        if pod.is_ready:
            await self._tell("POST", service, pod)
        try:
            await self._api.annotate(PODS, service[0], pod.name, {COST_ANNOTATION: _COST})
        except ApiError as error:
            # without the mark another pod may be taken: this one is let in again then
            _log.warning("%s/%s: pod %s: %s", *service, pod.name, error, extra=of(service))

    async def _let_in(self, service: Key, pod: Pod) -> None:
        await self._tell("DELETE", service, pod)
        with suppress(ApiError):
            await self._api.annotate(PODS, service[0], pod.name, {COST_ANNOTATION: None})
        self._drained.pop((service[0], pod.name), None)

    async def _tell(self, method: str, service: Key, pod: Pod) -> None:
        """One that does not answer drains when it is told to end."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT)
        token = internal_token(self._root_secret(), *service, self._token_epoch)
        headers = {"authorization": f"Bearer {token}"}
        url = f"http://{address_of(pod)}/drain"
        with suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with self._session.request(
                method, url, headers=headers, allow_redirects=False
            ) as answer:
                if answer.status >= 400:
                    words = "%s/%s: pod %s answered %s to %s /drain"
                    _log.warning(words, *service, pod.name, answer.status, method)
