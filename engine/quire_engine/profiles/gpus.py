"""A catalogue of GPUs: what they hold, how fast they are, what they cost.

Memory is what `nvidia-smi` reports as total; bandwidth and FLOP/s (dense, bfloat16 or, on the T4,
float16) are the vendor's data sheets'; prices are on-demand prices of large clouds in 2025 and
only defaults: `costPerHour` of the resource wins. What none of them rents has the price of the type
next to it: an H100 on PCIe that of an H100 NVL, an H200 NVL that of an H200.

Labels are the driver's name of the GPU with dashes for spaces, as NVIDIA's feature discovery writes
them; older drivers named an A100 without NVIDIA. Where pods share a GPU in turns the label ends in
-SHARED, and where all GPUs of a node are cut to slices it goes on with -MIG- and the slice's size.
Neither is a type here: who has a part has less memory and bandwidth than the whole.
"""

from dataclasses import dataclass

from quire_engine.errors import ConfigError

MIB = 1 << 20
GIB = 1 << 30
SHARED = "-SHARED"
"""How labels end of a GPU that pods share in turns."""
_SLICE = "-MIG-"


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
    part = kind_of_part(name)
    whole = f", {part}, of which only whole ones are known" if part else ""
    raise ConfigError(f"unknown GPU {name!r}{whole}: choose one of {', '.join(GPUS)}")


def kind_of_part(product: str) -> str | None:
    """What a label says of a part of a GPU, in words; None: it is one of a whole GPU."""
    name = product.upper()
    if _SLICE in name:
        return "a slice of one (MIG)"
    return "one that pods share in turns" if name.endswith(SHARED) else None


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
        name="l40s",
        products=("NVIDIA-L40S",),
        memory_bytes=46068 * MIB,
        bandwidth_bytes_per_second=864e9,
        flops_per_second=362e12,
        dollars_per_hour=1.86,
    ),
    Gpu(
        name="a10",
        products=("NVIDIA-A10",),
        memory_bytes=23028 * MIB,
        bandwidth_bytes_per_second=600e9,
        flops_per_second=125e12,
        dollars_per_hour=2.00,
    ),
    Gpu(
        name="a100-40",
        products=(
            "NVIDIA-A100-SXM4-40GB",
            "NVIDIA-A100-PCIE-40GB",
            "A100-SXM4-40GB",
            "A100-PCIE-40GB",
        ),
        memory_bytes=40960 * MIB,
        bandwidth_bytes_per_second=1555e9,
        flops_per_second=312e12,
        dollars_per_hour=2.75,
    ),
    Gpu(
        name="a100-80",
        products=("NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe", "A100-SXM4-80GB"),
        memory_bytes=81920 * MIB,
        bandwidth_bytes_per_second=2039e9,
        flops_per_second=312e12,
        dollars_per_hour=3.67,
    ),
    Gpu(
        name="h100-pcie",
        products=("NVIDIA-H100-PCIe",),
        memory_bytes=81559 * MIB,
        bandwidth_bytes_per_second=2000e9,
        flops_per_second=756e12,
        dollars_per_hour=6.98,
    ),
    Gpu(
        name="h100-nvl",
        products=("NVIDIA-H100-NVL",),
        memory_bytes=95830 * MIB,
        bandwidth_bytes_per_second=3900e9,
        flops_per_second=835e12,
        dollars_per_hour=6.98,
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
    Gpu(
        name="h200-nvl",
        products=("NVIDIA-H200-NVL",),
        memory_bytes=143771 * MIB,
        bandwidth_bytes_per_second=4800e9,
        flops_per_second=835e12,
        dollars_per_hour=9.50,
    ),
    Gpu(
        name="b200",
        products=("NVIDIA-B200",),
        memory_bytes=183359 * MIB,
        bandwidth_bytes_per_second=7700e9,
        flops_per_second=2250e12,
        dollars_per_hour=14.24,
    ),
)

GPUS = {gpu.name: gpu for gpu in _CATALOGUE}
"""Known GPUs by name, the cheapest first."""
