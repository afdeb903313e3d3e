"""Who has which name: the first to want it, at each host and inside the cluster.

Kept in memory, since one look must see what the look before it gave away, and in statuses, so that
an operator that starts anew knows who was first.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from quire_operator.cluster.kinds import SERVICES
from quire_operator.cluster.store import Key, Store
from quire_operator.planner.claims import Standing, claims_of
from quire_operator.resource.reading import InferenceService, InvalidResourceError, read
from quire_operator.resource.status import Claims
from quire_operator.resource.times import moment

_Rank = tuple[datetime, str, Key]
_NEXT = timedelta(microseconds=1)
"""What claims tell apart."""


@dataclass(frozen=True, kw_only=True)
class _Known:
    uid: str
    created_at: str
    claims: Claims

    @property
    def names(self) -> set[str]:
        return {one.name for one in self.claims.names}

    @property
    def newest(self) -> datetime:
        """When it began to want the last of what it wants."""
        host = (self.claims.host_since,) if self.claims.host_since else ()
        return max(moment(at) for at in (*(one.since for one in self.claims.names), *host))


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
        """All that there are, before anybody is given a name; who wants a new one comes last."""
        found = []
        for body in self._store.all(SERVICES.kind):
            try:
                service = read(body)
            except InvalidResourceError:
                continue
            if not service.is_being_deleted:
                found.append(service)
        for service in sorted(found, key=lambda one: _wants_more(one, now)):
            self._note(service, now)
        self._is_seeded = True

    def _note(self, service: InferenceService, now: datetime) -> None:
        old = self._known.get(service.key)
        if old is not None and old.uid != service.uid:  # of one that had its name before
            old = None
        before = old.claims if old is not None else service.status.claims
        claims = claims_of(service, before, self._new_since(service, before, now))
        if old is not None and claims == old.claims:
            return
        made = _Known(uid=service.uid, created_at=service.created_at, claims=claims)
        replaced = self._known.get(service.key)
        self._known[service.key] = made
        self._index(service.key, replaced.names if replaced else set(), made.names)

    def _new_since(
        self, service: InferenceService, before: Claims | None, now: datetime
    ) -> datetime:
        """Since when a service wants what it did not want before: always after all others that do.

        Clocks differ and are set back, and one who comes must not be before those who were there.
        """
        is_unknown = before is None and service.created_at
        since = moment(service.created_at) if is_unknown else now
        if is_unknown and not self._is_seeded:
            return since
        wanted = {service.served_name, *service.spec.model.aliases}
        rivals = {key for name in wanted for key in self._by_name.get(name, ())} - {service.key}
        newest = max((self._known[key].newest for key in rivals), default=None)
        return since if newest is None else max(since, newest + _NEXT)

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


def _wants_more(service: InferenceService, now: datetime) -> bool:
    """Whether a service wants what it did not when it was looked at last."""
    claims = service.status.claims
    return claims is not None and claims_of(service, claims, now) != claims
