"""Which types weights and KV cache have, by the setting `dtype`."""

from dataclasses import dataclass

import torch

from quire_engine.config.kinds import DType


@dataclass(frozen=True, slots=True)
class Precision:
    """Types of what is kept; sums and activations between products are float32."""

    weights: torch.dtype | None
    """None: matrices keep the bits that the files give them, and products of packed ones take
    activations of 16 bits, with a scale for every 32."""
    cache: torch.dtype


# A float16 cache moves logits by thousandths, a bfloat16 one by hundredths; the kernels limit what
# they store to float16's range.
_PACKED = Precision(weights=None, cache=torch.float16)
PRECISIONS: dict[DType, Precision] = {
    "auto": _PACKED,
    "packed": _PACKED,
    "float32": Precision(weights=torch.float32, cache=torch.float32),
    "bfloat16": Precision(weights=torch.bfloat16, cache=torch.bfloat16),
    "float16": Precision(weights=torch.float16, cache=torch.float16),
}
