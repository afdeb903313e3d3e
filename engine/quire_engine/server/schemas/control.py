"""Bodies of the routes that steer a running engine: `/drain` and `/thresholds`."""

from typing import Annotated

import msgspec
from msgspec import Meta

from quire_engine.errors import RequestError
from quire_engine.protocol.messages import Thresholds

Share = Annotated[float, Meta(gt=0, le=1)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=1e9)]


class DrainRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How long running requests may take; the body may be left out."""

    seconds: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    """After these, what still runs ends with an error; null lets all finish."""


class DrainStatus(msgspec.Struct, kw_only=True):
    """Whether the engine is being drained, and what is left."""

    is_draining: bool
    num_in_flight: int
    """Requests that are still being answered."""


class ThresholdsBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All limits of admission; none may be left out, so that none is reset by mistake."""

    admission: Share
    """Share of the blocks up to which interactive requests are admitted."""
    background: Share
    """The same for background requests; at most `admission`."""
    slo_time_to_first_token_seconds: PositiveSeconds | None
    """Interactive requests get their first token in this time, or 429; null lets them wait."""
    slo_time_per_output_token_seconds: PositiveSeconds | None
    """Bounds prompt chunks per step, and how many requests run; null for no bound."""
    max_queue_seconds: PositiveSeconds
    """A request that waited this long for its start is refused."""
    max_waiting_requests: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    """One more is refused."""

    def to_thresholds(self) -> Thresholds:
        """The limits, when they do not contradict each other.

        Raises
        ------
        RequestError
            Background requests would be admitted further than interactive ones.
        """
        if self.background > self.admission:
            raise RequestError(
                f"background: {self.background:g} is above admission, {self.admission:g}; the less"
                " urgent must not be admitted further",
                parameter="background",
            )
        return msgspec.convert(self, Thresholds, from_attributes=True)
