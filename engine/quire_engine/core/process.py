"""The core process: `python -m quire_engine.core`, started by `quire_engine.core.client`.

    parent's pipe ──► read_launch                         main thread
    API servers ────► InputThread ──► StepLoop ──► OutputSockets ──► API servers

It loads the model, then steps until it is told to shut down or its parent is gone. A failure to
start is told to every API server as `CoreFailed`. Any other exception ends the process, which the
API server notices and answers by starting a new one.
"""

import logging
import sys
import time
from pathlib import Path

import zmq

from quire_engine import logs
from quire_engine.calibration.start import calibrate_at_start
from quire_engine.core.engine import EngineCore
from quire_engine.core.front_desk import FrontDesk
from quire_engine.core.grammars import GrammarDesk
from quire_engine.core.inputs import InputThread
from quire_engine.core.launch import CoreLaunch, ignore_terminal_signals, read_launch
from quire_engine.core.loop import StepLoop
from quire_engine.core.outputs import OutputSockets
from quire_engine.errors import QuireError
from quire_engine.execution.base import Executor
from quire_engine.execution.factory import create_executor
from quire_engine.execution.recovering import with_retries
from quire_engine.parent import die_with_parent
from quire_engine.profiles.engine_profile import Calibration
from quire_engine.protocol.messages import (
    CoreFailed,
    Goodbye,
    Hello,
    LoadProgress,
    ModelFacts,
    Shutdown,
    ToCore,
)
from quire_engine.server.model_files import choose_tokenizer
from quire_engine.startup_heap import freeze_startup_heap
from quire_engine.tokenizing.tokenizer import Tokenizer

_log = logging.getLogger(__name__)

_HELLO_TIMEOUT_SECONDS = 5.0
"""A failure to start waits this long for an API server to tell it to."""
_LINGER_SECONDS = 2.0
"""Last messages may take this long to arrive."""
_PROGRESS_INTERVAL_SECONDS = 0.1
"""Loading reports its progress at most this often."""


class _CoreProcess:
    """One core from launch to end."""

    def __init__(
        self,
        launch: CoreLaunch,
        context: "zmq.Context[zmq.Socket[bytes]]",
        inputs: InputThread,
        outputs: OutputSockets,
    ) -> None:
        self._launch = launch
        self._context = context
        self._inputs = inputs
        self._outputs = outputs
        self._early: list[ToCore] = []
        self._reported_at = 0.0

    def run(self) -> int:
        """Load, serve, close; returns the exit status."""
        try:
            executor, facts = self._load()
            calibration = self._calibrate(executor, facts)
        except QuireError as error:
            return self._fail(str(error))
        except MemoryError as error:
            return self._fail(
                f"This machine's memory is too small for the model and its KV cache ({error});"
                " lower kv_cache_bytes or max_num_blocks, or take a smaller model."
            )
        except Exception:  # noqa: BLE001 - whatever it is, the API server must hear of it
            _log.exception("the model could not be loaded")
            return self._fail("The model could not be loaded; the core's log above says why.")
        try:
            is_measured = executor.step_time is None
            clock = time.monotonic if is_measured else None
            core = EngineCore(
                self._launch.config,
                executor,
                facts,
                clock=clock,
                step_clock=time.monotonic,
                calibration=calibration,
                load_tokenizer=self._load_tokenizer,
            )
            front_desk = FrontDesk(core, self._context, time.monotonic)
            loop = StepLoop(core, facts, self._inputs, self._outputs, front_desk=front_desk)
            for message in self._early:
                loop.handle(message)
            self._inputs.attach(front_desk, GrammarDesk(core.grammars, self._inputs.put))
            freeze_startup_heap()
            loop.run()
        finally:
            executor.close()
        return 0

    def _load_tokenizer(self) -> Tokenizer:
        path = self._launch.model_path
        return choose_tokenizer(self._launch.config, None if path is None else Path(path))

    def _load(self) -> tuple[Executor, ModelFacts]:
        path = self._launch.model_path
        config = self._launch.config
        executor = create_executor(config, None if path is None else Path(path))
        executor = with_retries(executor, config.executor.max_retry_attempts)
        executor.load(self._report_progress)
        return executor, executor.allocate_cache()

    def _calibrate(self, executor: Executor, facts: ModelFacts) -> Calibration | None:
        """Measure step times before anything is served; None where they are known."""
        path = self._launch.model_path
        if executor.step_time is not None or path is None:
            return None
        return calibrate_at_start(
            executor, facts, self._launch.config, Path(path), self._report_progress
        )

    def _report_progress(self, stage: str, fraction: float) -> None:
        now = time.monotonic()
        if now < self._reported_at + _PROGRESS_INTERVAL_SECONDS and fraction < 1:
            return
        self._reported_at = now
        self._take_early(0)
        self._outputs.send_to_all(LoadProgress(stage=stage, fraction=fraction))

    def _take_early(self, wait_seconds: float) -> None:
        """Meet API servers while loading; the step loop sees all their messages later."""
        for message in self._inputs.take(wait_seconds):
            match message:
                case Hello(client_id=client_id, output_address=address, hears_news=hears_news):
                    self._outputs.connect(client_id, address, hears_news=hears_news)
                case Goodbye(client_id=client_id):
                    self._outputs.disconnect(client_id)
                case Shutdown():
                    raise SystemExit(0)
            self._early.append(message)

    def _fail(self, error: str) -> int:
        deadline = time.monotonic() + _HELLO_TIMEOUT_SECONDS
        while not self._outputs.has_hearers and time.monotonic() < deadline:
            self._take_early(deadline - time.monotonic())
        self._outputs.send_to_all(CoreFailed(error=error))
        return 1


def main() -> int:
    """Run the core process described on standard input."""
    die_with_parent()
    ignore_terminal_signals()
    launch = read_launch(sys.stdin.fileno())
    logs.configure(launch.config.observability, "core")
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    inputs = InputThread(context, launch.input_address, sys.stdin.fileno())
    outputs = OutputSockets(context)
    inputs.start()
    try:
        return _CoreProcess(launch, context, inputs, outputs).run()
    finally:
        inputs.stop()
        outputs.close(_LINGER_SECONDS)
        context.term()
