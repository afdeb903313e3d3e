"""Step times from a GPU's data sheet and a model's shape, until they have been measured.

    compute(tokens) = overhead + (memory^p + flops^p)^(1/p)     a soft maximum of both roofs

The default efficiencies were fitted to vLLM 0.23 on one H100 (dummy weights, bfloat16): llama3-8b
153.5 tokens/s at batch 1 and 0.048 s for a prompt of 2,048; 6.44 ms + 4.37e-5 ms per context token
in a decode step; and the batch rows of llama3-8b and qwen3-0.6b, which this model meets within
10 %. Other GPUs are assumed to reach the same shares of their peaks.
"""

from dataclasses import dataclass

from quire_engine.profiles.gpus import Gpu
from quire_engine.profiles.shapes import BYTES_PER_ELEMENT, ComputeType, ModelShape, Quantization
from quire_engine.profiles.step_time import StepLimits, StepTimeModel

KNOTS = tuple(1 << exponent for exponent in range(15))
"""Tokens per step at which the curve is computed: 1 to 16,384."""
MAX_DECODES = 1024
SHARPNESS = 4.0
"""Exponent p of the soft maximum: larger is closer to a hard one."""
ESTIMATE_ERROR = 0.15
"""Nothing was measured here: the fit error that an estimate claims."""


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """Which shares of the peaks are reached, and the times that no peak explains."""

    weight_bandwidth: float = 0.83
    """Share of peak bandwidth when weights are read."""
    kv_bandwidth: float = 0.895
    """Share of peak bandwidth when decode attention reads KV."""
    matrix_flops: float = 0.66
    """Share of peak FLOP/s in the linear layers."""
    attention_flops: float = 0.45
    """Share of peak FLOP/s in prompt attention."""
    overhead_seconds: float = 1.0e-3
    """Launches, norms and everything else of a step, whatever its size."""
    seconds_per_sequence: float = 1.0e-5
    """Sampling and host work for each decoding sequence."""
    floor_seconds: float = 2.5e-3
    """Host time of a step: shorter device work hides behind it."""


DEFAULT_EFFICIENCY = Efficiency()


def estimate_step_time(
    gpu: Gpu,
    shape: ModelShape,
    *,
    dtype: ComputeType = "bfloat16",
    quantization: Quantization = "none",
    kv_bytes_per_element: int = 2,
    efficiency: Efficiency = DEFAULT_EFFICIENCY,
) -> StepTimeModel:
    """A step-time model for one GPU and shape.

    Quantized weights are computed in 16 bits: they save memory traffic, not FLOPs. float32 runs
    at half of the 16-bit rate.
    """
    flops_peak = gpu.flops_per_second * 2 / BYTES_PER_ELEMENT[dtype]
    weight_seconds = shape.bytes_read_per_step(dtype, quantization) / (
        gpu.bandwidth_bytes_per_second * efficiency.weight_bandwidth
    )
    seconds_per_token = 2 * shape.num_linear_parameters / (flops_peak * efficiency.matrix_flops)
    kv_bytes = shape.kv_bytes_per_token(kv_bytes_per_element)
    flops_per_pair = 4 * shape.num_layers * shape.num_q_heads * shape.head_dim
    return StepTimeModel(
        source=f"roofline of {gpu.name} for {shape.name}, {dtype}, quantization {quantization}",
        compute_tokens=KNOTS,
        compute_seconds=tuple(
            efficiency.overhead_seconds + _soft_maximum(weight_seconds, tokens * seconds_per_token)
            for tokens in KNOTS
        ),
        seconds_per_sequence=efficiency.seconds_per_sequence,
        seconds_per_context_token=kv_bytes
        / (gpu.bandwidth_bytes_per_second * efficiency.kv_bandwidth),
        seconds_per_pair=flops_per_pair / (flops_peak * efficiency.attention_flops),
        floor_seconds=efficiency.floor_seconds,
        fit_error=ESTIMATE_ERROR,
        limits=StepLimits(
            num_decodes=MAX_DECODES,
            context_tokens=gpu.memory_bytes // kv_bytes,
            prefill_tokens=KNOTS[-1],
        ),
    )


def _soft_maximum(first: float, second: float) -> float:
    larger, smaller = max(first, second), min(first, second)
    return float(larger * (1 + (smaller / larger) ** SHARPNESS) ** (1 / SHARPNESS))
