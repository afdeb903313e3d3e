"""Who may ask: keys by their SHA-256, and what each of them may.

A key is looked up by its hash, so that how long that takes says nothing of it.
"""

import hashlib
from collections.abc import Callable, Iterable

from quire_gateway.choosing.rate_limit import RateLimit
from quire_gateway.errors import ApiError
from quire_gateway.routing.document import ApiKey, RoutingDocument

NOBODY = ApiKey(name="", sha256="")
"""Stands for a client of a service that asks for no keys."""

_NO_LIMITS = (None, None)

Left = tuple[str, float | None, float | None]
"""A key's SHA-256, and what shares of a minute's worth of requests and of tokens are left to it."""


class Access:
    """Keys of one service, with what they have used.

    Parameters
    ----------
    tell
        Makes of the predicted seconds what a client is told: with jitter.
    """

    def __init__(self, document: RoutingDocument, tell: Callable[[float], float]) -> None:
        self._keys: dict[str, ApiKey] = {}
        self._limits: dict[str, tuple[RateLimit | None, RateLimit | None]] = {}
        self._using: set[str] = set()
        """Keys whose limits are not whole, and some that were so."""
        self._tell = tell
        self._document = document
        self.update(document, now=0.0)

    def update(self, document: RoutingDocument, now: float) -> None:
        """Use other keys; what those that stay as they were have used is kept."""
        old, self._document = self._keys, document
        self._keys = {key.sha256: key for key in document.api_keys}
        for digest, key in self._keys.items():
            limits = self._limits.get(digest, (None, None)) if old.get(digest) == key else None
            used_requests, used_tokens = limits or (None, None)
            self._limits[digest] = (
                _limit(used_requests, key.requests_per_minute, document.num_gateways, now),
                _limit(used_tokens, key.tokens_per_minute, document.num_gateways, now),
            )
        for digest in old.keys() - self._keys.keys():
            del self._limits[digest]
        self._using &= self._keys.keys()

    def left(self, now: float) -> list[Left]:
        """Return what is left to keys that have used some of their limits."""
        found: list[Left] = []
        for digest in list(self._using):
            requests, tokens = (
                None if one is None else one.share_left(now) for one in self._limits[digest]
            )
            if min(share for share in (requests, tokens, 1.0) if share is not None) < 1.0:
                found.append((digest, requests, tokens))
            else:
                self._using.discard(digest)
        return found

    def resume(self, left: Iterable[Left], at: float) -> None:
        """Go on where another process was at this moment."""
        for digest, *shares in left:
            for limit, share in zip(self._limits.get(digest, _NO_LIMITS), shares, strict=True):
                if limit is not None and share is not None:
                    limit.resume(share, at)
                    self._using.add(digest)

    def charge(self, key: ApiKey, num_tokens: float, now: float) -> None:
        """Count a request that was let in by somebody else."""
        for limit, amount in zip(
            self._limits.get(key.sha256, _NO_LIMITS), (1.0, num_tokens), strict=True
        ):
            if limit is not None:
                limit.take(amount, now)
                self._using.add(key.sha256)

    def identify(self, presented: bytes | None, host: str) -> ApiKey:
        """Return whose request this is.

        Parameters
        ----------
        presented
            The bearer token, if there is one.
        host
            Name that the client asked for, lower case, without a port.

        Raises
        ------
        ApiError
            401: no key or a wrong one; 403: at the ingress everybody would be let in.
        """
        if self._document.is_open:
            is_at_ingress = self._document.host is not None and host == self._document.host.lower()
            if is_at_ingress and not self._document.is_public:
                raise ApiError(
                    403,
                    "This service has no keys and is not public: it is for the cluster alone.",
                    reason="not_public",
                )
            return NOBODY
        if presented is None:
            raise ApiError(
                401,
                "There is no key in the request: send it as `Authorization: Bearer KEY`.",
                reason="missing_api_key",
            )
        key = self._keys.get(hashlib.sha256(presented).hexdigest())
        if key is None:
            raise ApiError(401, "The key is not known.", reason="invalid_api_key")
        return key

    def with_digest(self, digest: str) -> ApiKey:
        """Return the key with this SHA-256, in hexadecimal digits; nobody's where it is gone."""
        return self._keys.get(digest, NOBODY)

    def correct(self, key: ApiKey, num_more: float, now: float) -> None:
        """Count the tokens that a request took beyond those it was let in with, or give back."""
        limit = self._limits.get(key.sha256, (None, None))[1]
        if limit is not None:
            limit.take(num_more, now)

    def spend(self, key: ApiKey, num_tokens: float, now: float) -> None:
        """Count a request against its key's limits.

        Parameters
        ----------
        num_tokens
            Prompt and expected answer; more or fewer come in the end.

        Raises
        ------
        ApiError
            429, with the time until the limits allow it.
        """
        limits = self._limits.get(key.sha256, _NO_LIMITS)
        if limits == _NO_LIMITS:
            return
        self._using.add(key.sha256)
        wanted = [(limit, amount) for limit, amount in zip(limits, (1.0, num_tokens), strict=True)]
        wait = max((one.seconds_until(n, now) for one, n in wanted if one is not None), default=0.0)
        if wait > 0.0:
            requests = limits[0]
            is_of_requests = requests is not None and requests.seconds_until(1.0, now) >= wait
            what = "requests" if is_of_requests else "tokens"
            raise ApiError(
                429,
                f"The key's limit of {what} a minute is used up.",
                reason="rate_limit_exceeded",
                retry_after_seconds=self._tell(wait),
            )
        for limit, amount in wanted:
            if limit is not None:
                limit.take(amount, now)


def _limit(
    used: RateLimit | None, per_minute: int | None, num_gateways: int, now: float
) -> RateLimit | None:
    """One gateway's part of a limit; what was used of it before is kept."""
    if per_minute is None:
        return None
    part = per_minute / num_gateways
    if used is None:
        return RateLimit(part, now)
    used.change(part, now)
    return used


def may_use(key: ApiKey, model: str) -> bool:
    """Whether a key is for this model."""
    return not key.models or model in key.models
