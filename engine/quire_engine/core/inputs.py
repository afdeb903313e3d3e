"""The thread that receives: everything API servers say, decoded and queued for the step loop.

It owns the ROUTER socket, so that a message never waits behind a step to be read. It also watches
the pipe from the parent, and ends the process at once when the parent is gone.
"""

import logging
import os
import threading
from queue import Empty, SimpleQueue
from typing import cast

import msgspec
import zmq

from quire_engine.core.front_desk import FrontDesk
from quire_engine.core.grammars import GrammarDesk
from quire_engine.protocol.messages import AbortRequests, AddRequest, ToCore, UseVocabulary

_log = logging.getLogger(__name__)


class InputThread:
    """Decoded messages in order of arrival; `take` is for the step loop's thread alone."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], address: str, parent_fd: int
    ) -> None:
        self._socket = context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.bind(address)
        self._parent_fd = parent_fd
        self._queue: SimpleQueue[ToCore | None] = SimpleQueue()
        """None only wakes the step loop: the front desk has accepted a request."""
        self._front_desk: FrontDesk | None = None
        self._grammars: GrammarDesk | None = None
        self._decoder = msgspec.msgpack.Decoder(cast("type[ToCore]", ToCore))
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="core-inputs", daemon=True)

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()

    def attach(self, front_desk: FrontDesk, grammars: GrammarDesk) -> None:
        """Let new requests be answered by this thread from now on."""
        self._grammars = grammars
        self._front_desk = front_desk

    def put(self, message: ToCore) -> None:
        """Give the step loop a message; called by any thread."""
        self._queue.put(message)

    def take(self, wait_seconds: float) -> list[ToCore]:
        """All messages that have come; when there is none, wait up to `wait_seconds` for one."""
        messages: list[ToCore | None] = []
        try:
            if wait_seconds > 0:
                messages.append(self._queue.get(timeout=wait_seconds))
            while True:
                messages.append(self._queue.get_nowait())
        except Empty:
            return [message for message in messages if message is not None]

    def stop(self) -> None:
        """Close the socket and end the thread."""
        os.write(self._stop_write, b"x")
        self._thread.join()
        os.close(self._stop_read)
        os.close(self._stop_write)

    def _run(self) -> None:
        poller = zmq.Poller()
        for source in (self._socket, self._parent_fd, self._stop_read):
            poller.register(source, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._parent_fd in ready and not os.read(self._parent_fd, 1 << 12):
                os._exit(1)  # nobody is left to serve, and a step may take long
            if self._stop_read in ready:
                self._socket.close(linger=0)
                if self._front_desk is not None:
                    self._front_desk.close(linger_seconds=0)
                if self._grammars is not None:
                    self._grammars.close()
                return
            if self._socket in ready:
                self._receive()

    def _receive(self) -> None:
        """Queue one message; a damaged one is reported and dropped, the others go on."""
        payload = self._socket.recv_multipart()[-1]
        try:
            message = self._decoder.decode(payload)
        except msgspec.MsgspecError:
            _log.exception("dropped a message that cannot be decoded (%d bytes)", len(payload))
            return
        desk = self._front_desk
        if self._grammars is not None and self._is_for_grammars(message, self._grammars):
            return
        if desk is not None and isinstance(message, AddRequest) and desk.add(message):
            self._queue.put(None)
        else:
            self._queue.put(message)

    def _is_for_grammars(self, message: ToCore, grammars: GrammarDesk) -> bool:
        """Whether a message waits for a grammar, or concerns nothing else."""
        match message:
            case AddRequest():
                return grammars.takes(message)
            case UseVocabulary(vocabulary=vocabulary):
                grammars.use(vocabulary)
                return True
            case AbortRequests(request_ids=request_ids):
                grammars.abort(request_ids)
        return False
