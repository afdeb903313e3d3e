"""A core that another process watches over: what an API worker has in a supervisor's place.

    the server's process ── started, said, ended ──► SharedCore ──► CoreClient
                                                         │
    core process ◄─── requests, tokens ──────────────────┘

Requests and tokens take the direct way. News, which are few, come through the process that watches
over the core: so every worker knows the same, in the same order.
"""

from collections.abc import Callable

import msgspec

from quire_engine.core.channel import CoreChannel
from quire_engine.core.prefix_ring import RingContent
from quire_engine.core.supervisor import input_address
from quire_engine.core.totals import CoreTotals
from quire_engine.protocol.messages import CoreProfile, CoreReady, CoreStats, FromCore, PrefixChunks

CoreNews = CoreStats | CoreProfile | CoreReady | PrefixChunks
"""What a core says to all."""


class CoreHistory(msgspec.Struct, kw_only=True):
    """What became of cores so far, for a worker that comes late; then come the newest news."""

    address: str | None
    """None while there is no core process."""
    num_deaths: int
    past: CoreTotals
    """What those counted."""
    prefixes: RingContent
    news: list[CoreNews]
    age_seconds: float
    """How long ago the core was last heard."""


class CoreObserver:
    """Is told what happens to a core, by the client that watches over it; the base ignores it."""

    def core_began(self, address: str) -> None:
        """A process was started."""

    def core_said(self, news: CoreNews) -> None:
        """It said this to all."""

    def core_ended(self, status: int) -> None:
        """The process has ended, without being asked to."""


class SharedCore:
    """Belongs to one event loop; see `quire_engine.core.client.CoreClient`, which uses it."""

    def __init__(self, client_id: str, socket_name: str) -> None:
        self.client_id = client_id
        self._socket_name = socket_name
        self._on_message: Callable[[FromCore], None] = lambda _: None
        self._on_exit: Callable[[int], bool] = lambda _: False
        self.channel: CoreChannel | None = None

    def attach(
        self, on_message: Callable[[FromCore], None], on_exit: Callable[[int], bool]
    ) -> None:
        """Say who is to hear what comes."""
        self._on_message = on_message
        self._on_exit = on_exit

    def begin(self, address: str) -> None:
        """A core process was started: say hello to it."""
        self.channel = CoreChannel(
            self.client_id,
            input_address(address),
            f"{address}-{self._socket_name}",
            self._on_message,
            hears_news=False,
        )

    def take(self, news: CoreNews) -> None:
        """Hand over what the core said to all."""
        self._on_message(news)

    def end(self, status: int) -> None:
        """The core process has ended."""
        self._close_channel()
        self._on_exit(status)

    async def start(self) -> None:
        """Do nothing: others start it."""

    def kill(self) -> None:
        """Do nothing: others watch over it."""

    async def close(self) -> None:
        """Let go of the core, which goes on."""
        self._close_channel()

    def _close_channel(self) -> None:
        if self.channel is not None:
            self.channel.close()
            self.channel = None
