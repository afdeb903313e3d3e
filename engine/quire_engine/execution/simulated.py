"""An executor that computes nothing: it takes the time a GPU would and makes up the tokens.

For clusters without GPUs, for tests of everything around the model, and for virtual time. A
token depends only on the prompt, the request's own seed and its position: the same request is
answered alike whatever else is in the batch. Tokens are ids 0 to 255 read as bytes, so that a
byte-level tokenizer shows English words; no end token is ever made up, and every request runs to
its max_tokens unless one of these letters is among its stop tokens. Penalties, biases and the like
are taken and change nothing; scores are made up where they are asked for, and a grammar is obeyed.
"""

from array import array
from collections.abc import Sequence
from zlib import crc32

from quire_engine.config import EngineConfig
from quire_engine.errors import CapacityError
from quire_engine.execution.base import Batch, Executor, Progress, StartedRow, StepResult
from quire_engine.execution.clocks import Clock, RealClock
from quire_engine.execution.contract import BatchChecker
from quire_engine.execution.simulated_grammars import SimulatedGrammars
from quire_engine.execution.simulated_scores import SimulatedScores
from quire_engine.execution.simulation_target import SimulationTarget, find_target
from quire_engine.profiles.step_time import StepTimeModel, count_pairs
from quire_engine.protocol.messages import ModelFacts

_WORDS = (
    "account address balance because between billion brought cabinet central century "
    "chapter charter citizen classic climate comfort concept council country courage "
    "culture current decimal deliver density desktop digital distant drawing eastern "
    "economy edition element evening evident example explain factory federal finance "
    "foreign forward freedom gallery general gravity harvest history horizon imagine "
    "journal justice kitchen library machine measure monitor natural network observe "
    "organic package pattern perfect"
)
"""64 words of seven letters."""
WORD_SHIFT = 3
"""A word with its space is 1 << WORD_SHIFT letters."""
_LETTERS_OF_A_WORD = (1 << WORD_SHIFT) - 1
_NUM_WORDS_SHIFT = 6
TEXT = f"{_WORDS} ".encode()
"""All words that are ever generated, one after the other."""


class SimulatedExecutor(Executor):
    """Takes the time of `executor.simulate` for each batch; free of torch.

    Parameters
    ----------
    config
        `executor.simulate` and `executor.model_shape` name the GPU and the model, or the former a
        file that `quire profile` wrote of both;
        `executor.simulated_step_seconds` overrides the GPU's time, and with 0 no clock is read.
    clock
        Where time passes: the machine's clock by default, or a `VirtualClock`.
    check
        Hold every batch against the executor's contract; costs some 0.4 ms at 256 decodes.
    target
        What to simulate, in place of what `config` names.

    Raises
    ------
    ConfigError
        The GPU, shape or file is unknown or missing, or max_model_len exceeds the model's.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        clock: Clock | None = None,
        check: bool = False,
        target: SimulationTarget | None = None,
    ) -> None:
        self._config = config
        self._target = target or find_target(config)
        self._clock = clock or RealClock()
        self._is_checked = check
        self._checker: BatchChecker | None = None
        self.step_time: StepTimeModel = self._target.step_time
        """How long each step takes."""
        self._takes_time = config.executor.simulated_step_seconds != 0
        num_rows = config.scheduler.max_num_seqs
        self._keys = [0] * num_rows
        self._num_prompt_tokens = [0] * num_rows
        self._scores = SimulatedScores()
        self._grammars = SimulatedGrammars()

    def load(self, progress: Progress) -> None:
        """Nothing to load."""
        progress(f"simulating {self._target.model} on {self._target.device}", 1.0)

    def allocate_cache(self) -> ModelFacts:
        """Say what would fit the GPU, or what `cache.max_num_blocks` says."""
        cache = self._config.cache
        max_model_len = self._config.model.max_model_len or self._target.max_model_len
        num_blocks = cache.max_num_blocks or self._target.count_blocks()
        if num_blocks * cache.block_size < max_model_len:
            raise CapacityError(
                f"one request of max_model_len {max_model_len} tokens needs "
                f"{-(-max_model_len // cache.block_size)} KV blocks and {num_blocks} fit: lower "
                f"max_model_len to {num_blocks * cache.block_size}, or give the cache more memory"
            )
        if self._is_checked:
            self._checker = BatchChecker(
                num_rows=self._config.scheduler.max_num_seqs,
                num_blocks=num_blocks,
                block_size=cache.block_size,
            )
        return ModelFacts(
            max_model_len=max_model_len,
            vocab_size=self._target.vocab_size,
            num_blocks=num_blocks,
            block_size=cache.block_size,
        )

    def run(self, batch: Batch) -> StepResult:
        """Make up the batch's tokens and let its time pass.

        Raises
        ------
        RuntimeError
            With `check`: the batch breaks the contract.
        """
        started_at = self._clock.now() if self._takes_time else 0.0
        if self._checker is not None:
            self._checker.check(batch)
        for started in batch.started:
            self._keys[started.row] = _row_key(started)
            self._num_prompt_tokens[started.row] = started.num_prompt_tokens
            self._scores.start(started)
            self._grammars.start(started)
        token_ids = self._make_tokens(batch)
        impossible = self._grammars.obey(batch.chunks, token_ids)
        if self._checker is not None:
            self._checker.take_sampled(batch, token_ids)
        if self._takes_time and batch.total_tokens:
            self._clock.sleep_until(started_at + predict_batch(self.step_time, batch))
        chunks = batch.chunks
        return StepResult(
            token_ids,
            self._scores.of_tokens(chunks, token_ids),
            self._scores.of_prompts(chunks),
            not_finite=impossible,
        )

    def describe(self) -> str:
        """Name the GPU whose time is taken."""
        return f"simulated {self._target.device}"

    def close(self) -> None:
        """Nothing to release."""

    def _make_tokens(self, batch: Batch) -> list[int]:
        keys, num_prompt_tokens = self._keys, self._num_prompt_tokens
        chunks = batch.chunks
        return [
            make_token(keys[row], start + count - num_prompt_tokens[row])
            for row, start, count, samples in zip(
                chunks.rows, chunks.starts, chunks.num_tokens, chunks.samples, strict=True
            )
            if samples
        ]


def make_token(key: int, index: int) -> int:
    """The letter at `index` of the output that belongs to `key`, as a byte."""
    # multiplicative hashing (Knuth): the product's upper bits depend on all of the lower ones
    mixed = (key ^ (index >> WORD_SHIFT) * 0x85EBCA6B) * 0x9E3779B1 & 0xFFFFFFFF
    word = mixed >> (32 - _NUM_WORDS_SHIFT)
    return TEXT[(word << WORD_SHIFT) | (index & _LETTERS_OF_A_WORD)]


def predict_batch(model: StepTimeModel, batch: Batch) -> float:
    """Seconds that `model` gives a batch."""
    chunks = batch.chunks
    num_decodes = chunks.num_decodes
    pairs = sum(map(count_pairs, chunks.starts[num_decodes:], chunks.num_tokens[num_decodes:]))
    context_tokens = sum(chunks.starts[:num_decodes]) + num_decodes
    return model.predict(num_decodes, context_tokens, batch.total_tokens - num_decodes, pairs)


def _row_key(started: StartedRow) -> int:
    """32 bits from the prompt and, where the request brought one, its seed."""
    prompt: Sequence[int] = started.token_ids[: started.num_prompt_tokens]
    seed = started.sampling.seed or 0
    return crc32(array("I", prompt).tobytes(), seed & 0xFFFFFFFF)
