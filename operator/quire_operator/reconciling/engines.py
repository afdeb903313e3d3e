"""What engines say of themselves, and the limits that they are told.

Engines are asked for `/state`; one that keeps other limits than its service is told the right ones.
Both with the service's internal token.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import aiohttp
import msgspec

from quire_engine.protocol.internal_token import internal_token
from quire_engine.protocol.messages import Thresholds
from quire_engine.protocol.state import SCHEMA_VERSION, EngineState
from quire_operator.cluster.store import Key
from quire_operator.planner.engine_flags import thresholds
from quire_operator.planner.last_engine import LastEngine, last_engine_from
from quire_operator.planner.names import ENGINE_PORT
from quire_operator.planner.observed import Engine, Pod, engine_from
from quire_operator.resource.reading import InferenceService

_TIMEOUT = aiohttp.ClientTimeout(total=5.0, connect=2.0)
_MOST_AT_A_TIME = 50
_MOST_BYTES = 512 * 1024
"""Of an answer: a user's own image may answer as it likes, and all services share this memory."""
_FRESH_POLLS = 3
"""A state is used for as many polls as this; then it is as if there were none."""


class _NonsenseError(Exception):
    """An answer that no engine gives."""


_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError, _NonsenseError)


@dataclass(frozen=True, kw_only=True)
class _Heard:
    engine: Engine
    at: float
    """Monotonic."""


class Engines:
    """The newest states of all engines."""

    def __init__(
        self,
        *,
        root_secret: Callable[[], bytes],
        token_epoch: int,
        poll_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._root_secret = root_secret
        self._token_epoch = token_epoch
        self._fresh_seconds = _FRESH_POLLS * poll_seconds
        self._clock = clock
        self._heard: dict[Key, _Heard] = {}
        self._failed: dict[Key, str] = {}
        """Why the last question to an engine had no answer, by pod."""
        self._told: dict[Key, tuple[dict[str, Engine], dict[str, str]]] = {}
        """By service, its engines as of the last time they were asked."""
        self._last: dict[Key, LastEngine] = {}
        """By service, what an engine that was ready said last."""
        self._session: aiohttp.ClientSession | None = None
        self._gate = asyncio.Semaphore(_MOST_AT_A_TIME)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def heard(self, service: InferenceService, pods: tuple[Pod, ...]) -> dict[str, Engine]:
        """Engines by pod, those heard of lately."""
        oldest = self._clock() - self._fresh_seconds
        found = {pod.name: self._heard.get((service.namespace, pod.name)) for pod in pods}
        return {name: one.engine for name, one in found.items() if one and one.at >= oldest}

    def unheard(self, service: InferenceService, pods: tuple[Pod, ...]) -> dict[str, str]:
        """Why nothing is heard of engines, by pod: of those whose last question had no answer."""
        found = {pod.name: self._failed.get((service.namespace, pod.name)) for pod in pods}
        return {name: why for name, why in found.items() if why}

    def last(self, service: InferenceService) -> LastEngine | None:
        """What an engine of the service said last, as far as this process has heard any."""
        return self._last.get(service.key)

    def keep_only(self, services: set[Key], pods: set[Key]) -> None:
        """Forget services and engines that are gone."""
        for known in (self._heard, self._failed):
            for key in known.keys() - pods:
                del known[key]
        for of_service in (self._told, self._last):
            for key in of_service.keys() - services:
                del of_service[key]

    async def ask(self, service: InferenceService, pods: tuple[Pod, ...]) -> bool:
        """Ask a service's engines for their state, and tell them its limits.

        Those that still load answer, too, and say how far they are.
        Returns whether they say anything new: quiet engines say the same for hours, and a plan
        costs more than a question.
        """
        limits = thresholds(service)
        alive = [
            pod
            for pod in pods
            if pod.is_scheduled and pod.address and not (pod.is_ending or pod.waiting_reason)
        ]
        await asyncio.gather(*(self._ask(service, pod, limits) for pod in alive))
        told = self.heard(service, pods), self.unheard(service, pods)
        is_new = self._told.get(service.key) != told
        self._told[service.key] = told
        return is_new

    async def _ask(self, service: InferenceService, pod: Pod, limits: Thresholds) -> None:
        """One that does not answer, or answers nonsense, is not heard: its state grows old."""
        headers = self._headers(service)
        key = (service.namespace, pod.name)
        async with self._gate:
            try:
                body = await self._request("GET", pod, "/state", headers)
                state = msgspec.json.decode(body, type=EngineState)
                if state.schema_version != SCHEMA_VERSION:
                    raise _NonsenseError(f"its state has schema version {state.schema_version}")
                self._heard[key] = _Heard(engine=engine_from(state), at=self._clock())
                if state.is_ready and (last := last_engine_from(state)) is not None:
                    self._last[service.key] = last
                self._failed.pop(key, None)
                if state.thresholds is not None and state.thresholds != limits:
                    text = msgspec.json.encode(limits)
                    await self._request("PUT", pod, "/thresholds", headers, text)
            except _FAILURES as error:
                self._failed[key] = _why(error)

    async def _request(
        self, method: str, pod: Pod, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> bytes:
        if self._session is None:
            # kept until the next question: to connect costs as much as to ask
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=self._fresh_seconds)
            self._session = aiohttp.ClientSession(
                timeout=_TIMEOUT,
                connector=connector,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        url = f"http://{host}:{ENGINE_PORT}{path}"
        async with self._session.request(
            method, url, headers=headers, data=body or None, allow_redirects=False
        ) as answer:
            answer.raise_for_status()
            read = bytearray()
            async for chunk in answer.content.iter_any():
                read += chunk
                if len(read) > _MOST_BYTES:
                    raise _NonsenseError(f"its answer is larger than {_MOST_BYTES} bytes")
            return bytes(read)

    def _headers(self, service: InferenceService) -> dict[str, str]:
        token = internal_token(
            self._root_secret(), service.namespace, service.name, self._token_epoch
        )
        return {
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "accept-encoding": "identity",
        }


def _why(error: Exception) -> str:
    """Why there was no answer, in words that stay the same while it does."""
    if isinstance(error, aiohttp.ClientResponseError):
        is_token = error.status in (401, 403)
        return f"it answers {error.status}" + (" to the internal token" if is_token else "")
    if isinstance(error, _NonsenseError):
        return str(error)
    if isinstance(error, msgspec.DecodeError):
        return "its answer is no state of an engine"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    number = getattr(error, "errno", None)
    return os.strerror(number).lower() if number else type(error).__name__
