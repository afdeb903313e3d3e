"""Commands in place of a model: answers, failures, and none left behind."""

import asyncio
import os
import shlex
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from quire_engine.config import EngineConfig
from quire_engine.core.client import CoreClient
from quire_engine.core.stream import DeltaStream
from quire_engine.errors import ConfigError
from quire_engine.execution import command_run
from quire_engine.library import make_config
from quire_engine.protocol.messages import AddRequest, FinishReason, TokenDelta
from quire_engine.protocol.sampling import SamplingParams
from tests.api.servers import is_alive, wait_until_async

Connect = Callable[..., Awaitable[CoreClient]]
SHOW_ALL = (
    'printf "%s|%s|%s|%s" '
    '"$HETERO_PROMPT" "$HETERO_MAX_TOKENS" "$HETERO_TEMPERATURE" "$HETERO_TOP_P"'
)


def shell(script: str, **settings: object) -> EngineConfig:
    return make_config(command=shlex.join(["/bin/sh", "-c", script]), **settings)


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[CoreClient] = []

    async def connect(config: EngineConfig) -> CoreClient:
        client = CoreClient(config, None, on_progress=lambda stage, fraction: None)
        clients.append(client)
        await client.start()
        await client.wait_ready()
        return client

    yield connect
    for client in clients:
        await client.close()


def ask(client: CoreClient, prompt: str = "hello", **changes: object) -> DeltaStream:
    request = AddRequest(
        client_id=client.client_id,
        request_id=os.urandom(8).hex(),
        prompt_token_ids=list(prompt.encode()),
        sampling=SamplingParams(max_tokens=8, temperature=0.8, top_p=0.95),
        **changes,  # type: ignore[arg-type]
    )
    (stream,) = client.generate(request)
    return stream


async def answer_of(stream: DeltaStream) -> tuple[str, TokenDelta]:
    """The whole text, and the last delta."""
    token_ids: list[int] = []
    async for delta in stream:
        token_ids += delta.token_ids
    return bytes(token_ids).decode(), delta


async def test_the_command_finds_the_request_in_its_environment(connect: Connect) -> None:
    client = await connect(shell(SHOW_ALL))
    prompt = "käse 🧀 'quoted' \"$HOME\"\nnew line"
    text, last = await answer_of(ask(client, prompt))
    assert text == f"{prompt}|8|0.8|0.95"
    assert last.finish_reason is FinishReason.STOP


async def test_the_answer_is_as_long_as_the_output_and_comes_while_it_is_written(
    connect: Connect, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    client = await connect(shell(f"echo first; cat {gate}; echo last"))
    with ask(client) as stream:
        assert bytes((await anext(stream)).token_ids) == b"first\n"
        await asyncio.to_thread(gate.write_text, "more than eight tokens\n")
        text, _ = await answer_of(stream)
    assert text == "more than eight tokens\nlast\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo half; echo secret >&2; exit 3", "failed (exit status 3)"),
        ("kill -9 $$", "failed (signal 9)"),
    ],
)
async def test_a_command_that_fails_is_that_requests_error(
    connect: Connect, caplog: pytest.LogCaptureFixture, script: str, message: str
) -> None:
    client = await connect(shell(f'[ "$HETERO_PROMPT" = good ] && exec echo fine; {script}'))
    (_, failed), (text, fine) = await asyncio.gather(
        answer_of(ask(client, "bad")), answer_of(ask(client, "good"))
    )
    assert failed.finish_reason is FinishReason.ERROR
    assert failed.error is not None
    assert message in failed.error
    assert "secret" not in failed.error
    assert (text, fine.finish_reason) == ("fine\n", FinishReason.STOP)


async def test_what_no_environment_can_hold_is_refused(connect: Connect) -> None:
    client = await connect(shell("true"))
    _, last = await answer_of(ask(client, "a\0b"))
    assert last.error == "The prompt holds a NUL character, which a command's environment cannot."
    _, last = await answer_of(ask(client, "x" * 200_000))
    assert last.error == "The command for this request cannot be started."


async def test_a_command_that_never_stops_writing_is_ended(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_run, "_MAX_ANSWER_BYTES", 100_000)
    client = await connect(shell("exec yes"))
    _, last = await answer_of(ask(client))
    assert last.error == "The command for this request wrote more than an answer."


async def test_what_has_left_the_group_holds_no_request(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command_run, "_MAX_ANSWER_BYTES", 100_000)
    told = tmp_path / "pid"
    leaves = f"setsid sh -c 'echo $$ > {told}; exec sleep 1000' &"
    waits = f"while [ ! -s {told} ]; do sleep 0.01; done"
    client = await connect(shell(f"{leaves} {waits}; exec yes"))
    try:
        _, last = await answer_of(ask(client))
        assert last.error == "The command for this request wrote more than an answer."
    finally:
        os.kill(int(told.read_text()), signal.SIGKILL)


async def test_leaving_ends_the_command_and_all_it_started(connect: Connect) -> None:
    client = await connect(shell("sleep 1000 & echo $$ $!; wait"))
    with ask(client) as stream:
        pids = [int(pid) for pid in bytes((await anext(stream)).token_ids).split()]
        assert all(is_alive(pid) for pid in pids)
    await wait_until_async(lambda: not any(is_alive(pid) for pid in pids))


async def test_closing_ends_all_commands(connect: Connect) -> None:
    client = await connect(shell("echo $$; exec sleep 1000"))
    stream = ask(client)
    pid = int(bytes((await anext(stream)).token_ids))
    await client.close()
    assert not is_alive(pid)


async def test_more_than_the_seats_wait_for_their_turn(connect: Connect, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f'if [ "$HETERO_PROMPT" = slow ]; then echo up; cat {gate}; else echo next; fi'
    client = await connect(shell(script, max_num_seqs=1, max_waiting_requests=1))
    slow = ask(client, "slow")
    await anext(slow)
    waiting = ask(client, "waits")
    _, refused = await answer_of(ask(client, "too many"))
    assert refused.finish_reason is FinishReason.REFUSED
    _, at_once = await answer_of(ask(client, "now", starts_now=True))
    assert at_once.finish_reason is FinishReason.REFUSED
    stats = client.latest_stats
    assert stats is not None
    assert (stats.num_running, stats.num_waiting) == (1, 1)
    assert (stats.blocks.held, stats.blocks.free, stats.blocks.queued) == (1, 0, 1)
    await asyncio.to_thread(gate.write_text, "")
    assert (await answer_of(waiting))[0] == "next\n"


async def test_a_request_that_waits_can_be_left_too(connect: Connect) -> None:
    client = await connect(shell("exec sleep 1000", max_num_seqs=1))
    with ask(client), ask(client):
        pass
    await wait_until_async(lambda: _counts(client) == (0, 0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"command": "no-such-program-here"}, 'there is no program "no-such-program-here"'),
        ({"command": "cat", "max_model_len": 200_000}, "is at most 131000 bytes"),
    ],
)
async def test_what_cannot_run_refuses_to_start(settings: dict[str, object], message: str) -> None:
    client = CoreClient(make_config(**settings), None, on_progress=lambda stage, fraction: None)
    with pytest.raises(ConfigError, match=message):
        await client.start()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"command": "cat 'x"}, "cannot be read as a shell would: No closing quotation"),
        ({"command": "''"}, "names no program"),
        (
            {"command": "cat", "simulate": "h100", "model_shape": "llama3-8b"},
            "command and simulate both stand for the model",
        ),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(**settings)


def _counts(client: CoreClient) -> tuple[int, int] | None:
    stats = client.latest_stats
    return None if stats is None else (stats.num_running, stats.num_waiting)
