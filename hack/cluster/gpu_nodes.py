"""The GPUs that nodes say they have: which node has what, in labels and numbers.

The labels are those that NVIDIA's GPU feature discovery writes; kind's nodes have them, too.
"""

from dataclasses import dataclass

RESOURCE = "nvidia.com/gpu"
GPUS_PER_NODE = 2


@dataclass(frozen=True)
class GpuModel:
    """A kind of GPU as its labels show it."""

    product: str
    memory_mib: int

    def labels(self) -> dict[str, str]:
        """What the node's labels are."""
        return {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": self.product,
            "nvidia.com/gpu.memory": str(self.memory_mib),
            "nvidia.com/gpu.count": str(GPUS_PER_NODE),
        }


MODELS = (
    GpuModel("NVIDIA-H100-80GB-HBM3", 81559),
    GpuModel("NVIDIA-A100-SXM4-80GB", 81920),
    GpuModel("NVIDIA-L4", 23034),
)


def model_of(index: int) -> GpuModel:
    """The GPUs of the node with this number, counted from 1: neighbours differ."""
    return MODELS[(index - 1) % len(MODELS)]
