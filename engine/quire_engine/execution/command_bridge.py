"""A command in place of a model: one request, one process, and its output is the answer.

    AddRequest ──► a seat is free? ──► the command, with HETERO_PROMPT, HETERO_MAX_TOKENS,
                        │              HETERO_TEMPERATURE and HETERO_TOP_P in its environment
                        └─ waits       stdout ──► TokenDelta, byte by byte as it comes
                                       exit   ──► the last TokenDelta: stop, or the error

It stands where the core process would: it takes what an API server says to a core and answers as
one, so that streams, stop strings, usage, disconnects, timeouts and drains are those of models. A
token is a byte of UTF-8, by the simple tokenizer. It is no `Executor`: a step computes all its
requests together, and one slow command would hold up all others.

There is no KV cache. Where blocks are counted, one block is one seat.
"""

import asyncio
import logging
import shlex
import shutil
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec

from quire_engine.config import EngineConfig
from quire_engine.errors import ConfigError
from quire_engine.execution.command_run import CommandError, run_command
from quire_engine.protocol.messages import (
    AbortRequests,
    AddRequest,
    BlockCounts,
    CoreReady,
    CoreStats,
    FinishReason,
    FromCore,
    ModelFacts,
    Pressure,
    StepOutputs,
    ToCore,
    TokenDelta,
    sequence_id,
)

_log = logging.getLogger(__name__)

MAX_PROMPT_BYTES = 131_000
"""Linux takes no longer string in a process's environment (128 KiB with the variable's name)."""
REFUSED_PARAMETERS = (
    "top_k",
    "min_p",
    "stop_token_ids",
    "min_tokens",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "num_logprobs",
    "num_prompt_logprobs",
)
"""What a command is not told of; a seed is best effort anyway."""
_HEARTBEAT_SECONDS = 1.0
_RETRY_SECONDS = 1.0


class CommandBridge:
    """Runs `executor.command` for each request; belongs to one event loop.

    Used by `quire_engine.core.client.CoreClient` in place of its supervisor.
    """

    def __init__(self, config: EngineConfig, *, on_message: Callable[[FromCore], None]) -> None:
        self._words = shlex.split(config.executor.command or "")
        self._num_seats = config.scheduler.max_num_seqs
        self._max_waiting = config.scheduler.max_waiting_requests
        self._max_model_len = config.model.max_model_len or MAX_PROMPT_BYTES
        self._on_message = on_message
        self._waiting: deque[AddRequest] = deque()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._num_started = 0
        self._heartbeat: asyncio.Task[None] | None = None

    @property
    def channel(self) -> "CommandBridge":
        """Where messages are sent: here."""
        return self

    async def start(self) -> None:
        """Take requests from now on.

        Raises
        ------
        ConfigError
            There is no such program, or prompts would be longer than a command can be given.
        """
        if shutil.which(self._words[0]) is None:
            raise ConfigError(f'command: there is no program "{self._words[0]}"')
        if self._max_model_len > MAX_PROMPT_BYTES:
            raise ConfigError(
                f"max_model_len is {self._max_model_len}, but a command's prompt is at most "
                f"{MAX_PROMPT_BYTES} bytes: lower it"
            )
        facts = ModelFacts(
            max_model_len=self._max_model_len,
            vocab_size=256,
            num_blocks=self._num_seats,
            block_size=self._max_model_len,
            refused_parameters=REFUSED_PARAMETERS,
        )
        self._on_message(CoreReady(facts=facts))
        self._heartbeat = asyncio.create_task(self._beat(), name="command-bridge")

    def send(self, message: ToCore) -> None:
        """Take what an API server says; what is for models alone changes nothing."""
        match message:
            case AddRequest():
                self._add(message)
            case AbortRequests(request_ids=request_ids):
                self._abort(set(request_ids))

    def kill(self) -> None:
        """Do nothing: it runs in this process, and its commands end with the requests."""

    async def close(self) -> None:
        """End all commands."""
        self._waiting.clear()
        tasks = [*self._running.values(), *([self._heartbeat] if self._heartbeat else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _add(self, request: AddRequest) -> None:
        for index in range(request.num_sequences):
            name = sequence_id(request.request_id, index)
            self._add_one(msgspec.structs.replace(request, request_id=name, num_sequences=1))

    def _add_one(self, request: AddRequest) -> None:
        has_seat = len(self._running) < self._num_seats
        if not has_seat and (request.starts_now or len(self._waiting) >= self._max_waiting):
            self._refuse(request)
            return
        self._waiting.append(request)
        self._start_waiting()

    def _abort(self, request_ids: set[str]) -> None:
        self._waiting = deque(r for r in self._waiting if r.request_id not in request_ids)
        for request_id in request_ids & self._running.keys():
            self._running[request_id].cancel()
        self._send_stats()

    def _start_waiting(self) -> None:
        while self._waiting and len(self._running) < self._num_seats:
            request = self._waiting.popleft()
            self._num_started += 1
            task = asyncio.create_task(self._run(request), name=f"command-{request.request_id}")
            self._running[request.request_id] = task
            task.add_done_callback(partial(self._leave, request.request_id))
        self._send_stats()

    def _leave(self, request_id: str, _: "asyncio.Task[None]") -> None:
        del self._running[request_id]
        self._start_waiting()

    async def _run(self, request: AddRequest) -> None:
        error = None
        try:
            await run_command(
                self._words, _variables(request), lambda piece: self._tell(request, [*piece])
            )
        except CommandError as failure:
            error = str(failure)
        except Exception:  # noqa: BLE001 - whatever it is, the client must hear of it
            _log.exception("a command failed")
            error = "The command for this request failed."
        reason = FinishReason.STOP if error is None else FinishReason.ERROR
        self._tell(request, [], reason, error)

    def _refuse(self, request: AddRequest) -> None:
        delta = TokenDelta(
            request_id=request.request_id,
            token_ids=[],
            finish_reason=FinishReason.REFUSED,
            error=f"All {self._num_seats} seats are taken.",
            retry_after_seconds=_RETRY_SECONDS,
        )
        self._on_message(StepOutputs(deltas=[delta]))

    def _tell(
        self,
        request: AddRequest,
        token_ids: list[int],
        reason: FinishReason | None = None,
        error: str | None = None,
    ) -> None:
        delta = TokenDelta(
            request_id=request.request_id, token_ids=token_ids, finish_reason=reason, error=error
        )
        self._on_message(StepOutputs(deltas=[delta]))

    async def _beat(self) -> None:
        while True:
            self._send_stats()
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    def _send_stats(self) -> None:
        total, held, waiting = self._num_seats, len(self._running), len(self._waiting)
        blocks = BlockCounts(
            total=total, held=held, free=total - held, cached=0, reserved=held, queued=waiting
        )
        stats = CoreStats(
            blocks=blocks,
            num_running=held,
            num_waiting=waiting,
            num_filled_tokens=held * self._max_model_len,
            num_steps=self._num_started,
            num_preemptions=0,
            num_recomputed_tokens=0,
            num_prefix_queries=0,
            num_prefix_hits=0,
            num_evictions=0,
            num_scheduled_tokens=0,
            pressure=Pressure(blocks=held / total, seats=held / total, first_token=0.0, step=0.0),
        )
        self._on_message(stats)


def _variables(request: AddRequest) -> dict[str, str]:
    """What the command is told. The prompt's tokens are its bytes."""
    sampling = request.sampling
    return {
        "HETERO_PROMPT": bytes(request.prompt_token_ids).decode("utf-8", "surrogateescape"),
        "HETERO_MAX_TOKENS": str(sampling.max_tokens),
        "HETERO_TEMPERATURE": f"{sampling.temperature:g}",
        "HETERO_TOP_P": f"{sampling.top_p:g}",
    }
