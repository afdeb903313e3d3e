from typing import Any

import pytest

from quire_engine.errors import ConfigError
from quire_engine.profiles.gpus import GIB, GPUS, find_gpu
from quire_engine.profiles.shapes import SHAPES, ModelShape, find_shape


@pytest.mark.parametrize(
    ("name", "num_parameters"),
    [
        # as the published checkpoints have them
        ("smollm2-135m", 134_515_008),
        ("llama3.2-1b", 1_235_814_400),
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("mistral-7b", 7_248_023_552),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-8b", 8_190_735_360),
    ],
)
def test_parameters_are_those_of_the_checkpoint(name: str, num_parameters: int) -> None:
    assert find_shape(name).num_parameters == num_parameters


@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)
def test_unquantized_weights_are_parameters_times_their_size(shape: ModelShape) -> None:
    assert shape.weight_bytes("bfloat16") == 2 * shape.num_parameters
    assert shape.weight_bytes("float32") == 4 * shape.num_parameters


@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)
def test_quantized_weights_are_smaller(shape: ModelShape) -> None:
    plain, int8, int4 = (
        shape.weight_bytes("bfloat16", quantization) for quantization in ("none", "int8", "int4")
    )
    assert plain - int8 == shape.num_linear_parameters
    assert int4 < int8


def test_a_step_reads_every_weight_but_an_untied_input_embedding() -> None:
    untied, tied = find_shape("llama3-8b"), find_shape("qwen3-0.6b")
    embedding_bytes = 2 * untied.num_embedding_parameters
    assert untied.bytes_read_per_step() == untied.weight_bytes() - embedding_bytes
    assert tied.bytes_read_per_step() == tied.weight_bytes()


def test_kv_bytes_of_a_known_model() -> None:
    llama = find_shape("llama3-8b")
    assert llama.kv_bytes_per_token() == 128 * 1024
    assert llama.kv_bytes_per_block(16) == 2 << 20
    assert llama.kv_bytes_per_token(bytes_per_element=1) == 64 * 1024


def test_an_unknown_shape_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown model shape 'gpt-5'.*llama3-8b"):
        find_shape("gpt-5")


def _shape(**changes: Any) -> ModelShape:
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "num_layers": 2,
        "num_q_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 16,
        "ffn_size": 128,
        "vocab_size": 512,
        "max_model_len": 256,
    }
    return ModelShape(name="toy", **(sizes | changes))


def test_impossible_shapes_are_refused() -> None:
    assert _shape().num_parameters > 0
    with pytest.raises(ConfigError, match="at least 1"):
        _shape(num_layers=0)
    with pytest.raises(ConfigError, match="multiple of num_kv_heads 3"):
        _shape(num_kv_heads=3)


@pytest.mark.parametrize(
    ("name", "driver"),
    [
        ("t4", "Tesla T4"),
        ("l4", "NVIDIA L4"),
        ("l40s", "NVIDIA L40S"),
        ("a10", "NVIDIA A10"),
        ("a10g", "NVIDIA A10G"),
        ("a100-40", "NVIDIA A100-SXM4-40GB"),
        ("a100-40", "NVIDIA A100-PCIE-40GB"),
        ("a100-80", "NVIDIA A100-SXM4-80GB"),
        ("a100-80", "NVIDIA A100 80GB PCIe"),
        ("a100-80", "A100-SXM4-80GB"),
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("h100-pcie", "NVIDIA H100 PCIe"),
        ("h100-nvl", "NVIDIA H100 NVL"),
        ("h200", "NVIDIA H200"),
        ("h200-nvl", "NVIDIA H200 NVL"),
        ("b200", "NVIDIA B200"),
    ],
)
def test_a_gpu_is_found_by_name_and_by_the_label_that_its_driver_makes(
    name: str, driver: str
) -> None:
    label = driver.replace(" ", "-")  # as the feature discovery writes it
    assert find_gpu(name.upper()) is find_gpu(label) is find_gpu(label.lower()) is GPUS[name]


def test_an_unknown_gpu_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown GPU 'h300': choose .*a100-80, .*h100, h200"):
        find_gpu("h300")


@pytest.mark.parametrize(
    ("label", "words"),
    [
        (
            "NVIDIA-L4-SHARED",
            ", one that pods share in turns, of which only whole ones are known: choose",
        ),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", r", a slice of one \(MIG\), of which"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED", r", a slice of one \(MIG\), of which"),
    ],
)
def test_a_part_of_a_gpu_is_not_taken_for_the_whole(label: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find_gpu(label)


def test_no_node_label_means_two_gpus() -> None:
    products = [product.lower() for gpu in GPUS.values() for product in gpu.products]
    assert len(products) == len(set(products))


def test_the_cheapest_come_first() -> None:
    prices = [gpu.dollars_per_hour for gpu in GPUS.values()]
    assert prices == sorted(prices)


def test_figures_are_in_their_units() -> None:
    for gpu in GPUS.values():
        assert 15 * GIB <= gpu.memory_bytes < 200 * GIB
        # what a decode step of one request, and what a prompt would take of it
        assert 0.015 < gpu.memory_bytes / gpu.bandwidth_bytes_per_second < 0.1
        assert 60 < gpu.flops_per_second / gpu.bandwidth_bytes_per_second < 500
