"""Whole steps of tiny random decoders against plain torch, one for each family's differences."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quire_kernels.cpu import (
    Decoder,
    DecoderShape,
    DecoderWeights,
    LayerWeights,
    StepInputs,
    Team,
)
from quire_kernels.cpu.layout import Activation
from quire_kernels.cpu.reference import ReferenceDecoder, Vectors
from quire_kernels.errors import ArgumentError

from .cases import POISON, make_inputs, make_weight

HIDDEN, INNER, VOCAB, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 64, 96, 50, 4, 2, 16, 2
NUM_BLOCKS, BLOCK_SIZE = 64, 16

LLAMA: dict[str, Any] = {}
QWEN: dict[str, Any] = {"biases": True, "head_norms": True}
GEMMA: dict[str, Any] = {
    "head_norms": True,
    "post_norms": True,
    "windows": [9, 0],
    "ropes": [1, 0],
    "shape": {
        "activation": Activation.GELU_TANH,
        "attention_scale": 0.2,
        "attention_softcap": 5.0,
        "logit_softcap": 3.0,
        "embedding_scale": 8.0,
        "rope_scale": (1.0, 1.1),
    },
}
FAMILIES = {"llama": LLAMA, "qwen": QWEN, "gemma": GEMMA}


def build(
    team: Team,
    kind: str,
    *,
    biases: bool = False,
    head_norms: bool = False,
    post_norms: bool = False,
    windows: list[int] | None = None,
    ropes: list[int] | None = None,
    shape: dict[str, Any] | None = None,
) -> tuple[DecoderShape, DecoderWeights, ReferenceDecoder]:
    """A decoder, packed as `kind` (dense when that is "F32"), and its plain twin."""
    torch.manual_seed(1)
    query, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    sizes = {
        "query": (query, HIDDEN),
        "key": (kv, HIDDEN),
        "value": (kv, HIDDEN),
        "output": (HIDDEN, query),
        "gate": (INNER, HIDDEN),
        "up": (INNER, HIDDEN),
        "down": (HIDDEN, INNER),
    }
    vectors = {"attention_norm": HIDDEN, "mlp_norm": HIDDEN}
    if biases:
        vectors |= {"query_bias": query, "key_bias": kv, "value_bias": kv}
    if head_norms:
        vectors |= {"query_norm": HEAD_DIM, "key_norm": HEAD_DIM}
    if post_norms:
        vectors |= {"post_attention_norm": HIDDEN, "post_mlp_norm": HIDDEN}
    windows, ropes = windows or [0] * LAYERS, ropes or [0] * LAYERS
    packed_layers, plain_layers = [], []
    for index in range(LAYERS):
        matrices = {
            name: make_weight(kind, *size, team, seed=index * 10 + number)
            for number, (name, size) in enumerate(sizes.items())
        }
        others = {name: torch.rand(size) + 0.5 for name, size in vectors.items()}
        packed = {name: weight.packed for name, weight in matrices.items()}
        packed_layers.append(
            LayerWeights(**packed, **others, window=windows[index], rope=ropes[index])
        )
        plain: Vectors = {name: weight.plain for name, weight in matrices.items()}
        plain_layers.append(plain | others)
    embedding = make_weight(kind, VOCAB, HIDDEN, team, seed=99)
    frequencies = [10000.0 ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM), torch.rand(HEAD_DIM // 2)]
    final_norm = torch.rand(HIDDEN) + 0.5
    described = DecoderShape(
        num_heads=HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        norm_epsilon=1e-5,
        **(shape or {}),
    )
    weights = DecoderWeights(
        embedding=embedding.packed,
        head=embedding.packed,
        final_norm=final_norm,
        layers=tuple(packed_layers),
        inverse_frequencies=tuple(frequencies),
    )
    reference = ReferenceDecoder(
        described,
        embedding.plain,
        embedding.plain,
        final_norm,
        plain_layers,
        frequencies,
        windows,
        ropes,
        quantizes=kind != "F32",
    )
    return described, weights, reference


def poisoned_cache() -> torch.Tensor:
    return torch.full((NUM_BLOCKS, LAYERS, 2, KV_HEADS, BLOCK_SIZE, HEAD_DIM), POISON)


def steps(*batches: list[tuple[int, int]]) -> list[StepInputs]:
    """Steps of the same sequences, with one set of block tables that fits the last."""
    tables = make_inputs(batches[-1], block_size=BLOCK_SIZE, num_blocks=NUM_BLOCKS).block_tables
    return [
        replace(
            make_inputs(chunks, block_size=BLOCK_SIZE, num_blocks=NUM_BLOCKS, seed=number),
            block_tables=tables,
        )
        for number, chunks in enumerate(batches)
    ]


HISTORY = steps([(0, 5), (0, 40)], [(5, 1), (40, 20)], [(6, 1), (60, 1)])


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_exact_decoder_equals_torch(family: dict[str, Any], team: Team) -> None:
    shape, weights, reference = build(team, "F32", **family)
    decoder = Decoder(shape, weights, team)
    cache, plain_cache = poisoned_cache(), poisoned_cache()
    for inputs in HISTORY:
        expected = reference.step(inputs, plain_cache)
        torch.testing.assert_close(decoder.step(inputs, cache), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(cache, plain_cache, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "Q5_1"])
def test_packed_decoder_stays_near_torch_with_rounded_activations(kind: str, team: Team) -> None:
    shape, weights, reference = build(team, kind)
    decoder = Decoder(shape, weights, team)
    cache, plain_cache = poisoned_cache(), poisoned_cache()
    for inputs in HISTORY:
        expected = reference.step(inputs, plain_cache)
        actual = decoder.step(inputs, cache)
        # a value at the edge of two levels may round to either: one level of 65,534 in few places
        torch.testing.assert_close(
            actual, expected, rtol=0, atol=float(expected.abs().max()) * 1e-3
        )


# activations of 8 bits would be 5e-4 and 7e-2 away
@pytest.mark.parametrize(("kind", "bound"), [("Q4_1", 2e-5), ("Q8_0", 1e-3)])
def test_packed_weights_cost_next_to_no_accuracy(kind: str, bound: float, team: Team) -> None:
    shape, weights, reference = build(team, kind)
    exact = replace(reference, quantizes=False)
    expected = exact.step(HISTORY[0], poisoned_cache())
    actual = Decoder(shape, weights, team).step(HISTORY[0], poisoned_cache())
    torch.testing.assert_close(actual, expected, rtol=0, atol=float(expected.abs().max()) * bound)


def test_long_prompt_is_cut_into_slices(team: Team) -> None:
    shape, weights, reference = build(team, "F32")
    inputs = make_inputs([(0, 3), (0, 600), (0, 2)], block_size=16, num_blocks=160)
    cache = torch.full((160, LAYERS, 2, KV_HEADS, BLOCK_SIZE, HEAD_DIM), POISON)
    expected = reference.step(inputs, cache.clone())
    actual = Decoder(shape, weights, team).step(inputs, cache)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_final_hidden_states_of_all_tokens_equal_torchs(family: dict[str, Any], team: Team) -> None:
    shape, weights, reference = build(team, "F32", **family)
    decoder = Decoder(shape, weights, team)
    long = make_inputs([(0, 3), (0, 600), (0, 2)], block_size=16, num_blocks=160)
    for inputs, num_blocks in ((HISTORY[0], NUM_BLOCKS), (long, 160)):
        cache = torch.full((num_blocks, LAYERS, 2, KV_HEADS, BLOCK_SIZE, HEAD_DIM), POISON)
        expected = reference.hidden_states(inputs, cache.clone())
        actual = decoder.hidden_states(inputs, cache)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_only_chunks_that_sample_have_logits(team: Team) -> None:
    shape, weights, _ = build(team, "F32")
    decoder = Decoder(shape, weights, team)
    all_of_them = decoder.step(HISTORY[0], poisoned_cache())
    samples = torch.tensor([False, True])
    second = decoder.step(replace(HISTORY[0], samples=samples), poisoned_cache())
    assert torch.equal(second, all_of_them[1:])
    none = decoder.step(replace(HISTORY[0], samples=~samples & samples), poisoned_cache())
    assert none.shape == (0, VOCAB)


def test_greedy_step_chooses_the_greatest_logit(team: Team) -> None:
    shape, weights, _ = build(team, "Q4_1", **GEMMA)
    decoder = Decoder(shape, weights, team)
    logits = decoder.step(HISTORY[0], poisoned_cache())
    chosen = decoder.greedy_step(HISTORY[0], poisoned_cache())
    assert torch.equal(chosen.long(), logits.argmax(-1))


@pytest.mark.parametrize("kind", ["F32", "BF16", "Q4_1", "Q8_0"])
def test_result_depends_on_neither_threads_nor_batch(kind: str, team: Team) -> None:
    shape, weights, _ = build(team, kind)
    inputs = make_inputs([(0, 1)] * 5 + [(600, 1)], block_size=4, num_blocks=1000)
    cache = torch.randn(1000, LAYERS, 2, KV_HEADS, 4, HEAD_DIM)
    together = Decoder(shape, weights, team).step(inputs, cache)
    alone = StepInputs(
        rows=inputs.rows[5:],
        starts=inputs.starts[5:],
        num_tokens=inputs.num_tokens[5:],
        samples=inputs.samples[5:],
        token_ids=inputs.token_ids[5:],
        block_tables=inputs.block_tables,
    )
    single = Decoder(shape, weights, Team(1, team.library)).step(alone, cache)
    assert torch.equal(single, together[5:])


NUM_CUT = 540


def run_in_chunks(decoder: Decoder, cuts: list[int], dtype: torch.dtype) -> list[torch.Tensor]:
    """The last logits and the cache of one prompt, computed chunk by chunk."""
    whole = make_inputs([(0, NUM_CUT)], block_size=BLOCK_SIZE, num_blocks=NUM_BLOCKS)
    cache = poisoned_cache().to(dtype)
    logits = torch.empty(0)
    for start, end in itertools.pairwise([0, *cuts, NUM_CUT]):
        chunk = replace(
            whole,
            starts=torch.tensor([start], dtype=torch.int32),
            num_tokens=torch.tensor([end - start], dtype=torch.int32),
            token_ids=whole.token_ids[start:end],
        )
        logits = decoder.step(chunk, cache)
    return [logits, cache.nan_to_num()]


@pytest.mark.parametrize("family", [LLAMA, GEMMA], ids=["llama", "gemma"])
@pytest.mark.parametrize(
    ("kind", "dtype"), [("F32", torch.float32), ("BF16", torch.bfloat16), ("Q4_1", torch.float16)]
)
def test_where_a_prompt_is_cut_changes_no_bit(
    family: dict[str, Any], kind: str, dtype: torch.dtype, team: Team
) -> None:
    shape, weights, _ = build(team, kind, **family)
    decoder = Decoder(shape, weights, team)
    expected = run_in_chunks(decoder, [], dtype)

    @settings(max_examples=8, deadline=None)
    @given(st.sets(st.integers(1, NUM_CUT - 1), max_size=12))
    @example({256})
    @example({1, 2, NUM_CUT - 1})
    def cut(places: set[int]) -> None:
        for part, wanted in zip(
            run_in_chunks(decoder, sorted(places), dtype), expected, strict=True
        ):
            assert torch.equal(part, wanted)

    cut()


def test_wrong_sizes_are_refused(team: Team) -> None:
    shape, weights, _ = build(team, "F32")
    with pytest.raises(ArgumentError, match=r"layers\[0\].query"):
        Decoder(replace(shape, num_heads=8), weights, team)
    with pytest.raises(ArgumentError, match="final_norm"):
        Decoder(shape, replace(weights, final_norm=torch.ones(3)), team)
    decoder = Decoder(shape, weights, team)
    with pytest.raises(ArgumentError, match="kv_cache"):
        decoder.step(HISTORY[0], poisoned_cache()[:, :1].contiguous())
    short = replace(HISTORY[0], token_ids=HISTORY[0].token_ids[1:])
    with pytest.raises(ArgumentError, match="token_ids"):
        decoder.step(short, poisoned_cache())
