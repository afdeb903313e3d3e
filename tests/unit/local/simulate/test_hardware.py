"""Types of engines, and where their step times are from."""

import pytest

from benchmarks.scaling import ScalingCase
from quire_local.simulate.hardware import EngineType, ServiceLevel, make_engine_type


def make(shape: str, *, by_data_sheets: bool = False) -> EngineType:
    made = make_engine_type(
        "h100",
        shape,
        quantization="none",
        max_model_len=8192,
        slo=ServiceLevel(),
        by_data_sheets=by_data_sheets,
    )
    assert isinstance(made, EngineType)
    return made


@pytest.mark.parametrize("shape", ["llama3-8b", "llama3.1-8b"])
def test_measured_times_give_way_where_all_types_are_to_be_alike(shape: str) -> None:
    measured, estimated = make(shape), make(shape, by_data_sheets=True)
    assert (measured.is_measured, estimated.is_measured) == (True, False)
    assert "steps of llama3-8b on NVIDIA H100" in measured.step_time.source
    assert "roofline of h100" in estimated.step_time.source
    assert measured.num_blocks == estimated.num_blocks


def test_the_scaling_benchmark_knows_no_type_better_than_another() -> None:
    case = ScalingCase(traffic="chat", times=0.2, quantization="none", per_token_seconds=0.06)
    types = case.scenario().types
    assert "h100" in {one.name for one in types}
    assert not any(one.is_measured for one in types)
