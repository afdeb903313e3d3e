"""Weights on their way from mapped files to the device: every value, and those that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from quire_engine.config import EngineConfig
from quire_engine.errors import ModelError
from quire_engine.execution.cuda import staging
from quire_engine.execution.cuda.platform import cuda_platform
from quire_engine.execution.cuda.weights import DecoderWeights, FileWeights
from tests.unit.execution.cuda_cases import RandomSource, tiny_spec
from tests.unit.models.builders import TinyModel, make_llama

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def load(weights: FileWeights) -> DecoderWeights:
    platform = cuda_platform(EngineConfig())
    with platform.on_stream():
        loaded = weights.load(platform, lambda _done: None)
    torch.cuda.synchronize()
    return loaded


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> TinyModel:
    """Six layers in several files, in the given type."""
    made = make_llama(tmp_path, num_hidden_layers=6, vocab_size=4099, tie_word_embeddings=False)
    made.reference.to(request.param).save_pretrained(tmp_path, max_shard_size="400KB")
    assert len([*tmp_path.glob("*.safetensors")]) > 2
    return made


@pytest.mark.parametrize("piece", [1 << 10, staging.PIECE_BYTES])
def test_every_value_of_every_file_is_in_its_place(
    model: TinyModel, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(staging, "PIECE_BYTES", piece)
    loaded = load(FileWeights(model.folder))
    state = {
        name: tensor.to(torch.bfloat16) for name, tensor in model.reference.state_dict().items()
    }

    def same(found: torch.Tensor, *names: str) -> bool:
        return torch.equal(found.cpu(), torch.cat([state[f"{name}.weight"] for name in names]))

    assert same(loaded.embedding, "model.embed_tokens")
    assert same(loaded.head, "lm_head")
    assert same(loaded.final_norm, "model.norm")
    assert len(loaded.layers) == 6
    for index, layer in enumerate(loaded.layers):
        own = f"model.layers.{index}"
        heads = [f"{own}.self_attn.{part}_proj" for part in "qkv"]
        assert same(layer.query_key_value, *heads)
        assert same(layer.attention_output, f"{own}.self_attn.o_proj")
        assert same(layer.gate_up, f"{own}.mlp.gate_proj", f"{own}.mlp.up_proj")
        assert same(layer.down, f"{own}.mlp.down_proj")
        assert same(layer.attention_norm, f"{own}.input_layernorm")
        assert same(layer.mlp_norm, f"{own}.post_attention_layernorm")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -3.4e38])
def test_values_that_the_device_cannot_hold_are_refused_by_name(value: float) -> None:
    source = RandomSource(tiny_spec(num_layers=3))
    name = "model.layers.1.mlp.up_proj.weight"
    source._tensors[name][7, 11] = value
    with pytest.raises(ModelError, match=f"tensor {name} has values that are not finite numbers"):
        load(FileWeights(source))
