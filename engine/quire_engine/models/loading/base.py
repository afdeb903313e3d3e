"""What a decoder asks of a model's files, whatever their format."""

from abc import ABC, abstractmethod

import torch

from quire_engine.errors import ModelError
from quire_engine.models.config import ModelSpec
from quire_engine.models.loading.layout import find_place
from quire_engine.models.tensors import Matrix, Vector


class WeightSource(ABC):
    """Hands out a model's tensors by the names that Hugging Face gives Llama's."""

    def __init__(self, spec: ModelSpec, origin: str) -> None:
        self.spec = spec
        self.origin = origin
        """The file or folder, for messages."""

    def tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Return one tensor as float32 on the CPU, in memory of its own or mapped read-only.

        Raises
        ------
        ModelError
            As `stored_tensor`, or it has values that are not finite: those would spoil what other
            requests read.
        """
        tensor = self.stored_tensor(name, shape).float()
        # the extremes are NaN or infinite as soon as one value is, and are found twenty times
        # sooner than a mask of all values is made
        if not torch.stack(torch.aminmax(tensor)).isfinite().all():
            raise self.not_finite(name)
        return tensor

    def stored_tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Return one tensor in the files' type, or in float32; nobody has looked at its values.

        Raises
        ------
        ModelError
            The tensor is missing, cut short, of another shape or of a type that is not supported.
        """
        found = self.find(name)
        if found is None:
            raise ModelError(f"{self.origin}: tensor {name} is missing")
        if found != shape:
            raise ModelError(
                f"{self.origin}: tensor {name} has shape {found}, but the model's sizes ask for "
                f"{shape}"
            )
        return self.read(name)

    def not_finite(self, name: str) -> ModelError:
        """What to raise where a tensor has such values."""
        return ModelError(f"{self.origin}: tensor {name} has values that are not finite numbers")

    def matrix(self, matrix: Matrix) -> torch.Tensor:
        """Return a matrix: [rows, cols], float32; raises as `tensor`."""
        return self.tensor(matrix.name, (matrix.rows, matrix.cols))

    def vector(self, vector: Vector) -> torch.Tensor:
        """Return a norm's weight or a bias: [size], float32, memory of its own."""
        return self.tensor(vector.name, (vector.size,)) + vector.offset

    def find(self, name: str) -> tuple[int, ...] | None:
        """Return a tensor's shape, or None where the model has no such tensor."""
        place = find_place(self.spec, name)
        shape = self.stored_shape(place.name)
        if shape is None or place.rows is None or shape[0] != place.num_stored_rows:
            return shape
        return (place.rows.stop - place.rows.start, *shape[1:])

    def read(self, name: str) -> torch.Tensor:
        """Return a tensor that `find` found, rows of query and key in our order."""
        place = find_place(self.spec, name)
        return place.arrange(self.read_stored(place.name, place.rows))

    @abstractmethod
    def stored_shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor as it is in the files, or None."""

    @abstractmethod
    def read_stored(self, name: str, rows: slice | None) -> torch.Tensor:
        """Return a tensor, or some of its rows, as they are in the files, or as float32."""
