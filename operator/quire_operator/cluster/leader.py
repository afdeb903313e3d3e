"""Which replica of the operator acts: the one that holds the Lease.

All replicas watch, so that another one can go on at once. A leader that cannot renew in time stops
acting before another may begin: it is told to end, and the kubelet starts it again as a follower.
Times are this machine's monotonic clock: of another's record only the changes are looked at.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from quire_operator.cluster.api import Body, ClusterApi
from quire_operator.cluster.kinds import LEASES
from quire_operator.errors import ApiError

_log = logging.getLogger(__name__)

_MOST_RETRY_SECONDS = 3.0


class Leader:
    """One replica's part in the election."""

    def __init__(
        self,
        api: ClusterApi,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._namespace, self._name = namespace, name
        self._identity = identity
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._seen: tuple[str, str] | None = None
        """Holder and version of the Lease as it was seen last."""
        self._seen_at = 0.0
        self._fields = {"fields": {"lease": f"{namespace}/{name}", "identity": identity}}
        self.elected = asyncio.Event()

    @property
    def retry_seconds(self) -> float:
        """Between two tries."""
        return min(self._lease_seconds / 5, _MOST_RETRY_SECONDS)

    async def win(self) -> None:
        """Return once this replica is the leader."""
        while True:
            try:
                if await self._try():
                    _log.info("leader now: %s", self._identity, extra=self._fields)
                    self.elected.set()
                    return
            except ApiError as error:
                _log.warning("the Lease could not be read or taken: %s", error)
            await asyncio.sleep(self.retry_seconds)

    async def keep(self) -> None:
        """Renew for ever; return when the Lease is lost, or could not be renewed in time."""
        renewed_at = self._clock()
        while True:
            deadline = renewed_at + self._lease_seconds * 2 / 3
            await asyncio.sleep(self.retry_seconds)
            began = self._clock()
            try:
                async with asyncio.timeout(max(deadline - began, 0.0)):
                    is_ours = await self._try()
            except ApiError as error:
                _log.warning("the Lease could not be renewed: %s", error)
            except TimeoutError:
                _log.error("leader no more: the Lease was not renewed in time", extra=self._fields)
                return
            else:
                if not is_ours:
                    _log.error("leader no more: another took the Lease", extra=self._fields)
                    return
                renewed_at = began
            if self._clock() >= deadline and renewed_at != began:
                _log.error("leader no more: the Lease was not renewed in time", extra=self._fields)
                return

    async def release(self) -> None:
        """Give the Lease back, so that another replica need not wait."""
        if not self.elected.is_set():
            return
        try:
            lease = await self._api.get(LEASES, self._namespace, self._name)
            if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"]["holderIdentity"] = ""
                await self._api.replace(LEASES, self._namespace, self._name, lease)
                _log.info("leader no more: the Lease was given back", extra=self._fields)
        except ApiError as error:
            _log.warning("the Lease could not be given back: %s", error)

    async def _try(self) -> bool:
        """Take or renew the Lease if it is free, ours or run out; whether it is ours now."""
        lease = await self._api.get(LEASES, self._namespace, self._name)
        if lease is None:
            await self._api.create(LEASES, self._namespace, self._body(None))
            return True
        spec: dict[str, Any] = lease.get("spec", {})
        holder = spec.get("holderIdentity") or ""
        version = str(lease["metadata"]["resourceVersion"])
        if holder != (self._seen[0] if self._seen else "") and holder not in ("", self._identity):
            _log.info("leader now: %s", holder, extra=self._fields)
        if (holder, version) != self._seen:
            self._seen, self._seen_at = (holder, version), self._clock()
        lasts = float(spec.get("leaseDurationSeconds") or self._lease_seconds)
        has_run_out = self._clock() >= self._seen_at + lasts
        if holder not in ("", self._identity) and not has_run_out:
            return False
        try:
            await self._api.replace(LEASES, self._namespace, self._name, self._body(lease))
        except ApiError as error:
            if error.status == 409:  # another one was faster
                return False
            raise
        return True

    def _body(self, lease: Body | None) -> Body:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = (lease or {}).get("spec", {})
        is_change = old.get("holderIdentity") != self._identity
        metadata = {"namespace": self._namespace, "name": self._name}
        if lease is not None:
            metadata["resourceVersion"] = lease["metadata"]["resourceVersion"]
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": max(round(self._lease_seconds), 1),
                "acquireTime": now if is_change else old.get("acquireTime", now),
                "renewTime": now,
                "leaseTransitions": old.get("leaseTransitions", 0) + is_change,
            },
        }
