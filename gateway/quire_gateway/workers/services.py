"""Services as a worker knows them, by what the decider publishes."""

from collections import Counter
from collections.abc import Callable, Collection

import msgspec

from quire_gateway.choosing.retry import jitter
from quire_gateway.routing.access import Access
from quire_gateway.routing.document import RoutingDocument
from quire_gateway.serving.directory import Directory, Served, ServiceKey
from quire_gateway.serving.link import Link, link_headers
from quire_gateway.workers.alone import choose_least_loaded
from quire_gateway.workers.snapshot import EngineLoad, Loads, Routing

Chance = Callable[[], float]


class WorkerService(Served):
    """One service.

    Parameters
    ----------
    access
        Its keys; their limits count only while nobody decides, each worker having its part.
    """

    def __init__(self, document: RoutingDocument, access: Access) -> None:
        self.document, self.label = document, document.label
        self.access = access
        self.links: dict[str, Link] = {}
        self.num_sent: Counter[str] = Counter()
        """Requests of this worker that nobody decided, by the engine where they are now."""
        self._loads: list[EngineLoad] = []
        self._max_model_len = 0

    @property
    def key(self) -> ServiceKey:
        """Namespace and name."""
        return self.document.key

    def take_loads(self, loads: list[EngineLoad], max_model_len: int) -> None:
        """Know other loads from now on."""
        self._loads, self._max_model_len = loads, max_model_len

    def has_eligible(self) -> bool:
        """See `Served`."""
        return any(one.is_eligible for one in self._loads)

    @property
    def max_model_len(self) -> int:
        """See `Served`."""
        return self._max_model_len

    def choose_alone(self, without: Collection[str], chance: Chance) -> Link | None:
        """Choose an engine while nobody decides; None if none takes requests."""
        able = [one for one in self._loads if one.address in self.links]
        address = choose_least_loaded(able, self.num_sent, without, chance)
        return None if address is None else self.links[address]


class WorkerDirectory(Directory[WorkerService]):
    """All of them.

    Parameters
    ----------
    num_workers
        So many share the limits of keys while nobody decides.
    """

    def __init__(
        self,
        *,
        num_workers: int,
        root_secret: bytes | None,
        chance: Chance,
        clock: Callable[[], float],
    ) -> None:
        super().__init__()
        self._num_workers = num_workers
        self._root_secret = root_secret
        self._chance = chance
        self._clock = clock
        self._left: list[Link] = []
        """To engines that get no requests any more, and still owe answers."""

    def take_routing(self, routing: Routing) -> None:
        """Know these services from now on, and no others."""
        found = {document.key: self._take_document(document) for document in routing.documents}
        for key in self.services.keys() - found.keys():
            self._leave(self.services[key], self.services[key].links)
        self.arrange(found)
        self._left = [link for link in self._left if link.relays]

    def take_loads(self, loads: Loads) -> None:
        """Know other loads from now on."""
        for one in loads.services:
            service = self.services.get(one.service)
            if service is not None:
                service.take_loads(one.engines, one.max_model_len)
                service.access.resume(one.keys, loads.at)

    def end_answers_of(self, key: ServiceKey, address: str, reason: str) -> None:
        """Break off the answers of an engine that hangs."""
        service = self.services.get(key)
        known = service.links.get(address) if service is not None else None
        left = [link for link in self._left if link.address == address]
        for link in [*left, known]:
            if link is not None:
                link.end_answers(reason, is_nobodys_fault=False)

    def end_answers(self, reason: str) -> None:
        """Break off all answers."""
        links = [link for one in self.services.values() for link in one.links.values()]
        for link in [*links, *self._left]:
            # no engine's fault: it must not be what makes the request fail too often
            link.end_answers(reason, is_nobodys_fault=True)

    def _take_document(self, document: RoutingDocument) -> WorkerService:
        num_sharing = document.num_gateways * self._num_workers
        divided = msgspec.structs.replace(document, num_gateways=num_sharing)
        service = self.services.get(document.key)
        if service is None:
            access = Access(divided, lambda seconds: jitter(seconds, self._chance))
            service = WorkerService(document, access)
        elif service.document != document:
            service.access.update(divided, self._clock())
            service.document = document
        wanted = {place.address for place in document.engines}
        self._leave(service, service.links.keys() - wanted)
        for address in wanted - service.links.keys():
            headers = link_headers(self._root_secret, document, address)
            service.links[address] = Link(address, headers)
        return service

    def _leave(self, service: WorkerService, addresses: Collection[str]) -> None:
        for address in list(addresses):
            link = service.links.pop(address)
            link.pool.close()
            if link.relays:
                self._left.append(link)
