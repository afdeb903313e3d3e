"""Changes of logits that some requests ask for, before a token is chosen.

    allowed tokens ──► bad words, min_tokens ──► logit_bias ──► penalties ──► `sampler.sample`

Rows without such wishes are not kept here and cost nothing. For the others a step's changes are
gathered on the host as (place, value) pairs, all rows together, and applied by a handful of
tensor operations whose size is the number of changed logits: a penalty touches the tokens that
a text has, not the vocabulary. Works on any device; the history is the host's.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from quire_engine.execution.base import StartedRow
from quire_engine.execution.token_counts import TokenCounts

Ids = NDArray[np.int64]


class LogitRules:
    """The rules of an executor's rows, and what they have generated."""

    def __init__(self) -> None:
        self._rows: dict[int, _RowRules] = {}

    def start(self, started: StartedRow) -> None:
        """Take a row's wishes and tokens; forgets what the row was before."""
        if started.sampling.has_logit_rules:
            self._rows[started.row] = _RowRules(started)
        else:
            self._rows.pop(started.row, None)

    def concern(self, rows: Sequence[int]) -> bool:
        """Whether any of these rows has rules."""
        return bool(self._rows) and not self._rows.keys().isdisjoint(rows)

    def append(self, rows: Sequence[int], positions: Sequence[int], tokens: Sequence[int]) -> None:
        """Note the tokens that were chosen for these positions; safe to repeat."""
        if not self.concern(rows):
            return
        for row, position, token in zip(rows, positions, tokens, strict=True):
            rules = self._rows.get(row)
            if rules is not None:
                rules.put(position, token)

    def apply(
        self, logits: torch.Tensor, rows: Sequence[int], positions: Sequence[int]
    ) -> torch.Tensor:
        """Return the logits as the rules want them; those given may be changed.

        Parameters
        ----------
        logits
            [len(rows), vocab], any floating type and device.
        positions
            Position of the token to be chosen in each row.

        Returns
        -------
        torch.Tensor
            [len(rows), vocab], float32, contiguous.
        """
        changes = _Changes(logits.shape[-1])
        for index, (row, position) in enumerate(zip(rows, positions, strict=True)):
            rules = self._rows.get(row)
            if rules is not None:
                rules.collect(changes, index, position)
        logits = logits.float().contiguous()
        changes.apply(logits)
        return logits


class _Changes:
    """What one step changes, as places in the flattened logits."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._restricted: list[int] = []
        self._allowed: list[Ids] = []
        self._banned: list[Ids] = []
        self._biased: list[Ids] = []
        self._biases: list[NDArray[np.float32]] = []
        self._seen: list[Ids] = []
        self._penalties: list[NDArray[np.float32]] = []

    def allow(self, index: int, ids: Ids) -> None:
        """Let a row have these tokens only."""
        self._restricted.append(index)
        self._allowed.append(self._places(index, ids))

    def ban(self, index: int, ids: Ids) -> None:
        """Keep a row from these tokens."""
        self._banned.append(self._places(index, ids))

    def bias(self, index: int, ids: Ids, values: NDArray[np.float32]) -> None:
        """Add to a row's logits."""
        self._biased.append(self._places(index, ids))
        self._biases.append(values)

    def penalize(self, index: int, ids: Ids, factor: float, minus: NDArray[np.float32]) -> None:
        """Divide or multiply by `factor`, then take `minus`, for tokens that came before."""
        self._seen.append(self._places(index, ids))
        factors = np.full(len(ids), factor, np.float32)
        self._penalties.append(np.stack([factors, minus]))

    def apply(self, logits: torch.Tensor) -> None:
        """Change [num_rows, vocab] float32 logits in place."""
        flat, device = logits.view(-1), logits.device
        if self._restricted:
            places = torch.from_numpy(np.concatenate(self._allowed)).to(device)
            kept = flat[places]
            logits[torch.tensor(self._restricted, device=device)] = -torch.inf
            flat[places] = kept
        if self._banned:
            flat[torch.from_numpy(np.concatenate(self._banned)).to(device)] = -torch.inf
        if self._biased:
            places = torch.from_numpy(np.concatenate(self._biased)).to(device)
            flat[places] += torch.from_numpy(np.concatenate(self._biases)).to(device)
        if self._seen:
            places = torch.from_numpy(np.concatenate(self._seen)).to(device)
            factors, minus = torch.from_numpy(np.concatenate(self._penalties, axis=1)).to(device)
            values = flat[places]
            flat[places] = torch.where(values > 0, values / factors, values * factors) - minus

    def _places(self, index: int, ids: Ids) -> Ids:
        return ids + index * self._vocab_size


class _RowRules:
    """One row's wishes, as arrays, and the tokens that they look at."""

    def __init__(self, started: StartedRow) -> None:
        sampling = self._sampling = started.sampling
        self._num_prompt_tokens = started.num_prompt_tokens
        self._prompt = started.token_ids[: started.num_prompt_tokens]
        self._generated = started.token_ids[started.num_prompt_tokens :]
        self._allowed = np.unique(np.array(sampling.allowed_token_ids, np.int64))
        self._stops = np.array(sampling.stop_token_ids, np.int64)
        self._biased = np.array([token for token, _ in sampling.logit_bias], np.int64)
        self._biases = np.array([bias for _, bias in sampling.logit_bias], np.float32)
        self._counts = self._count_tokens() if sampling.has_penalties else None

    def put(self, position: int, token: int) -> None:
        """Note a chosen token; those from its position on, of a step that is repeated, go."""
        index = position - self._num_prompt_tokens
        if index < len(self._generated):
            del self._generated[index:]
            self._counts = self._count_tokens() if self._counts is not None else None
        self._generated.append(token)
        if self._counts is not None:
            self._counts.add(token)

    def collect(self, changes: _Changes, index: int, position: int) -> None:
        """Say what is to change before the token at `position` is chosen."""
        if len(self._allowed):
            changes.allow(index, self._allowed)
        banned = self._completed_words()
        if banned:
            changes.ban(index, np.array(banned, np.int64))
        if position - self._num_prompt_tokens < self._sampling.min_tokens and len(self._stops):
            changes.ban(index, self._stops)
        if len(self._biased):
            changes.bias(index, self._biased, self._biases)
        if self._counts is not None:
            self._penalize(changes, index, self._counts)

    def _completed_words(self) -> list[int]:
        """Return the tokens that would complete a bad word."""
        generated = self._generated
        return [
            word[-1]
            for word in self._sampling.bad_words
            if len(word) == 1 or tuple(generated[1 - len(word) :]) == word[:-1]
        ]

    def _penalize(self, changes: _Changes, index: int, counts: TokenCounts) -> None:
        sampling = self._sampling
        ids, times = counts.ids, counts.times
        minus = sampling.frequency_penalty * times + sampling.presence_penalty * (times > 0)
        changes.penalize(index, ids, sampling.repetition_penalty, minus.astype(np.float32))

    def _count_tokens(self) -> TokenCounts:
        """Count the tokens; those of the prompt matter to the repetition penalty alone."""
        is_repetition = self._sampling.repetition_penalty != 1.0
        return TokenCounts(self._prompt if is_repetition else [], self._generated)
