"""The sockets that send: one PUSH socket per API server, used by the step loop's thread alone.

A step never waits for an API server. Of a server that does not keep up, deltas are merged per
request until its socket takes messages again: what is held stays below the tokens of its running
requests, and the server catches up with few large messages instead of many small ones.
"""

import msgspec
import zmq

from quire_engine.protocol.messages import FromCore, StepOutputs, TokenDelta

_MESSAGES_IN_FLIGHT = 64
"""Messages that a socket holds before deltas are merged here instead."""


def merge_delta(into: TokenDelta, newer: TokenDelta) -> None:
    """Append a request's newer delta to an older one that was not yet consumed."""
    into.token_ids.extend(newer.token_ids)
    into.finish_reason = newer.finish_reason
    into.num_cached_tokens = max(into.num_cached_tokens, newer.num_cached_tokens)
    into.error = newer.error
    into.retry_after_seconds = newer.retry_after_seconds
    if newer.logprobs is not None:
        into.logprobs = into.logprobs or []
        into.logprobs.extend(newer.logprobs)
    if newer.prompt_logprobs is not None:
        into.prompt_logprobs = newer.prompt_logprobs
    if newer.queue_seconds is not None:
        into.queue_seconds = newer.queue_seconds
        into.prefill_seconds = newer.prefill_seconds
    into.decode_seconds = newer.decode_seconds
    into.embedding = newer.embedding


class _Client:
    """One API server's socket and the deltas that it could not take yet."""

    def __init__(self, socket: zmq.Socket[bytes], *, hears_news: bool) -> None:
        self.socket = socket
        self.hears_news = hears_news
        self.held: dict[str, TokenDelta] = {}


class OutputSockets:
    """Sends to API servers without ever blocking."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._context = context
        self._clients: dict[str, _Client] = {}
        self._encoder = msgspec.msgpack.Encoder()

    @property
    def is_holding(self) -> bool:
        """Whether deltas wait for a socket; call `flush` soon."""
        return any(client.held for client in self._clients.values())

    @property
    def has_hearers(self) -> bool:
        """Whether an API server that hears news has said hello."""
        return any(client.hears_news for client in self._clients.values())

    def knows(self, client_id: str) -> bool:
        """Whether this API server has said hello, and not goodbye."""
        return client_id in self._clients

    def connect(self, client_id: str, address: str, *, hears_news: bool = True) -> None:
        """Open the socket of an API server; one that says hello again starts afresh."""
        self.disconnect(client_id)
        socket = self._context.socket(zmq.PUSH)
        socket.setsockopt(zmq.SNDHWM, _MESSAGES_IN_FLIGHT)
        socket.connect(address)
        self._clients[client_id] = _Client(socket, hears_news=hears_news)

    def disconnect(self, client_id: str) -> None:
        """Close an API server's socket and forget what it was owed."""
        client = self._clients.pop(client_id, None)
        if client is not None:
            client.socket.close(linger=0)

    def send_deltas(self, deltas: list[tuple[str, TokenDelta]]) -> None:
        """Send each API server its deltas of one step, in one message."""
        if not deltas:
            return
        per_client: dict[str, list[TokenDelta]] = {}
        for client_id, delta in deltas:
            per_client.setdefault(client_id, []).append(delta)
        for client_id, own in per_client.items():
            client = self._clients.get(client_id)
            if client is not None:
                self._send_or_hold(client, own)

    def flush(self) -> None:
        """Send held deltas to the API servers that take messages again."""
        for client in self._clients.values():
            if client.held:
                self._send_or_hold(client, [])

    def send_to_all(self, message: FromCore) -> None:
        """Send news to every API server that hears them; who is behind waits for the next."""
        for client in self._clients.values():
            if client.hears_news:
                self._try_send(client, message)

    def send_to(self, client_id: str, message: FromCore) -> None:
        """Send one API server a message, unless it is behind."""
        self._try_send(self._clients[client_id], message)

    def close(self, linger_seconds: float) -> None:
        """Close all sockets, giving what is under way so long to arrive."""
        self.flush()
        for client in self._clients.values():
            client.socket.close(linger=int(linger_seconds * 1000))
        self._clients.clear()

    def _send_or_hold(self, client: _Client, deltas: list[TokenDelta]) -> None:
        if client.held:
            for delta in deltas:
                older = client.held.get(delta.request_id)
                if older is None:
                    client.held[delta.request_id] = delta
                else:
                    merge_delta(older, delta)
            deltas = list(client.held.values())
        if self._try_send(client, StepOutputs(deltas=deltas)):
            client.held.clear()
        elif not client.held:
            client.held = {delta.request_id: delta for delta in deltas}

    def _try_send(self, client: _Client, message: FromCore) -> bool:
        try:
            client.socket.send(self._encoder.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True
