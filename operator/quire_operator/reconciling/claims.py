"""Who has which name: the first to want it, at each host and inside the cluster.

Kept in memory, since one look must see what the look before it gave away, and in statuses, so that
an operator that starts anew knows who was first.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from quire_operator.cluster.kinds import SERVICES
from quire_operator.cluster.store import Key, Store
from quire_operator.planner.claims import Standing, claims_of
from quire_operator.planner.observed import moment
from quire_operator.resource.reading import InferenceService, InvalidResourceError, read
from quire_operator.resource.status import Claims

_Rank = tuple[datetime, str, Key]


@dataclass(frozen=True, kw_only=True)
class _Known:
    uid: str
    created_at: str
    claims: Claims

    @property
    def names(self) -> set[str]:
        return {one.name for one in self.claims.names}


class NameClaims:
    """Claims of all services of one operator.

    Parameters
    ----------
    wake
        Called with each service for which something may have changed.
    """

    def __init__(self, store: Store, wake: Callable[[Key], None]) -> None:
        self._store = store
        self._wake = wake
        self._known: dict[Key, _Known] = {}
        self._by_name: defaultdict[str, set[Key]] = defaultdict(set)
        self._is_seeded = False

    def stand(self, service: InferenceService, now: datetime) -> Standing:
        """Note what a service wants, and say what of it others have."""
        if not self._is_seeded:
            self._seed(now)
        self._note(service, now)
        claims = self._known[service.key].claims
        at_host = {
            one.name: owner
            for one in claims.names
            if (owner := self._first(one.name, claims.host)) != service.key and claims.host
        }
        inside = {
            one.name: owner
            for one in claims.names
            if one.name not in at_host and (owner := self._first_inside(one.name)) != service.key
        }
        others = {name: "/".join(key) for name, key in at_host.items()}
        return Standing(
            claims=claims,
            name_owner=others.pop(service.served_name, None),
            alias_owners=others,
            inside_owners={name: "/".join(key) for name, key in inside.items()},
        )

    def forget(self, service: Key) -> None:
        """It is gone, and its names are free."""
        known = self._known.pop(service, None)
        if known is not None:
            self._index(service, known.names, set())

    def _seed(self, now: datetime) -> None:
        """All that there are, before anybody is given a name."""
        self._is_seeded = True
        for body in self._store.all(SERVICES.kind):
            try:
                service = read(body)
            except InvalidResourceError:
                continue
            if not service.is_being_deleted:
                self._note(service, now)

    def _note(self, service: InferenceService, now: datetime) -> None:
        old = self._known.get(service.key)
        if old is not None and old.uid != service.uid:  # of one that had its name before
            old = None
        before = old.claims if old is not None else service.status.claims
        claims = claims_of(service, before, now)
        if old is not None and claims == old.claims:
            return
        made = _Known(uid=service.uid, created_at=service.created_at, claims=claims)
        replaced = self._known.get(service.key)
        self._known[service.key] = made
        self._index(service.key, replaced.names if replaced else set(), made.names)

    def _index(self, service: Key, old: set[str], new: set[str]) -> None:
        for name in old - new:
            self._by_name[name].discard(service)
            if not self._by_name[name]:
                del self._by_name[name]
        for name in new:
            self._by_name[name].add(service)
        for name in old | new:
            for rival in self._by_name.get(name, ()):
                if rival != service:
                    self._wake(rival)

    def _first(self, name: str, host: str) -> Key:
        """Who has a name at a host; at none: who wanted it first of all."""
        return min(self._ranks(name, host))[2]

    def _first_inside(self, name: str) -> Key:
        """Who answers for a name inside the cluster: those without it at their host do not."""
        ranks = sorted(self._ranks(name, ""))
        for _, _, key in ranks:
            host = self._known[key].claims.host
            if not host or self._first(name, host) == key:
                return key
        return ranks[0][2]

    def _ranks(self, name: str, host: str) -> Iterator[_Rank]:
        for key in self._by_name[name]:
            known = self._known[key]
            claims = known.claims
            if host and claims.host != host:
                continue
            since = next(moment(one.since) for one in claims.names if one.name == name)
            if host and claims.host_since:
                since = max(since, moment(claims.host_since))
            yield since, known.created_at, key
