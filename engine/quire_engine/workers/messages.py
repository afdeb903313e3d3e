"""What the server's process and its API workers say to each other (msgpack by msgspec).

server's process                          worker
Launch                    ─────────►    begins to answer: probes at first
ModelFound                ─────────►    reads tokenizer and defaults
◄─────────    Loaded, or LoadFailed
PoolState                 ─────────►    does as it says
◄─────────    Applied
CoreBegan, CoreSaid, CoreEnded ────►    knows what the server's process knows of the core
◄─────────    Order: an operator asked this worker
OrderDone                 ─────────►    all workers do as ordered
EndRequests, Leave        ─────────►    Idle, as soon as no request is being answered
"""

from enum import StrEnum

from quire_engine.config import EngineConfig
from quire_engine.core.shared_core import CoreHistory, CoreNews
from quire_engine.protocol.messages import Message, Thresholds
from quire_engine.protocol.state import Loading


class PoolState(Message):
    """What all workers hold true at the same time."""

    number: int = 0
    """Rises with every change; the worker confirms it."""
    sequence: int = 0
    """Of the engine's state, as `StateFeed` counts."""
    is_open: bool = False
    """Whether every worker has what requests need."""
    is_draining: bool = False
    is_stopping: bool = False
    is_closed: bool = False
    loading: Loading | None = None
    """How far the model has come, until it is loaded."""


class ModelFound(Message):
    """Where the model's files are."""

    path: str | None
    revision: str | None


class Launch(Message):
    """Everything that a worker needs to start; the first message."""

    config: EngineConfig
    """With keys: they come this way and no other."""
    number: int
    """Its place among the workers, from 0 on."""
    num_workers: int
    client_id: str
    """What the core knows it by."""
    socket_name: str
    """Ends the name of the socket on which it hears the core."""
    listener_fd: int
    board_fd: int
    created_at: int
    """When the server was started, in seconds since 1970."""
    state: PoolState
    model: ModelFound | None
    core: CoreHistory | None


class CoreBegan(Message):
    """A core process was started."""

    address: str


class CoreSaid(Message):
    """It said this to all."""

    sequence: int
    news: CoreNews


class CoreEnded(Message):
    """It has ended."""

    sequence: int
    status: int


class Ending(StrEnum):
    """Why requests end."""

    DRAINED = "drained"
    STOPPED = "stopped"


class EndRequests(Message):
    """End what runs with an error."""

    why: Ending


class OrderDone(Message):
    """The answer to an order."""

    number: int
    is_in_force: bool


class Leave(Message):
    """End: connections are closed, and the process."""


class Loaded(Message):
    """Nothing is missing to take requests."""


class LoadFailed(Message):
    """It never will; the error is for the user."""

    error: str
    exit_status: int


class Applied(Message):
    """The state with this number is in force here."""

    number: int


class Idle(Message):
    """No request is taken any more, and none is left."""


class BeginDrain(Message):
    """See `Steering`."""

    seconds: float | None


class UndoDrain(Message):
    """See `Steering`."""


class ChangeThresholds(Message):
    """See `Steering`."""

    thresholds: Thresholds


class Order(Message):
    """An operator's order, to be told when it is in force."""

    number: int
    what: BeginDrain | UndoDrain | ChangeThresholds


ToWorker = (
    Launch
    | ModelFound
    | PoolState
    | CoreBegan
    | CoreSaid
    | CoreEnded
    | EndRequests
    | OrderDone
    | Leave
)
FromWorker = Loaded | LoadFailed | Applied | Idle | Order
