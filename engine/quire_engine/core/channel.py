"""The API server's end of the sockets to one core process.

The output socket's file descriptor is read straight from the event loop, without a task or a
future per message: at thousands of steps a second those would cost more than the messages.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import msgspec
import zmq

from quire_engine.protocol.messages import FromCore, Hello, ToCore

_MESSAGES_PER_TURN = 32
"""Messages read before other tasks of the event loop get their turn."""


class CoreChannel:
    """Sends to one core process and hands over what it says; belongs to one event loop.

    ZeroMQ connects in its own time: messages sent before the core has started wait for it.
    """

    def __init__(
        self,
        client_id: str,
        input_address: str,
        output_address: str,
        on_message: Callable[[FromCore], None],
        *,
        hears_news: bool = True,
    ) -> None:
        self._on_message = on_message
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(cast("type[FromCore]", FromCore))
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._output = self._context.socket(zmq.PULL)
        self._output.bind(output_address)
        self._input = self._context.socket(zmq.DEALER)
        self._input.setsockopt(zmq.SNDHWM, 0)
        self._input.connect(input_address)
        self._loop = asyncio.get_running_loop()
        self._fd = cast("int", self._output.getsockopt(zmq.FD))
        self._loop.add_reader(self._fd, self._on_readable)
        self.send(Hello(client_id=client_id, output_address=output_address, hears_news=hears_news))
        self._loop.call_soon(self._on_readable)

    def send(self, message: ToCore) -> None:
        """Send the core a message; never waits."""
        self._input.send(self._encoder.encode(message), zmq.NOBLOCK)

    def close(self) -> None:
        """Hand over what has arrived, then close; a dead core's last words are not lost."""
        if self._output.closed:
            return
        self._loop.remove_reader(self._fd)
        while self._receive():
            pass
        self._output.close(linger=0)
        self._input.close(linger=0)
        self._context.term()

    def _on_readable(self) -> None:
        # The descriptor signals a change of state, not every message: read until none is left.
        if self._output.closed:
            return
        for _ in range(_MESSAGES_PER_TURN):
            if not self._receive():
                return
        self._loop.call_soon(self._on_readable)

    def _receive(self) -> bool:
        try:
            payload = self._output.recv(zmq.NOBLOCK)
        except zmq.Again:
            return False
        self._on_message(self._decoder.decode(payload))
        return True
