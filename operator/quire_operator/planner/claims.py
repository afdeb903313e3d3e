"""Since when a service wants its names: who had a name first keeps it until it gives it up.

That a service itself is older says nothing: it may take another's name at any time. So the status
says of each name, and of the host, since when it has been wanted without a break. Before there was
such a record, a service counts as having wanted its names since it was made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from quire_operator.resource.reading import InferenceService
from quire_operator.resource.status import Claims, NameClaim


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What others have of what a service wants; services are told as namespace/name."""

    claims: Claims | None = None
    """Its own; None: nobody contends here."""
    name_owner: str | None = None
    """Who had its model name at its host before."""
    alias_owners: Mapping[str, str] = field(default_factory=dict)
    """By alias, who had it at its host before."""
    inside_owners: Mapping[str, str] = field(default_factory=dict)
    """By name or alias, who had it before inside the cluster, where it is asked for without a
    host."""


ALONE = Standing()
"""Where nobody contends."""


def claims_of(service: InferenceService, before: Claims | None, new_since: datetime) -> Claims:
    """What a service wants now, and since when.

    Parameters
    ----------
    new_since
        Of what it has not wanted before.
    """
    first = exactly(new_since)
    old = {one.name: one.since for one in before.names} if before else {}
    ingress = service.spec.ingress
    host, host_since = (ingress.host, first) if ingress else ("", None)
    if before is not None and before.host == host:
        host_since = before.host_since
    names = dict.fromkeys((service.served_name, *service.spec.model.aliases))
    return Claims(
        names=tuple(NameClaim(name=name, since=old.get(name, first)) for name in names),
        host=host,
        host_since=host_since,
    )


def exactly(now: datetime) -> str:
    """A time as the API server reads it, to the microsecond: two may come in one second."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
