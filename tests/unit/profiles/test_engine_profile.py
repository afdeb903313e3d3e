import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quire_engine.errors import ConfigError
from quire_engine.profiles.engine_profile import (
    EngineProfile,
    MeasuredStep,
    list_decode_rates,
    load_profile,
    save_profile,
)
from quire_engine.profiles.files import is_profile_file, read_profile
from quire_engine.profiles.shapes import find_shape
from quire_engine.profiles.shipped import FOLDER, find_shipped
from quire_engine.profiles.step_time import constant_step_time
from quire_engine.profiles.step_time_calibration import MIN_STEPS, fit_measured


def build_step(num_decodes: int = 1, prefill_tokens: int = 0, **changes: Any) -> MeasuredStep:
    fields: dict[str, Any] = {
        "num_decodes": num_decodes,
        "context_tokens": 100 * num_decodes,
        "prefill_tokens": prefill_tokens,
        "prefill_pairs": 0,
        "samples": (0.01, 0.03, 0.02),
    }
    return MeasuredStep(**(fields | changes))


def build_profile(**changes: Any) -> EngineProfile:
    fields: dict[str, Any] = {
        "device": "a device",
        "model": "a model",
        "max_model_len": 4096,
        "vocab_size": 1000,
        "num_blocks": 500,
        "block_size": 16,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "step_time": constant_step_time(0.25),
        "steps": (build_step(), build_step(0, 32)),
    }
    return EngineProfile(**(fields | changes))


def saved_with(**changes: Any) -> bytes:
    return json.dumps(json.loads(save_profile(build_profile())) | changes).encode()


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_bytes(save_profile(build_profile()))

    assert read_profile(str(file)) == build_profile()
    assert load_profile(saved_with(colour="blue")) == build_profile()


@pytest.mark.parametrize(
    "changes",
    [
        {"profile_version": 2},
        {"num_blocks": 0},
        {"block_size": -16},
        {"max_model_len": "long"},
        {"step_time": {}},
        {"step_time": None},
        {
            "step_time": json.loads(save_profile(build_profile()))["step_time"]
            | {"schema_version": 2}
        },
        {"steps": [{"num_decodes": 1}]},
        {"steps": [json.loads(save_profile(build_profile()))["steps"][0] | {"samples": []}]},
        {"steps": [json.loads(save_profile(build_profile()))["steps"][0] | {"samples": [-1.0]}]},
        {"steps": [json.loads(save_profile(build_profile()))["steps"][0] | {"num_decodes": -1}]},
    ],
)
def test_what_is_impossible_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"profile|step-time model"):
        load_profile(saved_with(**changes))


def test_a_model_of_another_schema_is_refused_whatever_it_looks_like() -> None:
    with pytest.raises(ConfigError, match="schema_version 7 is not supported, only 1"):
        load_profile(saved_with(step_time={"schema_version": 7, "limits": "new"}))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"\xff\xfe", b"{}", b" " * (17 << 20), b'{"a":' + b"[" * 100_000]
)
def test_what_is_no_profile_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="engine profile"):
        load_profile(data)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0.0, -1.0])
def test_seconds_that_no_clock_measures_are_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="finite and above 0"):
        build_step(samples=(seconds,))


def test_files_are_told_from_names_of_gpus(tmp_path: Path) -> None:
    assert not is_profile_file("h100")
    assert is_profile_file("h100.json")
    assert is_profile_file("./h100")
    with pytest.raises(ConfigError, match=r"cannot be read .*No such file"):
        read_profile(str(tmp_path / "none.json"))
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ConfigError, match=r"broken\.json: engine profile"):
        read_profile(str(tmp_path / "broken.json"))


def test_the_rates_of_decodes_are_medians() -> None:
    (rate,) = list_decode_rates(build_profile().steps)
    assert (rate.num_decodes, rate.context_tokens, rate.seconds) == (1, 100, 0.02)


def test_too_few_kinds_of_steps_make_no_model() -> None:
    steps = [build_step(count) for count in range(1, MIN_STEPS)]
    with pytest.raises(ConfigError, match=f"needs {MIN_STEPS}"):
        fit_measured(steps, "source")
    assert fit_measured([*steps, build_step(9)], "source").limits.num_decodes == 9


def test_every_shipped_profile_is_whole() -> None:
    for file in FOLDER.glob("*/*.json"):
        profile = find_shipped(file.parent.name, find_shape(file.stem))
        assert profile is not None
        assert profile.model == file.stem
        assert profile.step_time.typical_error < 0.05
        again = fit_measured(profile.steps, profile.step_time.source)
        assert again.predict(64, 64 * 512) == pytest.approx(
            profile.step_time.predict(64, 64 * 512), rel=0.01
        )
    assert find_shipped("h100", find_shape("qwen3-32b")) is None
    assert find_shipped("t4", find_shape("llama3-8b")) is None


def test_a_profile_counts_for_models_of_the_same_network() -> None:
    own, other = find_shape("llama3-8b"), find_shape("llama3.1-8b")
    found = find_shipped("h100", other)
    assert found == find_shipped("h100", own)
    assert found is not None
    assert found.model == own.name
    # whatever it is called, and not by its name
    assert find_shipped("h100", replace(other, name="my-8b", max_model_len=4096)) == found
    for size in ("hidden_size", "num_layers", "head_dim", "ffn_size", "vocab_size"):
        wider = replace(other, **{size: 2 * getattr(other, size)})
        assert find_shipped("h100", wider) is None
    assert find_shipped("h100", replace(other, has_tied_embedding=True)) is None
    assert find_shipped("h100", replace(other, has_qk_norm=True)) is None


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(ConfigError, match=r"/dev/zero: .*too many for one"):
        read_profile("/dev/zero")
