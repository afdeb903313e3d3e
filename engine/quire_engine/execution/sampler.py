"""Chooses the next token of every row of a mixed batch, on tensors."""

from dataclasses import dataclass

import torch

_LARGEST = torch.finfo(torch.float32).max
GREEDY_BELOW = 1e-5
"""Temperatures below this take the most likely token."""
NUM_CANDIDATES = 256
"""Most likely tokens that are looked at first; nearly always top_k and top_p end among them."""


@dataclass(frozen=True, slots=True)
class SamplingTensors:
    """How each row chooses; all [num_rows]."""

    temperature: torch.Tensor
    """float32"""
    top_k: torch.Tensor
    """int64; 0 keeps all."""
    top_p: torch.Tensor
    """float32, in (0, 1]"""
    min_p: torch.Tensor
    """float32, in [0, 1]; 0 keeps all."""
    uniforms: torch.Tensor
    """float64 in [0, 1): the row's random number for this position."""

    def select(self, rows: torch.Tensor) -> "SamplingTensors":
        """Return the choices of some rows: indices, or a mask."""
        return SamplingTensors(
            self.temperature[rows],
            self.top_k[rows],
            self.top_p[rows],
            self.min_p[rows],
            self.uniforms[rows],
        )


def sample(logits: torch.Tensor, how: SamplingTensors) -> torch.Tensor:
    """Choose one token per row.

    A row's token depends on its own logits, choices and random number alone. Logits that are not
    numbers are never chosen, unless a row has nothing else.

    Parameters
    ----------
    logits
        [num_rows, vocab], float32.

    Returns
    -------
    torch.Tensor
        [num_rows], int64.
    """
    logits = logits.nan_to_num(nan=-_LARGEST, posinf=_LARGEST, neginf=-_LARGEST)
    tokens = logits.argmax(dim=-1)
    is_random = how.temperature >= GREEDY_BELOW
    if is_random.any():
        tokens[is_random] = _sample_random(logits[is_random], how.select(is_random))
    return tokens


def find_not_finite(logits: torch.Tensor) -> tuple[int, ...]:
    """Return the rows with a NaN or a positive infinity, or without a single finite value.

    A maximum shows all three, in one pass and without a copy.

    Parameters
    ----------
    logits
        [num_rows, vocab], as the model computed them.
    """
    return tuple((~logits.amax(dim=-1).isfinite()).nonzero().flatten().tolist())


def _sample_random(logits: torch.Tensor, how: SamplingTensors) -> torch.Tensor:
    """Invert the cumulative distribution in the vocabulary's order.

    That order, and not one sorted by probability, because rounding that swaps two near equals
    then moves the borders between tokens by no more than itself.
    """
    # the largest becomes 0 first: dividing it by a small temperature might overflow
    scaled = (logits - logits.amax(dim=-1, keepdim=True)) / how.temperature[:, None]
    probabilities = scaled.softmax(dim=-1)
    if how.min_p.any():
        least = how.min_p[:, None] * probabilities.amax(dim=-1, keepdim=True)
        probabilities = probabilities.masked_fill(probabilities < least, 0.0)
    is_filtered = (how.top_k > 0) | (how.top_p < 1.0)
    if is_filtered.any():
        probabilities[is_filtered] = _filter(probabilities[is_filtered], how.select(is_filtered))
    cumulative = probabilities.double().cumsum(dim=-1)
    target = how.uniforms[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, target, right=True).squeeze(-1)
    # rounding may put the target at the very end, behind the last token that can be chosen
    last = probabilities.shape[-1] - 1 - (probabilities > 0).flip(-1).byte().argmax(dim=-1)
    return torch.minimum(tokens, last)


def _filter(probabilities: torch.Tensor, how: SamplingTensors) -> torch.Tensor:
    """Set to 0 what top_k leaves out, and of the rest what top_p leaves out.

    At least the most likely token stays. Of equals at the border, all stay.
    """
    width = probabilities.shape[-1]
    likely = probabilities.topk(min(NUM_CANDIDATES, width)).values
    totals = probabilities.double().sum(dim=-1)
    num_kept = _count_kept(likely, totals, how)
    cuts = likely.gather(1, num_kept[:, None] - 1)
    # where the border lies behind them, all have to be sorted, which takes ten times as long
    num_candidates = likely.shape[-1]
    is_open = (num_kept == num_candidates) & (how.top_k != num_candidates)
    is_open |= how.top_k > num_candidates
    is_open &= likely[:, -1] > 0.0  # else min_p has left fewer than those
    if num_candidates < width and is_open.any():
        ordered = probabilities[is_open].sort(dim=-1, descending=True).values
        num_kept = _count_kept(ordered, totals[is_open], how.select(is_open))
        cuts[is_open] = ordered.gather(1, num_kept[:, None] - 1)
    return probabilities.masked_fill(probabilities < cuts, 0.0)


def _count_kept(ordered: torch.Tensor, totals: torch.Tensor, how: SamplingTensors) -> torch.Tensor:
    """Count the probabilities that top_k and top_p keep, at least 1.

    Parameters
    ----------
    ordered
        [num_rows, num_candidates]: the largest probabilities, descending.
    totals
        [num_rows], float64: sum of all probabilities.

    Returns
    -------
    torch.Tensor
        [num_rows], int64; num_candidates means that many or more. With a top_k above
        num_candidates it is too low, unless those are the whole vocabulary.
    """
    num_candidates = ordered.shape[-1]
    most = how.top_k.where(how.top_k > 0, num_candidates).clamp(max=num_candidates)[:, None]
    cumulative = ordered.double().cumsum(dim=-1)
    is_cut = (how.top_k > 0) & (how.top_k <= num_candidates)
    totals = cumulative.gather(1, most - 1).squeeze(1).where(is_cut, totals)
    before = cumulative - ordered
    top_p = how.top_p.double()[:, None]
    is_kept = (before < top_p * totals[:, None]) | (top_p >= 1.0)
    is_kept &= torch.arange(num_candidates) < most
    return is_kept.sum(dim=-1).clamp(min=1)
