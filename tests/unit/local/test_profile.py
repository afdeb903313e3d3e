"""`quire profile`: what it writes is what `--simulate` takes."""

import time
from pathlib import Path

import pytest
import torch

from quire_engine.config import EngineConfig, ExecutorConfig
from quire_engine.execution.clocks import VirtualClock
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.profiles.files import read_profile
from quire_kernels.cpu import unavailable_reason
from quire_local.profile import main
from tests.unit.simulated.builders import batch, start

FLAGS = ["--max-model-len", "256", "--max-num-blocks", "64", "--max-num-seqs", "4"]


@pytest.mark.slow
@pytest.mark.skipif(unavailable_reason() is not None, reason="no C++ compiler")
def test_a_measured_engine_can_be_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, threads = tmp_path / "smollm2.json", torch.get_num_threads()
    # by the clock of the computing thread: on a busy machine, little is measured by another
    flags = [*FLAGS, "--num-threads", "1", "--device", "cpu", "--calibration-seconds", "3"]
    try:
        status = main(["--output", str(file), *flags], clock=time.process_time)
    finally:
        torch.set_num_threads(threads)
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert f"quire serve --simulate {file}" in shown.out

    clock = VirtualClock()
    config = EngineConfig(executor=ExecutorConfig(simulate=str(file)))
    executor = SimulatedExecutor(config, clock=clock)
    facts = executor.allocate_cache()
    assert (facts.max_model_len, facts.num_blocks, facts.vocab_size) == (256, 64, 49152)
    executor.run(batch((0, 0, 20, True), started=[start(0, list(range(20)), [1, 2])]))
    model = read_profile(str(file)).step_time
    assert clock.now() == pytest.approx(model.predict(0, 0, 20, 210))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "required: --output"),
        (["--output", "x.json", "--simulate", "h100", "--model-shape", "llama3-8b"], "is measured"),
        (["--output", "/nowhere/x.json"], "there is no folder /nowhere"),
        (["--output", "x.txt"], "end its name with .json"),
        (["--outptu", "x.json"], "unknown flag --outptu; did you mean --output"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_loaded(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags) == 2
    assert message in capsys.readouterr().err
