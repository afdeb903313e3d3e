"""Brings matrices from a model's files into the kernels' layout, one at a time.

Never more than one tensor is in memory beside those already packed.
"""

from abc import ABC, abstractmethod

import torch

from quire_engine.errors import ModelError
from quire_engine.execution.native_cpu.gguf_blocks import read_blocks
from quire_engine.models.loading.base import WeightSource
from quire_engine.models.loading.ggml_types import F32
from quire_engine.models.loading.gguf import GGUFWeights
from quire_engine.models.loading.layout import Place, find_place
from quire_engine.models.tensors import Matrix
from quire_kernels.cpu import PackedMatrix, Team, pack_gguf, pack_tensor

_BITS_WITHOUT_KERNEL = 8
"""GGUF types that no kernel multiplies by are rounded to so many bits, in groups of 32."""


class Matrices(ABC):
    """Packs the matrices of one model."""

    def __init__(self, source: WeightSource, team: Team) -> None:
        self.source = source
        self.team = team

    @abstractmethod
    def pack(self, matrix: Matrix) -> PackedMatrix:
        """Pack one matrix, with the rows of q and k in Hugging Face's order.

        Raises
        ------
        ModelError
            As `WeightSource.tensor`.
        """


class DenseMatrices(Matrices):
    """Keeps a float for each weight.

    Parameters
    ----------
    dtype
        None: bfloat16 or float16 where that keeps every value, as of files that have them; else
        float32.
    """

    def __init__(self, source: WeightSource, team: Team, dtype: torch.dtype | None) -> None:
        super().__init__(source, team)
        self._dtype = dtype

    def pack(self, matrix: Matrix) -> PackedMatrix:
        """Pack one matrix as floats."""
        weight = self.source.matrix(matrix)
        narrowed = _narrow(weight) if self._dtype is None else weight.to(self._dtype)
        if self._dtype == torch.float16 and not narrowed.isfinite().all():
            raise ModelError(
                f"{self.source.origin}: tensor {matrix.name} has values beyond float16: use "
                "bfloat16"
            )
        return pack_tensor(narrowed, self.team)


class GGUFMatrices(Matrices):
    """Keeps the 4 to 8 bits that a GGUF file has for a weight."""

    def __init__(self, source: GGUFWeights, team: Team) -> None:
        super().__init__(source, team)
        self._gguf = source

    def pack(self, matrix: Matrix) -> PackedMatrix:
        """Pack one matrix out of the mapped file."""
        place = find_place(self.source.spec, matrix.name)
        entry = self._gguf.entry(place.name)
        blocks = None
        if entry is not None and self.source.find(matrix.name) == (matrix.rows, matrix.cols):
            blocks = read_blocks(self._gguf.file, entry)
        if entry is None or blocks is None:
            return self._pack_dense(matrix, is_float=entry is not None and entry.type_id == F32)
        data, kind = blocks
        # a row is a run of whole blocks, so that rows can be taken out and change places
        chosen = _choose_rows(data.view(entry.shape[0], -1), place)
        return pack_gguf(chosen.flatten(), kind, matrix.rows, matrix.cols, self.team)

    def _pack_dense(self, matrix: Matrix, *, is_float: bool) -> PackedMatrix:
        """Pack what has no blocks for the kernels; damaged tensors are refused here."""
        weight = self.source.matrix(matrix)
        if is_float:
            return pack_tensor(_narrow(weight), self.team)
        return pack_tensor(weight, self.team, bits=_BITS_WITHOUT_KERNEL)


def open_matrices(source: WeightSource, team: Team, dtype: torch.dtype | None) -> Matrices:
    """Choose how a model's matrices are packed; `dtype` None keeps the files' bits."""
    if dtype is None and isinstance(source, GGUFWeights):
        return GGUFMatrices(source, team)
    return DenseMatrices(source, team, dtype)


def _choose_rows(rows: torch.Tensor, place: Place) -> torch.Tensor:
    return place.arrange(rows if place.rows is None else rows[place.rows])


def _narrow(weight: torch.Tensor) -> torch.Tensor:
    """Return the weights in 16 bits where one of the two types keeps them; else as they are."""
    for dtype in (torch.bfloat16, torch.float16):
        narrowed = weight.to(dtype)
        if torch.equal(narrowed.float(), weight):
            return narrowed
    return weight
