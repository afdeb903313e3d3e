"""Answers new requests from the ledger at once, while a step may still be computing.

    input thread    AddRequest ──► FrontDesk.add ──► core.add (under the core's lock)
                                        │
                                        ├── accepted: the step loop is woken
                                        └── refused: told to its API server from here

The core's lock is held while a step is planned and taken in, some hundred microseconds, never
while it computes. A refusal has its own sockets: ZeroMQ's belong to one thread.
"""

from collections.abc import Callable

import zmq

from quire_engine.core.engine import EngineCore
from quire_engine.core.outputs import OutputSockets
from quire_engine.errors import RequestError
from quire_engine.protocol.messages import AddRequest, FinishReason, TokenDelta


class FrontDesk:
    """Takes requests of the API servers that it was told of; used by the input thread."""

    def __init__(
        self,
        core: EngineCore,
        context: "zmq.Context[zmq.Socket[bytes]]",
        clock: Callable[[], float],
    ) -> None:
        self._core = core
        self._clock = clock
        self._outputs = OutputSockets(context)
        self._addresses: dict[str, str] = {}
        self._connected: dict[str, str] = {}

    def register(self, client_id: str, output_address: str) -> None:
        """Take this API server's requests from now on; called by the step loop's thread.

        Its output socket is open there: no delta of a request accepted here can be lost.
        """
        self._addresses[client_id] = output_address

    def forget(self, client_id: str) -> None:
        """Close the account of an API server that is gone; called by the step loop's thread."""
        self._addresses.pop(client_id, None)

    def add(self, request: AddRequest) -> bool:
        """Answer a request; False leaves it to the step loop, for its API server is unknown."""
        address = self._addresses.get(request.client_id)
        if address is None:
            return False
        refusal = add_request(self._core, request, self._clock())
        if request.client_id not in self._addresses:  # the step loop parted with it meanwhile
            self._core.abort_client(request.client_id)
        elif refusal is not None:
            self._connect(request.client_id, address)
            self._outputs.send_deltas([(request.client_id, refusal)])
        return True

    def close(self, linger_seconds: float) -> None:
        """Close the sockets."""
        self._outputs.close(linger_seconds)

    def _close_forgotten(self) -> None:
        for client_id in self._connected.keys() - self._addresses.keys():
            del self._connected[client_id]
            self._outputs.disconnect(client_id)

    def _connect(self, client_id: str, address: str) -> None:
        if self._connected.get(client_id) != address:
            self._close_forgotten()
            self._outputs.connect(client_id, address)
            self._connected[client_id] = address


def add_request(core: EngineCore, request: AddRequest, now: float) -> TokenDelta | None:
    """Give the core a request; returns what its client is to hear if it is not let in."""
    try:
        return core.add(request, now)
    except RequestError as error:
        return TokenDelta(
            request_id=request.request_id,
            token_ids=[],
            finish_reason=FinishReason.ERROR,
            error=str(error),
        )
