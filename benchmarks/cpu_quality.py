"""How close the CPU's types come to float32, over every position of a fixed technical text."""

import math
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from quire_engine.config.kinds import DType
from quire_engine.execution.native_cpu.loading import decoder_shape, load_decoder
from quire_engine.execution.native_cpu.matrices import open_matrices
from quire_engine.execution.native_cpu.precision import PRECISIONS
from quire_engine.models.attention_plan import CacheLayout
from quire_engine.models.loading.weights import open_weights
from quire_engine.tokenizing.loading import load_tokenizer
from quire_kernels.cpu import Decoder, StepInputs, Team

TEXT = Path(__file__).parent / "data" / "technical.txt"
BLOCK_SIZE = 16
_TOKENS_PER_STEP = 128


def read_tokens(model_path: Path, num_tokens: int) -> list[int]:
    """Return the first tokens of the text."""
    return load_tokenizer(model_path).encode(TEXT.read_text())[:num_tokens]


@torch.inference_mode()
def score(
    model_path: Path, dtype: DType, token_ids: list[int], team: Team
) -> tuple[torch.Tensor, float]:
    """Predict each token from those before it, as decode steps do.

    Returns
    -------
    tuple[torch.Tensor, float]
        The most likely token at each position ([num_tokens], int64), and the perplexity.
    """
    source, precision = open_weights(model_path), PRECISIONS[dtype]
    spec = source.spec
    matrices = open_matrices(source, team, precision.weights)
    weights = load_decoder(matrices, len(token_ids), lambda _: None)
    decoder = Decoder(decoder_shape(spec), weights, team)
    num_blocks = -(-len(token_ids) // BLOCK_SIZE)
    layout = CacheLayout(spec.num_layers, spec.num_kv_heads, BLOCK_SIZE, spec.head_dim)
    cache = torch.zeros(layout.shape(num_blocks + 1), dtype=precision.cache)
    table = torch.arange(1, num_blocks + 1, dtype=torch.int32)[None]
    best, loss = [], 0.0
    for first in range(0, len(token_ids), _TOKENS_PER_STEP):
        inputs = _each_alone(token_ids[first : first + _TOKENS_PER_STEP], first, table)
        logits = decoder.step(inputs, cache)
        best.append(logits.argmax(dim=-1))
        following = torch.tensor(token_ids[first + 1 : first + 1 + _TOKENS_PER_STEP])
        loss += float(cross_entropy(logits[: len(following)], following, reduction="sum"))
    return torch.cat(best), math.exp(loss / (len(token_ids) - 1))


def _each_alone(token_ids: list[int], first: int, table: torch.Tensor) -> StepInputs:
    """Consecutive tokens of one sequence as chunks of one token, so that each has logits."""
    count = len(token_ids)
    return StepInputs(
        rows=torch.zeros(count, dtype=torch.int32),
        starts=torch.arange(first, first + count, dtype=torch.int32),
        num_tokens=torch.ones(count, dtype=torch.int32),
        samples=torch.ones(count, dtype=torch.bool),
        token_ids=torch.tensor(token_ids, dtype=torch.int32),
        block_tables=table,
    )


def compare(model_path: Path, num_tokens: int, num_threads: int) -> dict[str, float]:
    """Agreement of the default and of bfloat16 with float32, and ratios of perplexity."""
    team, token_ids = Team(num_threads), read_tokens(model_path, num_tokens)
    exact, exact_perplexity = score(model_path, "float32", token_ids, team)
    results = {"positions": float(len(token_ids)), "perplexity": round(exact_perplexity, 3)}
    names: tuple[tuple[str, DType], ...] = (("", "packed"), ("_bfloat16", "bfloat16"))
    for name, dtype in names:
        best, perplexity = score(model_path, dtype, token_ids, team)
        results[f"top1_agreement{name}"] = round(float((best == exact).double().mean()), 4)
        results[f"perplexity_ratio{name}"] = round(perplexity / exact_perplexity, 4)
    return results
