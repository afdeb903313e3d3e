"""All services and their engines, by the routing documents that are in force."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from quire_engine.protocol.state import EngineState
from quire_gateway.choosing.choose import Chance
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.errors import ApiError
from quire_gateway.http.headers import Headers
from quire_gateway.routing.document import EnginePlace, RoutingDocument
from quire_gateway.serving.directory import Directory, ServiceKey
from quire_gateway.serving.link import Link, link_headers
from quire_gateway.serving.service import Service
from quire_gateway.serving.watch import EngineWatch

_TICK_SECONDS = 0.1


class EngineLink(Link):
    """One engine with all that leads to it."""

    def __init__(self, endpoint: Endpoint, headers: Headers) -> None:
        super().__init__(endpoint.address, headers)
        self.endpoint = endpoint
        self.watch: asyncio.Task[None] | None = None


class Fleet(Directory[Service]):
    """Keeps services and links as the documents want them.

    Parameters
    ----------
    gateway
        This gateway's name.
    root_secret
        What internal tokens are made of; None sends none, for engines on this machine.
    """

    def __init__(
        self,
        *,
        gateway: str,
        root_secret: bytes | None,
        chance: Chance,
        stale_seconds: float,
        silence_seconds: float,
        hang_seconds: float,
    ) -> None:
        super().__init__()
        self._gateway = gateway
        self._root_secret = root_secret
        self._chance = chance
        self._stale_seconds = stale_seconds
        self._silence_seconds = silence_seconds
        self._hang_seconds = hang_seconds
        self._loop = asyncio.get_running_loop()
        self._counter = 0
        self.links: dict[Endpoint, EngineLink] = {}
        self.on_silent: Callable[[ServiceKey, str], None] = _tell_nobody
        """Told of each engine that hangs, for answers that are elsewhere."""
        self._left: list[EngineLink] = []
        """Of engines that get no requests any more, and still owe answers."""

    def update(self, documents: Iterable[RoutingDocument]) -> None:
        """Put these documents in force, and no others."""
        wanted = {document.key: document for document in documents}
        for key in self.services.keys() - wanted.keys():
            service = self.services.pop(key)
            self._sync_engines(service, ())
            service.close(removed)
        for key, document in wanted.items():
            known = self.services.get(key)
            if known is not None and known.document is document:
                continue
            if known is None:
                known = self.services[key] = self._make_service(document)
            else:
                known.update(document)
            self._sync_engines(known, document.engines)
        self.arrange({key: self.services[key] for key in wanted})

    async def run(self) -> None:
        """Let time pass for those that wait."""
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            for service in self.services.values():
                service.tick()
            for link in [one for one in self._left if not one.endpoint.num_in_flight]:
                self._left.remove(link)
                _stop_watch(link)

    def refuse_all(self, why: Callable[[], ApiError]) -> None:
        """Refuse who waits for an engine or will ask for one, of every service."""
        for service in self.services.values():
            service.close(why)

    def end_answers(self, reason: str) -> None:
        """Break off all answers that are on their way, those of engines that have left too."""
        for link in (*self.links.values(), *self._left):
            # no engine's fault: it must not be what makes the request fail too often
            link.end_answers(reason, is_nobodys_fault=True)

    async def close(self) -> None:
        """Leave all engines."""
        links = [*self.links.values(), *self._left]
        self.update(())
        for link in links:
            _stop_watch(link)
        tasks = [link.watch for link in links if link.watch is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _next_counter(self) -> int:
        self._counter += 1
        return self._counter

    def _make_service(self, document: RoutingDocument) -> Service:
        return Service(
            document,
            next_counter=self._next_counter,
            clock=self._loop.time,
            chance=self._chance,
            stale_seconds=self._stale_seconds,
            hang_seconds=self._hang_seconds,
        )

    def _sync_engines(self, service: Service, places: Iterable[EnginePlace]) -> None:
        wanted = {place.address: place for place in places}
        for endpoint in list(service.endpoints):
            place = wanted.get(endpoint.address)
            if place is None or place.accelerator != endpoint.accelerator:
                self._leave(service, endpoint)
            else:
                endpoint.is_leaving = place.is_leaving
        known = {endpoint.address for endpoint in service.endpoints}
        for address, place in wanted.items():
            if address not in known:
                self._join(service, place)

    def _join(self, service: Service, place: EnginePlace) -> None:
        endpoint = Endpoint(
            place.address,
            accelerator=place.accelerator,
            gateway=self._gateway,
            slot=service.index.join(),
        )
        endpoint.is_leaving = place.is_leaving
        headers = link_headers(self._root_secret, service.document, place.address)
        link = EngineLink(endpoint, headers)
        self.links[endpoint] = link
        service.add(endpoint)

        watch = EngineWatch(
            endpoint,
            link.pool,
            link.headers,
            silence_seconds=self._silence_seconds,
            on_state=partial(self._hear, service),
            on_bad=service.count_bad_state,
            on_lost=partial(self._lose, service, link),
        )
        link.watch = self._loop.create_task(watch.run())

    def _hear(self, service: Service, endpoint: Endpoint, state: EngineState) -> None:
        """An engine has told its state: of one that has left, only that it lives is of use."""
        if endpoint in self.links:
            service.hear(endpoint, state)

    def _lose(self, service: Service, link: EngineLink, is_silent: bool) -> None:
        """An engine is not heard; if it hangs, nobody waits for its answers any more."""
        if link.endpoint in self.links:  # of one that has left, the index knows nothing more
            service.lose(link.endpoint)
        if is_silent:
            link.end_answers("silent", is_nobodys_fault=False)
            self.on_silent(service.document.key, link.address)

    def _leave(self, service: Service, endpoint: Endpoint) -> None:
        """Send nothing there any more; what is on its way is answered, unless it falls silent."""
        service.endpoints.remove(endpoint)
        service.index.leave(endpoint.slot)
        link = self.links.pop(endpoint)
        link.pool.close()
        if endpoint.num_in_flight:
            self._left.append(link)
        else:
            _stop_watch(link)


def _stop_watch(link: EngineLink) -> None:
    if link.watch is not None:
        link.watch.cancel()


def _tell_nobody(service: ServiceKey, address: str) -> None:
    """All answers are in this process."""


def removed() -> ApiError:
    """Return what a request is told whose service is not there any more."""
    message = "The model does not exist any more: its service has been removed."
    return ApiError(404, message, reason="model_not_found", param="model")
