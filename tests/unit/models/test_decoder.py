"""The decoder computes the logits that transformers computes, whichever way a text is cut up."""

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from quire_engine.models.attention import PagedAttention
from quire_engine.models.attention_plan import CacheLayout, plan_attention
from quire_engine.models.decoder import Decoder, load_decoder_weights
from quire_engine.models.loading.weights import open_weights
from tests.unit.models.builders import make_llama, write_gguf

BLOCK_SIZE = 16
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "grouped heads": {},
    "one kv head": {"num_key_value_heads": 1},
    "as many kv heads": {"num_key_value_heads": 4},
    "tied": {"tie_word_embeddings": True},
    "wide heads": {"head_dim": 32},
    "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}},
    "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "llama3": {"rope_parameters": LLAMA3},
}


class Paged:
    """A decoder over a cache whose blocks are handed out in random order."""

    def __init__(self, path: Path, *, num_sequences: int = 1, num_positions: int = 256) -> None:
        source = open_weights(path)
        spec = source.spec
        weights = load_decoder_weights(source, lambda _: None)
        self.decoder = Decoder(spec, weights, num_positions)
        self.layout = CacheLayout(spec.num_layers, spec.num_kv_heads, BLOCK_SIZE, spec.head_dim)
        num_blocks = 256 // BLOCK_SIZE * num_sequences
        # what is in a block before it is written must not matter
        cache = torch.randn(self.layout.shape(num_blocks + 1)) * 50
        self.attention = PagedAttention(
            cache, self.layout, scale=spec.softmax_scale, softcap=spec.attention_softcap
        )
        order = random.Random(3).sample(range(1, num_blocks + 1), num_blocks)
        self.tables = torch.tensor(order).view(num_sequences, -1)

    def logits(self, chunks: list[tuple[int, int, list[int]]], num_decodes: int) -> torch.Tensor:
        """Logits of all tokens of chunks (sequence, start, token ids)."""
        sequences, starts, tokens = zip(*chunks, strict=True)
        counts = [len(ids) for ids in tokens]
        tables = self.tables[list(sequences)]
        where = (self.layout, tables, starts, counts, num_decodes)
        plans = {window: plan_attention(*where, window) for window in self.decoder.spec.windows}
        positions = torch.cat([torch.arange(s, s + c) for s, c in zip(starts, counts, strict=True)])
        token_ids = torch.tensor([token for ids in tokens for token in ids])
        hidden = self.decoder.forward(token_ids, positions, self.attention, plans)
        return self.decoder.logits(hidden)


def some_tokens(num_tokens: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(199) for _ in range(num_tokens)]


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert expected.std() > 1  # flat logits would make any model look right
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", VARIANTS)
def test_whole_text(tmp_path: Path, name: str) -> None:
    tiny = make_llama(tmp_path, **VARIANTS[name])
    tokens = some_tokens(150)
    assert_close(Paged(tmp_path).logits([(0, 0, tokens)], 0), tiny.logits(tokens))


@pytest.mark.parametrize("cuts", [[1], [15, 16, 17], [64], [40, 41, 42, 43], list(range(1, 90))])
def test_chunks_and_decodes_give_the_same(tmp_path: Path, cuts: list[int]) -> None:
    tiny = make_llama(tmp_path)
    tokens = some_tokens(90)
    paged = Paged(tmp_path)
    edges = [0, *cuts, 90]
    parts = [
        paged.logits([(0, start, tokens[start:end])], num_decodes=int(end - start == 1))
        for start, end in pairwise(edges)
    ]
    assert_close(torch.cat(parts), tiny.logits(tokens))


def test_mixed_batch_gives_each_its_own(tmp_path: Path) -> None:
    tiny = make_llama(tmp_path)
    lengths = [3, 100, 17, 180, 16, 60]
    texts = [some_tokens(length, seed) for seed, length in enumerate(lengths)]
    paged = Paged(tmp_path, num_sequences=len(texts))
    paged.logits([(i, 0, text[:-1]) for i, text in enumerate(texts[:4])], 0)
    paged.logits([(4, 0, texts[4][:7])], 0)
    decodes = [(i, len(texts[i]) - 1, texts[i][-1:]) for i in range(4)]
    chunks = [(4, 7, texts[4][7:]), (5, 0, texts[5])]
    logits = paged.logits(decodes + chunks, num_decodes=4)
    for index in range(4):
        assert_close(logits[index], tiny.logits(texts[index])[-1])
    assert_close(logits[4:13], tiny.logits(texts[4])[7:])
    assert_close(logits[13:], tiny.logits(texts[5]))


def test_gguf_rows_of_q_and_k_are_put_back(tmp_path: Path) -> None:
    tiny = make_llama(tmp_path / "model")
    path = write_gguf(tmp_path / "tiny.gguf", tiny.reference)
    tokens = some_tokens(50)
    assert_close(Paged(path).logits([(0, 0, tokens)], 0), tiny.logits(tokens))


def test_gguf_states_llama3_scaling_as_factors(tmp_path: Path) -> None:
    tiny = make_llama(tmp_path / "model")
    path = write_gguf(tmp_path / "tiny.gguf", tiny.reference, add_rope_freqs=True)
    tiny.reference.model.rotary_emb.inv_freq /= torch.linspace(1, 8, 8)
    tokens = some_tokens(50)
    assert_close(Paged(path).logits([(0, 0, tokens)], 0), tiny.logits(tokens))
