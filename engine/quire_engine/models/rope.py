"""Rotary position embedding, as Hugging Face's models compute it.

Each kind of scaling is one function from the frequencies to the changed ones. Kinds that depend on
the length of the text (dynamic, longrope) take the longest that is served: keys in the cache could
not follow a length that grows.
"""

import math
from collections.abc import Callable

import torch

from quire_engine.models.config import RopeScaling, RopeSpec


class RotaryEmbedding:
    """Cosines and sines of a model's positions.

    Parameters
    ----------
    spec
        Base and scaling of the frequencies.
    head_dim
        Values of a head.
    num_positions
        Most tokens of one sequence.
    factors
        [head_dim / 2], float32: divides the frequencies, as GGUF files state llama3's scaling.
    """

    def __init__(
        self,
        spec: RopeSpec,
        *,
        head_dim: int,
        num_positions: int,
        factors: torch.Tensor | None = None,
    ) -> None:
        self._frequencies = inverse_frequencies(spec, head_dim, num_positions)
        if factors is not None:
            self._frequencies = self._frequencies / factors
        # of pairs that rotate; the others must stay as they are
        self._scale = torch.full_like(self._frequencies, spec.attention_factor)
        self._scale[(spec.rotary_dim or head_dim) // 2 :] = 1.0

    def at(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines, each [num_tokens, 1, head_dim / 2], float32.

        Parameters
        ----------
        positions
            [num_tokens], int64.
        """
        angles = (positions.float()[:, None] * self._frequencies).unsqueeze(1)
        return angles.cos() * self._scale, angles.sin() * self._scale


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate each head's first half against its second.

    Parameters
    ----------
    heads
        [num_tokens, num_heads, head_dim]
    cos, sin
        [num_tokens, 1, head_dim / 2]

    Returns
    -------
    torch.Tensor
        The shape of `heads`, contiguous.
    """
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def inverse_frequencies(spec: RopeSpec, head_dim: int, num_positions: int) -> torch.Tensor:
    """Return the angle that each pair turns per position: [head_dim / 2], float32.

    Pairs that do not rotate come last, with an angle of 0; `WeightSource` brings the rows of query
    and key into that order.
    """
    dim = spec.rotary_dim or head_dim
    frequencies = _plain(spec.theta, dim)
    if spec.scaling is not None:
        frequencies = _SCALE[spec.scaling.kind](frequencies, spec, spec.scaling, num_positions)
    still = torch.zeros((head_dim - dim) // 2)
    return torch.cat((frequencies, still))


def _plain(theta: float, dim: int) -> torch.Tensor:
    exponents = torch.arange(0, dim, 2, dtype=torch.int64).float() / dim
    return 1.0 / (theta**exponents)


def _scale_linear(
    frequencies: torch.Tensor, _spec: RopeSpec, scaling: RopeScaling, _num_positions: int
) -> torch.Tensor:
    """Stretch all positions alike."""
    return frequencies / scaling.factor


def _scale_dynamic(
    frequencies: torch.Tensor, spec: RopeSpec, scaling: RopeScaling, num_positions: int
) -> torch.Tensor:
    """Raise the base so that the lowest frequency just reaches the length (NTK-aware)."""
    dim = 2 * len(frequencies)
    stretch = max(num_positions / scaling.original_context_length, 1.0)
    growth = scaling.factor * stretch - (scaling.factor - 1)
    return _plain(spec.theta * growth ** (dim / (dim - 2)), dim)


def _scale_llama3(
    frequencies: torch.Tensor, _spec: RopeSpec, scaling: RopeScaling, _num_positions: int
) -> torch.Tensor:
    """Divide low frequencies by the factor, keep high ones, and blend between (Llama 3.1)."""
    length = scaling.original_context_length
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    turns = length / (2 * math.pi / frequencies)
    smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - smooth) * frequencies / scaling.factor + smooth * frequencies


def _scale_yarn(
    frequencies: torch.Tensor, spec: RopeSpec, scaling: RopeScaling, _num_positions: int
) -> torch.Tensor:
    """Divide frequencies of few turns by the factor, keep others, and blend (arXiv:2309.00071)."""
    dim = 2 * len(frequencies)

    def pair_of(turns: float) -> float:
        """Return the pair that turns so often within the original context."""
        length = scaling.original_context_length
        return dim * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(spec.theta))

    low, high = pair_of(scaling.fast_turns), pair_of(scaling.slow_turns)
    if scaling.rounds_range:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = high - low if high != low else 0.001
    kept = 1 - ((torch.arange(dim // 2) - low) / width).clamp(0.0, 1.0)
    wavelengths = spec.theta ** (torch.arange(0, dim, 2).float() / dim)
    return 1.0 / (scaling.factor * wavelengths) * (1 - kept) + frequencies * kept


def _scale_longrope(
    frequencies: torch.Tensor, _spec: RopeSpec, scaling: RopeScaling, num_positions: int
) -> torch.Tensor:
    """Divide each frequency by its own factor, of two sets by the length (LongRoPE)."""
    is_long = num_positions > scaling.original_context_length
    return frequencies / torch.tensor(scaling.long_factors if is_long else scaling.short_factors)


_Scale = Callable[[torch.Tensor, RopeSpec, RopeScaling, int], torch.Tensor]

_SCALE: dict[str, _Scale] = {
    "linear": _scale_linear,
    "dynamic": _scale_dynamic,
    "llama3": _scale_llama3,
    "yarn": _scale_yarn,
    "longrope": _scale_longrope,
}
