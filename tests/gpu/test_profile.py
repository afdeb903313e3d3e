"""`quire profile` of a model on the device: its file is an engine that can be simulated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from quire_engine.config import EngineConfig, ExecutorConfig
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.profiles.engine_profile import load_profile
from tests.gpu.test_executor import decode, prefill
from tests.unit.models.builders import make_llama

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
FLAGS = (
    *("--device", "cuda", "--max-num-blocks", "2000"),
    *("--max-num-seqs", "16", "--max-num-batched-tokens", "512"),
)
SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "max_position_embeddings": 1024,
}


def test_a_profile_is_written_and_simulated(tmp_path: Path) -> None:
    folder, file = tmp_path / "llama", tmp_path / "profile.json"
    make_llama(folder, **SIZES)
    command = [sys.executable, "-m", "quire_local.cli", "profile", str(folder)]
    done = subprocess.run(
        [*command, "--output", str(file), *FLAGS, "--calibration-seconds", "8"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert torch.cuda.get_device_name() in done.stdout
    profile = load_profile(file.read_bytes())
    assert profile.step_time.limits.num_decodes == 16

    executor = SimulatedExecutor(EngineConfig(executor=ExecutorConfig(simulate=str(file))))
    executor.load(lambda _stage, _fraction: None)
    facts = executor.allocate_cache()
    assert (facts.num_blocks, facts.block_size) == (profile.num_blocks, profile.block_size)
    assert facts.max_model_len == 1024
    texts = [[1, 2, 3], [4, 5]]
    assert len(executor.run(prefill(texts)).token_ids) == 2
    assert len(executor.run(decode([3, 2])).token_ids) == 2
