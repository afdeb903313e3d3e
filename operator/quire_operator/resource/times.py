"""Times as the API server writes them; those of a status, as far as they can be.

The API server takes whatever is written as a date and a time: the year 0, an offset of days, small
letters. Who may write statuses must not stop the operator's work on the service, nor on others that
want its names. So what cannot be read, or is not of these centuries, is as if it were not there.
"""

from datetime import UTC, datetime

from msgspec import structs

from quire_operator.resource.status import Claims, InferenceServiceStatus

_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)


def moment(text: str) -> datetime:
    """A time of the API server: RFC 3339, in UTC.

    Raises
    ------
    ValueError
        It is none that Python knows.
    """
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def without_strange_times(status: InferenceServiceStatus) -> InferenceServiceStatus:
    """A status without the times that decide anything and cannot be; the same one if all can."""
    accelerators = tuple(
        one
        if one.short_since is None or _is_time(one.short_since)
        else structs.replace(one, short_since=None)
        for one in status.accelerators
    )
    claims = _sound(status.claims) if status.claims else None
    if accelerators == status.accelerators and claims == status.claims:
        return status
    return structs.replace(status, accelerators=accelerators, claims=claims)


def _sound(claims: Claims) -> Claims:
    """What is left out is claimed anew, as of now: never as of when the service was made."""
    names = tuple(one for one in claims.names if _is_time(one.since))
    if claims.host_since is None or _is_time(claims.host_since):
        return structs.replace(claims, names=names)
    return Claims(names=names)


def _is_time(text: str) -> bool:
    try:
        at = moment(text)
    except ValueError:
        return False
    return at.tzinfo is not None and _FIRST <= at <= _LAST
