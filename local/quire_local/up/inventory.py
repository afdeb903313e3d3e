"""The GPUs that a run has: those that --simulate stands for. Real ones are for clusters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from quire_engine.errors import ConfigError
from quire_engine.profiles.gpus import GPUS, Gpu, find_gpu
from quire_operator.planner.observed import Node
from quire_operator.scaling.inputs import GpuStock

_MOST = 64
"""Each busy GPU is two processes of this machine."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What an engine needs."""

    products: tuple[str, ...]
    """Any of these GPUs; none: no GPU."""
    count: int


class Inventory:
    """GPUs by type, each of them on a node of its own name."""

    def __init__(self, num_gpus: Mapping[str, int], now: datetime) -> None:
        self._num_gpus = {find_gpu(name): num for name, num in num_gpus.items()}
        self._since = now

    def nodes(self) -> tuple[Node, ...]:
        """As the planner sees them."""
        return tuple(
            Node(
                name=_node_of(gpu),
                product=gpu.products[0],
                num_gpus=num,
                is_ready=True,
                created_at=self._since,
            )
            for gpu, num in self._num_gpus.items()
        )

    def stock(self, num_needed: Mapping[str, int]) -> tuple[GpuStock, ...]:
        """As scaling counts them, by the names of GPUs: nothing ever brings more.

        Parameters
        ----------
        num_needed
            GPUs by name that services cannot do without. Where these are too few, scaling is not
            told that there are no more: what waits for one says so, and what to do.
        """
        return tuple(
            GpuStock(product=gpu.name, num_gpus=num, is_final=num_needed.get(gpu.name, 0) <= num)
            for gpu, num in self._num_gpus.items()
        )

    def names_of(self, products: tuple[str, ...]) -> tuple[str, ...]:
        """Names of the GPUs that are meant and are there; if none is, the products as they are."""
        able = self._able(Claim(products=products, count=1))
        return tuple(sorted(gpu.name for gpu in able)) or products

    def find(self, claim: Claim, taken: Iterable[tuple[str, int]]) -> str | None:
        """Return the node that has room; None if there is none.

        Parameters
        ----------
        taken
            Node and GPUs of every engine that has not ended.
        """
        used: dict[str, int] = {}
        for node, num in taken:
            used[node] = used.get(node, 0) + num
        for gpu in self._able(claim):
            node = _node_of(gpu)
            if self._num_gpus[gpu] - used.get(node, 0) >= claim.count:
                return node
        return None

    def could_ever(self, claim: Claim) -> bool:
        """Whether there are enough GPUs when nobody else has any."""
        return any(self._num_gpus[gpu] >= claim.count for gpu in self._able(claim))

    def explain(self, claim: Claim) -> str:
        """Why there is no room, and what to do."""
        able = list(self._able(claim))
        if able:
            there = " and ".join(f"{self._num_gpus[gpu]} {gpu.name}" for gpu in able)
            need = f"{claim.count} more" if claim.count > 1 else "one more"
            return f"{there} there, and {need} needed: raise --simulate {able[0].name}=N"
        name = _name_of(claim.products)
        hint = f"--simulate {name}=N stands in for them" if name else "quire knows no such GPU"
        return f"this machine has none: {hint}"

    def _able(self, claim: Claim) -> list[Gpu]:
        wanted = {product.lower() for product in claim.products}
        return [gpu for gpu in self._num_gpus if wanted & {one.lower() for one in gpu.products}]


def parse_inventory(text: str) -> dict[str, int]:
    """Read what --simulate says, such as l4=2,h100=1.

    Raises
    ------
    ConfigError
        It is malformed, or names a GPU that is not known.
    """
    found: dict[str, int] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, number = part.partition("=")
        gpu = find_gpu(name.strip()).name
        if not number.strip().isdigit() or not 1 <= int(number) <= _MOST:
            raise ConfigError(f"--simulate {part}: say how many, 1 to {_MOST}: {gpu}=2")
        if gpu in found:
            raise ConfigError(f"--simulate has {gpu} twice")
        found[gpu] = int(number)
    if not found:
        raise ConfigError(f"--simulate is empty: say l4=2,h100=1; there are {', '.join(GPUS)}")
    return found


def gpu_of(node: str) -> str | None:
    """Name of the GPU that a node has."""
    return node.removeprefix("simulated-") if node.startswith("simulated-") else None


def _node_of(gpu: Gpu) -> str:
    return f"simulated-{gpu.name}"


def _name_of(products: Iterable[str]) -> str | None:
    for product in products:
        try:
            return find_gpu(product).name
        except ConfigError:
            continue
    return None
