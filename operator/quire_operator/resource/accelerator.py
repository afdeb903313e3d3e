"""A type of GPU that a service may run on, and how much of it."""

from typing import Annotated

from msgspec import Meta

from quire_operator.resource.base import Part
from quire_operator.resource.kinds import (
    Count,
    Duration,
    GpuName,
    Money,
    Product,
    ShapeName,
    ShortName,
)
from quire_operator.resource.pod import PodOverrides
from quire_operator.resource.rules import ORDERED_REPLICAS, Rule

WITHOUT_GPU = ("cpu", "simulated")
"""Accelerators that need no GPU: real models on CPUs, and the simulated executor."""


class Simulation(Part, frozen=True, kw_only=True):
    """Engines that compute nothing, and take the time that a real one would."""

    gpu: GpuName
    """Which GPU's speed and memory, by quire's name of it: l4, a100-80, h100, ..."""
    model_shape: ShapeName
    """Which model's size, such as llama3-8b."""


class Accelerator(Part, frozen=True, kw_only=True):
    """One type of GPU, with its engine pods."""

    rules = (
        ORDERED_REPLICAS,
        Rule(
            "self.name in ['cpu', 'simulated'] || (has(self.products) && size(self.products) > 0)",
            "products is needed: values of the node label nvidia.com/gpu.product that are this"
            " accelerator; only those named cpu and simulated need none",
        ),
        Rule(
            "!(self.name in ['cpu', 'simulated'])"
            " || !has(self.products) || size(self.products) == 0",
            "accelerators named cpu and simulated have no products: remove them, or choose"
            " another name",
            ".products",
        ),
        Rule(
            "self.name != 'simulated' || has(self.simulate)",
            "the accelerator named simulated needs simulate: which GPU and which model's size",
        ),
        Rule(
            "self.name != 'cpu' || !has(self.simulate)",
            "the accelerator named cpu computes: call one that only simulates simulated",
            ".simulate",
        ),
    )

    name: ShortName
    """Its name in this service. cpu runs real models on CPUs, simulated runs the simulated
    executor; both need no GPU."""
    products: Annotated[
        tuple[Product, ...],
        Meta(max_length=16, extra_json_schema={"x-kubernetes-list-type": "set"}),
    ] = ()
    """Values of the node label nvidia.com/gpu.product that are this type."""
    count: Annotated[int, Meta(ge=1, le=16)] = 1
    """GPUs of each engine pod; an engine computes on one."""
    cost_per_hour: Money | None = None
    """Price of one replica an hour; default: quire's catalogue."""
    min_replicas: Count = 0
    """Replicas that always run on this type."""
    max_replicas: Count = 10
    """Most replicas on this type."""
    provision_timeout: Duration = "3m"
    """How long a replica may wait for a node before the next cheapest type is taken."""
    simulate: Simulation | None = None
    """Run the simulated executor there: for tests of a cluster without a model. GPUs are still
    asked for, unless the accelerator is named simulated."""
    pod: PodOverrides = PodOverrides()
    """Changes to the pods."""
