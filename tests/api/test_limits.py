"""What one client takes is bounded, and nothing of it is left behind."""

import json
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest

from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until

COMPLETIONS = "/v1/completions"


def completion(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 3} | changes


def as_bytes(body: dict[str, Any], *headers: str) -> bytes:
    payload = json.dumps(body).encode()
    lines = [f"POST {COMPLETIONS} HTTP/1.1", "host: x", f"content-length: {len(payload)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + payload


@contextmanager
def connect(server: RunningServer, *, receive_bytes: int | None = None) -> Iterator[socket.socket]:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.socket() as connection:
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(30)
        connection.connect((host, int(port)))
        yield connection


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes, however it does."""
    pieces = []
    try:
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
    except ConnectionError:
        pass
    return b"".join(pieces)


def test_a_client_that_reads_nothing_is_cut_off_and_its_blocks_are_free() -> None:
    flags = ("--simulated-step-seconds", "0.002", "--reader-stall-seconds", "1")
    with RunningServer(*SIMULATED, *flags) as server, connect(server, receive_bytes=4096) as reader:
        reader.sendall(as_bytes(completion(stream=True, max_tokens=8000)))
        wait_until(lambda: server.state().sequences.running == 1)
        wait_until(lambda: 'reason="abort",model_name="llama3-8b"} 1.0' in metrics(server))
        server.wait_until_idle()

        assert b"data: [DONE]" not in read_all(reader)
        assert server.post(COMPLETIONS, completion()).status_code == 200


def metrics(server: RunningServer) -> str:
    return server.get("/metrics").text


def test_a_client_that_reads_slowly_gets_all_of_it(server: RunningServer) -> None:
    with connect(server, receive_bytes=4096) as reader:
        reader.sendall(as_bytes(completion(stream=True, max_tokens=3000), "connection: close"))
        wait_until(lambda: server.state().sequences.running == 1)
        server.wait_until_idle()
        answer = read_all(reader)

    assert answer.count(b"data: [DONE]") == 1
    assert answer.count(b'"finish_reason":"length"') == 1


def test_connections_beyond_the_limit_are_told_to_come_again() -> None:
    limited = RunningServer(*SIMULATED, "--max-connections", "3")
    with limited as server, connect(server), connect(server):
        wait_until(lambda: not is_refused(server))
        with connect(server):
            wait_until(lambda: is_refused(server))
        wait_until(lambda: not is_refused(server))
        assert server.post(COMPLETIONS, completion()).status_code == 200


def test_large_bodies_share_a_room_and_small_ones_need_none() -> None:
    def status(num_bytes: int) -> int:
        return server.post(COMPLETIONS, completion(prompt="x" * num_bytes)).status_code

    with RunningServer(*SIMULATED, "--max-total-body-bytes", "200000") as server:
        with connect(server) as slow:
            head, _, payload = as_bytes(completion(prompt="x" * 250_000)).partition(b"\r\n\r\n")
            slow.sendall(head + b"\r\n\r\n" + payload[:-1])
            wait_until(lambda: status(250_000) == 503)
            assert status(100) == 200
        wait_until(lambda: status(250_000) == 400)  # too long for the model


def is_refused(server: RunningServer) -> bool:
    with connect(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 200 "):
        return False
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: " in head
    assert json.loads(body)["error"]["code"] == "too_many_connections"
    return True


def cached_tokens(server: RunningServer, prompt: str, salt: str | None) -> int:
    headers = {} if salt is None else {"x-quire-salt": salt}
    response = server.post(COMPLETIONS, completion(prompt=prompt), headers=headers)
    return int(response.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_a_prefix_is_found_with_the_same_salt_and_never_with_another(
    server: RunningServer,
) -> None:
    prompt = "".join(random.Random().choices("abcdef", k=200))  # nobody else's

    assert cached_tokens(server, prompt, "mine") == 0
    assert cached_tokens(server, prompt, "mine") == 192
    for other in ("yours", "mine2", "Mine", None):
        assert cached_tokens(server, prompt, other) == 0
    assert cached_tokens(server, prompt, "mine") == 192


def test_pipelined_requests_are_answered_in_order(server: RunningServer) -> None:
    lengths = [5, 1, 9, 2]
    requests = [as_bytes(completion(max_tokens=length)) for length in lengths]
    requests.append(as_bytes(completion(max_tokens=3), "connection: close"))
    with connect(server) as connection:
        connection.sendall(b"".join(requests))
        answer = read_all(connection)

    counts = [int(part.split(b",")[0]) for part in answer.split(b'"completion_tokens":')[1:]]
    assert counts == [*lengths, 3]


@pytest.mark.parametrize("seed", range(8))
def test_noise_on_the_wire_leaves_the_server_well(server: RunningServer, seed: int) -> None:
    """Requests with bytes changed, lost, doubled and put elsewhere."""
    rng = random.Random(seed)
    whole = as_bytes(
        completion(), "transfer-encoding: chunked" if seed % 2 else "x-quire-admit: now"
    )
    for _ in range(40):
        broken = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            place = rng.randrange(len(broken))
            change = rng.choice(["flip", "cut", "double", "insert", "end"])
            if change == "flip":
                broken[place] = rng.randrange(256)
            elif change == "cut":
                del broken[place : place + rng.randrange(1, 20)]
            elif change == "double":
                broken[place:place] = broken[place : place + rng.randrange(1, 50)]
            elif change == "insert":
                broken[place:place] = rng.randbytes(rng.randrange(1, 9))
            else:
                del broken[place + 1 :]
        with connect(server) as connection:
            connection.sendall(broken)
            connection.shutdown(socket.SHUT_WR)
            statuses = [line.split(b" ")[1] for line in status_lines(read_all(connection))]
        assert all(status[:1] in b"24" for status in statuses), (bytes(broken), statuses)
    server.wait_until_idle()


def status_lines(answer: bytes) -> list[bytes]:
    return [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


@pytest.mark.parametrize(
    "head",
    [
        b"x: " + b"a" * 200_000,
        b"\r\n".join(b"x-%d: y" % number for number in range(20_000)),
        b"cookie: " + b"\xff\x00" * 1000,
    ],
    ids=["one long header", "many headers", "no text"],
)
def test_a_flood_of_headers_is_refused(server: RunningServer, head: bytes) -> None:
    with connect(server) as connection:
        with suppress(ConnectionError):  # closed before all was sent; the answer may be lost then
            connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n\r\n")
        answer = read_all(connection)

    assert answer[:13] in (b"", b"HTTP/1.1 400 "), answer[:200]
    assert server.get("/healthz").status_code == 200


def test_no_message_has_a_path_or_an_address(server: RunningServer) -> None:
    bodies: list[Any] = [
        {},
        [],
        completion(prompt=[2**63]),
        completion(max_tokens=2**63),
        completion(temperature=1e308),
        completion(model="/etc/passwd"),
        completion(prompt="x" * 100_000),
        completion(logit_bias={"a": 1}),
    ]
    for body in bodies:
        response = httpx.post(server.url + COMPLETIONS, content=json.dumps(body), timeout=60)
        assert 400 <= response.status_code < 500, body
        message = response.json()["error"]["message"]
        assert "0x" not in message
        assert ".py" not in message
        assert "/work" not in message
