"""Sampling in plain torch, with the same random numbers as the kernels and an honest sort."""

from __future__ import annotations

import torch

from quire_kernels.ops.sampling import GROUP_TOKENS, PROMPT_FLAG, Penalties, SamplingParameters

LANES = GROUP_TOKENS // 4
WORD = 0xFFFFFFFF


def philox(seed: int, lanes: torch.Tensor, position: int, rounds: int = 7) -> list[torch.Tensor]:
    """Philox 4x32 (Salmon et al., 2011) of counters (lane, position, 0, 0), as int64 words."""
    k0, k1 = seed & WORD, (seed >> 32) & WORD
    c0, c1 = lanes.clone(), torch.full_like(lanes, position & WORD)
    c2, c3 = torch.zeros_like(lanes), torch.zeros_like(lanes)
    for _ in range(rounds):
        high0, low0 = _multiply(c2, 0xCD9E8D57)
        high1, low1 = _multiply(c0, 0xD2511F53)
        c0, c1, c2, c3 = high0 ^ c1 ^ k0, low0, high1 ^ c3 ^ k1, low1
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return [c0, c1, c2, c3]


def _multiply(word: torch.Tensor, factor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low halves of a 32 x 32 bit product, in int64 without overflow."""
    low = word * (factor & 0xFFFF)
    high = word * (factor >> 16)
    middle = high + (low >> 16)
    return middle >> 16, ((middle & 0xFFFF) << 16) | (low & 0xFFFF)


def gumbel_noise(seed: int, position: int, vocab_size: int) -> torch.Tensor:
    """[vocab_size] float64 Gumbel noise, on the CPU."""
    groups = -(-vocab_size // GROUP_TOKENS)
    words = philox(seed, torch.arange(groups * LANES), position)
    by_group = torch.stack([word.view(groups, LANES) for word in words], 1)
    uniform = (by_group.reshape(-1)[:vocab_size].double() + 0.5) * 2.0**-32
    return -torch.log(-torch.log1p(-uniform))


def processed_logits(
    logits: torch.Tensor, row: int, temperature: float, penalties: Penalties | None,
    allowed: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    """[vocab_size] float64 logits of a row after mask, penalties and temperature."""
    x = logits[row].double().cpu()
    if allowed is not None:
        token = torch.arange(x.shape[0])
        x[(allowed[row].cpu().long()[token // 32] >> (token % 32)) & 1 == 0] = float("-inf")
    if penalties is not None:
        seen = penalties.token_counts[int(penalties.count_rows[row])].cpu()
        generated = (seen & (PROMPT_FLAG - 1)).double()
        factor = float(penalties.repetition[row])
        x = torch.where(seen != 0, torch.where(x > 0, x / factor, x * factor), x)
        x -= float(penalties.frequency[row]) * generated
        x -= float(penalties.presence[row]) * (generated > 0)
    return x / temperature if temperature >= 1e-5 else x


def truncated(x: torch.Tensor, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    """Logits with -inf for the tokens that min-p, top-k and then top-p drop."""
    if min_p > 0:
        x = x.masked_fill(x < x.max() + torch.log(torch.tensor(min_p)), float("-inf"))
    if 0 < top_k < x.shape[0]:
        x = x.masked_fill(x < x.sort(descending=True).values[top_k - 1], float("-inf"))
    if top_p < 1:
        order = x.argsort(descending=True)
        mass = x[order].softmax(0)
        before = mass.cumsum(0) - mass
        # Tokens of equal logit share the mass before the first of them.
        first = torch.searchsorted(-x[order], -x[order])
        drop = (before[first] >= top_p) & (before[first] > 0)
        x = x.masked_fill(torch.zeros_like(drop).scatter(0, order, drop), float("-inf"))
    return x


def scores_reference(
    logits: torch.Tensor,
    parameters: SamplingParameters,
    *,
    penalties: Penalties | None = None,
    allowed: torch.Tensor | None = None,
) -> torch.Tensor:
    """[num_rows, vocab_size] float64, CPU: the sample of a row is its argmax."""
    rows = []
    for row in range(logits.shape[0]):
        heat = float(parameters.temperature[row])
        x = processed_logits(logits, row, heat, penalties, allowed)
        if heat >= 1e-5:
            x = truncated(
                x, int(parameters.top_k[row]), float(parameters.top_p[row]),
                float(parameters.min_p[row]),
            )  # fmt: skip
            x = x + gumbel_noise(
                int(parameters.seeds[row]), int(parameters.positions[row]), x.shape[0]
            )
        rows.append(x)
    return torch.stack(rows)
