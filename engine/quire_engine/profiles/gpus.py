"""A catalogue of GPUs: what they hold, how fast they are, what they cost.

Memory is what `nvidia-smi` reports as total; bandwidth and FLOP/s (dense, bfloat16 or, on the T4,
float16) are the vendor's data sheets'; prices are on-demand prices of large clouds in 2025 and
only defaults: `costPerHour` of the resource wins.
"""

from dataclasses import dataclass

from quire_engine.errors import ConfigError

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One type of GPU."""

    name: str
    """As in `--simulate`."""
    products: tuple[str, ...]
    """Values of the node label nvidia.com/gpu.product that mean this type."""
    memory_bytes: int
    """Total memory."""
    bandwidth_bytes_per_second: float
    """Peak memory bandwidth."""
    flops_per_second: float
    """Peak dense 16-bit matrix FLOP/s."""
    dollars_per_hour: float
    """Default price of one GPU with its share of the node."""


def find_gpu(name: str) -> Gpu:
    """The GPU called `name`, or labelled so by nvidia.com/gpu.product; case is ignored.

    Raises
    ------
    ConfigError
        There is none; the message lists those there are.
    """
    wanted = name.lower()
    for gpu in GPUS.values():
        if wanted == gpu.name or wanted in map(str.lower, gpu.products):
            return gpu
    raise ConfigError(f"unknown GPU {name!r}: choose one of {', '.join(GPUS)}")


_CATALOGUE = (
    Gpu(
        name="t4",
        products=("Tesla-T4", "NVIDIA-T4"),
        memory_bytes=15360 * MIB,
        bandwidth_bytes_per_second=320e9,
        flops_per_second=65e12,
        dollars_per_hour=0.35,
    ),
    Gpu(
        name="l4",
        products=("NVIDIA-L4",),
        memory_bytes=23034 * MIB,
        bandwidth_bytes_per_second=300e9,
        flops_per_second=121e12,
        dollars_per_hour=0.80,
    ),
    Gpu(
        name="a10g",
        products=("NVIDIA-A10G",),
        memory_bytes=23028 * MIB,
        bandwidth_bytes_per_second=600e9,
        flops_per_second=70e12,
        dollars_per_hour=1.21,
    ),
    Gpu(
        name="a100-40",
        products=("NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-PCIE-40GB"),
        memory_bytes=40960 * MIB,
        bandwidth_bytes_per_second=1555e9,
        flops_per_second=312e12,
        dollars_per_hour=2.75,
    ),
    Gpu(
        name="a100-80",
        products=("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe"),
        memory_bytes=81920 * MIB,
        bandwidth_bytes_per_second=2039e9,
        flops_per_second=312e12,
        dollars_per_hour=3.67,
    ),
    Gpu(
        name="h100",
        products=("NVIDIA-H100-80GB-HBM3",),
        memory_bytes=81559 * MIB,
        bandwidth_bytes_per_second=3352e9,
        flops_per_second=989e12,
        dollars_per_hour=7.50,
    ),
    Gpu(
        name="h200",
        products=("NVIDIA-H200",),
        memory_bytes=143771 * MIB,
        bandwidth_bytes_per_second=4800e9,
        flops_per_second=989e12,
        dollars_per_hour=9.50,
    ),
)

GPUS = {gpu.name: gpu for gpu in _CATALOGUE}
"""Known GPUs by name, the cheapest first."""
