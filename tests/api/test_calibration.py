"""Step times in /state: how they began, and an engine that is simulated from a profile's file."""

from pathlib import Path

from quire_engine.profiles.engine_profile import EngineProfile, save_profile
from quire_engine.profiles.step_time import constant_step_time
from tests.api.servers import RunningServer

PROFILE = EngineProfile(
    device="a measured device",
    model="measured-model",
    max_model_len=512,
    vocab_size=1000,
    num_blocks=64,
    block_size=16,
    max_num_seqs=8,
    max_num_batched_tokens=64,
    step_time=constant_step_time(0.001),
)


def test_an_engine_is_simulated_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_bytes(save_profile(PROFILE))
    with RunningServer("--simulate", str(file)) as server:
        body = {"model": "measured-model", "prompt": "Hello", "max_tokens": 5}
        answer = server.post("/v1/completions", body).json()
        state = server.wait_until_idle()

    assert answer["usage"]["completion_tokens"] == 5
    assert state.model_id == "measured-model"
    assert state.max_model_len == 512
    assert state.blocks.total == 64
    assert state.calibration is None  # nothing is measured where nothing computes
    assert state.step_time == PROFILE.step_time
