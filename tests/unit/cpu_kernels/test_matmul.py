"""Packed matrices against the gguf package's dequantization and torch's product."""

from __future__ import annotations

import pytest
import torch

from quire_kernels.cpu import Team, pack_gguf, pack_tensor
from quire_kernels.cpu.ops import embed, matmul
from quire_kernels.cpu.packing import GGUF_TYPES
from quire_kernels.cpu.reference import quantize_activations
from quire_kernels.errors import ArgumentError, UnsupportedError

from .cases import dequantize, make_weight, random_gguf

DENSE = ("F32", "F16", "BF16")
EXACT = (*DENSE, "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
QUANTIZED = tuple(name for name in GGUF_TYPES if name not in DENSE)


def columns(name: str) -> int:
    return 512 if name.endswith("_K") else 96


@pytest.mark.parametrize("name", GGUF_TYPES)
@pytest.mark.parametrize("rows", [1, 8, 13])
def test_embedding_returns_the_weights_that_the_file_states(
    name: str, rows: int, team: Team
) -> None:
    weight = make_weight(name, rows, columns(name), team)
    ids = torch.randperm(rows).int()
    expected = weight.plain[ids.long()]
    # half-precision rounding of a K type's scale and minimum
    slack = 0.0 if name in EXACT else float(expected.abs().max()) / 1024
    torch.testing.assert_close(embed(ids, weight.packed, team), expected, rtol=1e-6, atol=slack)


@pytest.mark.parametrize("name", GGUF_TYPES)
@pytest.mark.parametrize(("rows", "tokens"), [(8, 1), (13, 2), (77, 3), (40, 4), (31, 5), (9, 71)])
def test_product_equals_torch(name: str, rows: int, tokens: int, team: Team) -> None:
    cols = columns(name)
    weight = make_weight(name, rows, cols, team, seed=rows)
    x = torch.randn(tokens, cols)
    stored = embed(torch.arange(rows, dtype=torch.int32), weight.packed, team).double()
    rounded = x if name in DENSE else quantize_activations(x)
    expected = rounded.double() @ stored.T
    # fp32 sums of `cols` terms; the sums of integers themselves are exact
    bound = cols * 2**-24 * (rounded.abs().double() @ stored.abs().T).max()
    torch.testing.assert_close(
        matmul(x, weight.packed, team).double(), expected, rtol=0, atol=float(bound)
    )


def test_extremes_do_not_overflow(team: Team) -> None:
    for name in ("Q4_0", "Q8_0", "Q5_1"):
        data = torch.full_like(random_gguf(name, 8, 64), 0xFF)
        blocks = data.view(-1, GGUF_TYPES[name][2])
        blocks[:, 0:2] = torch.tensor([0x00, 0x3C], dtype=torch.uint8)  # the scale 1
        if name == "Q5_1":
            blocks[:, 2:4] = 0
        if name == "Q8_0":
            blocks[:, 2:] = 0x80  # -128
        packed = pack_gguf(data, name, 8, 64, team)
        for sign in (1.0, -1.0):
            x = torch.full((4, 64), sign)
            expected = x @ dequantize(data, name, 8).T
            torch.testing.assert_close(matmul(x, packed, team), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("outlier", [1.0, 300.0])
def test_an_outlier_leaves_its_neighbours_their_bits(outlier: float, team: Team) -> None:
    weight = make_weight("Q4_1", 16, 64, team)
    x = torch.randn(4, 64)
    x[:, 5] = outlier
    expected = x @ weight.plain.T
    # half a level of 32,767 for each of 64 columns, whose weights are below 1
    error = (matmul(x, weight.packed, team) - expected).abs().max()
    assert float(error) < outlier / 32767 * 64 * 0.5 + 1e-4


def test_numbers_too_small_to_invert_are_zero(team: Team) -> None:
    weight = make_weight("Q8_0", 8, 32, team)
    assert torch.equal(matmul(torch.full((1, 32), 1e-40), weight.packed, team), torch.zeros(1, 8))


def test_zero_activations_give_zero(team: Team) -> None:
    weight = make_weight("Q4_1", 8, 64, team)
    assert torch.equal(matmul(torch.zeros(2, 64), weight.packed, team), torch.zeros(2, 8))


@pytest.mark.parametrize(("bits", "levels"), [(8, 254), (4, 15)])
def test_rounding_stays_within_half_a_level(bits: int, levels: int, team: Team) -> None:
    weight = torch.randn(16, 64)
    packed = pack_tensor(weight, team, bits=bits)
    stored = embed(torch.arange(16, dtype=torch.int32), packed, team)
    groups = weight.view(16, -1, 32)
    span = 2 * groups.abs().amax(-1) if bits == 8 else groups.amax(-1) - groups.amin(-1)
    # half a level, and fp16's rounding of scale and minimum over the whole span
    bound = (span / levels * 0.5 + groups.abs().amax(-1) * 2**-9).repeat_interleave(32, 1)
    assert bool(((stored - weight).abs() <= bound).all())


def test_native_and_portable_agree_to_rounding() -> None:
    from quire_kernels.cpu import load_library

    teams = [Team(1, load_library(portable=portable)) for portable in (False, True)]
    x = torch.randn(7, 256)
    for name in GGUF_TYPES:
        outputs = [matmul(x, make_weight(name, 24, 256, t, seed=3).packed, t) for t in teams]
        torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-4, atol=1e-4)


def test_refusals_say_what_is_accepted(team: Team) -> None:
    data = random_gguf("Q4_1", 8, 64)
    with pytest.raises(UnsupportedError, match=r"IQ2_S.*Q4_1"):
        pack_gguf(data, "IQ2_S", 8, 64, team)
    with pytest.raises(UnsupportedError, match="48 columns"):
        pack_gguf(data, "Q4_1", 8, 48, team)
    with pytest.raises(ArgumentError, match="expected 640"):
        pack_gguf(data, "Q4_1", 8, 128, team)
    packed = pack_gguf(data, "Q4_1", 8, 64, team)
    with pytest.raises(ArgumentError, match="expected \\[any, 64\\]"):
        matmul(torch.zeros(2, 32), packed, team)
    with pytest.raises(ArgumentError, match="in \\[0, 8\\)"):
        embed(torch.tensor([8], dtype=torch.int32), packed, team)
