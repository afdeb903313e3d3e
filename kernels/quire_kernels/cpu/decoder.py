"""Runs a decoder: token ids and block tables in, logits out, one C call a step."""

from __future__ import annotations

import weakref
from ctypes import byref
from dataclasses import dataclass, replace

import torch

from quire_kernels.cpu.cache import describe_cache
from quire_kernels.cpu.layout import CBatch
from quire_kernels.cpu.library import Team
from quire_kernels.cpu.weights import DecoderShape, DecoderWeights, describe
from quire_kernels.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What one step computes: chunks of consecutive tokens, each of one sequence.

    All tensors are on the CPU and contiguous.
    """

    rows: torch.Tensor
    """[num_chunks], int32: each chunk's row of `block_tables`."""
    starts: torch.Tensor
    """[num_chunks], int32: position of each chunk's first token."""
    num_tokens: torch.Tensor
    """[num_chunks], int32, at least 1."""
    samples: torch.Tensor
    """[num_chunks], bool: whether logits of the chunk's last token are wanted."""
    token_ids: torch.Tensor
    """[sum of num_tokens], int32, one chunk after another."""
    block_tables: torch.Tensor
    """[num_rows, max_blocks], int32; entries beyond a sequence's tokens are not read."""

    def check(self) -> None:
        """Raise ArgumentError unless shapes and dtypes are as documented."""
        chunks = self.rows.numel()
        lengths = {"rows": chunks, "starts": chunks, "num_tokens": chunks, "samples": chunks}
        lengths["token_ids"] = int(self.num_tokens.sum())
        for name, length in lengths.items():
            tensor: torch.Tensor = getattr(self, name)
            dtype = torch.bool if name == "samples" else torch.int32
            if tensor.dtype != dtype or tuple(tensor.shape) != (length,):
                raise ArgumentError(
                    f"{name}: {tuple(tensor.shape)} of {tensor.dtype}, expected ({length},) of "
                    f"{dtype}"
                )
        tables = self.block_tables
        if tables.dtype != torch.int32 or tables.dim() != 2 or not tables.is_contiguous():
            raise ArgumentError(
                "block_tables: expected [num_rows, max_blocks] of int32, contiguous"
            )

    def descriptor(self) -> CBatch:
        """Return the C struct, without outputs; valid as long as this object lives."""
        return CBatch(
            num_chunks=self.rows.numel(),
            rows=self.rows.data_ptr(),
            starts=self.starts.data_ptr(),
            num_tokens=self.num_tokens.data_ptr(),
            samples=self.samples.data_ptr(),
            token_ids=self.token_ids.data_ptr(),
            block_tables=self.block_tables.data_ptr(),
            block_table_stride=self.block_tables.shape[1],
        )


class Decoder:
    """A decoder over a paged KV cache.

    Parameters
    ----------
    shape, weights
        What to compute; the weights are kept alive.
    team
        Threads to compute with; its use ends with each call.

    Raises
    ------
    ArgumentError
        Sizes of shape and weights do not agree.

    Examples
    --------
    >>> decoder = Decoder(shape, weights, Team(2))          # doctest: +SKIP
    >>> logits = decoder.step(inputs, kv_cache)             # doctest: +SKIP
    """

    def __init__(self, shape: DecoderShape, weights: DecoderWeights, team: Team) -> None:
        self._model = describe(shape, weights)
        self._team = team
        self._workspace: int = team.library.quire_workspace_create()
        self._finalizer = weakref.finalize(
            self, team.library.quire_workspace_destroy, self._workspace
        )
        self._cache_shape = (len(weights.layers), 2, shape.num_kv_heads, None, shape.head_dim)

    def step(self, inputs: StepInputs, kv_cache: torch.Tensor) -> torch.Tensor:
        """Run all layers over the chunks; keys and values of their tokens go into the cache.

        Parameters
        ----------
        inputs
            The chunks. Ids and block numbers are not checked: a wrong one reads foreign memory.
        kv_cache
            [num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim], float32, float16 or
            bfloat16, contiguous.

        Returns
        -------
        torch.Tensor
            [number of chunks that sample, vocab], float32: logits of each chunk's last token.
        """
        count = int(inputs.samples.sum())
        logits = torch.empty(count, self._model.struct.vocab)
        self._run(inputs, kv_cache, logits=logits)
        return logits

    def greedy_step(self, inputs: StepInputs, kv_cache: torch.Tensor) -> torch.Tensor:
        """Like `step`, but return the greatest logit's index: [chunks that sample], int32.

        -1 stands for logits with a NaN, or whose greatest is infinite.
        """
        token_ids = torch.empty(int(inputs.samples.sum()), dtype=torch.int32)
        self._run(inputs, kv_cache, argmax=token_ids)
        return token_ids

    def hidden_states(self, inputs: StepInputs, kv_cache: torch.Tensor) -> torch.Tensor:
        """Like `step`, but return every token's final hidden state, and no logits.

        Returns
        -------
        torch.Tensor
            [sum of num_tokens, hidden], float32, after the final norm. `samples` is not heeded.
        """
        states = torch.empty(inputs.token_ids.numel(), self._model.struct.hidden)
        unsampled = replace(inputs, samples=torch.zeros_like(inputs.samples))
        self._run(unsampled, kv_cache, states=states)
        return states

    def _run(
        self,
        inputs: StepInputs,
        kv_cache: torch.Tensor,
        *,
        logits: torch.Tensor | None = None,
        argmax: torch.Tensor | None = None,
        states: torch.Tensor | None = None,
    ) -> None:
        inputs.check()
        cache = describe_cache(kv_cache, self._cache_shape)
        batch = inputs.descriptor()
        batch.logits = None if logits is None else logits.data_ptr()
        batch.argmax = None if argmax is None else argmax.data_ptr()
        batch.states = None if states is None else states.data_ptr()
        self._team.library.quire_decode_step(
            self._team.handle,
            self._workspace,
            byref(self._model.struct),
            byref(cache),
            byref(batch),
        )
