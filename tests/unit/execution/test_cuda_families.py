"""Which families the CUDA executor computes, and what it says of those it does not."""

from pathlib import Path
from typing import Any

import pytest
import torch

from quire_engine.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from quire_engine.errors import ModelError
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.execution.cuda.platform import Platform
from tests.unit.execution.native_cases import generate, silent
from tests.unit.models.builders import TinyModel
from tests.unit.models.families import FAMILIES, WINDOW, make_family, some_tokens

CPU = Platform(torch.device("cpu"), torch.float32)
SMALL: dict[str, Any] = {
    "hidden_size": 96,
    "head_dim": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "layer_types": None,
}
PHI3 = SMALL | {"hidden_size": 128}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}


def load(tiny: TinyModel, max_model_len: int | None = None) -> CudaExecutor:
    config = EngineConfig(
        model=ModelConfig(max_model_len=max_model_len),
        cache=CacheConfig(max_num_blocks=40),
        scheduler=SchedulerConfig(max_num_seqs=6, max_num_batched_tokens=128),
    )
    executor = CudaExecutor(config, tiny.folder, platform=CPU)
    executor.load(silent)
    return executor


@pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled here")
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("phi3 of which a part rotates", PHI3),
        ("qwen3", SMALL | {"rope_parameters": YARN, "initializer_range": 0.2}),
        ("mistral without a window", SMALL),
    ],
)
def test_generates_what_transformers_does(
    tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    tiny = make_family(tmp_path, FAMILIES[name], **changes)
    executor = load(tiny)
    executor.allocate_cache()
    prompt = some_tokens(30)
    found = generate(executor, prompt, 3)
    expected = list(prompt)
    for _ in range(3):
        expected.append(int(tiny.logits(expected)[-1].argmax()))
    assert found == expected[30:]
    executor.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("qwen2", "does not compute the biases of Qwen2ForCausalLM yet: use --device cpu"),
        ("mistral", rf"the window of {WINDOW} tokens \(a --max-model-len up to it needs none\)"),
        ("gemma2", "the norms behind attention and MLP, the gate's GELU, the soft-caps, the emb"),
        ("gemma3", "the norms behind attention and MLP, the second rotary embedding"),
    ],
)
def test_what_is_not_computed_is_refused_at_start(tmp_path: Path, name: str, message: str) -> None:
    # more than one layer, so that Gemma's pattern has a window
    tiny = make_family(tmp_path, FAMILIES[name], **SMALL | {"num_hidden_layers": 2})
    with pytest.raises(ModelError, match=message):
        load(tiny)


def test_a_window_that_no_text_reaches_is_none(tmp_path: Path) -> None:
    load(make_family(tmp_path, FAMILIES["mistral"], **SMALL), max_model_len=WINDOW)
