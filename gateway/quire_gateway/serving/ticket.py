"""A request that wants an engine, and the engine that it gets."""

from dataclasses import dataclass
from math import inf

from quire_gateway.choosing.demand import Demand
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.routing.document import ApiKey


@dataclass(slots=True, eq=False)
class Grant:
    """A request may go to this engine."""

    endpoint: Endpoint
    counter: int
    num_blocks: float = 0.0
    """What it is expected to take there."""
    holds_room: bool = False
    """Whether the engine is to let it wait, and hold room for it."""
    first_byte_seconds: float = inf
    """An engine that has not begun to answer by then is believed to hang."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that wants an engine."""

    key: ApiKey
    demand: Demand
    arrived_at: float
    own_deadline: float | None = None
    """The one that it asked for itself; that of its demand may be an earlier one."""
    is_stream: bool = True
    """Whether the first token is sent before the last one."""
    hung_at: frozenset[Endpoint] = frozenset()
    """Engines that began no answer in all their time: they do not get it again."""
