"""The border between the scheduler and whatever computes.

An executor keeps one **row** of state per running request: its token ids, its block table and
its sampling state, in buffers that persist from step to step. A `Batch` carries only what changed
since the previous step, so that its size does not grow with the context:

    started      rows that begin now: all their tokens, blocks, sampling (once per admission)
    appended     blocks added to a row's table at a given index
    revised      rows whose newest tokens and blocks are others': a beam that goes on from another
    copies       (source, destination) blocks to copy before anything is written
    chunks       what to compute: row, first position, number of tokens, whether to sample
    ended        rows that are free again; may be started anew in the same batch

A chunk's input tokens are those at positions [start, start + num_tokens) of its row. The newest
sampled token of a row is known to the executor itself, so that a decode names no token and step
k + 1 can be planned, and given to an `AheadExecutor`, while step k still runs.

KV memory is one allocation, block-major: [num_blocks, num_layers, 2, num_kv_heads, block_size,
head_dim]; a layer is seen through strides, so that a whole block moves as one copy. Block 0 is the
null block: padding is written there and nothing reads it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from quire_engine.profiles.step_time import StepTimeModel
from quire_engine.protocol.messages import ModelFacts
from quire_engine.protocol.sampling import SamplingParams, TokenLogprobs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int32]
    PooledStates = NDArray[np.float64]
    """[hidden]"""
else:  # simulated engines and virtual time load no arrays
    Ints = PooledStates = Any
Progress = Callable[[str, float], None]
"""Called with (stage, fraction of it done in [0, 1])."""


class OutputGrammar(Protocol):
    """What may come next in one output; lives as long as its request, in whatever row that is."""

    @property
    def mask(self) -> Ints:
        """[ceil(vocab / 32)]: bit i % 32 of word i // 32 says whether token i may come."""

    @property
    def is_finished(self) -> bool:
        """Whether no further token can come."""

    def go_to(self, generated: Sequence[int]) -> None:
        """Be where these tokens lead, all that were generated so far."""

    def go_back(self, count: int) -> None:
        """Be where the first so many generated tokens led."""

    def advance(self, token_id: int) -> bool:
        """Take the next token; the answer is no if it is none that may come."""


@dataclass(slots=True)
class StartedRow:
    """A request enters the batch, or comes back after a preemption."""

    row: int
    token_ids: list[int]
    """All known tokens, prompt first; the executor takes a copy."""
    block_ids: list[int]
    """The row's whole block table; blocks of a prefix hit come first."""
    sampling: SamplingParams
    num_prompt_tokens: int
    seed: int
    """Keys the random numbers together with the position of the token being chosen."""
    grammar: OutputGrammar | None = None
    """What the output has to look like."""


@dataclass(slots=True)
class AppendedBlocks:
    """Blocks added to a row's table from `index` on."""

    row: int
    index: int
    block_ids: list[int]


@dataclass(slots=True)
class RevisedRow:
    """A row goes on from other tokens than it had: those of another beam, and one chosen for it.

    It says nothing of what both have in common.
    """

    row: int
    first_token: int
    """Position from which on the row's known tokens are those given here, and no more."""
    token_ids: list[int]
    first_block: int
    """Index from which on the row's table has the blocks given here; as long as it was."""
    block_ids: list[int]


@dataclass(slots=True)
class Chunks:
    """Structure of arrays, one entry per scheduled request; decodes come first."""

    rows: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """Position of each chunk's first token: the number of tokens already in the cache."""
    num_tokens: list[int] = field(default_factory=list)
    samples: list[bool] = field(default_factory=list)
    """Whether the chunk ends at the row's newest token, so that a token is sampled."""
    num_decodes: int = 0
    """The first so many entries are decodes: one token each, and they sample."""

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, indices: Sequence[int]) -> "Chunks":
        """Return some of them, by rising index."""
        return Chunks(
            rows=[self.rows[index] for index in indices],
            starts=[self.starts[index] for index in indices],
            num_tokens=[self.num_tokens[index] for index in indices],
            samples=[self.samples[index] for index in indices],
            num_decodes=sum(index < self.num_decodes for index in indices),
        )


@dataclass(slots=True)
class Batch:
    """One step's work; see the module's text."""

    started: list[StartedRow] = field(default_factory=list)
    appended: list[AppendedBlocks] = field(default_factory=list)
    revised: list[RevisedRow] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    chunks: Chunks = field(default_factory=Chunks)
    total_tokens: int = 0
    """Sum of `chunks.num_tokens`."""
    num_steps: int = 1
    """More than one only in virtual time: a batch of decodes alone, to be run so many times."""


@dataclass(slots=True)
class StepResult:
    """What a step computed."""

    token_ids: list[int]
    """One sampled token for each chunk with `samples`, in the order of the chunks; of a batch of
    several steps, all tokens of the first step, then all of the second, and so on."""
    logprobs: list[TokenLogprobs | None] | None = None
    """The scores of these tokens, None for those of rows without `sampling.num_logprobs`; None as
    a whole if no row wants any."""
    prompt_logprobs: dict[int, list[TokenLogprobs]] | None = None
    """By row: scores of the prompt's tokens that follow the positions computed in this step, for
    rows with `sampling.num_prompt_logprobs` that started with their prompt alone."""
    not_finite: tuple[int, ...] = ()
    """Indices into `token_ids` whose logits were not numbers, or infinite, or all of them -inf
    once a grammar was heeded: no token was chosen, and what stands there means nothing."""
    pooled: dict[int, PooledStates] | None = None
    """By row, for rows with `sampling.pooling`: the sum of the final hidden states of the positions
    computed in this step, or the one of the prompt's last position. What stands for their tokens in
    `token_ids` means nothing."""
    seconds: float | None = None
    """By the device's own clock, from when it had the step and had ended the one before; None where
    the caller's clock says as much. Of steps that overlap it does not: the host, busy with the next
    one, may see late that a step has ended."""


class Executor(ABC):
    """Computes batches. One thread calls it; `load` first, then `allocate_cache`, then `run`."""

    step_time: StepTimeModel | None = None
    """Predicts a step's seconds, where that is known."""
    padded_tokens: tuple[int, ...] = ()
    """What steps with prompts are padded to, once the cache is allocated: see `StepTimeModel`."""

    @abstractmethod
    def load(self, progress: Progress) -> None:
        """Bring the weights into memory.

        Raises
        ------
        ModelError
            The files are damaged or ask for what is not supported.
        """

    @abstractmethod
    def allocate_cache(self) -> ModelFacts:
        """Allocate the KV memory and say what the engine can hold.

        Raises
        ------
        CapacityError
            Not even one request of the model's length fits.
        """

    @abstractmethod
    def run(self, batch: Batch) -> StepResult:
        """Compute one batch.

        An exception leaves everything as if the batch had not come: it may run again, whole or in
        parts (`execution.parts`), or what it would have changed never happens.
        """

    def probe(self) -> None:  # noqa: B027 - most executors cannot be lost
        """Raise if nothing can be computed any more: asked after a step that failed altogether."""

    def describe(self) -> str:
        """Say in a few words what computes, for people who watch."""
        return type(self).__name__

    def count_graphs(self) -> tuple[int, int]:
        """How many decode steps ran as a captured graph, and how many did not, so far."""
        return 0, 0

    @abstractmethod
    def close(self) -> None:
        """Release device memory; safe to call twice."""


class AheadExecutor(Executor):
    """Takes the next step while it computes one.

    Steps are computed in the order they came in, each as if it began when the one before it ended.
    At most two are submitted and not collected.
    """

    @abstractmethod
    def submit(self, batch: Batch) -> None:
        """Take a step, and return without waiting for it where nothing in it needs the host.

        An exception leaves everything as if the batch had not come; the step before it goes on.
        """

    @abstractmethod
    def collect(self) -> StepResult:
        """Wait for the oldest step and return what it computed.

        An exception leaves everything as if the step had not come, unless another was submitted
        behind it: then nothing more can be computed.
        """

    def run(self, batch: Batch) -> StepResult:
        """Compute one batch while no other is in flight; see `Executor.run`."""
        self.submit(batch)
        return self.collect()
